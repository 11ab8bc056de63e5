"""Values on disk: what decides an id, what a digest covers, and what is refused."""

import json
import pickle
from typing import Any

import pytest
from pydantic import ValidationError
from stored import DATA, cell_with, digest, plan_with, pretrained_of, pretraining_with, record_of

from glue_bench.config import Hyperparameters, RateSearch
from glue_bench.records import values
from glue_bench.records.plan import Plan
from glue_bench.records.value import Sealed
from glue_bench.records.values import Cell, Failure, Pretraining, PretrainingRecord, Record

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
    **{
        "rate_search": RateSearch(steps=1),
        "decay_share": 0.5,
        "dropout": 0.5,
        "weight_decay": 0.5,
        "adam_epsilon": 0.5,
    },
    **{"clip_norm": 0.5, "seeds": [9], "validation_share": 0.5, "validations": 9, "checkpoints": [1]},
    "finetune_checkpoints": True,
}


def changed(job: Cell | Pretraining, **changes: Any) -> str:
    """What the id of the job would end in with other fields."""
    return job.model_copy(update=changes).hash


@pytest.mark.parametrize(
    ("job", "others", "free"),
    [(cell_with(), CELL, {"origin"}), (pretraining_with(), PRETRAINING, {"origin", "rate"})],
)
def test_every_field_decides_the_id_but_those_that_are_not_hashed(job, others, free):
    assert {*others, "id"} == set(type(job).model_fields)
    same = {name for name, value in others.items() if changed(job, **{name: value}) == job.hash}
    assert same == free


def test_every_setting_of_a_cell_decides_its_id():
    cell = cell_with()
    assert SETTINGS.keys() == Hyperparameters.model_fields.keys()
    settled = {name: cell.settings.model_copy(update={name: value}) for name, value in SETTINGS.items()}
    ids = {name: changed(cell, settings=settings) for name, settings in settled.items()}
    assert len({cell.hash, *ids.values()}) == len(ids) + 1


def test_every_setting_of_a_pretraining_decides_its_id_but_those_that_only_watch():
    job = pretraining_with()
    assert PRETRAINING_SETTINGS.keys() == type(job.settings).model_fields.keys()
    settled = {name: job.settings.model_copy(update={name: value}) for name, value in PRETRAINING_SETTINGS.items()}
    ids = {name: changed(job, settings=settings) for name, settings in settled.items()}
    watch = {"corpus", "tokenizer", "checkpoints", "finetune_checkpoints", "validations", "micro_batch_tokens"}
    assert {name for name, made in ids.items() if made == job.hash} == watch
    assert len(set(ids.values())) == len(ids) - len(watch) + 1


def test_a_number_for_how_training_computes_decides_every_id(monkeypatch):
    before = cell_with().id, pretraining_with().id
    monkeypatch.setattr(values, "COMPUTES", 2)
    assert not {*before} & {cell_with().id, pretraining_with().id}


def test_an_id_begins_with_what_people_call_it_and_stays_when_it_is_read():
    cell = cell_with(learning_rate=3e-4, seed=2, pretraining_seed=2, steps=10, pretraining="add-1")
    assert cell.id == f"add-rte-lr0.0003-s2-p2-step10-{cell.hash}"
    assert len(cell.hash) == 12
    first = cell_with(pretraining_seed=1, steps=10, pretraining="add-1")
    assert first.id.startswith("add-rte-lr2e-05-s1-step10-")
    older = {**cell.document(), "id": "add-rte-of-an-older-version"}
    assert Cell.model_validate(older).id == "add-rte-of-an-older-version"
    assert Cell.model_validate(cell.document()) == cell == pickle.loads(pickle.dumps(cell))


def test_options_decide_by_what_they_say_and_not_by_their_order():
    one, other = ({"a": 1, "b": [0.5, None]}, {"b": [0.5, None], "a": 1})
    assert cell_with(options=one).id == cell_with(options=other).id != cell_with(options={"a": 1}).id


def test_a_job_comes_after_what_it_starts_from():
    assert cell_with().after == ()
    assert cell_with(pretraining="add-1", mnli="add-mnli-1").after == ("add-1", "add-mnli-1")
    assert pretraining_with(searches=("add-1", "add-2")).after == ("add-1", "add-2")
    plan = plan_with(cell_with(), pretrainings=(pretraining_with(),))
    assert [job.id for job in plan.jobs] == [pretraining_with().id, cell_with().id]


