"""The loop of a sweep: which job runs next, what follows when one ends, how it ends early."""

import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import FrameType
from typing import NoReturn

from glue_bench.records.store import Store
from glue_bench.records.values import (
    Failure,
    Job,
    Plan,
    Pretraining,
    PretrainingRecord,
    Progress,
    Result,
)
from glue_bench.sweep.executors import Executor, Terminated
from glue_bench.sweep.rates import choose_rate
from glue_bench.sweep.weights import ModelCleaner

MAX_LOST_WORKERS = 2  # a job that loses more workers has failed
TURN_SECONDS = 1.0
START_SECONDS = 300.0  # a worker that has not begun its job by then is given up
CHECKS_OF_PATIENCE = 60  # how often workers are checked while they may be silent


class Observer(ABC):
    """An observer is told what happens in a sweep. One that raises an error is removed."""

    def begin(self, store: Store, plan: Plan, jobs: Sequence[Job]) -> None:  # noqa: B027
        """Note that these jobs are about to run. A sweep calls this once for each of its rounds."""

    @abstractmethod
    def ended(self, job: Job, result: Result) -> None:
        """Note that a job has ended, and will not run again in this round."""

    def say(self, line: str) -> None:  # noqa: B027
        """Show a line that a person should read."""

    def end(self) -> None:  # noqa: B027
        """Note that the round is over, whatever the cause is."""


