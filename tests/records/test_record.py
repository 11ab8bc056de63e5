"""Typed records: the JSON on disk stays as it is, byte for byte, also that of earlier versions."""

import hashlib
import json
from pathlib import Path

import pytest
from older_results import OLDER
from pydantic import ValidationError

from glue_bench.records.identity import PretrainingIdentity, pretrained_start, pretraining_of
from glue_bench.records.plan import Plan, ScratchSizes
from glue_bench.records.record import FailureRecord, PretrainingRecord, Record

RESULTS = Path(__file__).parents[2] / "results"
CELL = {"arm": "a", "variant": "add", "task": "rte", "learning_rate": 2e-05, "seed": 1, "steps": 10}
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size", "vocab_size")
SCORES = {"validation": {"accuracy": 0.5, "f1": None}}
ENVIRONMENT = {"glue_bench": "0.1.0", "git_commit": None, "python": "3.11.7", "packages": {"torch": "2.0"}}
ENVIRONMENT |= {"platform": "Linux", "processor": "x", "device": "cpu", "precision": "float32", "threads": 1}
RECORD = {
    "schema_version": 1,
    "cell_id": "a-rte",
    "experiment": "Zürich",
    "recipe": 2,
    "cell": CELL,
    "options": {"size": 3},
    "plugin": None,
    "checkpoint": {"name": "scratch", "revision": None, "digest": "pretraining 0a step 10", "recipe": 2},
    "shape": dict.fromkeys(SIZES, 8),
    "tokenizer": "t",
    "hyperparameters": {"epochs": 3, "learning_rate": 2e-05, "held_out_share": 0.5},
    "from_mnli": "a-mnli",
    "origin": "pretrained",
    "scores": SCORES,
    "history": [{"epoch": 1, "train_loss": 0.25, "scores": SCORES}],
    "collapsed": ["validation"],
    "seconds": {"total": 1.5, "training": 1.0},
    "tokens": {"training": 7},
    "parameters": 9,
    "micro_batch_size": 4,
    "environment": ENVIRONMENT,
    "precision": "float32",
    "graft_is_exact": None,
    "variance_kept": {"tokens": 0.5},
    "data": {"source": "tsv", "digest": "d", "partial": False},
    "diagnostic": {"digest": "x"},
    "pretraining_curve": "c",
    "predictions_sha256": "p",
    "digest": "q",
}
IDENTITY = {
    "variant": "add",
    "options": {},
    "tokenizer": "t",
    "plugin": "p",
    "recipe": 2,
    "start": "scratch {}",
    "corpus": "c",
    "packing": 1,
    "settings": {"steps": 8},
}
PRETRAINING = {
    "schema_version": 1,
    "pretraining_id": "a-0a",
    "recipe": 2,
    "arm": "a",
    "origin": "pretrained",
    "identity": IDENTITY,
    "steps": 8,
    "tokens": 64,
    "seconds": 1.5,
    "tokens_per_second": 10.5,
    "peak_memory_bytes": None,
    "stream": "s",
    "train_loss": 6.5,
    "validation_loss": 6.25,
    "validation_tokens": 5,
    "corpus_tokens": 6,
    "processes": 1,
    "losses": [{"step": 8, "tokens": 64, "train_loss": 6.5, "validation_loss": None, "seconds": 1.0}],
    "segment_pairs": 0.5,
    "micro_batch_tokens": 32,
    "environment": ENVIRONMENT,
    "validation_sha256": "v",
}
FAILURE = {"cell_id": "a", "origin": "grafted", **CELL, "recipe": 2, "from_mnli": "m", "error": "E", "traceback": "T"}
HASHED = {"options": {"size": 3}, "tokenizer": "t"}
ARM = {"variant": "add", "origin": "grafted", "start": "s", **HASHED, "older": {"1": HASHED}, "plugin": None}
ARM |= {"pretraining": "a-0a", "pretraining_identity": IDENTITY, "shape": dict.fromkeys(SIZES, 8)}
ARM |= dict.fromkeys(("parameters", "non_embedding_parameters", "added_over_add", "flops_per_token", "length"), 9)
PLAN = {
    "schema_version": 1,
    "experiment": "Zürich",
    "data_source": "tsv",
    "config": {"arms": [{"name": "a", "checkpoint": "scratch"}], "pretraining": None, "more": 1.5},
    "arms": {"a": ARM},
    "tasks": {"rte": {"data": "d", "hyperparameters": {"epochs": 3}}},
    "training_tokens": {"rte": 1000},
    "cells": [{"cell_id": "a-rte", "origin": "grafted", **CELL, "recipe": 2, "from_mnli": "m", "pretraining": "a-0b"}],
}
VALUES = {
    "record": (Record, RECORD),
    "pretraining": (PretrainingRecord, PRETRAINING),
    "failure": (FailureRecord, FAILURE | {"environment": ENVIRONMENT}),
    "plan": (Plan, PLAN),
    "identity": (PretrainingIdentity, IDENTITY),
}
EACH = pytest.mark.parametrize(("kind", "document"), VALUES.values(), ids=VALUES)


