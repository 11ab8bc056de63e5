"""A dry run says how much is trained, how long that takes, and what lies aside."""

import pytest
from helpers import tiny_runs
from helpers.classifiers import save_classifier

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
PRETRAINED = VALUES | {
    "pretraining": {"corpus": ["demo"], "steps": 4, "batch_tokens": 64, "length": 16}
}
UPDATES = 3 * 3
"""Three batches of 24 rows, in each of three epochs."""


@pytest.fixture(autouse=True)
def enough_time(monkeypatch):
    """Time enough for trials, however busy the machine is."""
    monkeypatch.setattr("glue_bench.sweep.expected_time.TRIAL_SECONDS", 60.0)


@pytest.fixture
def dry_run(tmp_path):
    return lambda: glue_bench.run(VALUES, results=tmp_path, dry_run=True)


def test_updates_and_epochs_are_counted(dry_run):
    summary = dry_run()
    assert summary.steps == 2 * UPDATES
    assert summary.epochs == (3,)


def test_timed_steps_say_how_long_a_run_takes_before_any_cell_has_finished(dry_run):
    expected = dry_run().finetuning_time
    assert expected.timed_steps > 0
    assert 0 < expected.seconds < 60


def test_timed_steps_say_how_long_pretrainings_take(tmp_path):
    summary = glue_bench.run(PRETRAINED, results=tmp_path, dry_run=True)
    assert summary.pretraining_time.timed_steps > 0
    assert 0 < summary.pretraining_time.seconds < 60


def test_no_steps_are_timed_for_another_engine(tmp_path):
    summary = glue_bench.run(VALUES, results=tmp_path, dry_run=True, workers=1)
    assert summary.finetuning_time.seconds is None


def test_finished_cells_say_how_long_the_other_ones_take(dry_run, tmp_path):
    folder = tiny_runs.run(VALUES, tmp_path, only="task=cola")
    store = Store(folder)
    plan = store.plan()
    (record,) = store.finished(plan).records.values()
    first, second = plan.cells
    expected = record.seconds * plan.cost(second) / plan.cost(first)
    summary = dry_run()
    assert summary.seconds == pytest.approx(expected)
    assert summary.finetuning_time.timed_steps == 0


@pytest.fixture
def evaluate(tmp_path):
    """Evaluate a classifier on two tasks of the same classes."""
    folder = save_classifier(tmp_path / "mine", ("entailment", "not_entailment"))
    options = {"data": "demo", "limit": 24, "max_length": 32, "results": tmp_path}

    def evaluate_both(**more):
        return glue_bench.evaluate(str(folder), tasks=["rte", "qnli"], **options, **more)

    return evaluate_both


def test_timed_predictions_say_how_long_an_evaluation_takes(evaluate):
    summary = evaluate(dry_run=True)
    assert summary.rows == 2 * 24
    assert summary.steps == 0
    assert summary.evaluation_time.timed_steps > 0
    assert 0 < summary.seconds < 60


def test_finished_evaluations_say_how_long_the_other_ones_take(evaluate):
    evaluate(only="task=rte")
    summary = evaluate(dry_run=True)
    assert summary.rows == 24
    assert summary.evaluation_time.timed_steps == 0
    assert summary.seconds > 0


def test_a_result_that_lies_aside_is_not_called_damaged(dry_run, tmp_path):
    folder = tiny_runs.run(VALUES, tmp_path)
    cell = folder / "cells" / Store(folder).plan().cells[0].id
    cell.rename(cell.with_name(f".replaced-{cell.name}"))
    assert [*dry_run().reasons] == [
        "an interrupted run has set its result aside; the next run puts it back"
    ]
