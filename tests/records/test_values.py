"""Values on disk: what decides an id, what a digest covers, and what is refused."""

import json
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.stored import cell_with, digest, plan_with, pretrained_of, pretraining_with, record_of
from pydantic import ValidationError

from glue_bench.records import environment, jobs
from glue_bench.records.base import Sealed
from glue_bench.records.values import Cell, Failure, Job, Plan, PretrainingRecord, Record

UNHASHED_SETTINGS = {
    "corpus",
    "tokenizer",
    "checkpoints",
    "finetune_checkpoints",
    "validations",
    "micro_batch_tokens",
}
UNHASHED = [
    (cell_with(), {"id", "origin"}, set()),
    (pretraining_with(), {"id", "origin", "rate"}, UNHASHED_SETTINGS),
]
"""A job, its fields that do not decide its id, and its settings that do not."""


def keeps_id(job: Job, **change) -> bool:
    """Return whether a job with this change has the same digits in its id."""
    changed = job.model_copy(update=change)
    return changed.true_id[-12:] == job.true_id[-12:]


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # most fields do not take a number
@pytest.mark.parametrize(("job", "fields", "_settings"), UNHASHED, ids=["cell", "pretraining"])
def test_every_hashed_field_decides_the_id(job, fields, _settings):
    names = type(job).model_fields.keys() - {"settings"}
    assert {name for name in names if keeps_id(job, **{name: 0.123})} == fields


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.parametrize(("job", "_fields", "settings"), UNHASHED, ids=["cell", "pretraining"])
def test_every_hashed_setting_decides_the_id(job, _fields, settings):
    unhashed = set()
    for name in type(job.settings).model_fields:
        changed = job.settings.model_copy(update={name: 0.123})
        if keeps_id(job, settings=changed):
            unhashed.add(name)
    assert unhashed == settings


@pytest.mark.parametrize("job", [cell_with(), pretraining_with()], ids=["cell", "pretraining"])
def test_how_training_computes_decides_the_id(job, monkeypatch):
    monkeypatch.setattr(jobs, "COMPUTES", 2)
    assert job.true_id != job.id


def test_an_id_begins_with_a_readable_name():
    start = {"steps": 10, "pretraining": "add-1"}
    cell = cell_with(learning_rate=3e-4, seed=2, pretraining_seed=2, **start)
    assert cell.id == f"add-rte-lr0.0003-s2-p2-step10-{cell.true_id[-12:]}"
    first = cell_with(pretraining_seed=1, **start)
    assert first.id.startswith("add-rte-lr2e-05-s1-step10-")


def test_an_id_stays_when_a_cell_is_read():
    cell = cell_with()
    older = cell.document() | {"id": "of-an-older-version"}
    assert Cell.model_validate(older).id == "of-an-older-version"
    assert Cell.model_validate(cell.document()) == cell
    assert pickle.loads(pickle.dumps(cell)) == cell


def test_the_order_of_options_does_not_decide_the_id():
    cell = cell_with(options={"a": 1, "b": [0.5, None]})
    assert cell_with(options={"b": [0.5, None], "a": 1}).id == cell.id
    assert cell_with(options={"a": 1}).id != cell.id


SEARCHED = {"learning_rates": [0.5, 0.1], "rate_search": {"steps": 1}}


@pytest.mark.parametrize(
    ("facts", "rate"),
    [
        ({"settings": {"learning_rates": [0.5]}}, 0.5),
        ({"settings": SEARCHED}, None),
        ({"settings": SEARCHED, "rate": 0.1}, 0.1),
    ],
)
def test_a_pretraining_has_its_only_rate_or_the_one_that_its_search_has_chosen(facts, rate):
    assert pretraining_with(**facts).learning_rate == rate


SEALED: dict[str, Sealed] = {
    "record": record_of(scores={"validation": {"f1": None, "accuracy": 1 / 3}}, seconds=0.1),
    "pretraining": pretrained_of(
        pretraining_with(), weights={1: digest("weights")}, segment_pairs=0.1
    ),
    "plan": plan_with(cell_with(), pretrainings=(pretraining_with(),)),
}


