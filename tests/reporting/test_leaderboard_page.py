"""The page of a leaderboard: who differs, from what, and by how much, in every format and on the screen."""

import csv
import json
import re
from io import StringIO

import numpy as np
import pytest
from read_pages import READERS, read_markdown
from rich.console import Console
from stored import SHAPE

from glue_bench.data.tasks import TRAINABLE
from glue_bench.records.intrinsic import IntrinsicRecord
from glue_bench.reporting.export import find, render
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.leaderboard_page import leaderboard_page, leaderboard_screen, legend
from glue_bench.reporting.next_step import next_step
from glue_bench.reporting.notes import MEANS
from glue_bench.reporting.report.drawings import difference_figures
from glue_bench.reporting.statistics_page import statistics_page
from glue_bench.reporting.terminal import show


@pytest.fixture(scope="module")
def told(lasting_bench):
    """Three arms of which one is clearly worse, one a little better than chance could say, and two tasks."""
    for arm, accuracy in (("add", 0.8), ("none", 0.5), ("concat", 0.805)):
        for task in ("rte", "sst2"):
            lasting_bench.finish_predicted(task, arm, accuracy)
    return lasting_bench.plan()


def screen(path, width=80) -> list[str]:
    findings = find(path)
    console = Console(width=width, record=True, file=StringIO(), force_terminal=True)
    page = leaderboard_screen(findings)
    show(page, console, [legend(findings, page), "page: leaderboard.md", f"next: {next_step(findings, 'toy')}"])
    return console.export_text().splitlines()


def test_one_sentence_says_who_differs_on_the_average_by_how_much(told):
    lead = leaderboard_page(find(told)).lead
    assert lead.startswith("On the average of 2 columns, the arm `none` (-")
    assert "95% interval -" in lead
    assert lead.endswith(" is worse than `add`; the other arm is not shown to differ.")


def test_marks_say_better_and_worse_and_bold_is_the_best_alone(told):
    (table, *_) = read_markdown(render(told))
    assert table.header == ["Arm", "Avg. of 2", "SST-2", "RTE"]
    rows = {row[0][0]: row[1:] for row in table.rows}
    assert all(text.endswith("▼") and not bold for text, bold in rows["none"])
    assert not any(mark in text for arm in ("add", "concat") for text, _ in rows[arm] for mark in "▲▼")
    for column in range(3):
        best = max((arm for arm in ("add", "none", "concat")), key=lambda arm: float(rows[arm][column][0].strip("▼")))
        assert [arm for arm in rows if rows[arm][column][1]] == [best]
    assert list(rows)[-2:] == ["majority class", "smallest difference"]
    assert [text for text, _ in rows["majority class"]] == ["50.00"] * 3
    least = float(rows["smallest difference"][0][0])
    assert abs(float(rows["concat"][0][0]) - float(rows["add"][0][0])) < least < 20


def test_every_format_carries_the_same(told):
    pages = {format: reader(render(told, format)) for format, reader in READERS.items()}
    assert pages["markdown"][0].rows == pages["latex"][0].rows == pages["html"][0].rows
    flat = {row["arm"]: row for row in csv.DictReader(StringIO(render(told, "csv")))}
    document = json.loads(render(told, "json"))
    nested = {row["arm"]: row for row in document["rows"]}
    shown = {row[0][0]: row[1][0] for row in pages["markdown"][0].rows}
    for arm in flat:
        assert shown[arm].strip("▼") == flat[arm]["average"]
        assert {"worse": "▼", "": ""}[flat[arm]["average_verdict"]] == shown[arm][5:]
        for name in ("difference", "low", "high", "smallest", "majority"):
            value = flat[arm][f"average_{name}"]
            assert (
                value == ""
                if nested[arm][f"average_{name}"] is None
                else float(value) == nested[arm][f"average_{name}"]
            )
    assert flat["none"]["reference"] == "add"
    assert flat["none"]["average_majority"] == shown["majority class"]
    assert float(flat["none"]["rte_low"]) < float(flat["none"]["rte_difference"]) < float(flat["none"]["rte_high"]) < 0
    assert document["verdict"] == leaderboard_page(find(told)).lead


def test_the_single_runs_are_shown_on_request(told):
    (table, *_) = read_markdown(render(told, findings=find(told, runs=True)))
    assert [row[0][0] for row in table.rows].count("- seed 3") == 3
    at = next(i for i, row in enumerate(table.rows) if row[0][0] == "none")
    (mean, _), runs = table.rows[at][3], [float(row[3][0]) for row in table.rows[at + 1 : at + 4]]
    assert float(mean.strip("▼")) == pytest.approx(np.mean(runs), abs=0.01)


