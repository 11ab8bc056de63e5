import csv
import io
import json

import pytest

from glue_bench.errors import UserError
from glue_bench.reporting.export import render, write_tables
from glue_bench.reporting.formats import FORMATS
from glue_bench.reporting.notes import BANNER

TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")


def rows_of(markdown: str) -> dict[str, dict[str, str]]:
    """Arm -> header -> cell, of its block: the first table that has it."""
    found: dict[str, dict[str, str]] = {}
    header: list[str] = []
    for line in markdown.splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header and not set(line) <= set("|-: "):
            found.setdefault(cells[0], dict(zip(header, cells, strict=True)))
        header = header or cells
    return found


def fill(bench, source="tsv"):
    """Two arms of two origins, all tasks, two seeds; one cell of the second arm is missing."""
    for arm, origin, base in (("add", "pretrained", 0.5), ("cat", "grafted", 0.6)):
        for task in TASKS:
            for seed in (1, 2):
                where = {"arm": arm, "origin": origin}
                if (arm, task, seed) == ("cat", "rte", 2):
                    bench.expect(task, seed, **where)
                else:
                    bench.finish(task, seed, base + 0.0123 * seed, source=source, **where)
    return bench.plan()


def test_a_cell_shows_mean_deviation_and_seeds(bench):
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed, value)
    bench.finish("cola", 1, 0.6101)
    bench.finish("qnli", 1, -0.00001)
    bench.finish("wnli", 1, 0.5)
    bench.expect("wnli", 2)
    bench.expect("sst2", 1)
    row = rows_of(render(bench.plan()))["add"]
    assert row["RTE (accuracy)"] == "63.00 ± 3.61 (3)"
    assert row["CoLA (Matthews)"] == "61.01 (1)"
    assert row["QNLI (accuracy)"] == "0.00 (1)"  # never -0.00
    assert row["WNLI (accuracy)"] == "50.00 (1 of 2)"
    assert row["SST-2 (accuracy)"] == "–"  # noqa: RUF001
    assert "2 of 8 planned cells are missing" in render(bench.path)


def test_each_origin_has_a_block_of_its_own(bench):
    text = render(fill(bench))
    pretrained, grafted = text.split("## Grafted")
    assert "# Leaderboard: toy" in pretrained
    assert "## Pretrained" in pretrained
    assert "| add" in pretrained
    assert "| cat" not in pretrained
    assert "| cat" in grafted
    assert "only converted" in grafted


def test_headers_name_task_and_metric(bench):
    header = list(rows_of(render(fill(bench)))["add"])
    assert header == [
        "Arm", "Parameters", "CoLA (Matthews)", "SST-2 (accuracy)", "MRPC (accuracy)", "STS-B (Pearson)",
        "QQP (accuracy)", "MNLI-m (accuracy)", "MNLI-mm (accuracy)", "QNLI (accuracy)", "RTE (accuracy)",
        "WNLI (accuracy)", "Average (official, nine tasks)", "Average (nine columns, no WNLI)",
    ]  # fmt: skip


def test_columns_are_aligned(bench):
    lines = [line for line in render(fill(bench)).split("## Grafted")[0].splitlines() if line.startswith("|")]
    assert len({tuple(i for i, c in enumerate(line) if c == "|") for line in lines}) == 1


def test_the_best_of_a_column_within_its_block_is_bold(bench):
    bench.finish("rte", 1, 0.6, arm="a")
    bench.finish("rte", 1, 0.60001, arm="b")
    bench.finish("rte", 1, 0.5, arm="c")
    bench.finish("rte", 1, 0.9, arm="alone", origin="grafted")
    rows = rows_of(render(bench.plan()))
    shown = {arm: row["RTE (accuracy)"] for arm, row in rows.items()}
    assert shown == {"a": "**60.00**", "b": "**60.00**", "c": "50.00", "alone": "90.00"}


def test_demo_data_is_announced(bench, new_bench):
    assert BANNER in render(fill(bench, source="demo"))
    assert BANNER not in render(fill(new_bench("real")))


