"""Values on disk: what decides an id, what a digest covers, what is refused, and where they are from."""

import json
import pickle
import subprocess
from typing import Any

import pytest
from pydantic import ValidationError
from stored import cell_with, digest, plan_with, pretrained_of, pretraining_with, record_of

from glue_bench.config import Hyperparameters, RateSearch
from glue_bench.records import value as value_module
from glue_bench.records import values
from glue_bench.records.value import Sealed
from glue_bench.records.values import Cell, Failure, Plan, PretrainingRecord, Record

CELL: dict[str, Any] = {
    **{"arm": "other", "variant": "concat", "options": {"init": "random"}, "plugin": digest("a plugin")},
    **{"tokenizer": digest("other"), "checkpoint": "scratch {}", "task": "mrpc", "data": digest("other"), "seed": 2},
    **{"pretraining": "add-123", "pretraining_seed": 2, "steps": 5, "mnli": "add-mnli-123", "origin": "adapted"},
    "settings": Hyperparameters(**dict(cell_with().settings) | {"epochs": 4}),
}
"""Of each field but the id another value."""
PRETRAINING: dict[str, Any] = {
    **{name: CELL[name] for name in ("arm", "variant", "options", "plugin", "tokenizer", "origin")},
    **{"checkpoint": digest("other"), "corpus": digest("other"), "packing": 3, "parts": 64, "searches": ("add-1",)},
    **{"is_search": True, "rate": 0.5, "settings": pretraining_with(steps=2).settings},
}
SETTINGS: dict[str, Any] = {
    **{"learning_rate": 0.5, "epochs": 9, "batch_size": 9, "max_length": 9, "warmup_ratio": 0.5, "weight_decay": 0.5},
    **{"adam_epsilon": 0.5, "clip_norm": 0.5, "max_steps": 9, "held_out_share": 0.5, "predictions": "float16"},
}
PRETRAINING_SETTINGS: dict[str, Any] = {
    **{"corpus": ["elsewhere"], "documents": "blank_lines", "segments": "pairs", "start": "checkpoint"},
    **{"tokenizer": "elsewhere", "steps": 9, "batch_tokens": 9, "micro_batch_tokens": 9, "length": 9},
    **{"mask_probability": 0.5, "learning_rates": [0.5], "schedule": "trapezoid", "warmup_ratio": 0.5},
    **{"rate_search": RateSearch(steps=1), "decay_share": 0.5, "dropout": 0.5, "weight_decay": 0.5},
    **{"adam_epsilon": 0.5, "clip_norm": 0.5, "seeds": [9], "validation_share": 0.5, "validations": 9},
    **{"checkpoints": [1], "finetune_checkpoints": True},
}
WATCH = {"corpus", "tokenizer", "checkpoints", "finetune_checkpoints", "validations", "micro_batch_tokens"}


@pytest.mark.parametrize(
    ("job", "others", "free", "settings", "watch"),
    [
        (cell_with(), CELL, {"origin"}, SETTINGS, set()),
        (pretraining_with(), PRETRAINING, {"origin", "rate"}, PRETRAINING_SETTINGS, WATCH),
    ],
    ids=["cell", "pretraining"],
)
def test_every_field_and_setting_decides_the_id_but_those_that_are_not_hashed(job, others, free, settings, watch):
    def alike(**changes) -> bool:
        return job.model_copy(update=changes).true_id[-12:] == job.true_id[-12:]

    assert {*others, "id"} == set(type(job).model_fields)
    assert {name for name in others if alike(**{name: others[name]})} == free
    assert settings.keys() == type(job.settings).model_fields.keys()
    settled = {name: job.settings.model_copy(update={name: value}) for name, value in settings.items()}
    assert {name for name, each in settled.items() if alike(settings=each)} == watch


def test_a_number_for_how_training_computes_decides_every_id(monkeypatch):
    before = cell_with().id, pretraining_with().id
    monkeypatch.setattr(values, "COMPUTES", 2)
    assert not {*before} & {cell_with().id, pretraining_with().id}


def test_an_id_begins_with_what_people_call_it_and_stays_when_it_is_read():
    cell = cell_with(learning_rate=3e-4, seed=2, pretraining_seed=2, steps=10, pretraining="add-1")
    assert cell.id == f"add-rte-lr0.0003-s2-p2-step10-{cell.true_id[-12:]}"
    assert cell_with(pretraining_seed=1, steps=10, pretraining="add-1").id.startswith("add-rte-lr2e-05-s1-step10-")
    assert Cell.model_validate(cell.document() | {"id": "of-an-older-version"}).id == "of-an-older-version"
    assert Cell.model_validate(cell.document()) == cell == pickle.loads(pickle.dumps(cell))
    one, other = ({"a": 1, "b": [0.5, None]}, {"b": [0.5, None], "a": 1})
    assert cell_with(options=one).id == cell_with(options=other).id != cell_with(options={"a": 1}).id


