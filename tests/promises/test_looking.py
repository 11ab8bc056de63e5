"""Looking changes nothing: whatever only watches leaves every id, every digest and every bit of a record as it was."""

import io
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
from rich.console import Console

import glue_bench


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> Path:
    """The folder of a run that nobody watches."""
    return tiny_runs.run(tiny_runs.experiment(), tmp_path_factory.mktemp("usual"))


# What an experiment asks for beside its results

ASKED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "validations": ({"pretraining": {"validations": 4}}, ("losses", "validations")),
    "kept checkpoints": ({"pretraining": {"checkpoints": [2]}}, ("checkpoints", "weights")),
    "test predictions": ({"finetuning": {"predict": ["validation", "test"]}}, ("tests",)),
    "shuffled words": ({"finetuning": {"order": True}}, ("order",)),
    "kept models": ({"finetuning": {"keep": "all"}}, ("model", "weights")),
    "how it is read": ({"protocol": {"epoch": "best", "seeds": "median"}, "resources": {"give_up_after": None}}, ()),
}
"""By what is watched: the change of the experiment, and where the results hold what was seen."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Callable[[str], Path]:
    """The folder of a run that is asked for something more, run once."""
    ran: dict[str, Path] = {}

    def of(what: str) -> Path:
        if what not in ran:
            values = tiny_runs.experiment(**ASKED[what][0])
            ran[what] = tiny_runs.run(values, tmp_path_factory.mktemp("asked"))
        return ran[what]

    return of


@pytest.mark.parametrize("what", ASKED)
def test_what_is_asked_beside_changes_no_id(usual, asked, what):
    assert glue_bench.status(asked(what))["cell_id"].to_list() == glue_bench.status(usual)["cell_id"].to_list()
    assert tiny_runs.results(asked(what)).keys() == tiny_runs.results(usual).keys()


@pytest.mark.parametrize("what", ASKED)
def test_what_is_asked_beside_changes_no_bit(usual, asked, what):
    seen = ASKED[what][1]
    assert tiny_runs.unlike(tiny_runs.bits(usual, *seen), tiny_runs.bits(asked(what), *seen)) == []


@pytest.fixture(scope="module")
def made_again(usual, tmp_path_factory) -> tuple[bytes, list[str]]:
    """What is said where lost weights were made again as they had been made."""
    return _made_again(usual, tmp_path_factory.mktemp("again"), validations=2)


def test_weights_that_are_made_again_are_recognised(made_again):
    page, faults = made_again
    assert b"lost" not in page
    assert faults == []


def test_so_they_are_when_their_loss_is_measured_more_often(usual, made_again, tmp_path):
    assert _made_again(usual, tmp_path, validations=4) == made_again


def _made_again(usual: Path, place: Path, *, validations: int) -> tuple[bytes, list[str]]:
    """The leaderboard after a second seed, for which lost weights were made again, and the faults that verify finds."""
    folder = Path(shutil.copytree(usual, place / usual.name))
    tiny_runs.lose_weights(folder)
    tiny_runs.run(tiny_runs.experiment(seeds=[1, 2], pretraining={"validations": validations}), place)
    (verified,) = glue_bench.verify(folder)
    return (folder / "leaderboard.md").read_bytes(), verified.faults


# Who looks while it runs


class _Looking(io.StringIO):
    """A screen that reads the results whenever something is written on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.looks = folder, 0

    def write(self, text: str) -> int:
        if (self.folder / "plan.json").exists():
            glue_bench.status(self.folder)
            glue_bench.leaderboard(self.folder)
            glue_bench.predictions(self.folder)
            self.looks += 1
        return super().write(text)


def test_a_reader_beside_a_run_changes_nothing(usual, tmp_path):
    screen = _Looking(tmp_path / "tiny")
    folder = tiny_runs.run(tiny_runs.experiment(), tmp_path, console=Console(file=screen))
    assert screen.looks > 1
    assert tiny_runs.unlike(tiny_runs.bits(usual), tiny_runs.bits(folder)) == []


def test_a_live_table_and_logs_change_nothing(usual, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    folder = tiny_runs.run(tiny_runs.experiment(), tmp_path, console=console)
    assert tiny_runs.unlike(tiny_runs.bits(usual), tiny_runs.bits(folder)) == []


TRACKIO = """
import random, numpy, torch
told = []
def init(**settings):
    random.random(), numpy.random.random(), torch.rand(1)
    told.append(settings)
    class Run:
        name = "it"
        def log(self, values, step=None): told.append(values)
        def finish(self): torch.manual_seed(5)
    return Run()
"""


def test_a_tracker_changes_nothing(usual, tmp_path, monkeypatch):
    (tmp_path / "trackio.py").write_text(TRACKIO)
    (tmp_path / "trackio-1.0.dist-info").mkdir()
    (tmp_path / "trackio-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: trackio\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tiny_runs.run(tiny_runs.experiment(), tmp_path / "runs", track=["trackio"])
    assert len(sys.modules.pop("trackio").told) > 4
    assert tiny_runs.unlike(tiny_runs.bits(usual), tiny_runs.bits(folder)) == []


@pytest.mark.slow
def test_workers_change_nothing(usual, tmp_path):
    pytest.importorskip("ray")
    folder = tiny_runs.run(tiny_runs.experiment(), tmp_path, workers=2)
    assert tiny_runs.unlike(tiny_runs.bits(usual), tiny_runs.bits(folder)) == []


# Who looks afterwards

VERBS = [
    *("status RUNS", "leaderboard RUNS", "report RUNS -o OUT/page.html", "statistics RUNS", "verify RUNS"),
    *("statistics RUNS --difference 9", "table tupe-1 RUNS", "card RUNS -o OUT/card"),
    *("export RUNS -o OUT/bundle.zip", "submit RUNS --fill -o OUT/add.zip"),
    "analyse RUNS --only order --figures none --sequences 8 -o OUT/analysis",
]


@pytest.mark.parametrize("words", [verb.split() for verb in VERBS], ids=" ".join)
def test_a_verb_that_reads_changes_no_file(glue_bench, asked, tmp_path, words):
    folder = asked("test predictions")
    before = _stamps(folder)
    said = glue_bench(*(word.replace("OUT", str(tmp_path)).replace("RUNS", str(folder)) for word in words))
    assert said.status in (0, 1), said
    assert _stamps(folder) == before


def test_neither_does_a_dry_run_or_a_plan(usual):
    before = _stamps(usual)
    glue_bench.plan(tiny_runs.experiment(seeds=[1, 2]), results=usual.parent)
    summary = glue_bench.run(tiny_runs.experiment(seeds=[1, 2]), results=usual.parent, dry_run=True)
    assert len(summary.waiting) == 1
    assert _stamps(usual) == before


def _stamps(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
