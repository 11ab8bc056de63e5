"""Contracts over TASKS, against the table of the GLUE paper and the dataset card."""

import pytest

from glue_bench.data.tasks import COLUMNS, TASKS, TRAINABLE

SIZES = {
    "cola": (8551, 1043, 1063),
    "sst2": (67349, 872, 1821),
    "mrpc": (3668, 408, 1725),
    "stsb": (5749, 1500, 1379),
    "qqp": (363846, 40430, 390965),
    "mnli": (392702, 9815, 9832, 9796, 9847),
    "qnli": (104743, 5463, 5463),
    "rte": (2490, 277, 3000),
    "wnli": (635, 71, 146),
    "ax": (1104,),
}


def test_tasks_are_the_nine_and_the_diagnostic_set() -> None:
    assert list(TASKS) == list(SIZES)
    assert tuple(SIZES)[:-1] == TRAINABLE


def test_official_sizes() -> None:
    assert {name: tuple(split.rows for split in task.splits.values()) for name, task in TASKS.items()} == SIZES


@pytest.mark.parametrize("name", TASKS)
def test_row_is_consistent(name: str) -> None:
    task = TASKS[name]
    assert task.name == name
    assert 1 <= len(task.texts) == len(task.tsv_texts or task.texts) <= 2
    assert len(task.written) == len(task.labels)
    assert task.num_labels == (1 if task.is_regression else len(task.labels))
    assert set(task.columns) == set(task.validation_splits)
    assert len({split.file for split in task.splits.values()}) == len(task.splits)
    assert {"train", *task.validation_splits, *task.test_splits} >= set(task.splits)


def test_columns_keep_mnli_apart_and_leave_out_ax() -> None:
    expected = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli_m", "mnli_mm", "qnli", "rte", "wnli"]
    assert list(COLUMNS) == expected
    assert COLUMNS["mnli_mm"] == ("mnli", "validation_mismatched")
    assert all(split in TASKS[task].validation_splits for task, split in COLUMNS.values())