@pytest.mark.parametrize(("rates", "chosen", "rate"), [(1, None, 0.5), (1, 0.25, 0.25), (2, None, None), (2, 0.1, 0.1)])
def test_a_pretraining_has_its_only_rate_or_the_one_that_its_search_has_chosen(rates, chosen, rate):
    settings = {"learning_rates": [0.5, 0.1][:rates]} | ({"rate_search": {"steps": 1}} if rates > 1 else {})
    assert pretraining_with(settings=settings, rate=chosen).learning_rate == rate


def test_a_job_in_words():
    assert cell_with(pretraining_seed=1, steps=10).label == "add after 10 steps on rte, rate 2e-05, seed 1"
    assert cell_with(pretraining_seed=2, steps=10).label == "add after 10 steps of seed 2 on rte, rate 2e-05, seed 1"
    assert (pretraining_with().label, pretraining_with(seed=2).label) == ("add", "add, seed 2")
    search = pretraining_with(steps=1000, is_search=True, settings={"learning_rates": [1e-3]})
    assert search.label == "add, rate 0.001 for 1,000 steps"
    assert cell_with(steps=10, pretraining_seed=2).key == {
        **{"arm": "add", "variant": "add", "task": "rte", "learning_rate": 2e-5, "seed": 1},
        **{"steps": 10, "pretraining_seed": 2},
    }


SEALED: dict[str, Sealed] = {
    "record": record_of(scores={"validation": {"f1": None, "accuracy": 1 / 3}}, seconds=0.1),
    "pretraining": pretrained_of(pretraining_with(), weights={1: digest("weights")}, segment_pairs=0.1),
    "plan": plan_with(cell_with(), pretrainings=(pretraining_with(),)),
}


@pytest.mark.parametrize("value", SEALED.values(), ids=SEALED)
def test_a_sealed_value_is_read_as_it_was_written_and_every_bit_of_its_file_is_covered(value):
    value = value.seal()
    content, told = value.file(), json.loads(value.file())
    assert type(value).read(content) == value == value.seal()
    assert None not in told.values()
    assert told.get("scores", SEALED["record"].scores) == SEALED["record"].scores  # undefined ones included
    bits = [(content[:place], byte ^ 1 << place % 8, content[place + 1 :]) for place, byte in enumerate(content)]
    cut = [content[:size] for size in (0, 5, 80, len(content) - 1)]
    for damaged in (*cut, *(before + bytes([byte]) + after for before, byte, after in bits)):
        with pytest.raises(ValueError, match="changed since"):
            type(value).read(damaged)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *[(Cell, change) for change in ({"id": "../a"}, {"id": ".a"}, {"arm": "a/b"}, {"task": "rtee"}, {"data": "d"})],
        *[(Cell, change) for change in ({"origin": "graftd"}, {"seed": 2**63}, {"checkpoint": "\x1b[2J"}, {"more": 1})],
        *[(Record, change) for change in ({"scores": {"validation": {"f1": 1.5}}}, {"seconds": float("nan")})],
        *[(Record, change) for change in ({"weights": "short"}, {"parameters": 1e99}, {"history": [{}]}, {"cell": {}})],
        *[(PretrainingRecord, {"weights": {"one": digest("a")}}), (Plan, {"cells": [{}]})],
    ],
)
def test_what_no_run_writes_is_refused(kind, changes):
    made = {Cell: cell_with(), Record: record_of(), PretrainingRecord: SEALED["pretraining"], Plan: SEALED["plan"]}
    told = made[kind].document()
    assert kind.model_validate(told) == made[kind]
    with pytest.raises(ValidationError):
        kind.model_validate(told | changes)


def test_what_an_error_says_is_kept_as_a_terminal_may_have_it():
    failure = Failure(id="a", error="bad \x1b[2J\ud800 thing\nsecond line", traceback="x" * 2**20)
    assert "\x1b" not in failure.error
    assert failure.error.endswith("thing\nsecond line")
    assert len(failure.traceback) <= 2**16
    assert Failure.model_validate_json(failure.model_dump_json()) == failure


# Where they are from


def git(folder, *arguments) -> str:
    command = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_commit_is_not_that_of_a_project_in_which_the_package_is_only_installed(tmp_path, monkeypatch):
    package = tmp_path / ".venv" / "glue_bench"
    (package / "records").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(value_module, "__file__", str(package / "records" / "value.py"))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "their own")
    assert value_module.versions.__wrapped__().git_commit is None
    git(tmp_path, "add", ".venv/glue_bench/__init__.py")  # as in a checkout of it
    assert value_module.versions.__wrapped__().git_commit == git(tmp_path, "rev-parse", "HEAD").strip() + "+changes"


FIRST = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu model name\n"


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (f"{FIRST}\n{FIRST.replace('26', '25')}", "AMD EPYC (family 26, model 2)"),
        ("model name\t: ARMv8 Processor rev 1\n", "ARMv8 Processor rev 1"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n\n", ""),
    ],
    ids=["two", "no family", "no name"],
)
def test_a_processor_is_named_with_its_family(cpuinfo, name):
    assert value_module.name_processor(cpuinfo) == name
