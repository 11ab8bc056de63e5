"""The progress of an experiment while it runs, read from its folder alone. No torch."""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glue_bench.errors import format_duration
from glue_bench.records.store import Store
from glue_bench.records.values import Job, Plan, Progress

MAX_NEW_RECORDS = 200  # at most so many new records are read at once to estimate the time left
MIN_ENDED_JOBS = 3  # with fewer ended jobs no time left is shown
LIVE_SECONDS = 300.0  # a worker that has said nothing for longer counts as gone
STATES = ("done", "running", "failed", "missing")  # a failed job runs again with the next command
Counts = dict[str, int]  # the number of jobs in each of STATES


class TimeEstimate:
    """Estimates how long jobs take, from those that have ended and from the expected cost of each.

    Costs leave out scoring and loading. Seconds per cost are learnt for each task; an unknown task
    gets the seconds per cost of all tasks together.
    """

    def __init__(self, plan: Plan) -> None:
        self.costs: dict[str, float] = {}
        self.kinds: dict[str, str] = {}
        for job in plan.jobs:
            self.costs[job.id] = plan.cost(job)
            self.kinds[job.id] = job.kind_title
        self.ended = 0
        self.seconds_by_kind: defaultdict[str, float] = defaultdict(float)
        self.costs_by_kind: defaultdict[str, float] = defaultdict(float)

    def learn(self, job_id: str, seconds: float) -> None:
        """Note that a job has ended after these seconds."""
        cost = self.costs.get(job_id)
        if cost:
            self.ended += 1
            self.seconds_by_kind[self.kinds[job_id]] += seconds
            self.costs_by_kind[self.kinds[job_id]] += cost

    def seconds(self, job_id: str) -> float | None:
        """Estimate how many seconds a job will take; None while nothing is known."""
        if not self.ended:
            return None
        kind = self.kinds[job_id]
        kinds = [kind] if kind in self.costs_by_kind else [*self.costs_by_kind]
        seconds = 0.0
        costs = 0.0
        for kind in kinds:
            seconds += self.seconds_by_kind[kind]
            costs += self.costs_by_kind[kind]
        return self.costs[job_id] * seconds / costs

    def seconds_left(
        self, waiting: Iterable[str], running: Mapping[str, float], parallel: int
    ) -> float | None:
        """Estimate the time until all jobs have ended.

        Args:
            waiting: the jobs that have not begun.
            running: the jobs that run, each with the seconds since it began.
            parallel: how many jobs run at once.

        Returns:
            Seconds; None if too few jobs have ended to tell.
        """
        if self.ended < min(MIN_ENDED_JOBS, len(self.costs)) or not self.ended:
            return None
        rests = [0.0]
        for name, since in running.items():
            rests.append(max((self.seconds(name) or 0.0) - since, 0.0))
        work = sum(rests)
        for name in waiting:
            work += self.seconds(name) or 0.0
        return max(work / max(1, parallel), *rests)


@dataclass(frozen=True)
class Snapshot:
    """An experiment at one moment.

    Attributes:
        arms: counts of cells, by arm.
        pretrainings: counts of pretrainings.
        running: the jobs that run now, in words.
        failed: why jobs failed, by the jobs in words.
        seconds_left: until all jobs have ended; None where nothing runs, or too few jobs have
            ended.
    """

    arms: Mapping[str, Counts]
    pretrainings: Counts
    running: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    seconds_left: float | None = None

    @property
    def cells(self) -> Counts:
        """Return the counts of all arms together."""
        total = dict.fromkeys(STATES, 0)
        for counts in self.arms.values():
            for state in STATES:
                total[state] += counts[state]
        return total

    @property
    def described(self) -> str:
        """`12 of 80 cells done, 2 running, 0 failed, 66 missing; 3 of 4 pretrainings`."""
        cells = self.cells
        states = ", ".join(f"{cells[state]:,} {state}" for state in STATES[1:])
        text = f"{cells['done']:,} of {sum(cells.values()):,} cells done, {states}"
        pretrainings = sum(self.pretrainings.values())
        if pretrainings:
            text += f"; {self.pretrainings['done']:,} of {pretrainings:,} pretrainings"
        return text

    @property
    def time_left(self) -> str:
        """`about 12 min left`; empty if it is not known, or jobs take longer than was expected."""
        if not self.seconds_left:
            return ""
        return f"about {format_duration(self.seconds_left)} left"


