"""Which job runs next: after those that it waits for, and never one that another sweep runs or has run."""

import heapq
import time
from collections.abc import Callable, Sequence

from glue_bench.sweep.claims import Claims
from glue_bench.sweep.jobs import Job
from glue_bench.sweep.patience import Patience
from glue_bench.sweep.progress import read_progress
from glue_bench.sweep.stop import Stop

LOOK_SECONDS = 1.0


class Schedule:
    """Hands out each job once, claimed, in the order given.

    A job waits for those of its `after` that are among the jobs. One that another sweep has claimed is asked for again
    now and then, and taken over once our `patience` with it is over; what it tells of its progress counts as a sign of
    life. `ready` gives a claimed job as it is to be run, or None where nothing of it is left to run.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        claims: Claims,
        stop: Stop,
        ready: Callable[[Job], Job | None],
        say: Callable[[str], None],
        patience: Patience | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self.claims, self.stop, self.ready, self.say = claims, stop, ready, say
        self._said = False
        self._denied: set[str] = set()
        self.left = len(jobs)
        self._places = {job.id: place for place, job in enumerate(jobs)}
        self._waiting_for = {job.id: self._places.keys() & set(job.after) for job in jobs}
        self._ready = [(place, job) for place, job in enumerate(jobs) if not self._waiting_for[job.id]]
        self._blocked: dict[str, list[Job]] = {}
        for job in jobs:
            for name in self._waiting_for[job.id]:
                self._blocked.setdefault(name, []).append(job)
        self._claimed_elsewhere: list[Job] = []
        self._look_at = 0.0

    @property
    def open(self) -> bool:
        """Whether there are jobs that may still be handed out."""
        return bool(self._ready or self._blocked or self._claimed_elsewhere) and not self.stop.asked

    def take(self) -> Job | None:
        """The next job, now claimed; None if there is none at the moment."""
        if self._claimed_elsewhere and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            waiting, self._claimed_elsewhere = self._claimed_elsewhere, []
            for job in waiting:
                self._push(job)
        while self._ready and not self.stop.asked:
            _, job = heapq.heappop(self._ready)
            if not (self.claims.take(job.id) or self._take_from_hanging(job)):
                self._claimed_elsewhere.append(job)
            elif settled := self.ready(job):
                return settled
            else:
                self.end(job)
        for name in sorted(self.claims.denied - self._denied):
            self._denied.add(name)
            self.say(f"'{self.claims.folder / name}' is a claim of another user, who does not work on it; delete it")
        if self._claimed_elsewhere and not self._said:
            self._said = True
            self.say("another sweep is at work on what is left; waiting for it")
        return None

    def end(self, job: Job) -> None:
        """The job has ended, in whatever way, and what is left of it is stored."""
        self.claims.release(job.id)
        self.left -= 1
        for waiting in self._blocked.pop(job.id, ()):
            self._waiting_for[waiting.id].remove(job.id)
            if not self._waiting_for[waiting.id]:
                self._push(waiting)

    def lost(self, job: Job) -> None:
        """The job has ended, but another sweep has taken its claim over meanwhile: that one's result counts."""
        self._claimed_elsewhere.append(job)

    def _take_from_hanging(self, job: Job) -> bool:
        owner = self.claims.owner(job.id)
        if progress := read_progress(self.claims.folder.parent, job.id):
            self.patience.step(job, progress.step)
        return bool(owner and self.patience.is_over(job, owner) and self.claims.take(job.id, hanging=owner))

    def _push(self, job: Job) -> None:
        heapq.heappush(self._ready, (self._places[job.id], job))
