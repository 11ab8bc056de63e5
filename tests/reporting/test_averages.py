"""The conventions of averaging side by side."""

import csv
import json
from io import StringIO

import pytest

from glue_bench.data.tasks import TRAINABLE
from glue_bench.reporting.export import render, write_tables
from glue_bench.reporting.leaderboard_page import winner_notes
from glue_bench.results.board import averages_frame, make_board
from glue_bench.results.protocol import AVERAGES

FOUR = ("average_official", "average_nine_columns", "average_eight_columns", "average_eight_tasks")


def fill(bench, **of_second):
    """Two arms equal on every task but those named."""
    for task in TRAINABLE:
        bench.finish(task, 1, 0.5, arm="add")
        bench.finish(task, 1, of_second.get(task, 0.5), arm="cat")
    return bench.plan()


def frame_of(bench):
    board = make_board(bench.store)
    return board, averages_frame(board)


def test_each_convention_has_a_twin_without_cola():
    assert list(AVERAGES) == [name for four in FOUR for name in (four, f"{four}_without_cola")]
    for four in FOUR:
        whole, rest = AVERAGES[four].parts, AVERAGES[f"{four}_without_cola"].parts
        assert {**rest, "cola": whole["cola"]} == whole
        assert len(rest) == len(whole) - 1


def test_run_glue_is_78_9_official_and_81_7_without_wnli(bench):
    bench.finish_published("run-glue", "fp32")
    bench.plan()
    row = frame_of(bench)[1].iloc[0]
    assert row["average_official"] == pytest.approx(78.9, abs=0.05)
    assert row["average_eight_tasks"] == pytest.approx(81.7, abs=0.05)


def test_the_margin_of_tupe_r_is_2_08_on_nine_columns_and_2_18_on_eight(bench):
    bench.finish_published("tupe-1", "TUPE-R", arm="tupe")
    bench.finish_published("tupe-1", "BERT-A", arm="bert")
    bench.plan()
    rows = frame_of(bench)[1].set_index("arm")
    margins = rows.loc["tupe", list(AVERAGES)[2:6]] - rows.loc["bert", list(AVERAGES)[2:6]]
    assert margins["average_nine_columns"] == pytest.approx(2.08, abs=0.005)
    assert margins["average_eight_columns"] == pytest.approx(2.18, abs=0.005)
    assert margins["average_nine_columns_without_cola"] == pytest.approx((2.083 * 9 - 8.37) / 8, abs=0.005)


def test_conventions_whose_tasks_are_absent_are_not_shown(bench):
    for task in TRAINABLE:
        if task != "wnli":
            bench.finish(task, 1)
    bench.plan()
    board, frame = frame_of(bench)
    assert board.conventions == [name for name in AVERAGES if not name.startswith("average_official")]
    section = render(bench.path).split("## Averages side by side")[1]
    assert "Nine columns without CoLA" in section
    assert "Official" not in section
    assert frame["average_official"].isna().all()


def test_without_any_average_there_is_no_section_and_no_file(bench):
    bench.finish("rte", 1)
    assert "side by side" not in render(bench.plan())
    assert "averages.csv" not in [path.name for path in write_tables(bench.path)]


def test_the_formats_hold_the_same_averages(bench):
    fill(bench, cola=0.9, rte=0.41234)
    _, frame = frame_of(bench)
    path = next(path for path in write_tables(bench.path) if path.name == "averages.csv")
    flat = list(csv.DictReader(StringIO(path.read_text())))
    document = json.loads(render(bench.path, "json"))["averages"]
    section = render(bench.path).split("## Averages side by side")[1]
    assert [row["arm"] for row in flat] == [row["arm"] for row in document] == list(frame["arm"])
    for row, parsed in zip(flat, document, strict=True):
        for name in AVERAGES:
            assert float(row[name]) == parsed[name]
            assert row[name] in section


@pytest.mark.parametrize(
    ("of_second", "told"),
    [
        ({}, []),
        (
            {"cola": 0.6},
            ["cat by Official, Nine columns, Eight columns, Eight tasks; add and cat by Official without CoLA, "],
        ),
        ({"cola": 0.6, "rte": 0.55}, []),
        ({"wnli": 0.9, "rte": 0.4}, ["cat by Official, Official without CoLA; add by Nine columns"]),
    ],
    ids=["tied in all", "CoLA decides", "one wins all", "WNLI decides"],
)
def test_a_winner_that_depends_on_the_convention_is_called_out(bench, of_second, told):
    fill(bench, **of_second)
    notes = winner_notes(*frame_of(bench))
    assert len(notes) == len(told)
    for note, words in zip(notes, told, strict=True):
        assert note.startswith("**The winner depends on the convention of averaging** (pretrained): ")
        assert words in note
        assert note in render(bench.path)


def test_winners_are_of_one_origin(bench):
    for task in TRAINABLE:
        bench.finish(task, 1, 0.5, arm="add")
        bench.finish(task, 1, 0.9 if task == "wnli" else 0.4, arm="cat", origin="grafted")
    bench.plan()
    assert winner_notes(*frame_of(bench)) == []
