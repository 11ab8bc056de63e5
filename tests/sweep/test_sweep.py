"""A sweep in this process: what it writes, skips and survives, and why a job runs."""

from typing import Any

import pytest
from helpers.tiny_runs import contents, plan, records

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.run import Summary
from glue_bench.sweep.worker import make_worker

pytestmark = pytest.mark.usefixtures("small_demo")


def test_a_sweep_leaves_a_record_a_cell(sweep, tiny):
    first = sweep(tiny(), only=["task=cola"])
    second = sweep(tiny())
    stored = {record.cell.id for record in records(second).values()}
    assert stored == {*first.waiting, *second.waiting}
    names = {path.name for path in second.folder.iterdir() if not path.name.startswith(".")}
    assert names == {"cells", "labels", "plan.json", "progress"}


def test_a_sweep_runs_only_the_cells_that_are_missing(sweep, tiny):
    first = sweep(tiny(), only=["task=cola"])
    before = contents(first.folder / "cells")
    second = sweep(tiny())
    assert sweep.ended == ["add stsb", "none stsb"]
    assert (second.planned, second.skipped, second.finished) == (4, 2, 2)
    assert before.items() <= contents(second.folder / "cells").items()


def test_a_sweep_without_missing_cells_writes_nothing(sweep, tiny):
    first = sweep(tiny())
    before = contents(first.folder)
    second = sweep(tiny())
    assert (second.skipped, second.finished, second.waiting) == (4, 0, ())
    assert contents(second.folder) == before


@pytest.fixture
def three_starts(sweep, tiny, make_bert):
    """Records of three arms that start from one checkpoint, by arm and task."""
    folder = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    arms = ["add", "concat", "none"]
    return records(sweep(tiny(checkpoint=str(folder), arms=arms, tasks=["cola"])))


@pytest.mark.parametrize(
    ("arm", "origin", "is_exact"),
    [("add", "pretrained", None), ("concat", "grafted", True), ("none", "grafted", False)],
)
def test_a_record_says_where_its_weights_come_from(three_starts, arm, origin, is_exact):
    record = three_starts[f"{arm} cola"]
    assert record.cell.origin == origin
    assert record.graft_is_exact == is_exact


def test_arms_of_one_checkpoint_start_from_other_weights(three_starts):
    assert len({record.cell.checkpoint for record in three_starts.values()}) == 1
    assert len({record.started_from for record in three_starts.values()}) == 3


def test_a_record_says_where_it_was_computed(sweep, tiny):
    found_records = records(sweep(tiny(arms=["add"], tasks=["cola"])))
    environment = found_records["add cola"].environment
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(environment.packages)
    assert environment.device == "cpu"
    assert environment.precision == "float32"
    assert environment.threads == 1


@pytest.fixture
def half_failed(sweep, tiny, moody) -> tuple[dict[str, Any], Summary]:
    """An experiment with four cells of which those of one arm failed, and its summary."""
    moody.side_effect = RuntimeError("out of luck")
    values = tiny(arms=["moody", "none"])
    return values, sweep(values)


def test_a_failing_cell_does_not_end_the_sweep(half_failed, sweep):
    _, summary = half_failed
    assert sweep.ended == ["moody cola", "none cola", "moody stsb", "none stsb"]
    assert summary.finished == 2
    assert list(summary.failed.values()) == ["RuntimeError: out of luck"] * 2


def test_a_failure_is_stored_with_its_traceback_and_its_machine(half_failed):
    _, summary = half_failed
    store = Store(summary.folder)
    failures = store.failures(store.plan(), store.recorded())
    assert {failure.id for failure in failures} == set(summary.failed)
    for failure in failures:
        assert "Traceback (most recent call last)" in failure.traceback
        assert failure.environment.device == "cpu"


def test_a_failure_is_a_reason_to_run_again(half_failed, reasons_of):
    values, _ = half_failed
    assert reasons_of(values) == {"it failed: RuntimeError: out of luck": 2}


def test_failed_cells_are_tried_again_and_their_failures_go(half_failed, sweep, reasons_of, moody):
    values, _ = half_failed
    moody.side_effect = None
    summary = sweep(values)
    assert (summary.skipped, summary.finished, summary.failed) == (2, 2, {})
    store = Store(summary.folder)
    assert store.failures(store.plan(), store.recorded()) == []
    assert reasons_of(values) == {}


@pytest.mark.parametrize("content", [b"", b'{"cell', b"\0" * 300], ids=["empty", "cut", "zeros"])
@pytest.mark.parametrize("pattern", ["cells/*/record.json", "plan.json"])
def test_what_is_damaged_is_written_again(sweep, tiny, reasons_of, content, pattern):
    values = tiny(arms=["add"])
    folder = sweep(values).folder
    before = contents(folder)
    path = min(folder.glob(pattern))
    path.write_bytes(content)
    is_record = pattern != "plan.json"
    assert reasons_of(values) == ({"its record is damaged": 1} if is_record else {})
    summary = sweep(values)
    assert summary.finished == int(is_record)
    assert summary.failed == {}
    assert contents(folder).keys() == before.keys()
    assert (folder / "plan.json").read_bytes() == before["plan.json"]


def test_a_machine_with_other_files_than_the_plan_was_made_of_ends_the_sweep(
    tiny, small_demo, tmp_path
):
    values = tiny(arms=["add"], tasks=["cola"])
    experiment = load_experiment(values)
    (cell,) = plan(values).cells
    small_demo(train=40)
    worker = make_worker(experiment, tmp_path, "cpu", "float32")
    with pytest.raises(UserError, match=f"has another tokenizer, data for '{cell.id}' than"):
        worker.run(cell)
    assert worker.store.recorded() == set()


TUNING = "finetuning"
EDITS = [
    ({}, {}),
    ({"seeds": [1, 2]}, {"not run yet": 4}),
    ({TUNING: {"epochs": 2}}, {"finetuning.epochs 1 -> 2": 4}),
    ({"scratch": {"hidden_size": 48}}, {"scratch.hidden_size 16 -> 48": 4}),
    (
        {TUNING: {"epochs": 2, "batch_size": 8}},
        {"finetuning.batch_size 16 -> 8, finetuning.epochs 1 -> 2": 4},
    ),
    ({TUNING: {"tasks": {"cola": {"max_length": 16}}}}, {"finetuning.max_length 32 -> 16": 2}),
    (
        {"arms": ["add", {"variant": "none", "options": {"segments": "none"}}]},
        {"options.segments - -> none": 2},
    ),
    ({TUNING: {"keep": "all"}}, {"its model is asked for, and is not there": 4}),
]


def test_an_edited_file_is_compared_with_what_is_stored(sweep, tiny, reasons_of):
    sweep(tiny())
    for changes, expected in EDITS:
        assert reasons_of(tiny(**changes)) == expected


def test_other_data_are_a_reason_to_run(sweep, tiny, reasons_of, small_demo):
    sweep(tiny())
    small_demo(validation=20)
    for reason in reasons_of(tiny()):
        name, before, arrow, after = reason.split()
        assert (name, arrow) == ("data", "->")
        assert len(before) == len(after) == 12
