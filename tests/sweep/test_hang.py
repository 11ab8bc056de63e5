"""A worker that is stopped, in a cell or before it is ready: it is said, given up, and costs nothing but time."""

import io
import os
import threading
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


def stop_one(stopped: dict[int, int], title: str = "ray::Worker.run", seconds: float = 60) -> None:
    """SIGSTOP to a worker of this process that has this title; its pid and its niceness."""
    give_up = time.monotonic() + seconds
    while not stopped and time.monotonic() < give_up:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended in between
                if not stopped and child.cmdline()[:1] == [title]:
                    child.suspend()
                    stopped[child.pid] = child.nice()


def test_a_worker_that_hangs_is_said_and_given_up(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(patience, "FLOOR_SECONDS", 20.0)
    stopped: dict[int, int] = {}
    console = Console(file=Listener(2, lambda: stop_one(stopped)), width=200)
    assert isinstance(console.file, io.StringIO)
    values = tiny(arms=["add"], tasks=["cola"], seeds=[*range(1, CELLS + 1)], resources={"give_up_after": 3})
    summary = run(values, results=tmp_path, workers=2, console=console)
    assert (summary.finished, summary.failed) == (CELLS, {})
    [(pid, niceness)] = stopped.items()
    assert niceness == os.nice(0)
    said = [line for line in console.file.getvalue().splitlines() if f":{pid}: nothing heard for " in line]
    assert [line.startswith("cell add on cola, rate 0.001, seed ") for line in said] == [True, True]
    assert "were expected; it is given up after " in said[0]
    assert said[1].endswith("; it is given up there, and run again")
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("title", ["ray::IDLE", "ray::Worker.ready"], ids=["made", "getting ready"])
def test_one_that_hangs_before_it_is_ready_is_given_up_too(tiny, tmp_path, monkeypatch, title):
    monkeypatch.setattr(patience, "FLOOR_SECONDS", 150.0)  # a worker of a busy machine takes long to start
    stopped: dict[int, int] = {}
    stopping = threading.Thread(target=stop_one, args=(stopped, title, 240))
    stopping.start()
    console = Console(file=io.StringIO(), width=200)
    values = tiny(arms=["add"], tasks=["cola"], seeds=[1], resources={"give_up_after": 5})
    summary = run(values, results=tmp_path, workers=1, console=console)
    stopping.join()
    assert (summary.finished, summary.failed) == (1, {})
    [pid] = stopped
    said = [line for line in console.file.getvalue().splitlines() if f":{pid}: nothing heard for " in line]
    if title == "ray::IDLE" and not said:
        return  # stopped before Ray had registered it, which then has started another by itself
    assert [line.startswith("start of a worker on ") for line in said] == [True, True]
    assert said[1].endswith("; it is given up there, and run again")
    assert not psutil.pid_exists(pid)
