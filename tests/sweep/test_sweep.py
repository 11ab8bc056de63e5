"""A sweep in this process: what it writes, skips and survives, and why a job runs."""

import pytest
from tiny_sweeps import contents, records

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.data.metrics import score_logits
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.attempt import make_worker
from glue_bench.sweep.plan import make_plan
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")


def test_a_sweep_leaves_a_record_a_cell(sweep, tiny):
    summary = sweep(tiny())
    assert (summary.planned, summary.skipped, summary.finished, summary.failed) == (4, 0, 4, {})
    assert sweep.ended == ["add cola", "none cola", "add stsb", "none stsb"]
    assert {record.cell.id for record in records(summary).values()} == set(summary.waiting)
    names = {path.name for path in summary.folder.iterdir() if not path.name.startswith(".")}
    assert names == {"cells", "labels", "plan.json", "progress"} - ({"progress"} - names)


def test_predictions_and_gold_labels_give_every_score(sweep, tiny):
    summary = sweep(tiny(arms=["add"], tasks=list(TRAINABLE)))
    store = Store(summary.folder)
    for record in records(summary).values():
        logits, labels = store.logits(record), store.labels(record.cell.task, record.cell.data)["gold"]
        assert set(labels) == set(record.scores) == set(logits)
        for split, scores in record.scores.items():
            assert score_logits(record.cell.task, logits[split], labels[split]) == pytest.approx(scores, abs=1e-6)


def test_a_record_says_where_it_comes_from(sweep, tiny, make_bert):
    folder = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    found = records(sweep(tiny(checkpoint=str(folder), arms=["add", "concat", "none"], tasks=["cola"])))
    facts = {record.cell.arm: (record.cell.origin, record.graft_is_exact) for record in found.values()}
    assert facts == {"add": ("pretrained", None), "concat": ("grafted", True), "none": ("grafted", False)}
    assert len({record.cell.checkpoint for record in found.values()}) == 1
    assert len({record.started_from for record in found.values()}) == 3
    environment = found["add cola"].environment
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(environment.packages)
    assert (environment.device, environment.precision, environment.threads) == ("cpu", "float32", 1)


def test_finished_cells_are_skipped_and_nothing_is_written_twice(sweep, tiny):
    first = sweep(tiny(), only=["task=cola"])
    before = contents(first.folder / "cells")
    second = sweep(tiny())
    assert (second.planned, second.skipped, second.finished) == (4, 2, 2)
    assert sweep.ended == ["add stsb", "none stsb"]
    written = contents(first.folder)
    assert before.items() <= contents(first.folder / "cells").items()
    third = sweep(tiny())
    assert (third.skipped, third.finished, third.waiting) == (4, 0, ())
    assert contents(first.folder) == written


# Failures and interruptions


def test_a_failing_cell_does_not_end_the_sweep_and_is_tried_again(sweep, tiny, moody):
    moody(RuntimeError("out of luck"))
    summary = sweep(tiny(arms=["moody", "none"]))
    assert sweep.ended == ["moody cola", "none cola", "moody stsb", "none stsb"]
    assert summary.finished == 2
    assert set(summary.failed.values()) == {"RuntimeError: out of luck"}
    store = Store(summary.folder)
    for failure in store.failures(store.plan()):
        assert failure.id in summary.failed
        assert "Traceback (most recent call last)" in failure.traceback
        assert failure.environment.device == "cpu"
    moody(None)
    again = sweep(tiny(arms=["moody", "none"]))
    assert (again.skipped, again.finished, again.failed) == (2, 2, {})
    assert store.failures(store.plan()) == []


def test_a_diverging_cell_is_a_failure(sweep, tiny):
    summary = sweep(tiny(arms=["add"], tasks=["stsb"], finetuning={"learning_rates": [100.0], "weight_decay": 1e9}))
    (error,) = summary.failed.values()
    assert error.startswith("NonFiniteLossError: ")
    assert not records(summary)


