"""Values on disk: what decides an id, what a digest covers, what is refused, and where they are from."""

import json
import pickle
import subprocess
from pathlib import Path

import pytest
from helpers.stored import cell_with, digest, plan_with, pretrained_of, pretraining_with, record_of
from pydantic import ValidationError

from glue_bench.records import environment, jobs
from glue_bench.records.base import Sealed
from glue_bench.records.values import Cell, Failure, Plan, PretrainingRecord, Record

WATCH = {
    "corpus",
    "tokenizer",
    "checkpoints",
    "finetune_checkpoints",
    "validations",
    "micro_batch_tokens",
}


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # a number is no value of most fields
@pytest.mark.parametrize(
    ("job", "free", "watch"),
    [(cell_with(), {"id", "origin"}, set()), (pretraining_with(), {"id", "origin", "rate"}, WATCH)],
    ids=["cell", "pretraining"],
)
def test_every_field_and_setting_and_how_training_computes_decide_the_id_but_what_is_not_hashed(
    job, free, watch, monkeypatch
):
    def alike(change) -> bool:
        return job.model_copy(update=change).true_id[-12:] == job.true_id[-12:]

    settings = {
        name: job.settings.model_copy(update={name: 0.123})
        for name in type(job.settings).model_fields
    }
    assert {
        name for name in type(job).model_fields.keys() - {"settings"} if alike({name: 0.123})
    } == free
    assert {name for name, changed in settings.items() if alike({"settings": changed})} == watch
    monkeypatch.setattr(jobs, "COMPUTES", 2)
    assert job.true_id != job.id


def test_an_id_begins_with_what_people_call_it_and_stays_when_it_is_read():
    cell = cell_with(learning_rate=3e-4, seed=2, pretraining_seed=2, steps=10, pretraining="add-1")
    assert cell.id == f"add-rte-lr0.0003-s2-p2-step10-{cell.true_id[-12:]}"
    assert cell_with(pretraining_seed=1, steps=10, pretraining="add-1").id.startswith(
        "add-rte-lr2e-05-s1-step10-"
    )
    assert (
        Cell.model_validate(cell.document() | {"id": "of-an-older-version"}).id
        == "of-an-older-version"
    )
    assert Cell.model_validate(cell.document()) == cell == pickle.loads(pickle.dumps(cell))
    one, other = ({"a": 1, "b": [0.5, None]}, {"b": [0.5, None], "a": 1})
    assert (
        cell_with(options=one).id == cell_with(options=other).id != cell_with(options={"a": 1}).id
    )


def test_a_pretraining_has_its_only_rate_or_the_one_that_its_search_has_chosen():
    searched = {"learning_rates": [0.5, 0.1], "rate_search": {"steps": 1}}
    given = (
        {"settings": {"learning_rates": [0.5]}},
        {"settings": searched},
        {"settings": searched, "rate": 0.1},
    )
    assert [pretraining_with(**facts).learning_rate for facts in given] == [0.5, None, 0.1]


SEALED: dict[str, Sealed] = {
    "record": record_of(scores={"validation": {"f1": None, "accuracy": 1 / 3}}, seconds=0.1),
    "pretraining": pretrained_of(
        pretraining_with(), weights={1: digest("weights")}, segment_pairs=0.1
    ),
    "plan": plan_with(cell_with(), pretrainings=(pretraining_with(),)),
}


@pytest.mark.parametrize("value", SEALED.values(), ids=SEALED)
def test_a_sealed_value_is_read_as_it_was_written_and_every_bit_of_its_file_is_covered(value):
    value = value.seal()
    content, told = value.file(), json.loads(value.file())
    assert type(value).read(content) == value == value.seal()
    assert None not in told.values()
    assert (
        told.get("scores", SEALED["record"].scores) == SEALED["record"].scores
    )  # undefined ones included
    bits = [
        (content[:place], byte ^ 1 << place % 8, content[place + 1 :])
        for place, byte in enumerate(content)
    ]
    cut = [content[:size] for size in (0, 5, 80, len(content) - 1)]
    for damaged in (*cut, *(before + bytes([byte]) + after for before, byte, after in bits)):
        with pytest.raises(ValueError, match="changed since"):
            type(value).read(damaged)


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        (Plan, "plan.json"),
        (Record, "cells/*/record.json"),
        (PretrainingRecord, "pretrainings/*/record.json"),
    ],
)
def test_the_committed_files_would_be_written_with_the_same_bytes(kind, pattern):
    paths = [*(Path(__file__).parents[2] / "results").glob(f"*/{pattern}")]
    assert [
        path for path in paths if kind.read(path.read_bytes()).seal().file() != path.read_bytes()
    ] == []
    assert len(paths) > 2


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *[
            (Cell, change)
            for change in (
                {"id": "../a"},
                {"id": ".a"},
                {"arm": "a/b"},
                {"task": "rtee"},
                {"data": "d"},
            )
        ],
        *[
            (Cell, change)
            for change in (
                {"origin": "graftd"},
                {"seed": 2**63},
                {"checkpoint": "\x1b[2J"},
                {"more": 1},
            )
        ],
        *[
            (Record, change)
            for change in ({"scores": {"validation": {"f1": 1.5}}}, {"seconds": float("nan")})
        ],
        *[
            (Record, change)
            for change in (
                {"weights": "short"},
                {"parameters": 1e99},
                {"history": [{}]},
                {"cell": {}},
            )
        ],
        *[(PretrainingRecord, {"weights": {"one": digest("a")}}), (Plan, {"cells": [{}]})],
    ],
)
def test_what_no_run_writes_is_refused(kind, changes):
    made = {
        Cell: cell_with(),
        Record: record_of(),
        PretrainingRecord: SEALED["pretraining"],
        Plan: SEALED["plan"],
    }
    told = made[kind].document()
    assert kind.model_validate(told) == made[kind]
    with pytest.raises(ValidationError):
        kind.model_validate(told | changes)


def test_what_an_error_says_is_kept_as_a_terminal_may_have_it():
    failure = Failure(id="a", error="bad \x1b[2J\ud800 thing\nsecond line", traceback="x" * 2**20)
    assert "\x1b" not in failure.error
    assert failure.error.endswith("thing\nsecond line")
    assert len(failure.traceback) <= 2**16


def test_the_commit_is_not_that_of_a_project_in_which_the_package_is_only_installed(
    tmp_path, monkeypatch
):
    def git(*words) -> str:
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    package = tmp_path / ".venv" / "glue_bench"
    (package / "records").mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(environment, "__file__", str(package / "records" / "environment.py"))
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "their own")
    assert environment.versions.__wrapped__().git_commit is None
    git("add", ".venv/glue_bench/__init__.py")  # as in a checkout of it
    assert environment.versions.__wrapped__().git_commit == git("rev-parse", "HEAD") + "+changes"


def test_a_processor_is_named_with_its_family():
    first = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu model name\n"
    names = map(
        environment.name_processor,
        (f"{first}\n{first.replace('26', '25')}", "CPU part\t: 0xd0c\n\n"),
    )
    assert [*names] == ["AMD EPYC (family 26, model 2)", ""]
