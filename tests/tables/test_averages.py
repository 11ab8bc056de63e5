"""The conventions of averaging."""

import csv
from io import StringIO

import pytest

from glue_bench.data.tasks import TRAINABLE
from glue_bench.tables.averages import AVERAGES
from glue_bench.tables.board import averages, open_board
from glue_bench.tables.export import find, write_tables


def fill(bench, **of_second):
    """Two arms equal on every task but those named."""
    for task in TRAINABLE:
        bench.finish(task, 1, 0.5, arm="add")
        bench.finish(task, 1, of_second.get(task, 0.5), arm="cat")
    return bench.plan()


def frame_of(bench):
    return averages(open_board(bench.path))


def test_run_glue_is_78_9_official_and_81_7_without_wnli(bench):
    bench.finish_published("run-glue", "fp32")
    bench.plan()
    row = frame_of(bench).iloc[0]
    assert row["average_official"] == pytest.approx(78.9, abs=0.05)
    assert row["average_eight_tasks"] == pytest.approx(81.7, abs=0.05)


def test_the_margin_of_tupe_r_is_2_08_on_nine_columns_and_2_18_on_eight(bench):
    bench.finish_published("tupe-1", "TUPE-R", arm="tupe")
    bench.finish_published("tupe-1", "BERT-A", arm="bert")
    bench.plan()
    rows = frame_of(bench).set_index("arm")
    margins = rows.loc["tupe", list(AVERAGES)] - rows.loc["bert", list(AVERAGES)]
    assert margins["average_nine_columns"] == pytest.approx(2.08, abs=0.005)
    assert margins["average_eight_columns"] == pytest.approx(2.18, abs=0.005)


def test_conventions_whose_tasks_are_absent_have_no_value(bench):
    for task in TRAINABLE:
        if task != "wnli":
            bench.finish(task, 1)
    bench.plan()
    frame = frame_of(bench)
    assert [name for name in AVERAGES if frame[name].isna().all()] == ["average_official"]


def test_without_any_average_there_is_no_file(bench):
    bench.finish("rte", 1)
    bench.plan()
    assert "averages.csv" not in [path.name for path in write_tables(find(bench.path))]


def test_the_file_holds_the_averages(bench):
    fill(bench, cola=0.9, rte=0.41234)
    frame = frame_of(bench)
    path = next(path for path in write_tables(find(bench.path)) if path.name == "averages.csv")
    flat = list(csv.DictReader(StringIO(path.read_text())))
    assert [row["arm"] for row in flat] == list(frame["arm"])
    for row, exact in zip(flat, frame.to_dict("records"), strict=True):
        for name in AVERAGES:
            assert float(row[name]) == pytest.approx(exact[name], abs=0.005)