def test_a_table_of_all_tasks_fits_a_screen_of_1400_pixels(told):
    """By its widest texts in 16 px type (headers break at a hyphen), and the style sheet's blanks beside each cell."""
    style = render(told, "html")
    assert re.findall(r"max-width: (\d+)rem; padding: 0 1rem", style) == ["87"]
    assert re.findall(r"font-size: (0.95)rem|th, td { padding: 0.25rem (0.45)rem", style) == [
        ("0.95", ""),
        ("", "0.45"),
    ]
    ems = {**dict.fromkeys("0123456789", 0.6), **dict.fromkeys("MNLm▼‡†", 0.9), **dict.fromkeys(".-*il", 0.35)}
    columns = [["untied-relative"], *[["100.00▼‡", "MNLI-"]] * 11, *[["3.456▼", "Val."]] * 2]
    widths = [max(sum(ems.get(c, 0.65) for c in text) for text in texts) * 0.95 + 2 * 0.45 for texts in columns]
    assert 16 * sum(widths) <= 16 * (87 - 2) <= 1400


def test_the_screen_ends_with_marks_page_and_next_step(told):
    lines = screen(told)
    assert lines[-3:] == [
        "bold: best, ▼ worse than add",
        "page: leaderboard.md",
        "next: glue-bench statistics toy (the intervals behind the marks)",
    ]


def test_six_arms_and_all_tasks_fit_a_terminal_of_80_by_24(bench):
    for arm in ("untied-relative", "add-relative", "concat-split", "add", "none", "concat"):
        for task in TRAINABLE:
            bench.finish_predicted(task, arm, 0.4 if arm == "none" else 0.999, seeds=2)
    lines = screen(bench.plan(data_source="demo"))
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    assert sum(line.startswith("untied-relative") for line in lines) == 2


def test_nothing_shown_to_differ_names_what_would_have_been(bench):
    for arm in ("add", "concat"):
        bench.finish_predicted("rte", arm, 0.8)
    lead = leaderboard_page(find(bench.plan())).lead
    said = r"No arm is shown to differ from `add` on RTE; to be shown, a difference had to reach \d+\.\d\d"
    assert re.fullmatch(said + r" points\.", lead)
    bench.finish_predicted("rte", "none", 0.8)
    lead = leaderboard_page(find(bench.plan())).lead
    assert re.fullmatch(said + r" to \d+\.\d\d points, depending on the arm\.", lead)


def test_one_seed_says_why_nothing_is_compared(bench):
    for arm in ("add", "concat"):
        bench.finish_predicted("rte", arm, 0.8, seeds=1)
    findings = find(bench.plan())
    reason = "one seed does not show how much scores vary"
    assert leaderboard_page(findings).lead == f"No arm can be told from `add` on RTE: {reason}."
    assert [name for name, *_ in leaderboard_page(findings).sections[0].grid.rows] == [
        name for name, *_ in leaderboard_screen(findings).sections[0].grid.rows
    ]


def test_a_converted_arm_shows_what_the_conversion_costs_and_no_rank(bench):
    bench.finish_predicted("rte", "add", 0.8)
    bench.finish_predicted("rte", "concat", 0.8, origin="grafted")
    bench.finish_predicted("rte", "untied", 0.55, origin="grafted")
    arms = [{"name": arm, "checkpoint": "org/model"} for arm in bench.arms]
    text = render(bench.plan(config={"arms": arms}))
    pretrained, grafted = read_markdown(text)
    assert grafted.title == "Grafted: what the conversion costs, no ranking"
    rows = {row[0][0]: row[1] for row in grafted.rows}
    value, _, aside = rows["untied"][0].partition(" ")
    assert value.endswith("▼")
    add = float(pretrained.rows[0][1][0])
    assert float(aside.strip("()")) == pytest.approx(float(value.strip("▼")) - add, abs=0.011)
    assert not any(bold for _, bold in rows.values())
    findings = find(bench.path)
    conversions = findings.comparison.of("conversion")
    of_rte = conversions.loc[conversions["column"] == "rte", "smallest"]
    assert rows["smallest difference"][0] == f"{of_rte.median():.2f}"
    assert "majority class" not in rows
    assert "On RTE, the arm `untied` (-" in text
    assert "its difference from `add`, whose checkpoint was converted" in text


def test_notes_have_eight_lines_at_most_whatever_is_wrong(bench):
    for arm in ("add", "concat"):
        bench.finish_predicted("rte", arm, 0.8)
        bench.finish("cola", 1, 0.5, arm=arm, collapsed=["validation"], partial=True)
        bench.expect("wnli", 1, arm=arm)
        bench.finish("stsb", 1, None, arm=arm)
        bench.record(bench.expect("sst2", 1, arm=arm), environment={"precision": arm}, recipe=len(arm))
        bench.record({**bench.cells[0], "cell_id": f"stale-{arm}"})
    damaged = bench.expect("rte", 9)
    (bench.path / "records" / f"{damaged['cell_id']}.json").write_text("{")
    page = leaderboard_page(find(bench.plan()))
    assert len(page.notes) <= 8
    notes = " ".join(page.notes)
    for words in ("missing", "undefined", "not of this plan", "‡", "†", "more than one precision", "not valid JSON"):
        assert words in notes


