"""Folders: every change of a number, an id or a file is found, and good ones are good."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glue_bench import verify
from glue_bench.records.store import Store
from glue_bench.records.values import PretrainingRecord, Record

RESULTS = Path(__file__).resolve().parents[2] / "results"
AGAIN = "; delete its folder and run again"


def checks(folder: Path | str) -> dict[str, tuple[str, ...]]:
    """The faults of each check of an experiment."""
    (verified,) = verify(folder)
    return {check.name: check.faults for check in verified.checks}


def found(folder: Path) -> dict[str, tuple[str, ...]]:
    """Checks that found faults, and these, but for tables: they differ from what changed records give."""
    return {name: faults for name, faults in checks(folder).items() if faults and name != "tables"}


def record_of(folder: Path, name: str = "add-stsb") -> Record:
    path = next((folder / "cells").glob(f"{name}*/record.json"))
    return Record.model_validate_json(path.read_bytes())


def test_a_finished_experiment_is_good_and_what_was_never_stored_is_unknown(finished, monkeypatch):
    names = [
        "plan",
        "records",
        "ids",
        "predictions",
        "pretrainings",
        "weights",
        "failures",
        "tables",
    ]
    monkeypatch.setenv("HOME", str(finished.parent))
    assert checks(f"~/{finished.name}") == dict.fromkeys(names, ())
    (verified,) = verify(RESULTS / "minilm")
    assert next(check.result for check in verified.checks if check.name == "weights").endswith(
        " unknown"
    )


def test_no_bit_of_a_folder_can_be_flipped_unseen(finished):
    paths = sorted(path for path in finished.rglob("*") if path.is_file() and path.name != ".lock")

    @given(
        path=st.sampled_from(paths), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7)
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
    def flip(path, where, bit):
        whole = path.read_bytes()
        content = bytearray(whole)
        content[int(where * len(content))] ^= 1 << bit
        path.write_bytes(content)
        try:
            assert any(checks(finished).values()), path
        finally:
            path.write_bytes(whole)

    flip()


def test_damaged_files_are_faults_of_their_names_and_no_traceback(finished):
    failed = next((finished / "cells").glob("add-rte*"))
    failed.rename(finished / "gone")
    (finished / "failures").mkdir(exist_ok=True)
    (failure := finished / "failures" / f"{failed.name}.json").touch()
    patterns = ("labels/stsb*", "pretrainings/add-*/record.json", "cells/add-mnli*/record.json")
    damaged = [failure, *(next(finished.glob(pattern)) for pattern in patterns)]
    for paths in (damaged, [finished / "plan.json"]):
        for path in paths:
            path.write_text('{"cells": 3}')
        said = " ".join(fault for faults in found(finished).values() for fault in faults)
        assert [path for path in paths if str(path.relative_to(finished)) not in said] == []


def test_a_number_in_a_table_and_tables_that_are_gone_or_too_many(finished, glue_bench):
    (finished / "scores.csv").unlink()
    (finished / "steps.csv").write_text("")
    text = (finished / "leaderboard.csv").read_text()
    digit = max(text.rfind(d) for d in "123456789")
    (finished / "leaderboard.csv").write_text(text[:digit] + "0" + text[digit + 1 :])
    said, line = glue_bench("verify", finished), text[:digit].count("\n") + 1
    assert said.status == 1
    assert (
        f"fault: leaderboard.csv: line {line} is not what the records give; run the experiment again"
        in said.out
    )
    assert "fault: scores.csv: missing" in said.out
    assert "fault: steps.csv: not among the tables that the records give" in said.out
    assert said.out.endswith(f"{finished}: faults: 3\n")


def test_what_cannot_be_read_as_a_table_is_a_fault_of_its_name_and_other_files_are_only_named(
    finished,
):
    for name in ("scores.csv", "leaderboard.md"):
        (finished / name).unlink()
    (finished / "scores.csv").mkdir()
    (finished / "notes.md").mkdir()
    for name in ("leaderboard.md", "predictions.csv"):
        with (finished / name).open("wb") as file:
            file.truncate(2**26 + 1)
    (check,) = [each for each in verify(finished)[0].checks if each.name == "tables"]
    said = sorted(fault.split(" (")[0] for fault in check.faults)
    assert said == ["leaderboard.md: cannot be read", "scores.csv: cannot be read"]
    assert check.result.endswith("; not checked: notes.md, predictions.csv")


@pytest.mark.parametrize("name", ["model/handler.py", "model/more/x.bin", "tests.safetensors"])
def test_a_file_that_no_record_knows_is_a_fault(finished, name):
    store, record = Store(finished), record_of(finished)
    store.write(record, lambda model: (model / "config.json").touch(), logits=store.logits(record))
    strange = finished / "cells" / record.cell.id / name
    strange.parent.mkdir(exist_ok=True)
    strange.write_text("x")
    faults = [fault for each in found(finished).values() for fault in each]
    assert [f"{record.cell.id}/{name}: " in fault for fault in faults] == [True]


def forged(folder: Path, stored: Any = None, **changes: Any) -> str:
    """Store a cell's record with these changes, its logits and its digest fitting; its folder."""
    store, record = Store(folder), record_of(folder)
    store.write(record.model_copy(update=changes), logits=stored or store.logits(record))
    return f"cells/{record.cell.id}"