@pytest.mark.parametrize("content", [b"", b'{"cell', b"\0" * 300], ids=["empty", "half", "zeros"])
def test_a_record_that_is_damaged_is_run_again_and_everything_else_written_anew(sweep, tiny, content):
    folder = sweep(tiny(arms=["add"])).folder
    before = contents(folder)
    path = min(folder.glob("cells/*/record.json"))
    for each in (path, folder / "plan.json"):
        each.write_bytes(content)
    dry = sweep(tiny(arms=["add"]), dry_run=True)
    assert dry.reasons == {"its record is damaged": 1}
    again = sweep(tiny(arms=["add"]))
    assert (again.skipped, again.finished, again.failed) == (1, 1, {})
    assert contents(folder).keys() == before.keys()
    assert (folder / "plan.json").read_bytes() == before["plan.json"]


def test_a_machine_with_other_files_than_the_plan_was_made_of_ends_the_sweep(tiny, small_demo, tmp_path):
    experiment = load_experiment(tiny(arms=["add"], tasks=["cola"]))
    (cell,) = make_plan(experiment, Inputs(experiment)).cells
    small_demo(train=40)
    worker = make_worker(experiment, tmp_path, "cpu", "float32")
    with pytest.raises(
        UserError, match=rf"has another tokenizer, data for '{cell.id}' than the machine that planned it"
    ):
        worker.run(cell)
    assert worker.store.recorded() == set()


# Why a job runs


@pytest.fixture
def why(sweep):
    """The reasons of a dry run, with their counts."""
    return lambda values: sweep(values, dry_run=True).reasons


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"finetuning": {"epochs": 2}}, {"finetuning.epochs 1 -> 2": 4}),
        (
            {"finetuning": {"epochs": 2, "batch_size": 8}},
            {"finetuning.batch_size 16 -> 8, finetuning.epochs 1 -> 2": 4},
        ),
        ({"finetuning": {"tasks": {"cola": {"max_length": 16}}}}, {"finetuning.max_length 32 -> 16": 2}),
        ({"arms": ["add", {"variant": "none", "options": {"segments": "none"}}]}, {"options.segments - -> none": 2}),
    ],
    ids=str,
)
def test_an_edited_file_is_compared_with_what_is_stored(sweep, tiny, why, changes, expected):
    sweep(tiny())
    assert why(tiny()) == {}
    assert why(tiny(seeds=[1, 2])) == {"not run yet": 4}
    assert why(tiny(**changes)) == expected


def test_other_data_and_other_text_are_told_by_their_digests(sweep, tiny, why, small_demo):
    sweep(tiny(tasks=["cola"], scratch=None, arms=["add"]))
    small_demo(validation=20)
    ((reason, count),) = why(tiny(tasks=["cola"], scratch=None, arms=["add"])).items()
    assert count == 1
    name, before, arrow, after = reason.split()
    assert (name, arrow, len(before), len(after)) == ("data", "->", 12, 12)


def test_a_change_of_the_pretraining_is_told_of_its_cells_too(sweep, pretrained, why):
    sweep(pretrained())
    assert why(pretrained({"steps": 11})) == {"pretraining.steps 10 -> 11": 4}
    assert why(pretrained({"dropout": 0.2})) == {"pretraining.dropout - -> 0.2": 4}


def test_a_failure_is_the_reason_until_it_is_past(sweep, tiny, why, moody):
    moody(RuntimeError("out of luck"))
    values = tiny(arms=["moody"], tasks=["cola"])
    sweep(values)
    moody(None)
    assert why(values) == {"it failed: RuntimeError: out of luck": 1}
    sweep(values)
    assert why(values) == {}


def test_what_is_made_again_says_what_it_lacks(sweep, tiny, why):
    values = tiny(arms=["add"], tasks=["mnli", "rte"], finetuning={"from_mnli": ["rte"]})
    folder = sweep(values, only=["task=mnli"]).folder
    (source,) = (cell for cell in Store(folder).plan().cells if cell.task == "mnli")
    Store(folder).drop_model(source.id)
    assert why(values) == {"its weights are gone, and others start from them": 1, "not run yet": 1}
    sweep(tiny(arms=["add"], name="other"))
    assert why(tiny(arms=["add"], name="other", finetuning={"keep": "all"})) == {
        "it has left no model or no test predictions, which are asked for": 2
    }
