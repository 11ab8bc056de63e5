"""How far an experiment is, from its folder alone: for another terminal, or after the fact. No torch."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glue_bench.records.store import Store
from glue_bench.sweep.claims import Claim, read_claims
from glue_bench.watch.estimate import Estimate
from glue_bench.watch.view import Counts, Snapshot, label

WINDOW_SECONDS = 3600.0
"""Throughput is that of the last hour."""
AT_LEAST = 200
"""The number of newest records that are read, however old, to estimate what is left."""


@dataclass(frozen=True)
class _Ended:
    """What a record says of its cell's pace; `at` is when it was written, by the disk's clock."""

    at: float
    seconds: float
    tokens: int


class Watch:
    """Looks at a folder again and again. A file is read once; a look costs a listing of three folders."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store, self.clock = store, clock
        self.cells: dict[str, dict[str, Any]] = {}
        self._plan_stamp: tuple[int, int] | None = None
        self._estimate = Estimate({}, {})
        self._seen: set[str] = set()
        self._ended: dict[str, _Ended] = {}

    def look(self) -> Snapshot:
        """The experiment as it is now.

        Raises:
            UserError: the folder has no plan, or it cannot be read.
        """
        self._read_plan()
        done = _names(self.store.folder / "records") & self.cells.keys()
        self._read_new(done)
        failed = (_names(self.store.folder / "failures") & self.cells.keys()) - done
        claims = [claim for claim in read_claims(self.store.folder / "claims") if claim.is_alive]
        running = {claim.name for claim in claims} & self.cells.keys() - done
        arms: dict[str, Counts] = {}
        for cell_id, cell in self.cells.items():
            counts = arms.setdefault(cell["arm"], Counts())
            state = _state(cell_id, done, running, failed)
            setattr(counts, state, getattr(counts, state) + 1)
        return self._snapshot(arms, claims, running, self.cells.keys() - done - running - failed)

    def _snapshot(self, arms: dict[str, Counts], claims: list[Claim], running: set[str], rest: set[str]) -> Snapshot:
        lines = [self._describe(claim) for claim in claims if claim.name in running or claim.name not in self.cells]
        if not running:
            return Snapshot(arms, lines, rest="missing")
        per_hour, tokens = self._pace()
        left = self._estimate.seconds_left(rest, dict.fromkeys(running), len(running))
        return Snapshot(
            arms, lines, seconds_left=left, cells_per_hour=per_hour, tokens_per_second=tokens, rest="missing"
        )

    def _describe(self, claim: Claim) -> str:
        cell = self.cells.get(claim.name)
        return f"{label(cell) if cell else f'pretraining {claim.name}'} ({claim.worker})"

    def _read_plan(self) -> None:
        """Its cells and what they cost, if it is another plan than before."""
        try:
            status = (self.store.folder / "plan.json").stat()
            stamp = (status.st_ino, status.st_mtime_ns)
        except OSError:
            stamp = None
        if stamp is not None and stamp == self._plan_stamp:
            return
        self.cells = {cell["cell_id"]: cell for cell, _ in self.store.states()}
        plan = self.store.read_plan() or {}
        tokens, arms = plan.get("training_tokens", {}), plan.get("arms", {})
        costs = {
            cell_id: tokens[cell["task"]] * arms[cell["arm"]]["flops_per_token"]
            for cell_id, cell in self.cells.items()
            if cell["task"] in tokens
        }
        self._estimate = Estimate(costs, {cell_id: cell["task"] for cell_id, cell in self.cells.items()})
        self._plan_stamp, self._seen, self._ended = stamp, set(), {}

    def _read_new(self, done: set[str]) -> None:
        """Read those of the new records that tell of the pace now."""
        new, folder = done - self._seen, self.store.folder / "records"
        self._seen |= new
        written = sorted(((_written(folder / f"{name}.json"), name) for name in new), reverse=True)
        since = self.clock() - WINDOW_SECONDS
        for place, (at, name) in enumerate(written):
            if place >= AT_LEAST and at < since:
                break
            ended = _read(folder / f"{name}.json", at)
            if ended:
                self._ended[name] = ended
                self._estimate.learn(name, ended.seconds)

    def _pace(self) -> tuple[float | None, float | None]:
        """Cells an hour and training tokens a second in the window."""
        now = self.clock()
        recent = [ended for ended in self._ended.values() if ended.at >= now - WINDOW_SECONDS]
        period = min(WINDOW_SECONDS, now - min((ended.at - ended.seconds for ended in recent), default=now))
        if len(recent) < 2 or period <= 0:  # a disk whose clock is ahead
            return None, None
        return 3600 * len(recent) / period, sum(ended.tokens for ended in recent) / period


def _state(cell_id: str, done: set[str], running: set[str], failed: set[str]) -> str:
    if cell_id in done:
        return "done"
    if cell_id in running:
        return "running"
    return "failed" if cell_id in failed else "queued"


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")}
    except FileNotFoundError:
        return set()


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path, at: float) -> _Ended | None:
    """None of a record that cannot be read; tables say what is wrong with it."""
    try:
        record = json.loads(path.read_bytes())
        return _Ended(at, float(record["seconds"]["total"]), int(record["tokens"].get("training", 0)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