@EACH
def test_what_is_read_is_written_byte_for_byte(kind, document):
    assert json.dumps(kind.model_validate(document).document()) == json.dumps(document)


@EACH
def test_what_a_file_lacks_stays_away_and_defaults_of_newer_keys_are_not_written(kind, document):
    needed = {name: value for name, value in document.items() if kind.model_fields[name].is_required()}
    assert json.loads(json.dumps(kind.model_validate(needed).document())) == needed
    defaults = {name: kind.model_fields[name].default for name in kind.left_out}
    assert json.loads(json.dumps(kind(**needed, **defaults).document())) == needed


@pytest.mark.parametrize(
    ("kind", "files"),
    [(Record, "records/*.json"), (PretrainingRecord, "pretraining/*.json"), (Plan, "plan.json")],
    ids=["records", "pretraining", "plans"],
)
def test_what_earlier_versions_have_written_is_read_without_loss(kind, files):
    paths = sorted([*RESULTS.glob(f"*/{files}"), *OLDER.glob(files)])
    assert paths
    for path in paths:
        document = json.loads(path.read_bytes())
        written = json.loads(json.dumps(kind.model_validate(document).document()))
        for arms in (document.get("arms", {}), written.get("arms", {})):  # of a plan; not to be pretrained was a null
            arms |= {
                name: {key: fact for key, fact in facts.items() if fact is not None} for name, facts in arms.items()
            }
        assert written == document, path


@pytest.mark.parametrize(
    "change",
    [{"seconds": 2}, {"scores": [1]}, {"scores": {"validation": {"f1": 1.5}}}, {"parameters": None}, {"cell": {}}],
    ids=str,
)
def test_a_record_of_another_form_is_refused(change):
    with pytest.raises(ValidationError):
        Record.model_validate(RECORD | change)


def test_a_plan_says_in_attributes_what_readers_need_of_its_configuration():
    config = {
        "arms": [{"name": "a", "checkpoint": "org/bert", "revision": "r", "options": {"size": 3}, "later": 1}],
        "protocol": {"seeds": "median"},
        "finetuning": {"held_out_share": 0.5},
        "pretraining": {"start": "checkpoint", "batch_tokens": 64},
        "scratch": dict.fromkeys(ScratchSizes.model_fields, 8) | {"later": 1},
    }
    plan = Plan.model_validate(PLAN | {"config": config})
    assert (plan.protocol.seeds, plan.held_out_share, plan.batch_tokens) == ("median", 0.5, 64)
    assert (plan.pretrained_from, plan.scratch.vocab_size) == ("checkpoint", 8)
    assert (plan.configured("a").checkpoint, plan.configured("a").options) == ("org/bert", {"size": 3})
    assert plan.configured("b").checkpoint == ""
    assert (list(plan.document()), plan.document()["config"]) == (list(PLAN), config)
    bare = Plan.model_validate(PLAN | {"config": {"pretraining": None}})
    assert (bare.protocol.seeds, bare.held_out_share, bare.pretrained_from, bare.scratch) == ("mean", None, None, None)


def test_an_identity_hashes_keys_of_other_versions_and_leaves_out_what_says_nothing():
    identity = PretrainingIdentity.model_validate(IDENTITY)
    assert PretrainingIdentity.model_validate(IDENTITY | {"later": 1}).digest != identity.digest
    first = {key: value for key, value in IDENTITY.items() if key not in ("plugin", "recipe")}
    digest = hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()[:12]
    assert PretrainingIdentity(**first, plugin=None, recipe=1).digest == digest
    assert identity.digest != digest


def test_a_planned_cell_is_identified_as_its_recipe_hashes_it():
    older = {"1": {"options": {"size": "three"}, "tokenizer": "first"}}
    plan = Plan.model_validate(PLAN | {"arms": {"a": ARM | {"older": older}}})
    (cell,) = plan.cells
    now, then = plan.identity(cell), plan.identity(cell.model_copy(update={"recipe": 1, "pretraining": None}))
    assert (now.options, now.tokenizer, now.start) == ({"size": 3}, "t", "pretraining 0b step 10")
    assert (then.options, then.tokenizer, then.start) == ({"size": "three"}, "first", "pretraining 0a step 10")
    assert now.hyperparameters == {"learning_rate": 2e-5, "epochs": 3}
    with pytest.raises(KeyError):
        plan.identity(cell.model_copy(update={"task": "cola"}))


@pytest.mark.parametrize("steps", [None, 0, 8000])
def test_a_start_from_a_pretraining_is_told_from_others(steps):
    start = "scratch {}" if steps is None else pretrained_start("0a1b", steps)
    assert pretraining_of(start) == (None if steps is None else ("0a1b", steps))


def test_records_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Record.model_validate(RECORD).parameters = 2
