"""A wall clock that is set, by hours, again and again: nothing is measured with it, and no claim is lost to it."""

import io
import itertools
import json
import os
import threading
import time

import pytest
from rich.console import Console
from stored import documents

from glue_bench.api import run
from glue_bench.records.store import Store
from glue_bench.sweep import attempts, claims
from glue_bench.sweep.claims import Claims

HOURS = itertools.cycle([5, -7, 30, -26, 0.5, -3])


@pytest.fixture
def jumping(monkeypatch):
    """`time.time` and `time.time_ns` jump at every call, and so do the times that heartbeats leave on files."""
    clock, touch = time.time, os.utime

    def now() -> float:
        return clock() + 3600 * next(HOURS)

    monkeypatch.setattr(time, "time", now)
    monkeypatch.setattr(time, "time_ns", lambda: int(now() * 1e9))
    monkeypatch.setattr(claims.os, "utime", lambda path: touch(path, (now(), now())))


class Elsewhere(threading.Thread):
    """Another machine's sweep, which wants every cell that is claimed, and whose patience is short."""

    def __init__(self, folder) -> None:
        super().__init__()
        self.folder, self.taken, self.asked, self.end = folder, [], 0, threading.Event()

    def run(self) -> None:
        rival = Claims(self.folder, stale_seconds=0.3)
        while not self.end.is_set():
            for path in list(self.folder.glob("*")) if self.folder.is_dir() else ():
                content = path.read_bytes() if path.exists() else b""
                if content and rival._is_stale(path.name, _of_another_machine(content), path.stat().st_mtime_ns):
                    self.taken.append(path.name)
                self.asked += 1
            self.end.wait(0.01)


def _of_another_machine(content: bytes):
    return claims._parse(json.dumps({**json.loads(content), "machine": "elsewhere"}).encode())


@pytest.mark.usefixtures("jumping", "small_demo")
def test_a_clock_that_jumps_changes_nothing(tiny, tmp_path, monkeypatch):
    finetune, results = attempts.finetune, tmp_path / "runs"

    def slow(*arguments, **options):
        time.sleep(0.6)  # longer than the rival's patience
        return finetune(*arguments, **options)

    monkeypatch.setattr(attempts, "finetune", slow)
    monkeypatch.setattr(Claims.__init__, "__defaults__", (0.05, claims.STALE_SECONDS))
    rival = Elsewhere(results / "tiny" / "claims")
    rival.start()
    try:
        summary = run(tiny(arms=["add"]), results=results, console=Console(file=io.StringIO(), force_terminal=True))
    finally:
        rival.end.set()
        rival.join()
    assert (summary.finished, summary.failed) == (2, {})
    assert rival.asked > 20
    assert rival.taken == []
    for record in documents(Store(summary.folder)):
        assert all(0 <= seconds < 60 for seconds in record["seconds"].values()), record["seconds"]
