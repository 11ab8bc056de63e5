"""How far an experiment is, from its folder alone: while it runs, or from another machine. No torch."""

import os
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Job, Plan, Pretraining, PretrainingRecord, Progress, Result
from glue_bench.sweep.jobs import costs

NEWEST = 200  # so many of the new records are read to estimate what is left
GROUND = 3  # so many jobs must have ended before anything is said of the rest
LIVE_SECONDS = 300.0  # a worker that has said nothing for longer counts as gone
STATES = ("done", "running", "failed", "missing")  # what failed runs again with the next command
Counts = dict[str, int]  # of jobs in each of STATES


class Estimate:
    """How long jobs will take, from those that have ended and from what each of them is expected to cost.

    Costs leave out scoring and loading. Seconds per cost are learnt for each task; an unknown one takes those of all.
    """

    def __init__(self, plan: Plan) -> None:
        self.costs = costs(plan)
        self.kinds = {job.id: getattr(job, "task", "pretraining") for job in plan.jobs}
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
        return self.costs[job_id] * sum(self.spent[kind] for kind in kinds) / sum(self.paid[kind] for kind in kinds)

    def seconds_left(self, waiting: Iterable[str], running: Mapping[str, float], at_once: int) -> float | None:
        """Until all have ended, `at_once` side by side, those `running` since so many seconds; None without ground."""
        if self.ended < min(GROUND, len(self.costs)) or not self.ended:
            return None
        under_way = [max((self.seconds(name) or 0.0) - since, 0.0) for name, since in running.items()]
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
        pretrained = f"; {before['done']:,} of {sum(before.values()):,} pretrainings" if any(before.values()) else ""
        return f"{cells['done']:,} of {sum(cells.values()):,} cells done, {text}{pretrained}"

    @property
    def left(self) -> str:
        """`about 12 min left`, if it is known."""
        return "" if self.seconds_left is None else f"about {duration(self.seconds_left)} left"


class Watch:
    """Looks at a folder again and again. It lists cells, pretrainings, failures and progress; reads a record once.

    Without the ids of jobs that are `done`, all that have a record count as done at each look.
    """

    def __init__(self, store: Store, plan: Plan, done: Collection[str] | None = None) -> None:
        self.store, self.plan, self.estimate = store, plan, Estimate(plan)
        self.done = done
        self.jobs = {job.id: job for job in plan.jobs}
        self.arms = defaultdict[str, list[Job]](list)
        for cell in plan.cells:
            self.arms[cell.arm].append(cell)
        self.seen = set[str]()  # jobs whose records are read

    def look(self, left: Collection[str] | None = None) -> Snapshot:
        """The experiment as it is now; the time is that of the jobs `left`, else of all that are missing."""
        now = time.time()
        states, done, failed, running = job_states(self.store, self.plan, self.done)
        new = sorted((self.store.stored_at(name), name) for name in done - self.seen)
        self.seen |= done
        for _, name in new[-NEWEST:]:
            result = self.store.result(self.jobs[name])
            if result and not isinstance(result, Failure):
                self.estimate.learn(name, result.seconds)
        since = {name: now - progress.began for name, progress in running.items()}
        missing = {name for name in self.jobs if states[name] == "missing"} if left is None else {*left} - {*running}

        def counted(jobs: Sequence[Job]) -> Counts:
            counts = Counter(states[job.id] for job in jobs)
            return {state: counts[state] for state in STATES}

        return Snapshot(
            {arm: counted(cells) for arm, cells in self.arms.items()},
            counted(self.plan.pretrainings),
            [describe_progress(self.jobs[name], one, len(running) > 1) for name, one in running.items()],
            {describe_job(self.jobs[name]): error for name, error in failed.items() if name not in running},
            self.estimate.seconds_left(missing, since, len(running)) if running else None,
        )


def job_states(
    store: Store, plan: Plan, finished: Collection[str] | None = None
) -> tuple[dict[str, str], set[str], dict[str, str], dict[str, Progress]]:
    """By id the one of STATES of each job; those that are done, the errors of those that failed, and what runs.

    Done are those that have `finished`, as `Finished.done` says after it has read every record. Where that takes too
    long, those that have a record count.
    """
    states = dict.fromkeys((job.id for job in plan.jobs), "missing")
    done = {*(store.recorded() if finished is None else finished)} & states.keys()
    failed = {failure.id: failure.error for failure in store.failures(plan, done)}
    running = {name: one for name, one in under_way(store).items() if name in states}
    states |= dict.fromkeys(done, "done") | dict.fromkeys(failed, "failed") | dict.fromkeys(running, "running")
    return states, done, failed, running


def under_way(store: Store) -> dict[str, Progress]:
    """By id the jobs of which a worker has said something lately, unless its process on this machine has ended."""

    def lives(worker: str) -> bool:
        host, _, process = worker.rpartition(":")
        if host == socket.gethostname():
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                return False
            except (PermissionError, ValueError, OverflowError):  # it is another user's, or there is no such number
                pass
        return True

    recent = (one for one in store.progress() if time.time() - one.updated < LIVE_SECONDS)
    return {one.id: one for one in recent if lives(one.worker)}


def describe_job(job: Job) -> str:
    """`pretraining add`, `add on rte, rate 2e-05, seed 1`."""
    return f"pretraining {job.label}" if isinstance(job, Pretraining) else job.label


def describe_progress(job: Job, progress: Progress, one_of_many: bool = False) -> str:
    """`add on mnli, rate 2e-05, seed 1, step 120 of 780, loss 0.523 (host:4711)`; a process alone here is not named."""
    step = f", step {progress.step:,} of {progress.steps:,}" if progress.steps else ""
    loss = "" if progress.loss is None else f", loss {progress.loss:.3f}"
    elsewhere = progress.worker.rpartition(":")[0] != socket.gethostname()
    return f"{describe_job(job)}{step}{loss}{f' ({progress.worker})' if one_of_many or elsewhere else ''}"


def describe_result(result: Result) -> str:
    """What came of a job in a few words: its error, or scores x 100 of a cell or the loss of a pretraining."""
    if isinstance(result, Failure):
        return f"FAILED {result.error}"
    if isinstance(result, PretrainingRecord):
        loss = result.validation_loss
        return f"{'diverged' if loss is None else f'validation loss {loss:.3f}'}, {duration(result.seconds)}"
    shown = []
    for split, values in result.scores.items():
        metric, value = next(iter(values.items()))
        where = f" {split.removeprefix('validation_')}" if len(result.scores) > 1 else ""
        shown.append(f"{metric}{where} {'NaN' if value is None else f'{100 * value:.2f}'}")
    return f"{', '.join(shown)}{' (one answer to everything)' if result.collapsed else ''}, {duration(result.seconds)}"


def duration(seconds: float) -> str:
    """As people say it: `4.5 s`, `40 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