@pytest.mark.parametrize(
    ("change", "command"),
    [
        ({"failed": ("a",)}, "`glue-bench status toy` (why runs have failed)"),
        ({"missing": True}, "the same `glue-bench run`, which goes on with what is missing"),
        ({"source": "demo"}, "`glue-bench run --checkpoint NAME --task rte` (any encoder of the hub on a real task)"),
        ({"arms": 1}, "`glue-bench table NAME toy` (beside a paper's table; `glue-bench table` lists them)"),
        ({"seeds": 2}, "`seeds: [1, 2, 3]` in the experiment, and the same `glue-bench run`"),
        ({"steps": 100}, "`seeds: [1, 2, 3]` under `pretraining`, and the same `glue-bench run`"),
        ({}, "`glue-bench power toy --difference 1` (how many seeds a point takes)"),
    ],
    ids=str,
)
def test_the_next_step_follows_from_what_is_there(bench, change, command):
    for arm in ("add", "concat")[: change.get("arms", 2)]:
        for seed in range(change.get("seeds", 3)):
            bench.finish("rte", seed + 1, 0.5, arm=arm, source=change.get("source", "tsv"))
            bench.cells[-1]["steps"] = change.get("steps")
    if change.get("missing"):
        bench.expect("rte", 9)
    assert next_step(find(bench.plan()), "toy", change.get("failed", ())) == command


def test_all_tasks_with_a_verdict_can_be_handed_in(bench):
    for arm in ("add", "none"):
        for task in TRAINABLE:
            bench.finish_predicted(task, arm, 0.9 if arm == "add" else 0.5)
    assert (
        next_step(find(bench.plan()), "toy") == "`glue-bench submit toy --arm add -o add.zip` (for GLUE's test server)"
    )


def test_parameters_are_said_once_for_arms_that_have_as_many(bench):
    for arm, parameters in (("add", 1_450_000), ("none", 1_449_000), ("concat-split", 930_000)):
        bench.finish("rte", arm=arm)
        bench.arms[arm].update(parameters=parameters, shape=SHAPE)
    assert "parameters: 1.45M (add, none), 930k (concat-split)." in render(bench.plan())


@pytest.mark.parametrize("primary", ["average", "validation_loss"])
def test_the_validation_loss_is_a_column_whose_lowest_is_best(bench, primary):
    generator = np.random.default_rng(0)
    pieces, counts = generator.normal(2000, 200, size=300), np.full(300, 500.0)
    for arm, accuracy in (("add", 0.8), ("untied", 0.7)):
        for task in ("rte", "sst2"):
            bench.finish_predicted(task, arm, accuracy)
        for seed in (1, 2, 3):
            loss = pieces - 50 * (arm == "untied") + generator.normal(0, 5, 300)
            facts = {"pretraining_id": f"{arm}-{seed}", "arm": arm, "pretraining_seed": seed}
            record = IntrinsicRecord(schema_version=1, step=1, tokens=1, measures=(), **facts)
            sums = {"validation_loss": np.stack([loss, counts]), "swap_1": np.stack([counts * 0.7, counts])}
            bench.store.intrinsic.write(record, sums)
    facts = [{"pretraining_id": f"{arm}-{seed}", "arm": arm, "seed": seed} for arm in bench.arms for seed in (1, 2, 3)]
    path = bench.plan(pretrainings=facts, config={"protocol": {"primary": primary}})
    (table, *_) = read_markdown(render(path))
    first = {"average": "Avg. of 2", "validation_loss": "Val. loss"}[primary]
    assert table.header[1] == first
    assert set(table.header) == {"Arm", "Avg. of 2", "SST-2", "RTE", "Val. loss", "Swap test"}
    losses = {row[0][0]: row[table.header.index("Val. loss")] for row in table.rows}
    assert losses["untied"][0].endswith("▲")
    assert (losses["untied"][1], losses["add"][1]) == (True, False)
    assert float(losses["untied"][0].strip("▲")) == pytest.approx(float(losses["add"][0]) - 0.1, abs=0.003)
    assert [row[0][0] for row in table.rows][:2] == [["add", "untied"], ["untied", "add"]][primary != "average"]
    lead = leaderboard_page(find(path)).lead
    assert lead.startswith(
        "On the validation loss, the arm `untied` (-0.1" if primary != "average" else "On the average of 2 columns, "
    )
    flat = {row["arm"]: row for row in csv.DictReader(StringIO(render(path, "csv")))}
    assert flat["untied"]["validation_loss"] == losses["untied"][0].strip("▲")
    assert flat["untied"]["validation_loss_verdict"] == "better"


