"""Predictions as a frame: each finished run and example, of all tasks or of one."""

import numpy as np
import pandas as pd
import pytest

import glue_bench
from glue_bench.board.frames import PREDICTION_COLUMNS
from glue_bench.errors import UserError

GOLD = {"rte": np.array([1, 0, 1]), "cola": np.array([0, 1])}


def one_hot(classes: list[int], labels: int) -> np.ndarray:
    return np.eye(labels)[classes]


@pytest.fixture
def path(bench):
    """Finish two seeds of RTE, and one of CoLA with test predictions; another run is planned."""
    for seed, classes in ((1, [1, 1, 1]), (2, [0, 0, 1])):
        cell = bench.finish("rte", seed=seed)
        bench.predict(cell["cell_id"], {"validation": one_hot(classes, 2)})
    cell = bench.finish("cola", seed=5, rate=3e-5)
    logits = {"validation": one_hot([0, 0], 2), "test": one_hot([1, 0, 1], 2)}
    bench.predict(cell["cell_id"], logits)
    bench.expect("rte", seed=3)
    for task, gold in GOLD.items():
        bench.label(task, {"validation": gold})
    return bench.plan()


def test_a_task_has_a_row_for_each_finished_run_and_example(path):
    frame = glue_bench.predictions(path, task="rte")
    assert list(frame) == PREDICTION_COLUMNS
    assert frame["seed"].tolist() == [1, 1, 1, 2, 2, 2]
    assert frame["row"].tolist() == [0, 1, 2, 0, 1, 2]
    assert frame["predicted"].tolist() == [1, 1, 1, 0, 0, 1]
    assert frame["label"].tolist() == [1, 0, 1, 1, 0, 1]
    assert set(frame["task"]) == {"rte"}


def test_without_a_task_all_tasks_are_in_the_frame(path):
    frame = glue_bench.predictions(path)
    sizes = frame.groupby(["task", "split"]).size()
    expected = {
        ("cola", "test"): 3,
        ("cola", "validation"): 2,
        ("rte", "validation"): 6,
    }
    assert sizes.to_dict() == expected


def test_a_test_split_has_no_labels(path):
    frame = glue_bench.predictions(path, task="cola").set_index("split")
    assert frame.loc["test", "label"].isna().all()
    assert frame.loc["validation", "label"].tolist() == [0, 1]
    assert set(frame["learning_rate"]) == {3e-5}


def test_without_finished_runs_the_frame_is_empty_and_has_its_columns(bench):
    bench.expect("rte")
    frame = glue_bench.predictions(bench.plan())
    pd.testing.assert_index_equal(frame.columns, pd.Index(PREDICTION_COLUMNS))
    assert frame.empty


def test_an_unknown_task_is_refused(path):
    with pytest.raises(UserError, match="unknown task 'rtee'"):
        glue_bench.predictions(path, task="rtee")
