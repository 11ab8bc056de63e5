"""A worker that is stopped in the middle of a cell: it is said, given up, and costs nothing but time."""

import io
import os
import time
from contextlib import suppress

import psutil
import pytest
from rich.console import Console

pytest.importorskip("ray")
from test_ray import Listener

from glue_bench.api import run
from glue_bench.sweep import patience

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP"), pytest.mark.slow]

CELLS = 8


def stop_one(stopped: list[int]) -> None:
    """SIGSTOP to a worker of this process that runs a cell."""
    give_up = time.monotonic() + 60
    while not stopped and time.monotonic() < give_up:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended in between
                if not stopped and child.cmdline()[:1] == ["ray::Worker.run"]:
                    child.suspend()
                    stopped.append(child.pid)


def test_a_worker_that_hangs_is_said_and_given_up(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(patience, "FLOOR_SECONDS", 20.0)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # beside other work the lowest priority would look like a hang
    stopped: list[int] = []
    console = Console(file=Listener(2, lambda: stop_one(stopped)), width=200)
    assert isinstance(console.file, io.StringIO)
    values = tiny(arms=["add"], tasks=["cola"], seeds=[*range(1, CELLS + 1)], resources={"give_up_after": 3})
    summary = run(values, results=tmp_path, workers=2, console=console)
    assert (summary.finished, summary.failed) == (CELLS, {})
    said = [line for line in console.file.getvalue().splitlines() if f":{stopped[0]}: nothing heard for " in line]
    assert [line.startswith("cell add on cola, rate 0.001, seed ") for line in said] == [True, True]
    assert "were expected; it is given up after " in said[0]
    assert said[1].endswith("; it is given up there, and run again")
    assert not psutil.pid_exists(stopped[0])
