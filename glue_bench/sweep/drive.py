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


class Observer(ABC):
    """Is told what happens in a sweep. An observer that raises is removed."""

    def begin(self, store: Store, plan: Plan, jobs: Sequence[Job]) -> None:  # noqa: B027
        """These jobs are about to run. A sweep calls this once for each of its rounds."""

    @abstractmethod
    def ended(self, job: Job, result: Result) -> None:
        """A job has ended, and will not run again in this round."""

    def say(self, line: str) -> None:  # noqa: B027
        """A person should read this line."""

    def end(self) -> None:  # noqa: B027
        """The round is over, whatever the cause is."""


class Observers(Observer):
    """Tells several observers the same, and removes one that raises."""

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
        for observer in [*self.observers]:
            try:
                tell(observer)
            except Exception as error:
                self.observers.remove(observer)
                name = type(observer).__name__.lower()
                cause = f"{type(error).__name__}: {error}"
                self.say(f"the {name} is left out from here on ({cause})")


class Loop:
    """Runs jobs in the order given, each after the jobs that it starts from."""

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
        self.lost_workers: Counter[str] = Counter()  # the number of lost workers by the job's id
        self.versions: dict[str, str] = {}  # the versions of results at the beginning of their jobs
        self.last_progress: dict[str, tuple[Progress | None, float]] = {}  # each with its time
        self.last_checked_at = 0.0
        self.interrupts: list[type[KeyboardInterrupt]] = []  # errors that signals ask for
        self.models = ModelCleaner(store, plan, self._is_under_way)

    def run(self) -> tuple[dict[str, Result], str]:
        """Run all jobs.

        Returns:
            The results by id; and why it ended early: "interrupted" (Ctrl-C), "terminated"
            (SIGTERM), or "".

        Raises:
            UserError: what every job would meet.
        """
        try:
            with (
                self._signals(),
                self.executor if self.queued else nullcontext(),
                ExitStack() as stack,
            ):
                stack.callback(self.observers.end)
                stack.push(self._say_that_it_ends)
                self.observers.begin(self.store, self.plan, [*self.queued.values()])
                self._run_all()
                self.models.drop_all()  # this also deletes models that a killed driver has left
        except KeyboardInterrupt as error:
            # Ray may raise another error in the place of ours.
            kind = self.interrupts[0] if self.interrupts else type(error)
            cause = "terminated" if issubclass(kind, Terminated) else "interrupted"
            return self.results, cause
        return self.results, ""

    def _run_all(self) -> None:
        no_room = False
        while self.queued or self.running:
            if self.interrupts:  # a signal came where Python lets no error out
                raise self.interrupts[0]
            self._start_ready_jobs()
            if self.queued and not self.running:  # no machine is left in the cluster
                if not no_room:
                    self.observers.say(
                        "no machine has room for a job now; the sweep goes on when there is room"
                    )
                no_room = True
                time.sleep(TURN_SECONDS)
            if self.running:
                for job, result in self.executor.wait(TURN_SECONDS):
                    self._ended(job, result)
            self._give_up()

    def _say_that_it_ends(self, kind: type[BaseException] | None, *_: object) -> None:
        """Say at once that the sweep ends: ending the jobs and writing tables may take a while."""
        if kind and issubclass(kind, Terminated):
            self.observers.say("terminated: this process ends ...")
        elif kind and issubclass(kind, KeyboardInterrupt):
            self.observers.say(
                "interrupted: ending what runs, then writing the tables of what has finished ..."
            )

    def _start_ready_jobs(self) -> None:
        """Start jobs in one pass while the executor has room: most may wait for others."""
        room = self.executor.free
        if room <= 0:
            return
        for job in [*self.queued.values()]:
            if any(self._is_under_way(name) for name in job.after):
                continue
            self._start(self.queued.pop(job.id))
            room -= job.id in self.running
            if room <= 0:
                return

    def _is_under_way(self, name: str) -> bool:
        """Return whether the job with this id has not ended yet."""
        return name in self.queued or name in self.running

    def _start(self, job: Job) -> None:
        for name in job.after:
            source = self.results.get(name)
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
        for name in job.searches:
            record = self.results.get(name) or self.store.pretraining(name)
            if isinstance(record, PretrainingRecord):
                records.append(record)
        return records

    def _ended(self, job: Job, result: Result) -> None:
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
        self.results[job.id] = result
        if not result.ok:  # perhaps no worker has stored it
            self.store.write_failure(result)
        self.store.progress.drop(job.id)
        self.models.drop_after(job)
        self.observers.ended(job, result)

    def _give_up(self) -> None:
        """End the workers that said nothing for `resources.give_up_after` seconds."""
        now = time.monotonic()
        patience = self.plan.experiment.resources.give_up_after
        if patience is None or now < self.last_checked_at + patience / 60:
            return
        self.last_checked_at = now
        reported = {progress.id: progress for progress in self.store.progress.read()}
        for job_id, job in self.running.items():
            before, since = self.last_progress[job_id]
            progress = reported.get(job_id)
            limit = patience if progress else max(patience, START_SECONDS)
            if progress != before or (progress is None and self.executor.queues):
                self.last_progress[job_id] = (progress, now)
            elif now - since > limit:
                self.last_progress[job_id] = (before, now)
                worker = f" on {progress.worker}" if progress else ""
                silence = f"nothing was heard of it for {now - since:.0f} s"
                self.observers.say(f"{job.describe()}{worker}: {silence}; it is given up")
                self.executor.cancel(job)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM raise, and note them: Python ignores what `__del__` raises."""
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
