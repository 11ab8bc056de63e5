"""The counts of a sweep as it goes, and what they say of its rest."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from glue_bench.records.record import LossPoint, PretrainingRecord
from glue_bench.sweep.events import Event, JobElsewhere, JobEnded, JobStarted, PretrainingPoint, SweepStarted
from glue_bench.sweep.jobs import Job, PlannedCell, Result
from glue_bench.training.finetune import Outcome
from glue_bench.watch.estimate import Estimate
from glue_bench.watch.view import Counts, Snapshot, label

PRETRAINING = "pretraining"
"""What stands for the task of pretrainings where seconds are estimated."""


@dataclass
class _Running:
    """A job under way since `since`, and of a pretraining the last point of its curve."""

    job: Job
    since: float
    point: LossPoint | None = None

    def describe(self, now: float) -> str:
        if isinstance(self.job, PlannedCell):
            return f"{label(self.job.asked)}, {now - self.since:.0f} s"
        step = f"step {self.point.step if self.point else 0:,} of {self.job.run.settings.steps:,}"
        return f"pretraining {self.job.label}, {step}, {now - self.since:.0f} s"


class Tally:
    """An observer that others ask. It counts cells; those that were done before count as done, and in no rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.counts: dict[str, Counts] = {}
        self.running: dict[str, _Running] = {}
        self.ended, self.total = 0, 0
        self._queued: dict[str, None] = {}
        self._finished, self._tokens = 0, 0
        self._began, self._has_begun = clock(), False
        self._workers: int | None = 1
        self._estimate = Estimate({}, {})

    def __str__(self) -> str:
        return "the count of cells"

    def hear(self, event: Event) -> None:
        """Keep count."""
        match event:
            case SweepStarted():
                self._open(event)
            case JobStarted(job):
                self._start(job)
            case PretrainingPoint(job, point) if job.id in self.running:
                self.running[job.id].point = point
            case JobEnded(job, result):
                self._end(job, failed=event.error is not None)
                self._learn(job, result)
            case JobElsewhere(job, error):
                self._end(job, failed=error is not None)

    def snapshot(self) -> Snapshot:
        """How it stands now. Rates are of cells that this sweep has run, over the time since the first of them."""
        now = self.clock()
        elapsed = now - self._began
        # A rate of one finished cell is that of the first to end, not of the sweep.
        known = self._finished > 1 and elapsed > 0
        running = {name: now - each.since for name, each in self.running.items()}
        return Snapshot(
            arms=self.counts,
            running=[each.describe(now) for each in self.running.values()],
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
            self.counts[planned.arm].done += 1
        for planned in begun.cells:
            self.counts[planned.arm].queued += 1
        self.total, self._workers = len(begun.cells), begun.workers
        tasks = {planned.id: planned.cell.task for planned in begun.cells}
        tasks |= {job.id: PRETRAINING for job in begun.pretraining}
        self._queued = dict.fromkeys(tasks)
        self._estimate = Estimate(begun.costs, tasks)

    def _start(self, job: Job) -> None:
        is_cell = isinstance(job, PlannedCell)
        if is_cell and not self._has_begun:
            self._began, self._has_begun = self.clock(), True
        if job.id in self._queued:
            del self._queued[job.id]
            if is_cell:
                counts = self.counts[job.arm]
                counts.queued, counts.running = counts.queued - 1, counts.running + 1
        self.running[job.id] = _Running(job, self.clock())

    def _end(self, job: Job, *, failed: bool) -> None:
        ran, queued = self.running.pop(job.id, None) is not None, job.id in self._queued
        self._queued.pop(job.id, None)
        if not isinstance(job, PlannedCell):
            return
        counts = self.counts[job.arm]
        counts.running -= ran
        counts.queued -= queued and not ran
        counts.failed += failed
        counts.done += not failed
        self.ended += 1

    def _learn(self, job: Job, result: Result) -> None:
        if isinstance(result, Outcome):
            self._finished += 1
            self._tokens += result.record.tokens.training
            self._estimate.learn(job.id, result.record.seconds.total)
        elif isinstance(result, PretrainingRecord):
            self._estimate.learn(job.id, result.seconds)
