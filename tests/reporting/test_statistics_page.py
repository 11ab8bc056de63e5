"""What the statistics say, and the verbs that print them."""

import csv
import io
import json

import numpy as np
import pytest
from simulated import REGIMES, simulate

from glue_bench.reporting.statistics_page import p_text, power_page, statistics_page, title_of
from glue_bench.stats.power import power_frame
from glue_bench.tables.board import open_board
from glue_bench.tables.budget import measured_costs
from glue_bench.tables.compare import compare
from glue_bench.tables.results import read_results


def fill(bench, *, seeds=2, labels=True, rates=None, source="tsv"):
    outcomes = simulate(
        np.random.default_rng(5),
        columns=["cola", "mnli_m", "mnli_mm"],
        rates=rates or {"low": 0.55, "high": 0.9, "higher": 0.9},
        seeds=seeds,
        regime=REGIMES["nearly all examples"],
    )
    cola, matched, mismatched = outcomes
    for run in range(len(cola.owners)):
        arm, seed = cola.arms[cola.owners[run]], int(cola.seeds[run])
        bench.finish("cola", seed, cola.scores[run] / 100, arm=arm, source=source)
        bench.predict(bench.cells[-1]["cell_id"], {"validation": np.eye(2)[cola.predictions[run]]})
        scores = {
            "validation_matched": {"accuracy": matched.scores[run] / 100},
            "validation_mismatched": {"accuracy": mismatched.scores[run] / 100},
        }
        bench.finish("mnli", seed, scores, arm=arm, source=source)
        logits = {"validation_matched": matched, "validation_mismatched": mismatched}
        bench.predict(
            bench.cells[-1]["cell_id"], {split: np.eye(3)[one.predictions[run]] for split, one in logits.items()}
        )
    if labels:
        bench.store.write_labels("cola", "d", {"validation": cola.labels})
        bench.store.write_labels(
            "mnli", "d", {"validation_matched": matched.labels, "validation_mismatched": mismatched.labels}
        )
    bench.plan()
    return bench.store


def texts(grid):
    return [[cell.text for cell in row] for row in grid.rows]


def test_the_page_has_the_average_and_what_single_columns_tell(bench):
    page = statistics_page(compare(open_board(fill(bench).folder)))
    average, single, varies = page.sections
    assert [section.title for section in page.sections] == [
        "Pretrained: differences from low, average", "Pretrained: differences from low, single columns",
        "Pretrained: what varies",
    ]  # fmt: skip
    assert [row[1] for row in texts(average.grid)] == ["high - low", "higher - low"]
    assert {row[-1] for row in texts(average.grid)} == {"better"}
    assert {row[0] for row in texts(single.grid)} <= {"CoLA", "MNLI-m", "MNLI-mm"}
    assert [row[0] for row in texts(varies.grid)] == ["Average", "CoLA", "MNLI-m", "MNLI-mm"]
    assert not any("other pretrainings, other" in note for note in page.notes)
    assert any("not other pretrainings" in note for note in page.notes)


def test_one_seed_is_said_and_never_printed_as_zero(bench):
    page = statistics_page(compare(open_board(fill(bench, seeds=1).folder)))
    (note,) = (note for note in page.notes if "one seed does not show how much scores vary" in note)
    assert all(arm in note for arm in ("low", "high", "higher"))
    assert all("–" in row[3] and "0.0000" not in row[5] for row in texts(page.sections[0].grid))  # noqa: RUF001
    assert page.sections[1].text == "Nothing was tested; the notes say what is missing."


def test_missing_labels_are_one_line(bench):
    page = statistics_page(compare(open_board(fill(bench, labels=False).folder)))
    assert sum("no gold labels" in note for note in page.notes) == 1


def test_demo_data_have_a_banner(bench):
    assert "not a benchmark" in statistics_page(compare(open_board(fill(bench, source="demo").folder))).banner


def test_the_power_page_says_how_many_seeds(bench):
    statistics = compare(open_board(fill(bench, rates={"a": 0.8, "b": 0.8}).folder))
    (section,) = power_page(statistics, power_frame(statistics.assessed, 40.0)).sections
    assert [row[:3] for row in texts(section.grid)] == [[c, "1", "2"] for c in ("Average", "CoLA", "MNLI-m", "MNLI-mm")]
    (small,) = power_page(statistics, power_frame(statistics.assessed, 0.1)).sections
    assert all("no number of seeds" in row[-1] for row in texts(small.grid))


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0, "< 0.0001"), (0.00009, "< 0.0001"), (0.0123, "0.0123"), (1.0, "1.0000"), (np.nan, "–")],  # noqa: RUF001
)
def test_p_values_are_never_zero(p, text):
    assert p_text(p) == text


@pytest.mark.parametrize(("column", "title"), [("mnli_mm", "MNLI-mm"), ("sst2", "SST-2"), ("average", "Average")])
def test_titles(column, title):
    assert title_of(column) == title


# The verbs


def test_statistics_in_three_formats(bench, glue_bench, tmp_path):
    folder = fill(bench).folder
    said = glue_bench("statistics", folder)
    assert said.status == 0
    assert "# Statistics: toy" in said.out
    rows = list(csv.DictReader(io.StringIO(glue_bench("statistics", folder, "--format", "csv").out)))
    assert [row["kind"] for row in rows] == ["reference"] * 8
    assert glue_bench("statistics", folder, "--format", "json", "-o", tmp_path / "x.json").out == ""
    document = json.loads((tmp_path / "x.json").read_text())
    assert set(document) == {"title", "notes", "reference"}
    assert document["reference"][0]["p_adjusted"] == pytest.approx(float(rows[0]["p_adjusted"]), abs=1e-6)


def test_equivalence_and_pairs_on_request(bench, glue_bench):
    said = glue_bench("statistics", fill(bench).folder, "--equivalent", 30, "--pairs").out
    assert "p (equivalent)" in said
    assert "Pretrained: all pairs" in said
    assert "share a letter" in said


def test_power_prints_seeds(bench, glue_bench):
    folder = fill(bench).folder
    assert "Seeds needed" in glue_bench("power", folder, "--difference", 5).out
    said = glue_bench("power", folder, "--difference", 40, "--costs", 100, 1, "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(said)))
    assert [row["column"] for row in rows] == ["average", "cola", "mnli_m", "mnli_mm"]
    assert [float(row["cost"]) for row in rows] == [100.0 + int(row["finetuning_seeds"]) for row in rows]


def test_a_seed_costs_a_run_at_every_rate(bench):
    for rate, seconds in ((1e-5, 10.0), (2e-5, 30.0)):
        bench.record(bench.expect("rte", 1, arm="a", rate=rate), seconds=seconds)
    bench.plan()
    assert measured_costs(read_results(bench.path))[1] == 40.0


def test_one_arm_has_no_contrasts_and_nothing_run_has_no_spread(bench, new_bench, glue_bench, refused):
    alone = fill(bench, rates={"only": 0.8}).folder
    assert glue_bench("statistics", alone, "--format", "csv").out.startswith("kind,origin")
    empty = new_bench("empty")
    empty.plan()
    assert "nothing has run yet" in refused("power", empty.store.folder, "--difference", 1)


def test_mistakes_are_one_line(bench, refused, tmp_path):
    folder = fill(bench, seeds=1).folder
    assert "no experiment in" in refused("statistics", tmp_path / "none")
    assert "unknown format" in refused("statistics", folder, "--format", "xls")
    assert "--equivalent 0" in refused("statistics", folder, "--equivalent", 0)
    assert "--difference 0" in refused("power", folder, "--difference", 0)