def test_partial_tasks_and_averages_are_marked(bench):
    for task in TASKS:
        bench.finish(task, 1, partial=task == "rte")
    text = render(bench.plan())
    header = rows_of(text)["add"]
    assert {"RTE (accuracy) †", "CoLA (Matthews)", "Average (official, nine tasks) †"} <= set(header)
    assert "† partial data: not comparable with published scores" in text
    assert json.loads(render(bench.path, "json"))["partial_tasks"] == ["rte"]
    assert next(csv.DictReader(io.StringIO(render(bench.path, "csv"))))["partial_tasks"] == "rte"


def test_collapsed_runs_are_marked_and_counted(bench):
    bench.finish("cola", 1, 0.0, collapsed=["validation"])
    bench.finish("cola", 2, 0.5)
    text = render(bench.plan())
    assert rows_of(text)["add"]["CoLA (Matthews)"].endswith(" ‡")
    assert "count in the mean: add CoLA 1 of 2." in text


def test_a_clean_run_has_no_marks_and_no_warnings(bench):
    for task in TASKS:
        bench.finish(task, 1)
    text = render(bench.plan())
    for word in ("†", "‡", "missing", "left out", "Undefined", "Rate chosen", "not shown"):
        assert word not in text


def test_undefined_scores_are_called_out(bench):
    bench.finish("stsb", 1, None)
    text = render(bench.plan())
    assert rows_of(text)["add"]["STS-B (Pearson)"] == "–"  # noqa: RUF001
    assert "mean missing: 2." in text


def test_the_rate_rule_is_declared_only_where_there_was_a_choice(bench):
    bench.finish("rte", 1, rate=2e-5)
    assert "Protocol: mean over seeds; after the last epoch; one learning rate." in render(bench.plan())
    bench.finish("rte", 1, rate=3e-5)
    rule = "for each arm and task the learning rate of the best mean, chosen on the validation set that is reported"
    assert rule in render(bench.plan())


def test_left_out_records_are_counted(bench):
    bench.finish("rte", 1)
    bench.record({**bench.cells[0], "cell_id": "stale"})
    assert "left out: 1." in render(bench.plan())


def test_an_average_that_the_experiment_cannot_have_is_explained(bench):
    for task in TASKS:
        if task != "wnli":
            bench.finish(task, 1)
    text = render(bench.plan())
    assert "Average (official, nine tasks)" not in rows_of(text)["add"]
    assert "Average (official, nine tasks): not shown, the experiment has no WNLI." in text


def test_csv_and_json_say_what_the_data_is_and_what_is_missing(bench):
    path = fill(bench)
    document = json.loads(render(path, "json"))
    table = {row["arm"]: row for row in csv.DictReader(io.StringIO(render(path, "csv")))}
    assert [row["arm"] for row in document["rows"]] == list(table)
    assert document["rows"][1]["rte_std"] is None
    assert table["cat"]["rte_std"] == ""
    assert (document["experiment"], document["data_source"], table["cat"]["data_source"]) == ("toy", "tsv", "tsv")


def test_bytes_depend_only_on_plan_and_scores(bench, new_bench):
    fill(bench)
    other = new_bench("other")
    other.cells, other.arms = bench.cells, bench.arms
    for cell in reversed(bench.cells):
        text = bench.path / "records" / f"{cell['cell_id']}.json"
        if text.exists():
            value = json.loads(text.read_text())["scores"]
            other.record(cell, value, seconds=99.0)
    other.plan()
    written = [write_tables(path) for path in (bench.path, other.path)]
    assert [p.name for p in written[0]] == ["leaderboard.md", "leaderboard.csv", "scores.csv", "averages.csv"]
    for mine, theirs in zip(*written, strict=True):
        assert mine.read_bytes() == theirs.read_bytes()


def test_scores_csv_is_tidy(bench):
    bench.finish("mrpc", 3, {"accuracy": 2 / 3, "f1": None}, rate=3e-5)
    bench.plan()
    assert write_tables(bench.path)[2].read_text() == (
        "arm,variant,origin,task,split,metric,learning_rate,seed,value\n"
        "add,add,pretrained,mrpc,validation,accuracy,3e-05,3,66.6667\n"
        "add,add,pretrained,mrpc,validation,f1,3e-05,3,\n"
    )


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_bears_an_experiment_without_records(bench, format):
    bench.expect("rte", 1)
    assert "add" in render(bench.plan(), format)


def test_an_unknown_format_suggests_a_known_one(bench):
    with pytest.raises(UserError, match="unknown format 'markdwon'; did you mean 'markdown'"):
        render(bench.path, "markdwon")
