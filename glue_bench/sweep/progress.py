"""How far an experiment is, from its folder alone: while it runs, or from another machine. No torch."""

import os
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glue_bench.errors import format_duration
from glue_bench.records.store import Store
from glue_bench.records.values import Job, Plan, Progress

NEWEST = 200  # so many of the new records are read to estimate what is left
GROUND = 3  # so many jobs must have ended before anything is said of the rest
LIVE_SECONDS = 300.0  # a worker that has said nothing for longer counts as gone
STATES = ("done", "running", "failed", "missing")  # what failed runs again with the next command
Counts = dict[str, int]  # of jobs in each of STATES


class TimeEstimate:
    """How long jobs will take, from those that have ended and from what each of them is expected to cost.

    Costs leave out scoring and loading. Seconds per cost are learnt for each task; an unknown one takes those of all.
    """

    def __init__(self, plan: Plan) -> None:
        self.costs = {job.id: plan.cost(job) for job in plan.jobs}
        self.kinds = {job.id: job.kind_title for job in plan.jobs}
        self.ended = 0
        self.spent = defaultdict[str, float](float)
        self.paid = defaultdict[str, float](float)

    def learn(self, job_id: str, seconds: float) -> None:
        """A job has ended after so many seconds."""
        if self.costs.get(job_id):
            self.ended += 1
            self.spent[self.kinds[job_id]] += seconds
            self.paid[self.kinds[job_id]] += self.costs[job_id]

    def seconds(self, job_id: str) -> float | None:
        """How long a job will take; None while nothing is known."""
        if not self.ended:
            return None
        kinds = [self.kinds[job_id]] if self.kinds[job_id] in self.paid else [*self.paid]
        return (
            self.costs[job_id]
            * sum(self.spent[kind] for kind in kinds)
            / sum(self.paid[kind] for kind in kinds)
        )

    def seconds_left(
        self, waiting: Iterable[str], running: Mapping[str, float], at_once: int
    ) -> float | None:
        """Seconds until all jobs have ended if `at_once` run side by side; None if too few have ended to tell.

        `running` has the seconds since each of these jobs began.
        """
        if self.ended < min(GROUND, len(self.costs)) or not self.ended:
            return None
        under_way = [
            max((self.seconds(name) or 0.0) - since, 0.0) for name, since in running.items()
        ]
        work = sum(self.seconds(name) or 0.0 for name in waiting) + sum(under_way)
        return max(work / max(1, at_once), *under_way, 0.0)


@dataclass(frozen=True)
class Snapshot:
    """An experiment at one moment: counts of cells by arm, of pretrainings, what runs in words, and why jobs failed."""

    arms: Mapping[str, Counts]
    pretrainings: Counts
    running: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    seconds_left: float | None = None  # None where nothing runs, or too few jobs have ended

    @property
    def cells(self) -> Counts:
        """Those of all arms together."""
        return {state: sum(counts[state] for counts in self.arms.values()) for state in STATES}

    @property
    def described(self) -> str:
        """`12 of 80 cells done, 2 running, 0 failed, 66 missing; 3 of 4 pretrainings`."""
        cells, before = self.cells, self.pretrainings
        text = ", ".join(f"{cells[state]:,} {state}" for state in STATES[1:])
        pretrained = (
            f"; {before['done']:,} of {sum(before.values()):,} pretrainings"
            if any(before.values())
            else ""
        )
        return f"{cells['done']:,} of {sum(cells.values()):,} cells done, {text}{pretrained}"

    @property
    def left(self) -> str:
        """`about 12 min left`, if it is known."""
        return (
            "" if self.seconds_left is None else f"about {format_duration(self.seconds_left)} left"
        )


