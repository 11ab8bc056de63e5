"""Belongs: a file beside a record that is of another run, or of another cell, is as good as not there."""

import shutil
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from helpers import tiny_runs
from helpers.folder import Folder, call_verb, planned, read

import glue_bench
from glue_bench.board.results import read_results
from glue_bench.errors import UserError

PREDICTIONS, TESTS, MODELS = (
    "cells/*/logits.safetensors",
    "cells/*/tests.safetensors",
    "cells/*/model",
)
CASES = [
    *product([PREDICTIONS], ("older runs", "other cells"), ("predictions()", "statistics")),
    *product([TESTS], ("older runs", "other cells"), ("submit", "diagnostics", "predictions()")),
    *product([MODELS], ("older runs", "other cells"), ["card"]),
    *product(["labels/*"], ["older runs"], ("statistics", "predictions()")),
    *product(
        ["pretrainings/*/losses.safetensors", "pretrainings/*/sums.safetensors"],
        ["older runs"],
        ["leaderboard"],
    ),
]


def made(path: Path, bits: int, **runs: int) -> Path:
    """An experiment with all that so many pretrainings of each arm leave, and the runs that start from them."""
    folder = Folder(path / "toy", bits=bits)
    for arm, count in runs.items():
        for seed in range(1, count + 1):
            folder.pretrain(arm, seed)
            for task in ("mnli", "rte"):
                folder.run(arm, task, 1, seed)
    return folder.plan()


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    """The experiment, and two older runs of it, whose bits are others."""
    return [
        made(tmp_path_factory.mktemp("made"), bits, add=2, untied=2, none=1) for bits in range(3)
    ]


def put(older: Path, folder: Path, pattern: str, shift: int = 0) -> None:
    """Take files from an older run, perhaps each of the cell so many places further on."""
    names = sorted(path.relative_to(older) for path in older.glob(pattern))
    for name, source in zip(names, names[shift:] + names[:shift], strict=True):
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
        (shutil.copytree if (older / source).is_dir() else shutil.copy)(
            older / source, folder / name
        )


@pytest.mark.parametrize(("pattern", "kind", "reader"), CASES)
def test_what_a_file_says_that_is_not_the_records_changes_nothing(
    pattern, kind, reader, folders, tmp_path
):
    """But it is as if there were none: not what is said where every file belongs to its record."""
    right = read(reader, folders[0], tmp_path / "out")
    answers = []
    for number, older in enumerate(folders[1:]):
        wrong = Path(shutil.copytree(folders[0], tmp_path / f"{number}" / "toy"))
        for task in ("mnli", "rte") if kind == "other cells" else [""]:
            put(older, wrong, pattern.replace("cells/*", f"cells/*{task}*"), shift=bool(task))
        answers.append(read(reader, wrong, tmp_path / f"out{number}"))
    assert answers[0] == answers[1] != right


def test_losses_that_are_not_the_records_are_said_and_their_arm_is_not_tested(tmp_path):
    right, older = (made(tmp_path / f"{bits}", bits, add=3, untied=3) for bits in range(2))
    put(
        older,
        right,
        f"pretrainings/{min((right / 'pretrainings').glob('untied-*')).name}/losses.safetensors",
    )
    reason = glue_bench.statistics(right).set_index("column")["why"]["validation_loss"]
    assert "/losses.safetensors: it belongs to another run" in reason


def test_a_run_of_a_search_is_not_the_pretraining_of_its_seed(tmp_path):
    folder = Folder(tmp_path / "toy")
    folder.pretrain("add", 1, rate=5e-3, search=True, loss=9.0)
    folder.pretrain("add", 1)
    folder.run("add", "rte")
    results = read_results(folder.plan())
    assert results.pretrainings["is_search"].tolist() == [False, True]
    assert results.cells["processor"].tolist() == ["this one"]  # nothing of lost weights


# Real runs

FROM_MNLI = tiny_runs.experiment(
    pretraining=None,
    checkpoint="scratch",
    tasks=["mnli", "rte"],
    seeds=[1, 2],
    finetuning={"from_mnli": ["rte"]},
)


def losses(folder: Path, task: str) -> dict[int, float]:
    """By its seed, the loss of each finished run of a task: other weights have another loss."""
    records = [
        cell["record"] for cell in planned(folder) if cell["task"] == task and cell["record"]
    ]
    return {record["cell"]["seed"]: record["history"][-1]["train_loss"] for record in records}


def test_a_run_starts_from_the_encoder_of_its_own_mnli_run(tmp_path):
    """Also where its model is another run's, or was lost and is made again by a machine that gives other bits."""
    results = {}
    only_mnli = tiny_runs.run(FROM_MNLI, tmp_path, only=["task=mnli"])
    for change in ("right", "swapped", "lost"):
        folder = Path(shutil.copytree(only_mnli, tmp_path / change / only_mnli.name))
        if change != "lost":
            put(only_mnli, folder, "cells/*-mnli-*/model", shift=change == "swapped")
        for model in [*folder.glob("cells/*-mnli-*/model")] if change == "lost" else []:
            shutil.rmtree(model)
        with suppress(UserError):
            glue_bench.run(
                FROM_MNLI,
                results=folder.parent,
                precision="bf16" if change == "lost" else "float32",
            )
        results[change] = losses(folder, "rte"), losses(folder, "mnli")
    assert len(results["right"][0]) == 2
    assert results["swapped"][0] in ({}, results["right"][0])
    assert not results["lost"][0] or results["lost"][1] != results["right"][1]


def test_a_report_shows_no_analysis_of_other_weights(tmp_path):
    def reports(steps: int) -> list[str]:
        folder = tiny_runs.run(tiny_runs.experiment(pretraining={"steps": steps}), tmp_path)
        text = []
        for sequences in (8, 16):
            analysis = tmp_path / f"of-{sequences}-sequences"
            if not analysis.exists():
                options = ("--only", "order", "--sequences", sequences)
                call_verb("analyse", folder, *options, "-o", analysis)
            shutil.rmtree(folder / "analysis", ignore_errors=True)
            shutil.copytree(analysis, folder / "analysis")
            text.append(read("report", folder, tmp_path / f"{steps}-{sequences}"))
        return text

    first, second = reports(steps=4)
    assert first != second
    first, second = reports(steps=5)
    assert first == second
