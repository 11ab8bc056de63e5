"""The counts of a sweep as it goes, and what they say of its rest."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glue_bench.records.record import LossPoint
from glue_bench.sweep.events import (
    Event,
    JobElsewhere,
    JobEnded,
    JobStarted,
    PretrainingPoint,
    SweepInterrupted,
    SweepStarted,
)
from glue_bench.sweep.jobs import FinishedPretraining, Job, PlannedCell
from glue_bench.sweep.progress import read_progress
from glue_bench.training.finetune import Outcome
from glue_bench.watch.estimate import Estimate
from glue_bench.watch.view import Counts, Snapshot, counts_by_arm, describe_progress

PRETRAINING = "pretraining"
"""What stands for the task of pretrainings where seconds are estimated."""


@dataclass
class _Running:
    """A job under way since `since`, and of a pretraining the last point of its curve."""

    job: Job
    since: float
    point: LossPoint | None = None

    def describe(self, now: float, folder: Path) -> str:
        said = describe_progress(read_progress(folder, self.job.id))
        if isinstance(self.job, PlannedCell):
            what = self.job.label
        else:
            what = f"pretraining {self.job.label}"
            said = said or f"step {self.point.step if self.point else 0:,} of {self.job.run.settings.steps:,}"
        return ", ".join(filter(None, (what, said, f"{now - self.since:.0f} s")))


class Tally:
    """An observer that others ask. It counts cells; those that were done before count as done, and in no rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.ended, self._finished, self._tokens = 0, 0, 0
        self._begun = SweepStarted("", Path(), (), (), ())
        self._states: dict[str, str] = {}
        self._running: dict[str, _Running] = {}
        self._began, self._first_cell = clock(), True
        self._estimate = Estimate({}, {})

    def __str__(self) -> str:
        return "the count of cells"

    def hear(self, event: Event) -> None:
        """Keep count."""
        match event:
            case SweepStarted():
                tasks = {planned.id: planned.cell.task for planned in event.cells}
                tasks |= {job.id: PRETRAINING for job in event.pretraining}
                self._begun, self._estimate = event, Estimate(event.costs, tasks)
                self._states = dict.fromkeys(tasks, "queued")
            case JobStarted(job):
                if isinstance(job, PlannedCell) and self._first_cell:
                    self._began, self._first_cell = self.clock(), False
                self._states[job.id], self._running[job.id] = "running", _Running(job, self.clock())
            case PretrainingPoint(job, point) if job.id in self._running:
                self._running[job.id].point = point
            case JobEnded(job, result):
                self._end(job, event.error)
                if isinstance(result, Outcome):
                    self._finished += 1
                    self._tokens += result.facts.tokens.training
                    self._estimate.learn(job.id, result.facts.seconds.total)
                elif isinstance(result, FinishedPretraining):
                    self._estimate.learn(job.id, result.record.seconds)
            case JobElsewhere(job, error):
                self._end(job, error)
            case SweepInterrupted():
                self._states |= dict.fromkeys(self._running, "queued")
                self._running.clear()

    def _end(self, job: Job, error: str | None) -> None:
        self._running.pop(job.id, None)
        self._states[job.id] = "done" if error is None else "failed"
        self.ended += isinstance(job, PlannedCell)

    def snapshot(self) -> Snapshot:
        """How it stands now. Rates are of cells that this sweep has run, over the time since the first of them."""
        now = self.clock()
        elapsed = now - self._began
        # A rate of one finished cell is that of the first to end, not of the sweep.
        known = self._finished > 1 and elapsed > 0
        running = {name: now - each.since for name, each in self._running.items()}
        queued = [name for name, state in self._states.items() if state == "queued"]
        return Snapshot(
            arms=self.counts,
            running=[each.describe(now, self._begun.folder) for each in list(self._running.values())],
            elapsed=elapsed,
            seconds_left=self._estimate.seconds_left(queued, running, self._begun.workers or len(running)),
            cells_per_hour=3600 * self._finished / elapsed if known else None,
            tokens_per_second=self._tokens / elapsed if known else None,
        )

    @property
    def total(self) -> int:
        """How many cells this sweep is to run."""
        return len(self._begun.cells)

    @property
    def counts(self) -> dict[str, Counts]:
        """The counts of each arm, in the experiment's order."""
        cells = [*self._begun.before, *self._begun.cells]
        found = counts_by_arm((planned.arm, self._states.get(planned.id, "done")) for planned in cells)
        return {arm: found[arm] for arm in self._begun.arms if arm in found}
