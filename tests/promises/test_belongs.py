"""Belongs: a file beside a record that is of another run, or of another cell, is as good as not there."""

import shutil
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from folder import Folder, drop_encoders, planned, pretrained, shift, swap_encoders
from readers import read, verb
from test_border import TINY

import glue_bench
from glue_bench.errors import UserError
from glue_bench.tables.results import read_results


def _each(kind):
    """What another run of each cell has left of a kind."""
    return lambda made, bits: [made.beside(cell["id"], bits, kind) for cell in planned(made.path)]


def _of_pretrainings(change):
    return lambda made, bits: [change(made, name, bits) for name in pretrained(made.path)]


def _shifted(kind):
    """What each run has left of a kind beside the record of the next one."""
    return lambda made, bits: [_each(kind)(made, bits), *(shift(made.path, kind, task) for task in ("mnli", "rte"))]


CHANGES = {
    "predictions of older runs": _each("predictions"),
    "predictions of other cells": _shifted("predictions"),
    "test predictions of older runs": _each("tests"),
    "test predictions of other cells": _shifted("tests"),
    "models of older runs": _each("model"),
    "models of other cells": _shifted("model"),
    "labels of other data": lambda made, turn: [made.gold(task, turn) for task in ("mnli", "rte")],
    "losses of older pretrainings": _of_pretrainings(Folder.losses),
    "measures of older pretrainings": _of_pretrainings(Folder.measure),
}
CASES = [
    *product(list(CHANGES)[:2], ("predictions()", "statistics", "export")),
    *product(list(CHANGES)[2:4], ("submit", "diagnostics", "predictions()")),
    *product(("models of older runs", "models of other cells"), ["card"]),
    *product(["labels of other data"], ("statistics", "predictions()")),
    ("losses of older pretrainings", "leaderboard"),
    ("measures of older pretrainings", "leaderboard"),
]


@pytest.fixture(scope="module")
def right(tmp_path_factory) -> Path:
    """An experiment with all that runs and pretrainings leave; of one arm there is a single run."""
    made = Folder(tmp_path_factory.mktemp("right") / "toy")
    for arm, seeds in (("add", (1, 2)), ("untied", (1, 2)), ("none", (1,))):
        for seed in seeds:
            made.pretrain(arm, seed)
            for task in ("mnli", "rte"):
                made.gold(task)
                made.complete(made.run(arm, task, 1, seed))
    return made.plan()


@pytest.fixture(scope="module")
def said_of_right(right, tmp_path_factory):
    """What a reader says where every file belongs to its record."""
    return cache(lambda reader: read(reader, right, tmp_path_factory.mktemp("said") / "out"))


@pytest.mark.parametrize(("what", "reader"), CASES)
def test_what_a_file_says_that_is_not_the_records_changes_nothing(what, reader, right, said_of_right, tmp_path):
    said = []
    for wrong in (1, 2):
        made = Folder(Path(shutil.copytree(right, tmp_path / f"{wrong}" / "toy")))
        CHANGES[what](made, wrong)
        said.append(read(reader, made.path, tmp_path / f"out{wrong}"))
    assert said[0] == said[1]
    assert said[0] != said_of_right(reader)


def test_losses_that_are_not_the_records_are_said_and_their_arm_is_not_tested(tmp_path):
    made = Folder(tmp_path / "toy")
    for arm, seed in product(("add", "untied"), (1, 2, 3)):
        name = made.pretrain(arm, seed)
        made.run(arm, "rte", 1, seed)
    made.losses(name, 1)
    found = glue_bench.statistics(made.plan()).set_index("column")["why"]
    assert found["validation_loss"].startswith(f"pretrainings/{name}/losses.safetensors: it belongs to another run")


def test_a_run_of_a_search_is_not_the_pretraining_of_its_seed(tmp_path):
    made = Folder(tmp_path / "toy")
    made.pretrain("add", 1)
    made.pretrain("add", 1, rate=5e-3, search=True, loss=9.0)
    made.run("add", "rte")
    results = read_results(made.plan())
    assert results.pretrainings["is_search"].tolist() == [False, True]
    assert results.cells["processor"].tolist() == ["this one"]  # nothing of lost weights


# Real runs

SETTINGS = {"learning_rates": [1e-3], "epochs": 1, "batch_size": 16, "max_length": 32}
FROM_MNLI = {name: value for name, value in TINY.items() if name != "pretraining"} | {
    **{"arms": ["add"], "tasks": ["mnli", "rte"], "seeds": [1, 2]},
    "finetuning": SETTINGS | {"from_mnli": ["rte"]},
}


def losses(folder: Path, task: str) -> dict[int, float]:
    """By its seed, the loss of each finished run of a task: other weights have another loss."""
    records = [cell["record"] for cell in planned(folder) if cell["task"] == task and cell["record"]]
    return {record["cell"]["seed"]: record["history"][-1]["train_loss"] for record in records}


@pytest.fixture(scope="module")
def only_mnli(tmp_path_factory) -> Path:
    """Where the MNLI runs are finished, and those that start from them are not."""
    place = tmp_path_factory.mktemp("mnli")
    glue_bench.run(FROM_MNLI, results=place, only=["task=mnli"], precision="float32")
    return place


def test_a_run_starts_from_the_encoder_of_its_own_mnli_run(only_mnli, tmp_path):
    found = []
    for swapped in (False, True):
        place = Path(shutil.copytree(only_mnli, tmp_path / f"{swapped}"))
        if swapped:
            swap_encoders(place / "tiny")
        with suppress(UserError):
            glue_bench.run(FROM_MNLI, results=place, precision="float32")
        found.append(losses(place / "tiny", "rte"))
    assert len(found[0]) == 2
    assert found[1] in ({}, found[0])


def test_a_run_starts_from_the_weights_of_the_record_that_it_names(only_mnli, tmp_path):
    place = Path(shutil.copytree(only_mnli, tmp_path / "runs"))
    drop_encoders(place / "tiny")
    before = losses(place / "tiny", "mnli")
    glue_bench.run(FROM_MNLI, results=place, precision="bf16")  # as on another machine: other bits
    assert not losses(place / "tiny", "rte") or losses(place / "tiny", "mnli") != before


def test_a_report_shows_no_analysis_of_other_weights(tmp_path):
    experiment = TINY | {"arms": ["add"], "finetuning": SETTINGS}

    def reports(steps: int) -> list[str]:
        folder = glue_bench.run(
            experiment | {"pretraining": TINY["pretraining"] | {"steps": steps}}, results=tmp_path
        ).folder
        said = []
        for sequences in (8, 16):
            analysis = tmp_path / f"of-{sequences}-sequences"
            if not analysis.exists():
                options = ("--only", "order", "--sequences", sequences, "--figures", "none")
                verb("analyse", folder, *options, "-o", analysis)
            shutil.rmtree(folder / "analysis", ignore_errors=True)
            shutil.copytree(analysis, folder / "analysis")
            said.append(read("report", folder, tmp_path / f"{steps}-{sequences}"))
        return said

    first, second = reports(steps=2)
    assert first != second
    first, second = reports(steps=3)
    assert first == second