class Watch:
    """Looks at a folder again and again. It lists what is there, and reads each record once.

    Args:
        store: the store of the folder.
        plan: the plan of the jobs that are counted.
        done: the ids of jobs that are done; by default all that have a record at each look.
    """

    def __init__(self, store: Store, plan: Plan, done: Collection[str] | None = None) -> None:
        self.store = store
        self.plan = plan
        self.estimate = TimeEstimate(plan)
        self.done = done
        self.jobs = {job.id: job for job in plan.jobs}
        self.cells_by_arm: defaultdict[str, list[Job]] = defaultdict(list)
        for cell in plan.cells:
            self.cells_by_arm[cell.arm].append(cell)
        self.learnt: set[str] = set()  # jobs whose records are read, or are too many to read

    def look(self, pending: Collection[str] | None = None) -> Snapshot:
        """Describe the experiment now. The time left is for `pending` jobs, or for all missing."""
        now = time.time()
        states = job_states(self.store, self.plan, self.done)
        running = states.running
        self._learn(states.recorded)

        seconds_left = None
        if running:
            if pending is None:
                waiting = {name for name in self.jobs if states.state[name] == "missing"}
            else:
                waiting = {*pending} - {*running}
            seconds = {}
            for name, progress in running.items():
                seconds[name] = now - progress.began
            seconds_left = self.estimate.seconds_left(waiting, seconds, len(running))

        lines = []
        for name, progress in running.items():
            job = self.jobs[name]
            lines.append(describe_progress(job, progress, name_worker=len(running) > 1))

        failed = {}
        for name, error in states.errors.items():
            if name not in running:
                failed[self.jobs[name].describe()] = error

        arms = {arm: states.counts(cells) for arm, cells in self.cells_by_arm.items()}
        pretrainings = states.counts(self.plan.pretrainings)
        return Snapshot(arms, pretrainings, lines, failed, seconds_left)

    def _learn(self, recorded: Collection[str]) -> None:
        """Let the estimate learn from the newest records that it does not know yet."""
        new = {*recorded} - self.learnt
        self.learnt |= new
        by_age = sorted(new, key=lambda name: (self.store.stored_at(name), name))
        for name in by_age[-MAX_NEW_RECORDS:]:
            result = self.store.result(self.jobs[name])
            if result and result.ok:
                self.estimate.learn(name, result.seconds)


class JobStates(NamedTuple):
    """The states of the jobs of a plan.

    Attributes:
        state: the state of each job, one of STATES, by id.
        recorded: the jobs that are done.
        errors: why jobs failed, by id.
        running: the progress of running jobs, by id.
    """

    state: dict[str, str]
    recorded: set[str]
    errors: dict[str, str]
    running: dict[str, Progress]

    def counts(self, jobs: Sequence[Job]) -> Counts:
        """Count the jobs in each state."""
        counts = dict.fromkeys(STATES, 0)
        for job in jobs:
            counts[self.state[job.id]] += 1
        return counts


def job_states(store: Store, plan: Plan, finished: Collection[str] | None = None) -> JobStates:
    """Find the states of the jobs of a plan.

    Args:
        store: the store of the results.
        plan: the plan of the jobs.
        finished: the ids of jobs that are done, as `Finished.done` says after every record was
            read. By default all jobs that have a record count as done, because reading takes long.
    """
    state = dict.fromkeys((job.id for job in plan.jobs), "missing")
    done = store.recorded() if finished is None else finished
    recorded = {*done} & state.keys()
    errors = {failure.id: failure.error for failure in store.failures(plan, recorded)}
    running = {}
    for name, progress in running_jobs(store).items():
        if name in state:
            running[name] = progress
    state.update(dict.fromkeys(recorded, "done"))
    state.update(dict.fromkeys(errors, "failed"))
    state.update(dict.fromkeys(running, "running"))
    return JobStates(state, recorded, errors, running)


def running_jobs(store: Store) -> dict[str, Progress]:
    """Return the progress of jobs whose worker has reported lately and may still run, by id."""
    oldest = time.time() - LIVE_SECONDS
    jobs = {}
    for progress in store.progress.read():
        if progress.updated > oldest and not _has_ended(progress.worker):
            jobs[progress.id] = progress
    return jobs


def _has_ended(worker: str) -> bool:
    """Return whether a worker, host:pid, is a process of this machine that has ended."""
    host, _, process = worker.rpartition(":")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError, OverflowError):
        return False  # the process belongs to another user, or the number is not valid
    return False


def describe_progress(job: Job, progress: Progress, *, name_worker: bool = False) -> str:
    """Write `add on mnli, rate 2e-05, seed 1, step 120 of 780, loss 0.523 (host:4711)`.

    Args:
        job: the job of the progress.
        progress: how far the job is.
        name_worker: whether to name a process on this machine, too. A process on another machine is
            always named.
    """
    text = job.describe()
    if progress.steps:
        text += f", step {progress.step:,} of {progress.steps:,}"
    if progress.loss is not None:
        text += f", loss {progress.loss:.3f}"
    is_elsewhere = progress.worker.rpartition(":")[0] != socket.gethostname()
    if name_worker or is_elsewhere:
        text += f" ({progress.worker})"
    return text
