"""The counts of a sweep as it goes, and what they say of its rest."""

import time
from collections.abc import Callable

from glue_bench.sweep.events import (
    CellElsewhere,
    CellEnded,
    CellsStarted,
    CellStarted,
    Event,
    SweepStarted,
)
from glue_bench.sweep.executors import Failure
from glue_bench.sweep.plan import PlannedCell
from glue_bench.watch.estimate import Estimate
from glue_bench.watch.view import Counts, Snapshot, label


class Tally:
    """An observer that others ask. Cells that were done before count as done, and in no rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.counts: dict[str, Counts] = {}
        self.running: dict[str, tuple[PlannedCell, str, float]] = {}
        self.ended, self.total = 0, 0
        self._queued: dict[str, None] = {}
        self._finished, self._tokens = 0, 0
        self._began = clock()
        self._workers: int | None = 1
        self._estimate = Estimate({}, {})

    def __str__(self) -> str:
        return "the count of cells"

    def hear(self, event: Event) -> None:
        """Keep count."""
        match event:
            case SweepStarted():
                self._open(event)
            case CellsStarted():
                self._began = self.clock()
            case CellStarted(planned, worker):
                self._start(planned, worker)
            case CellEnded(planned, result):
                self._end(planned, failed=isinstance(result, Failure))
                if not isinstance(result, Failure):
                    self._finished += 1
                    self._tokens += result.record.tokens.training
                    self._estimate.learn(planned.id, result.record.seconds.total)
            case CellElsewhere(planned, error):
                self._end(planned, failed=error is not None)

    def snapshot(self) -> Snapshot:
        """How it stands now. Rates are of cells that this sweep has run, over the time since the first of them."""
        now = self.clock()
        elapsed = now - self._began
        # A rate of one finished cell is that of the first to end, not of the sweep.
        known = self._finished > 1 and elapsed > 0
        running = {name: now - since for name, (_, _, since) in self.running.items()}
        return Snapshot(
            arms=self.counts,
            running=[f"{label(planned.asked)}, {now - since:.0f} s" for planned, _, since in self.running.values()],
            elapsed=elapsed,
            seconds_left=self._estimate.seconds_left(self._queued, running, self._workers or len(running)),
            cells_per_hour=3600 * self._finished / elapsed if known else None,
            tokens_per_second=self._tokens / elapsed if known else None,
        )

    @property
    def total_counts(self) -> Counts:
        """Of all arms together."""
        return Counts.sum(list(self.counts.values()))

    def _open(self, begun: SweepStarted) -> None:
        self.counts = {arm: Counts() for arm in begun.arms}
        for planned in begun.before:
            self.counts[planned.cell.arm.name].done += 1
        for planned in begun.cells:
            self.counts[planned.cell.arm.name].queued += 1
        self.total, self._workers = len(begun.cells), begun.workers
        self._queued = dict.fromkeys(planned.id for planned in begun.cells)
        self._estimate = Estimate(begun.costs, {planned.id: planned.cell.task for planned in begun.cells})

    def _start(self, planned: PlannedCell, worker: str) -> None:
        if planned.id in self._queued:
            self._queued.pop(planned.id)
            counts = self.counts[planned.cell.arm.name]
            counts.queued, counts.running = counts.queued - 1, counts.running + 1
        self.running[planned.id] = planned, worker, self.clock()

    def _end(self, planned: PlannedCell, *, failed: bool) -> None:
        counts = self.counts[planned.cell.arm.name]
        if self.running.pop(planned.id, None):
            counts.running -= 1
        elif planned.id in self._queued:
            self._queued.pop(planned.id)
            counts.queued -= 1
        self.ended += 1
        if failed:
            counts.failed += 1
        else:
            counts.done += 1
