"""A file beside a record that belongs to another run or to another cell is not read: every reader
answers as if the file were missing.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
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
OLDER = "older runs"
OTHER = "other cells"
CASES = [
    *product([PREDICTIONS], (OLDER, OTHER), ("predictions()", "statistics")),
    *product([TESTS], (OLDER, OTHER), ("submit", "diagnostics", "predictions()")),
    *product([MODELS], (OLDER, OTHER), ["card"]),
    *product(["labels/*"], [OLDER], ("statistics", "predictions()")),
    *product(
        ["pretrainings/*/losses.safetensors", "pretrainings/*/sums.safetensors"],
        [OLDER],
        ["leaderboard"],
    ),
]
"""Which files are replaced, by the files of which runs, and who reads them.

The files of older runs are those of the same cells. The files of other cells are older, too.
"""


def make_experiment(path: Path, bits: int, **runs: int) -> Path:
    """Make an experiment whose arms have `runs` pretrainings each, and two cells from each.

    Experiments with other `bits` have the same jobs with other results.
    """
    folder = Folder(path / "toy", bits=bits)
    for arm, count in runs.items():
        for seed in range(1, count + 1):
            folder.pretrain(arm, seed=seed)
            for task in ("mnli", "rte"):
                folder.run(arm, task, seed=1, pretraining_seed=seed)
    return folder.plan()


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    """The experiment, and two older runs of it, whose bits are others."""
    place = tmp_path_factory.mktemp("made")
    return [make_experiment(place / f"{bits}", bits, add=2, untied=2, none=1) for bits in range(3)]


@pytest.fixture(scope="module")
def right_answer(folders, tmp_path_factory) -> Callable[[str], str]:
    """What a reader says where every file belongs to its record."""
    return cache(lambda reader: read(reader, folders[0], tmp_path_factory.mktemp("out") / "out"))


def replace_path(old: Path, new: Path) -> None:
    """Put a copy of a file or a folder into the place of another."""
    if old.is_dir():
        shutil.rmtree(old)
        shutil.copytree(new, old)
    else:
        shutil.copy(new, old)


def put(older: Path, folder: Path, pattern: str, shift: int = 0) -> None:
    """Replace the files of a folder by files of an older run.

    With a `shift` each file is replaced by that of a cell so many places further on.
    """
    names = sorted(path.relative_to(older) for path in older.glob(pattern))
    for name, source in zip(names, names[shift:] + names[:shift], strict=True):
        replace_path(folder / name, older / source)


@pytest.mark.parametrize(("pattern", "kind", "reader"), CASES)
def test_what_a_file_says_that_is_not_the_records_changes_nothing(
    pattern, kind, reader, folders, right_answer, tmp_path
):
    """It is as if there were no such file, whatever it says."""
    answers: list[str] = []
    for number, older in enumerate(folders[1:]):
        wrong = Path(shutil.copytree(folders[0], tmp_path / f"{number}" / "toy"))
        if kind == OLDER:
            put(older, wrong, pattern)
        else:
            for task in ("mnli", "rte"):  # files of one task have the same shapes
                put(older, wrong, pattern.replace("cells/*", f"cells/*{task}*"), shift=1)
        answers.append(read(reader, wrong, tmp_path / f"out{number}"))
    assert answers[0] == answers[1]
    assert answers[0] != right_answer(reader)


def test_losses_that_are_not_the_records_are_said_and_their_arm_is_not_tested(tmp_path):
    right = make_experiment(tmp_path / "0", 0, add=3, untied=3)
    older = make_experiment(tmp_path / "1", 1, add=3, untied=3)
    name = min((right / "pretrainings").glob("untied-*")).name
    put(older, right, f"pretrainings/{name}/losses.safetensors")
    reason = glue_bench.statistics(right).set_index("column")["why"]["validation_loss"]
    assert "/losses.safetensors: it belongs to another run" in reason


def test_a_run_of_a_search_is_not_the_pretraining_of_its_seed(tmp_path):
    folder = Folder(tmp_path / "toy")
    folder.pretrain("add", seed=1, rate=5e-3, search=True, loss=9.0)
    folder.pretrain("add", seed=1)
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
    """Return by seed the loss of each finished run of a task: other weights have another loss."""
    losses_by_seed: dict[int, float] = {}
    for cell in planned(folder):
        record = cell["record"]
        if cell["task"] == task and record:
            losses_by_seed[record["cell"]["seed"]] = record["history"][-1]["train_loss"]
    return losses_by_seed


@pytest.fixture(scope="module")
def only_mnli(tmp_path_factory) -> Path:
    """The results of the MNLI cells alone, with their models."""
    return tiny_runs.run(FROM_MNLI, tmp_path_factory.mktemp("mnli"), only=["task=mnli"])


@pytest.fixture(scope="module")
def expected_losses(only_mnli, tmp_path_factory) -> dict[int, float]:
    """The losses of RTE from the models of its own MNLI runs."""
    place = tmp_path_factory.mktemp("right")
    shutil.copytree(only_mnli, place / only_mnli.name)
    return losses(tiny_runs.run(FROM_MNLI, place), "rte")


def test_two_runs_start_from_their_mnli_runs(expected_losses):
    assert len(expected_losses) == 2


def test_a_run_starts_from_the_encoder_of_no_other_mnli_run(only_mnli, expected_losses, tmp_path):
    folder = Path(shutil.copytree(only_mnli, tmp_path / only_mnli.name))
    put(only_mnli, folder, "cells/*-mnli-*/model", shift=1)
    with suppress(UserError):
        glue_bench.run(FROM_MNLI, results=tmp_path, precision="float32")
    assert losses(folder, "rte") in ({}, expected_losses)


def test_a_run_starts_from_the_encoder_of_its_mnli_run_that_was_made_again(only_mnli, tmp_path):
    """The model was lost, and a machine that gives other bits makes it again."""
    folder = Path(shutil.copytree(only_mnli, tmp_path / only_mnli.name))
    before = losses(folder, "mnli")
    for model in folder.glob("cells/*-mnli-*/model"):
        shutil.rmtree(model)
    with suppress(UserError):
        glue_bench.run(FROM_MNLI, results=tmp_path, precision="bf16")
    if losses(folder, "rte"):  # else nothing has started from another encoder
        assert losses(folder, "mnli") != before


def reports(place: Path, steps: int) -> list[str]:
    """Run an experiment of this length, and report it beside two analyses of its first run."""
    folder = tiny_runs.run(tiny_runs.experiment(pretraining={"steps": steps}), place)
    texts: list[str] = []
    for sequences in (8, 16):
        analysis = place / f"of-{sequences}-sequences"
        if not analysis.exists():
            options = ("--only", "order", "--sequences", sequences)
            call_verb("analyse", folder, *options, "-o", analysis)
        shutil.rmtree(folder / "analysis", ignore_errors=True)
        shutil.copytree(analysis, folder / "analysis")
        texts.append(read("report", folder, place / f"{steps}-{sequences}"))
    return texts


def test_a_report_shows_no_analysis_of_other_weights(tmp_path):
    """The analyses are of the weights after four steps."""
    first, second = reports(tmp_path, steps=4)
    assert first != second  # each shows its analysis
    first, second = reports(tmp_path, steps=5)
    assert first == second  # none shows an analysis