class Watch:
    """Looks at a folder again and again. It lists cells, pretrainings, failures and progress; reads a record once.

    Without the ids of jobs that are `done`, all that have a record count as done at each look.
    """

    def __init__(self, store: Store, plan: Plan, done: Collection[str] | None = None) -> None:
        self.store = store
        self.plan = plan
        self.estimate = TimeEstimate(plan)
        self.done = done
        self.jobs = {job.id: job for job in plan.jobs}
        self.arms = defaultdict[str, list[Job]](list)
        for cell in plan.cells:
            self.arms[cell.arm].append(cell)
        self.seen = set[str]()  # jobs whose records are read

    def look(self, left: Collection[str] | None = None) -> Snapshot:
        """The experiment as it is now; the time is that of the jobs `left`, else of all that are missing."""
        now = time.time()
        states, recorded, errors, running = job_states(self.store, self.plan, self.done)
        new = sorted((self.store.stored_at(name), name) for name in recorded - self.seen)
        self.seen |= recorded
        for _, name in new[-NEWEST:]:
            result = self.store.result(self.jobs[name])
            if result and result.ok:
                self.estimate.learn(name, result.seconds)
        since = {name: now - progress.began for name, progress in running.items()}
        missing = (
            {name for name in self.jobs if states[name] == "missing"}
            if left is None
            else {*left} - {*running}
        )

        def counted(jobs: Sequence[Job]) -> Counts:
            counts = Counter(states[job.id] for job in jobs)
            return {state: counts[state] for state in STATES}

        return Snapshot(
            {arm: counted(cells) for arm, cells in self.arms.items()},
            counted(self.plan.pretrainings),
            [
                describe_progress(self.jobs[name], running[name], len(running) > 1)
                for name in running
            ],
            {self.jobs[name].describe(): errors[name] for name in errors if name not in running},
            self.estimate.seconds_left(missing, since, len(running)) if running else None,
        )


class JobStates(NamedTuple):
    """How far the jobs of a plan are.

    Attributes:
        state: one of STATES of each job, by id.
        recorded: the jobs that are done.
        errors: why jobs failed, by id.
        running: how far the jobs under way are, by id.
    """

    state: dict[str, str]
    recorded: set[str]
    errors: dict[str, str]
    running: dict[str, Progress]


def job_states(store: Store, plan: Plan, finished: Collection[str] | None = None) -> JobStates:
    """Look how far the jobs of a plan are.

    Done are those that have `finished`, as `Finished.done` says after it has read every record. Where that takes too
    long, those that have a record count.
    """
    state = dict.fromkeys((job.id for job in plan.jobs), "missing")
    recorded = {*(store.recorded() if finished is None else finished)} & state.keys()
    errors = {failure.id: failure.error for failure in store.failures(plan, recorded)}
    running = {name: progress for name, progress in running_jobs(store).items() if name in state}
    state |= dict.fromkeys(recorded, "done")
    state |= dict.fromkeys(errors, "failed")
    state |= dict.fromkeys(running, "running")
    return JobStates(state, recorded, errors, running)


def running_jobs(store: Store) -> dict[str, Progress]:
    """The jobs of which a worker has said something lately, unless its process on this machine has ended, by id."""

    def lives(worker: str) -> bool:
        host, _, process = worker.rpartition(":")
        if host == socket.gethostname():
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                return False
            except (
                PermissionError,
                ValueError,
                OverflowError,
            ):  # it is another user's, or there is no such number
                pass
        return True

    recent = [
        progress
        for progress in store.progress.read()
        if time.time() - progress.updated < LIVE_SECONDS
    ]
    return {progress.id: progress for progress in recent if lives(progress.worker)}


def describe_progress(job: Job, progress: Progress, one_of_many: bool = False) -> str:
    """`add on mnli, rate 2e-05, seed 1, step 120 of 780, loss 0.523 (host:4711)`; a process alone here is not named."""
    step = f", step {progress.step:,} of {progress.steps:,}" if progress.steps else ""
    loss = "" if progress.loss is None else f", loss {progress.loss:.3f}"
    elsewhere = progress.worker.rpartition(":")[0] != socket.gethostname()
    return (
        f"{job.describe()}{step}{loss}{f' ({progress.worker})' if one_of_many or elsewhere else ''}"
    )
