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
DELETE_ADVICE = "; delete its folder and run again"
NAMES = [
    "plan",
    "records",
    "ids",
    "predictions",
    "pretrainings",
    "weights",
    "failures",
    "tables",
]
"""The checks of an experiment without plugins."""


def faults_by_check(folder: Path | str) -> dict[str, tuple[str, ...]]:
    (verified,) = verify(folder)
    return {check.name: check.faults for check in verified.checks}


def failed_checks(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the faults of the checks that found some.

    Tables are left out: they differ from what changed records give.
    """
    failed = {}
    for name, faults in faults_by_check(folder).items():
        if faults and name != "tables":
            failed[name] = faults
    return failed


def all_faults(folder: Path) -> list[str]:
    """Return the faults of all failed checks."""
    faults = []
    for of_check in failed_checks(folder).values():
        faults += of_check
    return faults


def result_of(folder: Path, name: str) -> str:
    """Return the result of one check, in words."""
    (verified,) = verify(folder)
    return next(check.result for check in verified.checks if check.name == name)


def record_of(folder: Path, name: str = "add-stsb") -> Record:
    path = next((folder / "cells").glob(f"{name}*/record.json"))
    return Record.model_validate_json(path.read_bytes())


def test_a_finished_experiment_is_good(finished, monkeypatch):
    monkeypatch.setenv("HOME", str(finished.parent))
    assert faults_by_check(f"~/{finished.name}") == dict.fromkeys(NAMES, ())


def test_what_was_never_stored_is_unknown():
    assert result_of(RESULTS / "minilm", "weights").endswith(" unknown")


def test_no_bit_of_a_folder_can_be_flipped_unseen(finished):
    paths = sorted(path for path in finished.rglob("*") if path.is_file() and path.name != ".lock")

    @given(
        path=st.sampled_from(paths), share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7)
    )
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
    def check(path, share, bit):
        original = path.read_bytes()
        content = bytearray(original)
        content[int(share * len(content))] ^= 1 << bit
        path.write_bytes(content)
        try:
            assert any(faults_by_check(finished).values()), path
        finally:
            path.write_bytes(original)

    check()


def test_a_changed_header_of_labels_is_a_fault(finished):
    """No digest covers it."""
    path = next(finished.glob("labels/mnli-*"))
    content = path.read_bytes()
    assert content.count(b'"held_out_share":"0"') == 1
    path.write_bytes(content.replace(b'"held_out_share":"0"', b'"held_out_share":"1"'))
    (fault,) = failed_checks(finished)["records"]
    assert fault == (
        f"labels/{path.name}: its header is not that of these settings; run the experiment again, "
        "which writes it anew"
    )


def test_damaged_files_are_faults_of_their_names_and_no_traceback(finished):
    failed = next((finished / "cells").glob("add-rte*"))
    failed.rename(finished / "gone")
    failure = finished / "failures" / f"{failed.name}.json"
    failure.parent.mkdir(exist_ok=True)
    damaged = [failure]
    for pattern in (
        "labels/stsb*",
        "pretrainings/add-*/record.json",
        "cells/add-mnli*/record.json",
    ):
        damaged.append(next(finished.glob(pattern)))
    for path in damaged:
        path.write_text('{"cells": 3}')
    faults = " ".join(all_faults(finished))
    for path in damaged:
        assert str(path.relative_to(finished)) in faults


def test_a_damaged_plan_is_a_fault_of_its_name(finished):
    (finished / "plan.json").write_text('{"cells": 3}')
    assert "plan.json" in " ".join(all_faults(finished))


def test_a_number_in_a_table_and_tables_that_are_gone_or_too_many(finished, glue_bench):
    (finished / "scores.csv").unlink()
    (finished / "steps.csv").write_text("")
    text = (finished / "leaderboard.csv").read_text()
    place = max(text.rfind(digit) for digit in "123456789")
    (finished / "leaderboard.csv").write_text(f"{text[:place]}0{text[place + 1 :]}")
    line = text[:place].count("\n") + 1
    result = glue_bench("verify", finished)
    assert result.status == 1
    wrong_line = f"leaderboard.csv: line {line} is not what the records give"
    assert f"fault: {wrong_line}; run the experiment again" in result.out
    assert "fault: scores.csv: missing" in result.out
    assert "fault: steps.csv: not among the tables that the records give" in result.out
    assert result.out.endswith(f"{finished}: faults: 3\n")


def test_what_cannot_be_read_as_a_table_is_a_fault_of_its_name(finished):
    (finished / "scores.csv").unlink()
    (finished / "scores.csv").mkdir()
    with (finished / "leaderboard.md").open("wb") as file:
        file.truncate(2**26 + 1)
    faults = faults_by_check(finished)["tables"]
    assert sorted(fault.split(" (")[0] for fault in faults) == [
        "leaderboard.md: cannot be read",
        "scores.csv: cannot be read",
    ]


def test_tables_that_are_the_owners_are_only_named(finished):
    (finished / "notes.md").mkdir()
    (finished / "predictions.csv").touch()
    assert faults_by_check(finished)["tables"] == ()
    assert result_of(finished, "tables").endswith("; not checked: notes.md, predictions.csv")


@pytest.mark.parametrize("name", ["model/handler.py", "model/more/x.bin", "tests.safetensors"])
def test_a_file_that_no_record_knows_is_a_fault(finished, name):
    store = Store(finished)
    record = record_of(finished)
    store.write(record, lambda model: (model / "config.json").touch(), logits=store.logits(record))
    strange = finished / "cells" / record.cell.id / name
    strange.parent.mkdir(exist_ok=True)
    strange.write_text("x")
    (fault,) = all_faults(finished)
    assert f"{record.cell.id}/{name}: " in fault


def forge(folder: Path, logits: Any = None, **changes: Any) -> str:
    """Store a cell's record with these changes, so that its logits and its digest fit.

    Returns the folder of the cell.
    """
    store = Store(folder)
    record = record_of(folder)
    store.write(record.model_copy(update=changes), logits=logits or store.logits(record))
    return f"cells/{record.cell.id}"


def wrong_score(record: Record) -> dict[str, Any]:
    """Change a score, and the history of the epochs with it."""
    scores = {"validation": {**record.scores["validation"], "pearson": 0.9}}
    last = record.history[-1].model_copy(update={"scores": scores})
    return {"scores": scores, "history": (*record.history[:-1], last)}


def wrong_collapse(record: Record) -> dict[str, Any]:
    return {"collapsed": () if record.collapsed else ("validation",)}


def wrong_seed(record: Record) -> dict[str, Any]:
    return {"cell": record.cell.model_copy(update={"seed": 9})}


Change = Callable[[Record, np.ndarray], dict[str, Any]]
FORGERIES: list[tuple[Change, str, str]] = [
    (
        lambda record, _: {"scores": wrong_score(record)["scores"]},
        "predictions",
        "its scores are not those of its last",
    ),
    (lambda record, _: wrong_score(record), "predictions", "validation gives pearson "),
    (lambda record, _: wrong_collapse(record), "predictions", "it is wrong on whether "),
    (
        lambda _, logits: {"logits": {"validation": logits + np.arange(len(logits))[:, None]}},
        "predictions",
        "validation gives ",
    ),
    (lambda _, logits: {"logits": {"other": logits}}, "predictions", "'validation'"),
    (lambda record, _: wrong_seed(record), "ids", "its id is not that of what it says"),
    (lambda *_: {"started_from": "0" * 64}, "weights", "it started from weights of "),
]
"""A change of a record and its logits, the check that sees it, and the beginning of the fault."""


@pytest.mark.parametrize(("change", "check", "fault"), FORGERIES)
def test_a_record_that_was_signed_anew_is_held_to_what_it_follows_from(
    finished, change, check, fault
):
    record = record_of(finished)
    (logits,) = Store(finished).logits(record).values()
    place = forge(finished, **change(record, logits))
    (line,) = failed_checks(finished)[check]
    assert line.startswith(f"{place}: {fault}")
    assert line.endswith(DELETE_ADVICE)


def wrong_measure(record: PretrainingRecord) -> dict[str, Any]:
    measure = record.measures[0].model_copy(update={"value": 3.0})
    return {"measures": (measure, *record.measures[1:])}


def double_sums(sums: dict[str, np.ndarray]) -> None:
    sums["swap_1"] = sums["swap_1"] * [[2.0], [1.0]]


def remove_counts(losses: dict[str, np.ndarray]) -> None:
    losses.clear()
    losses["loss_sum"] = np.ones((2, 2))


@pytest.fixture
def check_pretraining(finished):
    """A function that changes a pretraining's record, losses or sums, and checks the one fault."""

    def check(fault: str, change_record=None, change_losses=None, change_sums=None) -> None:
        store = Store(finished)
        path = next((finished / "pretrainings").glob("add-*/record.json"))
        record = PretrainingRecord.model_validate_json(path.read_bytes())
        losses = store.losses(record)
        sums = store.measure_sums(record)
        if change_losses:
            change_losses(losses)
        if change_sums:
            change_sums(sums)
        changes = change_record(record) if change_record else {}
        store.write(record.model_copy(update=changes), losses=losses, sums=sums)
        (line,) = failed_checks(finished)["pretrainings"]
        assert f"pretrainings/{record.pretraining.id}: {fault}" in line
        assert line.endswith(DELETE_ADVICE)

    return check


def test_a_validation_loss_is_held_to_the_losses(check_pretraining):
    fault = "its validation loss is not the mean"
    check_pretraining(fault, change_record=lambda _: {"validation_loss": 1.0})


def test_a_measure_is_held_to_the_sums(check_pretraining):
    check_pretraining("its validation_loss is not what", change_record=wrong_measure)


def test_sums_are_held_to_the_measures(check_pretraining):
    check_pretraining("its swap_1 is not what", change_sums=double_sums)


def test_losses_without_counts_are_a_fault(check_pretraining):
    check_pretraining("'count'", change_losses=remove_counts)


def test_logits_that_are_gone_are_a_fault(finished):
    cell = record_of(finished).cell.id
    (finished / "cells" / cell / "logits.safetensors").unlink()
    (fault,) = failed_checks(finished)["predictions"]
    assert fault.startswith(f"cells/{cell}/logits.safetensors: ")


def test_jobs_that_are_gone_are_faults_if_finished_runs_started_from_them(finished):
    pretraining = next(finished.glob("pretrainings/add-*")).name
    mnli = record_of(finished, "untied-mnli").cell.id
    no_start = record_of(finished, "untied-stsb").cell.id
    for place in (f"cells/{no_start}", f"cells/{mnli}", f"pretrainings/{pretraining}"):
        (finished / place).rename(finished / place.partition("/")[2])
    fault = "no record, but finished runs started from it"
    expected = {
        "records": (
            f"pretrainings/{pretraining}: {fault}: 3; run the experiment again",
            f"cells/{mnli}: {fault}: 1; run the experiment again",
        )
    }
    assert failed_checks(finished) == expected
    weights = result_of(finished, "weights")
    assert weights == "1 started from the weights that are named, 3 unknown"


@pytest.fixture
def outside(finished) -> Path:
    """The record of a cell that is not in the plan."""
    cell = record_of(finished).cell
    other_seed = cell.model_validate(cell.document() | {"id": "", "seed": 9})
    forge(finished, cell=other_seed)
    return finished / "cells" / other_seed.id / "record.json"


def test_a_good_record_outside_the_plan_is_good(finished, outside):
    assert outside.exists()
    assert failed_checks(finished) == {}


def test_a_damaged_record_outside_the_plan_is_a_fault(finished, outside):
    outside.write_text("{}")
    assert failed_checks(finished) == {
        "records": ("cells/: 1 outside the plan cannot be believed; delete them",)
    }
