"""How long a job may go on without a sign of life before it counts as one that hangs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from glue_bench.sweep.jobs import Job, PlannedCell
from glue_bench.values import duration

FLOOR_SECONDS = 300.0
"""No job is given up sooner: the first of a worker tokenises, perhaps downloads."""
SAID_AT = 0.25
"""The share of that time after which a line says that a job takes long."""
SLOW = 1e10
"""Operations a second of a slow core, expected while no job has ended."""
START_SECONDS = 30.0
"""Expected of the start of a worker, which imports the libraries, perhaps over a network."""
LONGEST_LOOK = 5.0
"""Seconds between two looks that count; in a longer time it was this process that did not run."""


@dataclass(frozen=True)
class Start:
    """The start of a worker, which may hang as a job may."""

    kind: ClassVar = "start"
    label: ClassVar = "of a worker"

    id: str


@dataclass
class _Watched:
    """A job on a worker: how long it has been silent, and the longest time between two of its signs.

    Of one whose steps are seen: the last step, and how long after it `began` to be watched that was.
    """

    worker: str
    began: float
    looked: float
    silent: float = 0.0
    step: int | None = None
    advanced: float = 0.0
    longest: float = 0.0
    said: Literal["", "slow", "over"] = ""


class Patience:
    """What is expected of each job, and which job is to be given up after `give_up_after` times that.

    A job's sign of life is the point of a loss curve. Of a job that gives signs the longest time between two of them is
    expected, of another one its cost times the most seconds per cost that a job of its task has taken: machines of a
    cluster may be unlike. Of a job whose steps are seen at least the time is expected for which they have gone on:
    its machine may be slower than any of ours. None as `give_up_after`, or a job without a cost: never.
    """

    def __init__(
        self,
        costs: Mapping[str, float] | None = None,
        give_up_after: float | None = None,
        say: Callable[[str], None] = print,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`costs` of jobs in operations, by their ids; `say` is told of a job that takes long."""
        self.costs, self.give_up_after, self.say, self.clock = costs or {}, give_up_after, say, clock
        self._watched: dict[str, _Watched] = {}
        self._slowest: dict[str, float] = {}

    def sign(self, job: Job) -> None:
        """The job has said something."""
        if watched := self._watched.get(job.id):
            watched.longest, watched.silent, watched.said = max(watched.longest, watched.silent), 0.0, ""

    def step(self, job: Job, step: int) -> None:
        """The job, which is watched, is at this step: alive if at another one than before."""
        watched = self._watched.get(job.id)
        if watched and watched.step != step:
            watched.step, watched.silent, watched.said = step, 0.0, ""
            watched.advanced = self.clock() - watched.began

    def learn(self, job: Job, seconds: float) -> None:
        """The job has ended after so many seconds."""
        if cost := self.costs.get(job.id):
            task = _task(job)
            self._slowest[task] = max(self._slowest.get(task, 0.0), seconds / cost)

    def is_over(self, job: Job | Start, worker: str) -> bool:
        """Whether the job, which `worker` (host:pid) runs, is to be given up. To be asked every second or so."""
        now = self.clock()
        watched = self._watched.get(job.id)
        if watched is None or watched.worker != worker:
            watched = self._watched[job.id] = _Watched(worker, now, now)
        watched.silent += min(now - watched.looked, LONGEST_LOOK)
        watched.looked = now
        of_cost = self._expected(job)
        expected = watched.longest or (of_cost and max(of_cost, watched.advanced))
        if not expected or self.give_up_after is None:
            return False
        limit = max(FLOOR_SECONDS, self.give_up_after * expected)
        told = f"{job.kind} {job.label} on {worker}: nothing heard for {duration(watched.silent)}"
        if watched.silent > limit:
            if watched.said != "over":  # who asks may be denied to take it over, and asks again
                watched.said = "over"
                self.say(f"{told}; it is given up there, and run again")
            return True
        if watched.silent > SAID_AT * limit and not watched.said:
            watched.said = "slow"
            self.say(f"{told} where {duration(expected)} were expected; it is given up after {duration(limit)}")
        return False

    def _expected(self, job: Job | Start) -> float:
        if isinstance(job, Start):
            return START_SECONDS
        slowest = self._slowest.get(_task(job)) or max(self._slowest.values(), default=1 / SLOW)
        return self.costs.get(job.id, 0.0) * slowest


def _task(job: Job | Start) -> str:
    return job.cell.task if isinstance(job, PlannedCell) else job.kind