@pytest.mark.parametrize(
    ("settings", "rate", "said"),
    [({"learning_rates": [0.5]}, None, 0.5), ({"learning_rates": [0.5]}, 0.25, 0.25),
     ({"learning_rates": [0.5, 0.25], "rate_search": {"steps": 1}}, None, None),
     ({"learning_rates": [0.5, 0.25], "rate_search": {"steps": 1}}, 0.25, 0.25)],
)  # fmt: skip
def test_a_pretraining_has_its_only_rate_or_the_one_that_its_search_has_chosen(settings, rate, said):
    assert pretraining_with(settings=settings, rate=rate).learning_rate == said


def test_a_job_in_words():
    assert cell_with(pretraining_seed=1, steps=10).label == "add after 10 steps on rte, rate 2e-05, seed 1"
    assert (pretraining_with().label, pretraining_with(seed=2).label) == ("add", "add, seed 2")
    search = pretraining_with(steps=1000, is_search=True, settings={"learning_rates": [1e-3]})
    assert search.label == "add, rate 0.001 for 1,000 steps"
    assert cell_with(steps=10, pretraining_seed=2).key == {
        **{"arm": "add", "variant": "add", "task": "rte", "learning_rate": 2e-5, "seed": 1},
        **{"steps": 10, "pretraining_seed": 2},
    }


# What a digest covers

SEALED: dict[str, Sealed] = {
    "record": record_of(scores={"validation": {"f1": None, "accuracy": 1 / 3}}, seconds=0.1),
    "pretraining": pretrained_of(pretraining_with(), weights={1: digest("weights")}, segment_pairs=0.1),
    "plan": plan_with(cell_with(), pretrainings=(pretraining_with(),)),
}
each = pytest.mark.parametrize("value", SEALED.values(), ids=SEALED)


@each
def test_a_sealed_value_is_read_as_it_was_written(value):
    value = value.seal()
    assert Sealed.is_whole(value.file())
    assert type(value).model_validate_json(value.file()) == value
    assert value.seal() == value


@each
def test_every_bit_of_a_sealed_file_is_covered(value):
    """Also such as change no number: a digest of the bytes needs to know nothing of what they mean."""
    content = value.seal().file()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << (place % 8)
        assert not Sealed.is_whole(bytes(flipped))
    assert not any(Sealed.is_whole(content[:size]) for size in (0, 5, 80, len(content) - 1))


@each
def test_what_is_none_is_not_written_and_reads_as_none(value):
    told = json.loads(value.seal().file())
    assert None not in told.values()
    assert type(value).model_validate(told) == value.seal()


def test_an_undefined_score_is_written():
    record = SEALED["record"].seal()
    assert json.loads(record.file())["scores"] == {"validation": {"f1": None, "accuracy": 1 / 3}}


# What is refused


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *((Cell, change) for change in ({"id": "../a"}, {"id": ".a"}, {"arm": "a/b"}, {"task": "rtee"}, {"data": "d"})),
        *(
            (Cell, change)
            for change in ({"origin": "graftd"}, {"seed": 2**63}, {"checkpoint": "a\x1b[2J"}, {"more": 1})
        ),
        *((Record, change) for change in ({"scores": {"validation": {"f1": 1.5}}}, {"seconds": float("nan")})),
        *((Record, change) for change in ({"weights": "short"}, {"parameters": 1e99}, {"history": [{}]}, {"cell": {}})),
        (PretrainingRecord, {"weights": {"one": digest("a")}}),
        (Plan, {"cells": [{}]}),
    ],
)
def test_what_no_run_writes_is_refused(kind, changes):
    made = {Cell: cell_with(), Record: record_of(), PretrainingRecord: SEALED["pretraining"], Plan: SEALED["plan"]}
    told = made[kind].document()
    assert kind.model_validate(told) == made[kind]
    with pytest.raises(ValidationError):
        kind.model_validate(told | changes)


def test_values_cannot_be_changed():
    with pytest.raises(ValidationError):
        record_of().seconds = 2.0
    assert cell_with().data == DATA


def test_what_an_error_says_is_kept_as_a_terminal_may_have_it():
    failure = Failure(id="a", error="bad \x1b[2J\ud800 thing\nsecond line", traceback="x" * 2**20)
    assert "\x1b" not in failure.error
    assert failure.error.endswith("thing\nsecond line")
    assert len(failure.traceback) <= 2**16
    assert Failure.model_validate_json(failure.model_dump_json()) == failure
