import csv
import io
import json

import pytest

from glue_bench.reporting.export import find, render, write_tables
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


def test_a_cell_shows_the_mean_and_where_runs_are_missing(bench):
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed, value)
    bench.finish("cola", 1, 0.6101)
    bench.finish("qnli", 1, -0.00001)
    bench.finish("wnli", 1, 0.5)
    bench.expect("wnli", 2)
    bench.expect("sst2", 1)
    row = rows_of(render(bench.plan()))["add"]
    assert row["RTE"] == "63.00"
    assert row["CoLA"] == "61.01"
    assert row["QNLI"] == "0.00"  # never -0.00
    assert row["WNLI"] == r"50.00\*"
    assert "SST-2" not in row
    assert "Nothing has run yet of the task SST-2." in render(bench.path)
    assert "2 of 8 planned runs are missing" in render(bench.path)
    assert "the mean over runs with different seeds (add 1-3)" in render(bench.path)


def test_each_origin_has_a_block_of_its_own(bench):
    text = render(fill(bench))
    pretrained, grafted = text.split("## Grafted")
    assert "# Leaderboard: toy" in pretrained
    assert "## Pretrained" in pretrained
    assert "| add" in pretrained
    assert "| cat" not in pretrained
    assert "| cat" in grafted
    assert "only converted" in grafted


def test_headers_are_short_and_the_average_comes_first(bench):
    text = render(fill(bench))
    assert list(rows_of(text)["add"]) == [
        "Arm", "Avg. of 9", "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI",
    ]  # fmt: skip
    assert "Matthews correlation for CoLA, Pearson correlation for STS-B, accuracy for the others" in text


def test_columns_are_aligned(bench):
    lines = [line for line in render(fill(bench)).split("## Grafted")[0].splitlines() if line.startswith("|")]
    assert len({tuple(i for i, c in enumerate(line) if c == "|") for line in lines}) == 1


def test_the_best_of_a_column_within_its_block_is_bold(bench):
    bench.finish("rte", 1, 0.6, arm="a")
    bench.finish("rte", 1, 0.60001, arm="b")
    bench.finish("rte", 1, 0.5, arm="c")
    bench.finish("rte", 1, 0.9, arm="alone", origin="scratch")
    rows = rows_of(render(bench.plan()))
    shown = {arm: row["RTE"] for arm, row in rows.items()}
    assert shown == {"a": "**60.00**", "b": "**60.00**", "c": "50.00", "alone": "90.00"}


def test_demo_data_is_announced(bench, new_bench):
    assert BANNER in render(fill(bench, source="demo"))
    assert BANNER not in render(fill(new_bench("real")))


def test_partial_tasks_are_marked_and_their_share_is_named(bench):
    for task in TASKS:
        bench.finish(task, 1, partial=task in ("rte", "qnli"))
    text = render(bench.plan())
    assert {"RTE†", "QNLI†", "CoLA"} <= set(rows_of(text)["add"])
    assert "QNLI: only a part of train or test (the records do not say how much)" in text
    assert json.loads(render(bench.path, "json"))["partial_tasks"] == ["qnli", "rte"]
    assert next(csv.DictReader(io.StringIO(render(bench.path, "csv"))))["partial_tasks"] == "qnli;rte"


def test_a_record_that_counts_its_rows_names_the_share_of_each_split(bench):
    rows = {"train": 249, "validation": 277, "test": 3000}
    bench.record(bench.expect("rte"), data={"source": "tsv", "digest": "d", "partial": True, "rows": rows})
    bench.record(bench.expect("cola"), data={"source": "tsv", "digest": "d", "partial": True, "rows": {
        "train": 8551, "validation": 1043, "test": 1}})  # fmt: skip
    text = render(bench.plan())
    assert "CoLA: all but test; RTE: 10% of the training rows." in text


def test_collapsed_runs_are_marked_and_counted(bench):
    bench.finish("cola", 1, 0.0, collapsed=["validation"])
    bench.finish("cola", 2, 0.5)
    text = render(bench.plan())
    assert rows_of(text)["add"]["CoLA"].endswith("‡")
    assert "they count in the mean: add (1)." in text


def test_a_clean_run_has_no_marks_and_no_warnings(bench):
    for task in TASKS:
        bench.finish(task, 1)
    text = render(bench.plan())
    for word in ("†", "‡", "▲", "missing", "left out", "undefined", "chosen"):
        assert word not in text


def test_undefined_scores_are_called_out(bench):
    bench.finish("stsb", 1, None)
    text = render(bench.plan())
    assert rows_of(text)["add"]["STS-B"] == "–"  # noqa: RUF001
    assert "2 scores of finished runs are undefined" in text


def test_the_rate_rule_is_declared_only_where_there_was_a_choice(bench):
    bench.finish("rte", 1, rate=2e-5)
    assert "one run each, after the last epoch, fine-tuned at the learning rate 2e-5." in render(bench.plan())
    bench.finish("rte", 1, rate=3e-5)
    rule = (
        "at the learning rate with the best mean for each arm and task, chosen on the validation set that is reported"
    )
    assert rule in render(bench.plan())


def test_left_out_records_are_counted(bench):
    bench.finish("rte", 1)
    bench.record({**bench.cells[0], "cell_id": "stale"})
    assert "1 records are not of this plan" in render(bench.plan())


def test_an_average_over_some_tasks_says_so(bench):
    for task in ("rte", "wnli", "cola"):
        bench.finish(task, 1, {"rte": 0.4, "wnli": 0.9, "cola": 0.2}[task])
    text = render(bench.plan())
    assert rows_of(text)["add"]["Avg. of 2"] == "30.00"
    assert "Avg. of 2: the mean of the columns that are here, without SST-2, MRPC, STS-B, QQP, MNLI, QNLI" in text
    assert "WNLI does not count in it." in text


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
    written = [write_tables(find(path)) for path in (bench.path, other.path)]
    assert [p.name for p in written[0]] == ["leaderboard.md", "leaderboard.csv", "scores.csv", "averages.csv"]
    for mine, theirs in zip(*written, strict=True):
        assert mine.read_bytes() == theirs.read_bytes()


def test_tables_of_an_earlier_plan_do_not_stay(bench):
    fill(bench)
    (bench.path / "notes.md").write_text("mine")
    earlier = {path.name for path in write_tables(find(bench.path))}
    bench.cells = [cell for cell in bench.cells if cell["task"] == "rte"]
    bench.plan()
    written = {path.name for path in write_tables(find(bench.path))}
    assert earlier - written == {"averages.csv"}
    assert {path.name for path in bench.path.glob("*.[cm][sd]*")} == written | {"notes.md"}


def test_scores_csv_is_tidy(bench):
    bench.finish("mrpc", 3, {"accuracy": 2 / 3, "f1": None}, rate=3e-5)
    bench.plan()
    assert write_tables(find(bench.path))[2].read_text() == (
        "arm,variant,origin,task,split,metric,learning_rate,seed,value\n"
        "add,add,pretrained,mrpc,validation,accuracy,3e-05,3,66.6667\n"
        "add,add,pretrained,mrpc,validation,f1,3e-05,3,\n"
    )


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_bears_an_experiment_without_records(bench, format):
    bench.expect("rte", 1)
    assert "add" in render(bench.plan(), format)