def test_blocks_of_one_origin_are_told_apart_in_the_sentence(bench):
    for arm in ("add", "concat", "add-wide", "concat-wide"):
        bench.finish_predicted("rte", arm, 0.8)
        bench.arms[arm]["shape"] = SHAPE | {"hidden_size": 16 if "wide" in arm else 8}
    lead = leaderboard_page(find(bench.plan())).lead
    assert (
        lead.count("Pretrained, 2 layers, hidden size 8, ") == lead.count("Pretrained, 2 layers, hidden size 16, ") == 1
    )
    assert "Pretrained: " not in lead


def test_a_measure_of_fewer_pretrainings_than_planned_is_marked(bench):
    pieces, counts = np.linspace(1900, 2100, 300), np.full(300, 500.0)
    for arm in ("add", "untied"):
        for seed in (1, 2, 3, 4):
            cell = bench.expect("rte", seed, arm=arm)
            cell |= {"pretraining_seed": seed, "steps": 100}
            if seed < 3:
                bench.record(cell, 0.5 + seed / 10)
                facts = {"pretraining_id": f"{arm}-{seed}", "arm": arm, "pretraining_seed": seed}
                record = IntrinsicRecord(schema_version=1, step=1, tokens=1, measures=(), **facts)
                bench.store.intrinsic.write(record, {"validation_loss": np.stack([pieces + seed, counts])})
    facts = [
        {"pretraining_id": f"{arm}-{seed}", "arm": arm, "seed": seed} for arm in bench.arms for seed in range(1, 5)
    ]
    (table, *_) = read_markdown(render(bench.plan(pretrainings=facts)))
    losses = [row[table.header.index("Val. loss")][0] for row in table.rows if row[0][0] in bench.arms]
    assert [text[-1] for text in losses] == ["*", "*"]


@pytest.fixture
def two_checkpoints(bench):
    """Grafts onto two checkpoints of one shape, and a third whose own source is no arm."""
    sources = {"add-a": "a", "add-b": "b", "u-a": "a", "u-b": "b", "u-c": "c"}
    scores = {"add-a": 0.8, "add-b": 0.9, "u-a": 0.5, "u-b": 0.6, "u-c": 0.55}
    for arm, accuracy in scores.items():
        bench.finish_predicted("rte", arm, accuracy, origin="pretrained" if "add" in arm else "grafted")
    return bench.plan(config={"arms": [{"name": arm, "checkpoint": source} for arm, source in sources.items()]})


def test_conversions_from_two_checkpoints_each_have_their_own_reference(two_checkpoints):
    findings = find(two_checkpoints)
    assert dict(zip(findings.contrasts["arm"], findings.contrasts["reference"], strict=True)) == {
        **{"add-b": "add-a", "u-a": "add-a", "u-b": "add-b"},
    }
    lead = leaderboard_page(findings).lead
    assert re.search(r"the arm `u-a` \([^)]*\) is worse than `add-a`", lead)
    assert re.search(r"the arm `u-b` \([^)]*\) is worse than `add-b`", lead)
    text = render(two_checkpoints)
    said = r"its difference from (`add-.` \(u-.\)) or (`add-.` \(u-.\)), whose checkpoint was converted"
    assert set(re.search(said, text).groups()) == {"`add-a` (u-a)", "`add-b` (u-b)"}
    _, grafted = read_markdown(text)[:2]
    asides = {row[0][0]: "(" in row[1][0] for row in grafted.rows}
    assert (asides["u-a"], asides["u-b"], asides["u-c"]) == (True, True, False)


def test_an_arm_without_its_source_is_not_compared_with_arms_that_have_theirs(two_checkpoints):
    findings = find(two_checkpoints)
    page = render_page(statistics_page(findings.comparison))
    assert "u-c" not in page
    assert [drawing.name for drawing in difference_figures(findings)] == [
        "difference-pretrained-rte",
        *(f"difference-grafted-{who}-rte" for who in ("add-b", "add-a")),
    ]


@pytest.mark.parametrize("seeds", ["mean", "median"])
def test_where_scores_are_medians_the_page_says_that_marks_are_of_means(bench, seeds):
    for arm, accuracy in (("add", 0.8), ("concat", 0.6)):
        bench.finish_predicted("rte", arm, accuracy)
    path = bench.plan(config={"protocol": {"seeds": seeds}})
    assert (MEANS.strip() in render(path)) == (seeds == "median")
