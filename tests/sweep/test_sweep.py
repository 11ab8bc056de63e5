"""A sweep in this process: what it writes, skips and survives, and why a job runs."""

import pytest
from helpers.tiny_runs import contents, plan, records

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.worker import make_worker

pytestmark = pytest.mark.usefixtures("small_demo")


def test_a_sweep_leaves_a_record_a_cell_and_nothing_is_written_twice(sweep, tiny):
    first = sweep(tiny(), only=["task=cola"])
    before = contents(first.folder / "cells")
    second = sweep(tiny())
    assert (second.planned, second.skipped, second.finished, second.failed) == (4, 2, 2, {})
    assert sweep.ended == ["add stsb", "none stsb"]
    assert {record.cell.id for record in records(second).values()} == {
        *first.waiting,
        *second.waiting,
    }
    names = {path.name for path in second.folder.iterdir() if not path.name.startswith(".")}
    assert names == {"cells", "labels", "plan.json", "progress"}
    written = contents(second.folder)
    assert before.items() <= contents(second.folder / "cells").items()
    third = sweep(tiny())
    assert (third.skipped, third.finished, third.waiting) == (4, 0, ())
    assert contents(third.folder) == written


def test_a_record_says_where_it_comes_from(sweep, tiny, make_bert):
    folder = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    found = records(
        sweep(tiny(checkpoint=str(folder), arms=["add", "concat", "none"], tasks=["cola"]))
    )
    facts = {
        record.cell.arm: (record.cell.origin, record.graft_is_exact) for record in found.values()
    }
    assert facts == {
        "add": ("pretrained", None),
        "concat": ("grafted", True),
        "none": ("grafted", False),
    }
    assert len({record.cell.checkpoint for record in found.values()}) == 1
    assert len({record.started_from for record in found.values()}) == 3
    environment = found["add cola"].environment
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(environment.packages)
    assert (environment.device, environment.precision, environment.threads) == ("cpu", "float32", 1)


def test_a_failing_cell_does_not_end_the_sweep_and_is_tried_again(sweep, tiny, why, moody):
    moody.side_effect = RuntimeError("out of luck")
    values = tiny(arms=["moody", "none"])
    summary = sweep(values)
    assert sweep.ended == ["moody cola", "none cola", "moody stsb", "none stsb"]
    assert summary.finished == 2
    assert set(summary.failed.values()) == {"RuntimeError: out of luck"}
    store = Store(summary.folder)
    for failure in store.failures(store.plan(), store.recorded()):
        assert failure.id in summary.failed
        assert "Traceback (most recent call last)" in failure.traceback
        assert failure.environment.device == "cpu"
    moody.side_effect = None
    assert why(values) == {"it failed: RuntimeError: out of luck": 2}
    again = sweep(values)
    assert (again.skipped, again.finished, again.failed) == (2, 2, {})
    assert store.failures(store.plan(), store.recorded()) == []
    assert why(values) == {}


def test_a_record_that_is_damaged_is_run_again_and_everything_else_written_anew(sweep, tiny, why):
    folder = sweep(tiny(arms=["add"])).folder
    before = contents(folder)
    for content in (b"", b'{"cell', b"\0" * 300):
        for path in (min(folder.glob("cells/*/record.json")), folder / "plan.json"):
            path.write_bytes(content)
        assert why(tiny(arms=["add"])) == {"its record is damaged": 1}
        again = sweep(tiny(arms=["add"]))
        assert (again.skipped, again.finished, again.failed) == (1, 1, {})
        assert contents(folder).keys() == before.keys()
        assert (folder / "plan.json").read_bytes() == before["plan.json"]


def test_a_machine_with_other_files_than_the_plan_was_made_of_ends_the_sweep(
    tiny, small_demo, tmp_path
):
    experiment = load_experiment(values := tiny(arms=["add"], tasks=["cola"]))
    (cell,) = plan(values).cells
    small_demo(train=40)
    worker = make_worker(experiment, tmp_path, "cpu", "float32")
    with pytest.raises(UserError, match=f"has another tokenizer, data for '{cell.id}' than"):
        worker.run(cell)
    assert worker.store.recorded() == set()


def test_an_edited_file_is_compared_with_what_is_stored(sweep, tiny, why, small_demo):
    sweep(tiny())
    batch = {"epochs": 2, "batch_size": 8}
    for changes, expected in (
        ({}, {}),
        ({"seeds": [1, 2]}, {"not run yet": 4}),
        ({"finetuning": {"epochs": 2}}, {"finetuning.epochs 1 -> 2": 4}),
        ({"scratch": {"hidden_size": 48}}, {"scratch.hidden_size 16 -> 48": 4}),
        ({"finetuning": batch}, {"finetuning.batch_size 16 -> 8, finetuning.epochs 1 -> 2": 4}),
        (
            {"finetuning": {"tasks": {"cola": {"max_length": 16}}}},
            {"finetuning.max_length 32 -> 16": 2},
        ),
        (
            {"arms": ["add", {"variant": "none", "options": {"segments": "none"}}]},
            {"options.segments - -> none": 2},
        ),
        ({"finetuning": {"keep": "all"}}, {"it has left no model, which is asked for": 4}),
    ):
        assert why(tiny(**changes)) == expected
    small_demo(validation=20)
    for reason in why(tiny()):
        name, before, arrow, after = reason.split()
        assert (name, arrow, len(before), len(after)) == ("data", "->", 12, 12)
