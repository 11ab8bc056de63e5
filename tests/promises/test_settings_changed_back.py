"""What is asked of an experiment may change and change back: nothing that has finished runs again
or is doubted.

Some settings are in no id, because they change no weights: which checkpoints stay, how often a run
is validated, and what is predicted or kept. Each test runs an experiment, runs it with one of these
changed, and asks for the first one.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import tiny_runs

import glue_bench

CHANGES: dict[str, dict[str, Any]] = {
    "other checkpoints": {"pretraining": {"checkpoints": [1, 3]}},
    "the last checkpoint alone": {
        "pretraining": {"checkpoints": [], "finetune_checkpoints": False}
    },
    "fewer validations": {"pretraining": {"validations": 1}},
    "smaller parts of a batch": {"pretraining": {"micro_batch_tokens": 64}},
    "test splits": {"finetuning": {"predict": ["validation", "test"]}},
    "models": {"finetuning": {"keep": "all"}},
    "other seeds": {"seeds": [2]},
    "other tasks": {"tasks": ["cola"]},
}


def asked(**changes: Any) -> dict[str, Any]:
    """An experiment without dropout, which fine-tunes from two checkpoints of a pretraining."""
    kept = {"checkpoints": [2], "finetune_checkpoints": True}
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    first = tiny_runs.experiment(pretraining=kept, scratch=without_dropout)
    return tiny_runs.merged(first, changes)


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """The results of the first experiment."""
    return tiny_runs.run(asked(), tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module", params=CHANGES)
def folder(request, first, tmp_path_factory) -> Path:
    """These results after the changed experiment, too."""
    place = tmp_path_factory.mktemp("changed")
    shutil.copytree(first, place / first.name)
    return tiny_runs.run(asked(**CHANGES[request.param]), place)


def test_nothing_that_has_finished_runs_again(folder):
    summary = glue_bench.run(
        asked(), results=folder.parent, device="cpu", precision="float32", dry_run=True
    )
    assert summary.reasons == {}


def test_nothing_that_has_finished_is_doubted(folder):
    (verified,) = glue_bench.verify(folder)
    assert verified.faults == []


def test_cells_are_doubted_if_another_machine_has_made_other_weights(first, tmp_path):
    """As bf16 does."""
    shutil.copytree(first, tmp_path / first.name)
    changed = asked(**CHANGES["other checkpoints"])
    folder = tiny_runs.run(changed, tmp_path, precision="bf16")
    (verified,) = glue_bench.verify(folder)
    assert any("step2" in fault and "made again" in fault for fault in verified.faults)


def test_what_started_from_mnli_stays_when_that_runs_again_for_test_predictions_alone(tmp_path):
    """MNLI then keeps no model, because nothing starts from it."""
    first = asked(
        pretraining=None,
        checkpoint="scratch",
        tasks=["mnli", "rte"],
        finetuning={"from_mnli": ["rte"]},
    )
    changed = tiny_runs.merged(
        first, {"finetuning": {"from_mnli": [], "predict": ["validation", "test"]}}
    )
    for values in (first, changed):
        tiny_runs.run(values, tmp_path)
    summary = glue_bench.run(
        first, results=tmp_path, device="cpu", precision="float32", dry_run=True
    )
    assert summary.reasons == {}