def scored(record: Record) -> dict[str, Any]:
    """A changed score, and a history that has it, too."""
    scores = {"validation": {**record.scores["validation"], "pearson": 0.9}}
    last = record.history[-1].model_copy(update={"scores": scores})
    return {"scores": scores, "history": (*record.history[:-1], last)}


Change = Callable[[Record, np.ndarray], dict[str, Any]]
FORGERIES: list[tuple[Change, str, str]] = [
    (
        lambda one, _: {"scores": scored(one)["scores"]},
        "predictions",
        "its scores are not those of its last",
    ),
    (lambda one, _: scored(one), "predictions", "validation gives pearson "),
    (
        lambda one, _: {"collapsed": () if one.collapsed else ("validation",)},
        "predictions",
        "it is wrong on whether ",
    ),
    (
        lambda _, own: {"stored": {"validation": own + np.arange(len(own))[:, None]}},
        "predictions",
        "validation gives ",
    ),
    (lambda _, own: {"stored": {"other": own}}, "predictions", "'validation'"),
    (
        lambda one, _: {"cell": one.cell.model_copy(update={"seed": 9})},
        "ids",
        "its id is not that of what it says",
    ),
    (lambda *_: {"started_from": "0" * 64}, "weights", "it started from weights of "),
]


@pytest.mark.parametrize(("change", "check", "said"), FORGERIES)
def test_a_record_that_was_signed_anew_is_held_to_what_it_follows_from(
    finished, change, check, said
):
    (own,) = Store(finished).logits(record_of(finished)).values()
    place = forged(finished, **change(record_of(finished), own))
    (fault,) = found(finished)[check]
    assert fault.startswith(f"{place}: {said}")
    assert fault.endswith(AGAIN)


OF_PRETRAINING: dict[str, Callable[[PretrainingRecord, Any, Any], dict[str, Any]]] = {
    "its validation loss is not the mean": lambda *_: {"validation_loss": 1.0},
    "its validation_loss is not what": lambda one, *_: {
        "measures": (one.measures[0].model_copy(update={"value": 3.0}), *one.measures[1:])
    },
    "its swap_1 is not what": lambda _, __, sums: (
        sums.update(swap_1=sums["swap_1"] * [[2.0], [1.0]]) or {}
    ),
    "'count'": lambda _, losses, __: (
        losses.clear() or losses.update(loss_sum=np.ones((2, 2))) or {}
    ),
}


@pytest.mark.parametrize("said", OF_PRETRAINING)
def test_so_is_that_of_a_pretraining(finished, said):
    store, path = Store(finished), next((finished / "pretrainings").glob("add-*/record.json"))
    record = PretrainingRecord.model_validate_json(path.read_bytes())
    losses, sums = store.losses(record), store.measure_sums(record)
    changes = OF_PRETRAINING[said](record, losses, sums)
    store.write(record.model_copy(update=changes), losses=losses, sums=sums)
    (fault,) = found(finished)["pretrainings"]
    assert f"pretrainings/{record.pretraining.id}: {said}" in fault
    assert fault.endswith(AGAIN)


def test_logits_and_what_runs_started_from_that_are_gone_are_faults_and_other_folders_are_not(
    finished,
):
    first, other, mnli = (
        record_of(finished, name).cell.id for name in ("add-stsb", "untied-stsb", "untied-mnli")
    )
    (finished / "cells" / first / "logits.safetensors").unlink()
    arm = next(finished.glob("pretrainings/add-*")).name
    for place in (f"cells/{other}", f"cells/{mnli}", f"pretrainings/{arm}"):
        (finished / place).rename(finished / place.partition("/")[2])
    (fault,) = (faults := found(finished)).pop("predictions")
    assert fault.startswith(f"cells/{first}/logits.safetensors: ")
    no, again = "no record, but finished runs started from it", "; run the experiment again"
    assert faults == {
        "records": (f"pretrainings/{arm}: {no}: 3{again}", f"cells/{mnli}: {no}: 1{again}")
    }
    weights = next(check.result for check in verify(finished)[0].checks if check.name == "weights")
    assert weights == "1 started from the weights that are named, 3 unknown"


def test_a_record_outside_the_plan_is_checked_too(finished):
    cell = record_of(finished).cell
    stray = cell.model_validate(cell.document() | {"id": "", "seed": 9})
    forged(finished, cell=stray)
    assert found(finished) == {}
    (finished / "cells" / stray.id / "record.json").write_text("{}")
    assert found(finished) == {
        "records": ("cells/: 1 outside the plan cannot be believed; delete them",)
    }
