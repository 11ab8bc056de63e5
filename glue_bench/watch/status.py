"""How far an experiment is, from its folder alone: for another terminal, or after the fact. No torch."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from glue_bench.errors import UserError
from glue_bench.records.plan import AskedCell, Plan
from glue_bench.records.record import FailureRecord, Record
from glue_bench.records.store import Store
from glue_bench.sweep.claims import read_claims
from glue_bench.sweep.progress import read_progress
from glue_bench.watch.estimate import Estimate
from glue_bench.watch.view import Snapshot, counts_by_arm, describe_progress

WINDOW_SECONDS = 3600.0
"""Throughput is that of the last hour."""
AT_LEAST = 200
"""The number of newest records that are read, however old, to estimate what is left."""


class Watch:
    """Looks at a folder again and again. A file is read once; a look costs a listing of three folders."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self.store, self.clock = store, clock
        self.cells: dict[str, AskedCell] = {}
        self._jobs: dict[str, str] = {}  # in words
        self._plan: Plan | None = None
        self._estimate = Estimate({}, {})
        self._seen: set[str] = set()
        self._ended: dict[str, tuple[float, Record]] = {}  # with when it was written, by the disk's clock

    def look(self) -> Snapshot:
        """The experiment as it is now.

        Raises:
            UserError: the folder has no plan, or it cannot be read.
        """
        self._read_plan()
        done = self.store.ids("records") & self.cells.keys()
        self._read_new(done)
        failed = self.store.ids("failures") & self.cells.keys()
        claims = [claim for claim in read_claims(self.store.folder / "claims") if claim.is_alive]
        running = {claim.name for claim in claims} & self.cells.keys() - done
        states = dict.fromkeys(failed, "failed") | dict.fromkeys(running, "running") | dict.fromkeys(done, "done")
        counts = counts_by_arm((cell.arm, states.get(cell_id, "queued")) for cell_id, cell in self.cells.items())
        shown = []
        for claim in claims:
            if claim.name in running or claim.name not in self.cells:
                what = self._jobs.get(claim.name, f"pretraining {claim.name}")
                said = describe_progress(read_progress(self.store.folder, claim.name))
                shown.append(", ".join(filter(None, (what, said))) + f" ({claim.worker})")
        snapshot = Snapshot(counts, shown, rest="missing")
        if not running:
            return snapshot
        per_hour, tokens = self._pace()
        left = self._estimate.seconds_left(self.cells.keys() - states, dict.fromkeys(running), len(running))
        return replace(snapshot, seconds_left=left, cells_per_hour=per_hour, tokens_per_second=tokens)

    def failures(self) -> list[FailureRecord]:
        """Those of cells and pretrainings that the plan asked for at the last look, sorted by id."""
        return [failure for failure in self.store.read_failures() if failure.cell_id in self._jobs]

    def _read_plan(self) -> None:
        """Its cells and what they cost, if it is another plan than before."""
        plan = self.store.needed_plan()
        if plan is self._plan:
            return
        self._plan, self._seen, self._ended = plan, set(), {}
        self.cells = {cell.cell_id: cell for cell in plan.cells}
        self._jobs = {each.pretraining_id: f"pretraining {each.label}" for each in plan.all_pretrainings()}
        self._jobs |= {cell.cell_id: cell.label for cell in plan.cells}
        tasks = {cell.cell_id: cell.task for cell in plan.cells}
        costs = {
            cell.cell_id: plan.training_tokens[cell.task] * float(plan.arms[cell.arm].flops_per_token or 0)
            for cell in plan.cells
            if cell.task in plan.training_tokens
        }
        self._estimate = Estimate(costs, tasks)

    def _read_new(self, done: set[str]) -> None:
        """Read those of the new records that tell of the pace now. Tables say what is wrong with one that does not."""
        new = done - self._seen
        self._seen |= new
        written = sorted(((self.store.when_recorded(name), name) for name in new), reverse=True)
        since = self.clock() - WINDOW_SECONDS
        for place, (at, name) in enumerate(written):
            if place >= AT_LEAST and at < since:
                break
            with suppress(UserError):
                self._ended[name] = at, self.store.read_record(name)
                self._estimate.learn(name, self._ended[name][1].seconds.total)

    def _pace(self) -> tuple[float | None, float | None]:
        """Cells an hour and training tokens a second in the window."""
        now = self.clock()
        recent = [(at, record) for at, record in self._ended.values() if at >= now - WINDOW_SECONDS]
        period = min(WINDOW_SECONDS, now - min((at - record.seconds.total for at, record in recent), default=now))
        if len(recent) < 2 or period <= 0:  # a disk whose clock is ahead
            return None, None
        return 3600 * len(recent) / period, sum(record.tokens.training for _, record in recent) / period