@pytest.mark.parametrize("name", SEALED)
def test_a_sealed_value_is_read_as_it_was_written(name):
    value = SEALED[name].seal()
    assert type(value).read(value.file()) == value
    assert value.seal() == value


@pytest.mark.parametrize("name", SEALED)
def test_fields_that_are_none_are_not_written(name):
    assert None not in json.loads(SEALED[name].seal().file()).values()


def test_an_undefined_score_is_written():
    record = SEALED["record"].seal()
    assert json.loads(record.file())["scores"] == record.scores


def damaged_copies(content: bytes) -> Iterator[bytes]:
    """Yield copies that are cut, and copies with one changed bit."""
    for size in (0, 5, 80, len(content) - 1):
        yield content[:size]
    for place, byte in enumerate(content):
        flipped = bytes([byte ^ 1 << place % 8])
        yield content[:place] + flipped + content[place + 1 :]


@pytest.mark.parametrize("name", SEALED)
def test_every_bit_of_the_file_of_a_sealed_value_is_covered(name):
    value = SEALED[name].seal()
    for content in damaged_copies(value.file()):
        with pytest.raises(ValueError, match="changed since"):
            type(value).read(content)


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        (Plan, "plan.json"),
        (Record, "cells/*/record.json"),
        (PretrainingRecord, "pretrainings/*/record.json"),
    ],
)
def test_the_committed_files_would_be_written_with_the_same_bytes(kind, pattern):
    results = Path(__file__).parents[2] / "results"
    paths = [*results.glob(f"*/{pattern}")]
    assert len(paths) > 2
    for path in paths:
        content = path.read_bytes()
        assert kind.read(content).seal().file() == content, path


VALUES = {
    Cell: cell_with(),
    Record: record_of(),
    PretrainingRecord: SEALED["pretraining"],
    Plan: SEALED["plan"],
}
IMPOSSIBLE = [
    (Cell, {"id": "../a"}),
    (Cell, {"id": ".a"}),
    (Cell, {"arm": "a/b"}),
    (Cell, {"data": "d"}),
    (Cell, {"origin": "graftd"}),
    (Cell, {"seed": 2**63}),
    (Cell, {"checkpoint": "\x1b[2J"}),
    (Cell, {"unknown": 1}),
    (Record, {"scores": {"validation": {"f1": 1.5}}}),
    (Record, {"seconds": float("nan")}),
    (Record, {"weights": "short"}),
    (Record, {"parameters": 1e99}),
    (Record, {"history": [{}]}),
    (Record, {"cell": {}}),
    (PretrainingRecord, {"weights": {"one": digest("a")}}),
    (Plan, {"cells": [{}]}),
]


@pytest.mark.parametrize(("kind", "changes"), IMPOSSIBLE)
def test_what_no_run_writes_is_refused(kind, changes):
    document = VALUES[kind].document()
    assert kind.model_validate(document) == VALUES[kind]
    with pytest.raises(ValidationError):
        kind.model_validate(document | changes)


def test_what_an_error_says_is_kept_as_a_terminal_may_have_it():
    failure = Failure(id="a", error="bad \x1b[2J\ud800 thing\nsecond line", traceback="x" * 2**20)
    assert "\x1b" not in failure.error
    assert failure.error.endswith("thing\nsecond line")
    assert len(failure.traceback) <= 2**16


def test_the_commit_of_a_project_around_an_installed_package_is_not_noted(tmp_path, monkeypatch):
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
    git("add", ".venv/glue_bench/__init__.py")  # as in a checkout of glue-bench
    expected = git("rev-parse", "HEAD") + "+changes"
    assert environment.versions.__wrapped__().git_commit == expected


PROCESSOR = (
    "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n"
    "flags\t\t: fpu model name\n"
)


def test_the_first_processor_is_named_with_its_family():
    cpuinfo = f"{PROCESSOR}\n{PROCESSOR.replace('26', '25')}"
    assert environment.name_processor(cpuinfo) == "AMD EPYC (family 26, model 2)"


def test_a_processor_may_have_no_name():
    assert environment.name_processor("CPU part\t: 0xd0c\n\n") == ""
