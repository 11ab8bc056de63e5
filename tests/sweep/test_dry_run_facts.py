"""A dry run says how much is trained, how long that takes, and what lies aside."""

import pytest
from helpers import tiny_runs

import glue_bench
from glue_bench.records.store import Store

VALUES = tiny_runs.merged(
    tiny_runs.TINY,
    {
        "arms": ["add"],
        "tasks": ["cola", "stsb"],
        "limit": 24,
        "finetuning": {"epochs": 3, "batch_size": 10},
    },
)
UPDATES = 3 * 3
"""Three batches of 24 rows, in each of three epochs."""


@pytest.fixture
def dry_run(tmp_path):
    return lambda: glue_bench.run(VALUES, results=tmp_path, dry_run=True)


def test_updates_and_epochs_are_counted(dry_run):
    summary = dry_run()
    assert summary.steps == 2 * UPDATES
    assert summary.epochs == (3,)


def test_seconds_are_known_once_a_cell_has_finished(dry_run, tmp_path):
    assert dry_run().seconds is None
    folder = tiny_runs.run(VALUES, tmp_path, only="task=cola")
    store = Store(folder)
    plan = store.plan()
    (record,) = store.finished(plan).records.values()
    first, second = plan.cells
    expected = record.seconds * plan.cost(second) / plan.cost(first)
    assert dry_run().seconds == pytest.approx(expected)


def test_a_result_that_lies_aside_is_not_called_damaged(dry_run, tmp_path):
    folder = tiny_runs.run(VALUES, tmp_path)
    cell = folder / "cells" / Store(folder).plan().cells[0].id
    cell.rename(cell.with_name(f".replaced-{cell.name}"))
    assert [*dry_run().reasons] == [
        "an interrupted run has set its result aside; the next run puts it back"
    ]