class Observers(Observer):
    """Several observers, which are told the same. One that raises an error is removed."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = [*observers]

    def begin(self, store: Store, plan: Plan, jobs: Sequence[Job]) -> None:
        self._tell(lambda observer: observer.begin(store, plan, jobs))

    def ended(self, job: Job, result: Result) -> None:
        self._tell(lambda observer: observer.ended(job, result))

    def say(self, line: str) -> None:
        self._tell(lambda observer: observer.say(line))

    def end(self) -> None:
        self._tell(lambda observer: observer.end())

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        """Tell each observer something, and remove those that raise an error."""
        for observer in [*self.observers]:
            try:
                tell(observer)
            except Exception as error:
                self.observers.remove(observer)
                name = type(observer).__name__.lower()
                cause = f"{type(error).__name__}: {error}"
                self.say(f"the {name} is left out from here on ({cause})")


class Loop:
    """A loop that runs jobs in the order given, each after its prerequisites."""

    def __init__(
        self,
        jobs: Sequence[Job],
        executor: Executor,
        store: Store,
        plan: Plan,
        observers: Sequence[Observer],
    ) -> None:
        self.executor = executor
        self.store = store
        self.plan = plan
        self.observers = Observers(observers)
        self.queued = {job.id: job for job in jobs}
        self.running: dict[str, Job] = {}
        self.results: dict[str, Result] = {}
        self.lost_workers: Counter[str] = Counter()  # by the job's id
        self.versions: dict[str, str] = {}  # of the results when their jobs began, by the job's id
        self.last_progress: dict[str, tuple[Progress | None, float]] = {}  # with the time of it
        self.last_checked_at = 0.0
        self.interrupts: list[type[KeyboardInterrupt]] = []  # what signals have raised
        self.model_cleaner = ModelCleaner(store, plan, self._is_under_way)

    def run(self) -> tuple[dict[str, Result], str]:
        """Run all jobs.

        Returns:
            The results by id; and why it ended early: "interrupted" (Ctrl-C), "terminated"
            (SIGTERM), or "".

        Raises:
            UserError: an error that every job would meet, such as a full disk.
        """
        try:
            with (
                self._interrupts_raised(),
                self.executor if self.queued else nullcontext(),
                ExitStack() as stack,
            ):
                stack.callback(self.observers.end)
                stack.push(self._say_that_it_ends)
                self.observers.begin(self.store, self.plan, [*self.queued.values()])
                self._run_all()
                self.model_cleaner.drop_all()  # also the models that a killed driver has left
        except KeyboardInterrupt as error:
            # Ray may raise another error in the place of ours.
            kind = self.interrupts[0] if self.interrupts else type(error)
            cause = "terminated" if issubclass(kind, Terminated) else "interrupted"
            return self.results, cause
        return self.results, ""

    def _run_all(self) -> None:
        """Start and end jobs until none is left."""
        has_said_no_room = False
        while self.queued or self.running:
            if self.interrupts:
                # A signal came while Python ran a `__del__`, out of which it lets no error.
                raise self.interrupts[0]

            self._start_ready_jobs()
            if self.running:
                for job, result in self.executor.wait(TURN_SECONDS):
                    self._take_result(job, result)
            elif self.queued:  # no machine is left in the cluster
                if not has_said_no_room:
                    self.observers.say(
                        "no machine has room for a job now; the sweep goes on when there is room"
                    )
                    has_said_no_room = True
                time.sleep(TURN_SECONDS)
            self._cancel_silent_jobs()

    def _say_that_it_ends(self, kind: type[BaseException] | None, *_: object) -> None:
        """Say at once that the sweep ends: ending the jobs and writing tables may take a while."""
        if kind and issubclass(kind, Terminated):
            self.observers.say("terminated: this process ends ...")
        elif kind and issubclass(kind, KeyboardInterrupt):
            self.observers.say(
                "interrupted: ending what runs, then writing the tables of what has finished ..."
            )

    def _start_ready_jobs(self) -> None:
        """Start the queued jobs whose prerequisites have ended, while the executor has room.

        The queue is passed once, because most of its jobs may wait for others.
        """
        room = self.executor.free
        if room <= 0:
            return
        for job in [*self.queued.values()]:
            if any(self._is_under_way(job_id) for job_id in job.prerequisites):
                continue
            self._start(self.queued.pop(job.id))
            if job.id in self.running:
                room -= 1
            if room <= 0:
                return

    def _is_under_way(self, job_id: str) -> bool:
        """Return whether a job has not ended yet."""
        return job_id in self.queued or job_id in self.running

    def _start(self, job: Job) -> None:
        """Submit a job; or let it fail, if a prerequisite or its search for a rate has failed."""
        for job_id in job.prerequisites:
            source = self.results.get(job_id)
            if source and not source.ok:
                return self._finish(job, source.model_copy(update={"id": job.id}))

        if isinstance(job, Pretraining) and job.searches:
            rate, losses = choose_rate(self._search_records(job))
            if rate is None:
                error = f"every learning rate of the search diverged ({losses}); add lower ones"
                return self._finish(job, Failure(id=job.id, error=error))
            self.observers.say(
                f"{job.describe()}: learning rate {rate:g}, by the loss of its search ({losses})"
            )
            job = job.model_copy(update={"rate": rate})

        self.store.progress.drop(job.id)  # the progress of a lost attempt
        self.versions[job.id] = self.store.result_version(job.id)
        self.last_progress[job.id] = (None, time.monotonic())
        self.running[job.id] = job
        self.executor.submit(job)

    def _search_records(self, job: Pretraining) -> list[PretrainingRecord]:
        """Return the records of the search for a pretraining's rate."""
        records = []
        for job_id in job.searches:
            record = self.results.get(job_id) or self.store.pretraining(job_id)
            if isinstance(record, PretrainingRecord):
                records.append(record)
        return records

    def _take_result(self, job: Job, result: Result) -> None:
        """Finish a job, or queue it again as the first one if its worker was lost."""
        del self.running[job.id]
        is_new = self.store.result_version(job.id) != self.versions[job.id]
        if not result.ok and result.lost and is_new:
            # Its worker was lost after the result had been stored.
            result = self.store.result(job) or result

        if not result.ok and result.lost:
            if self.lost_workers[job.id] < MAX_LOST_WORKERS:
                self.lost_workers[job.id] += 1
                self.queued = {job.id: job, **self.queued}
                self.observers.say(
                    f"{job.describe()}: its worker was lost ({result.error}); it runs again"
                )
                return
            error = f"its worker was lost {MAX_LOST_WORKERS + 1} times: {result.error}"
            result = result.model_copy(update={"error": error})

        self._finish(job, result)

    def _finish(self, job: Job, result: Result) -> None:
        """Keep the result of a job that will not run again, and tell the observers."""
        self.results[job.id] = result
        if not result.ok:  # perhaps no worker has stored it
            self.store.write_failure(result)
        self.store.progress.drop(job.id)
        self.model_cleaner.drop_after(job)
        self.observers.ended(job, result)

    def _cancel_silent_jobs(self) -> None:
        """Cancel the jobs of which nothing was heard for `resources.give_up_after` seconds."""
        now = time.monotonic()
        patience = self.plan.experiment.resources.give_up_after
        if patience is None or now < self.last_checked_at + patience / CHECKS_OF_PATIENCE:
            return
        self.last_checked_at = now

        reported = {progress.id: progress for progress in self.store.progress.read()}
        for job_id, job in self.running.items():
            last_progress, heard_at = self.last_progress[job_id]
            progress = reported.get(job_id)
            limit = patience if progress else max(patience, START_SECONDS)
            if progress != last_progress or (progress is None and self.executor.queues):
                self.last_progress[job_id] = (progress, now)
            elif now - heard_at > limit:
                self.last_progress[job_id] = (last_progress, now)
                worker = f" on {progress.worker}" if progress else ""
                silence = f"nothing was heard of it for {now - heard_at:.0f} s"
                self.observers.say(f"{job.describe()}{worker}: {silence}; it is given up")
                self.executor.cancel(job)

    @contextmanager
    def _interrupts_raised(self) -> Iterator[None]:
        """In this block SIGINT and SIGTERM raise an error, which is also kept in `interrupts`.

        Python prints and drops an error that is raised while it runs a `__del__`; this one is
        dropped without a word, and the loop raises it again.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, _: FrameType | None) -> NoReturn:
            self.interrupts.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
            raise self.interrupts[-1]

        unraisable_before = sys.unraisablehook

        def unraisable(event: "sys.UnraisableHookArgs") -> None:
            if not isinstance(event.exc_value, KeyboardInterrupt):
                unraisable_before(event)

        sys.unraisablehook = unraisable
        interrupt_before = signal.signal(signal.SIGINT, end)
        terminate_before = signal.signal(signal.SIGTERM, end)
        try:
            yield
        finally:
            sys.unraisablehook = unraisable_before
            signal.signal(signal.SIGINT, interrupt_before)
            signal.signal(signal.SIGTERM, terminate_before)
