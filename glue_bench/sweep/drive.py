"""The loop of a sweep: which job runs next, what follows from one that has ended, and how a sweep ends early."""

import math
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import FrameType
from typing import Any, NoReturn

from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Failure, Job, Plan, Pretraining, PretrainingRecord, Progress, Result
from glue_bench.sweep.executors import Executor, Terminated
from glue_bench.sweep.progress import describe_job
from glue_bench.sweep.weights import ModelCleaner

LOSSES = 2  # how often a job is run again after the worker that ran it was lost
TURN_SECONDS = 1.0
START_SECONDS = 300.0  # before a worker that has not begun its job yet is given up


class Observer:
    """Watches a sweep, perhaps twice: it hears of jobs that will not run again. One that raises is left out then."""

    def begin(self, store: Store, plan: Plan, jobs: Sequence[Job]) -> None: ...
    def ended(self, job: Job, result: Result) -> None: ...
    def say(self, line: str) -> None: ...
    def end(self) -> None: ...


class Loop:
    """Runs jobs, each after those that it starts from, in the order given as far as the executor has room."""

    def __init__(
        self, jobs: Sequence[Job], executor: Executor, store: Store, plan: Plan, watching: Sequence[Observer]
    ) -> None:
        self.executor, self.store, self.plan, self.watching = executor, store, plan, [*watching]
        self.waiting = {job.id: job for job in jobs}
        self.running: dict[str, Job] = {}
        self.results: dict[str, Result] = {}
        self.losses: Counter[str] = Counter()  # of workers, by their jobs
        self.stamps: dict[str, str] = {}  # of what was stored when a job began
        self.heard: dict[str, tuple[Progress | None, float]] = {}  # the last progress of a job, and when it was new
        self.listened_at = 0.0
        self.interrupts: list[type[KeyboardInterrupt]] = []  # to end, by signals
        self.models = ModelCleaner(store, plan, self._is_under_way)

    def run(self) -> tuple[dict[str, Result], str]:
        """The results by id, and why it ended early: "interrupted" (Ctrl-C), "terminated" (SIGTERM), else empty.

        Raises UserError for what every job would meet.
        """
        try:
            with self._signals(), self.executor if self.waiting else nullcontext(), ExitStack() as stack:
                stack.callback(self._tell, "end")
                stack.push(self._say_that_it_ends)
                self._tell("begin", self.store, self.plan, [*self.waiting.values()])
                starved = False
                while self.waiting or self.running:
                    if self.interrupts:  # by a signal that was raised where Python lets nothing out
                        raise self.interrupts[0]
                    self._start_what_is_ready()
                    if self.waiting and not self.running:  # every machine has left the cluster
                        if not starved:
                            self._tell("say", "no machine has room for a job now; the sweep goes on when one has")
                        starved = True
                        time.sleep(TURN_SECONDS)
                    for job, result in self.executor.wait(TURN_SECONDS) if self.running else ():
                        self._ended(job, result)
                    self._give_up()
                self.models.drop_all()  # and what a killed driver has left
        except KeyboardInterrupt as error:
            first = next(iter(self.interrupts), type(error))  # Ray raises one of its own in its place
            return self.results, "terminated" if issubclass(first, Terminated) else "interrupted"
        return self.results, ""

    def _say_that_it_ends(self, kind: type[BaseException] | None, *_: object) -> None:
        """At once: to end what runs, and to write tables, may take a while."""
        if kind and issubclass(kind, Terminated):
            self._tell("say", "terminated: this process ends ...")
        elif kind and issubclass(kind, KeyboardInterrupt):
            self._tell("say", "interrupted: ending what runs, then writing the tables of what has finished ...")

    def _start_what_is_ready(self) -> None:
        """As far as the executor has room, in one pass: of thousands of jobs most may wait for others."""
        room = self.executor.free
        for job in [*self.waiting.values()] if room > 0 else ():
            if not any(self._is_under_way(name) for name in job.after):
                self._start(self.waiting.pop(job.id))
                room -= job.id in self.running
                if room <= 0:
                    return

    def _is_under_way(self, name: str) -> bool:
        """Whether the job of an id has yet to end."""
        return name in self.waiting or name in self.running

    def _start(self, job: Job) -> None:
        for result in map(self.results.get, job.after):
            if isinstance(result, Failure):
                return self._finish(job, result.model_copy(update={"id": job.id}))
        if isinstance(job, Pretraining) and job.searches:
            rate, losses = self._best_rate(job)
            if rate is None:
                error = f"every learning rate of the search diverged ({losses}); add lower ones"
                return self._finish(job, Failure(id=job.id, error=error))
            self._tell("say", f"{describe_job(job)}: learning rate {rate:g}, by the loss of its search ({losses})")
            job = job.model_copy(update={"rate": rate})
        self.store.drop_progress(job.id)  # that of an attempt that was lost
        self.stamps[job.id] = self.store.stamp(job.id)
        self.heard[job.id] = None, time.monotonic()
        self.running[job.id] = job
        self.executor.submit(job)

    def _best_rate(self, job: Pretraining) -> tuple[float | None, str]:
        """The (lowest) rate of the lowest mean loss in its search, None if all diverged, and these losses in words."""
        losses = defaultdict[float, list[float]](list)
        for name in job.searches:
            record = self.results.get(name) or self.store.pretraining(name)
            if isinstance(record, PretrainingRecord):
                loss = math.inf if record.validation_loss is None else record.validation_loss
                losses[record.pretraining.settings.learning_rate].append(loss)
        means = {rate: sum(each) / len(each) for rate, each in sorted(losses.items())}
        best = min((rate for rate in means if math.isfinite(means[rate])), key=means.__getitem__, default=None)
        texts = (f"{rate:g}: {f'{loss:.4f}' if math.isfinite(loss) else 'diverged'}" for rate, loss in means.items())
        return best, ", ".join(texts)

    def _ended(self, job: Job, result: Result) -> None:
        del self.running[job.id]
        if isinstance(result, Failure) and result.lost and self.store.stamp(job.id) != self.stamps[job.id]:
            result = self.store.result(job) or result  # its worker was lost when the record was stored
        if isinstance(result, Failure) and result.lost:
            if self.losses[job.id] < LOSSES:
                self.losses[job.id] += 1
                self.waiting = {job.id: job, **self.waiting}
                return self._tell("say", f"{describe_job(job)}: its worker was lost ({result.error}); it runs again")
            result = result.model_copy(update={"error": f"its worker was lost {LOSSES + 1} times: {result.error}"})
        self._finish(job, result)

    def _finish(self, job: Job, result: Result) -> None:
        self.results[job.id] = result
        if isinstance(result, Failure):  # which no worker may have stored
            self.store.write_failure(result)
        self.store.drop_progress(job.id)
        if isinstance(job, Cell):
            self.models.drop_after(job)
        self._tell("ended", job, result)

    def _give_up(self) -> None:
        """End the workers of jobs of which nothing was heard for `resources.give_up_after` seconds."""
        now, patience = time.monotonic(), self.plan.experiment.resources.give_up_after
        if patience is None or now < self.listened_at + patience / 60:
            return
        self.listened_at, reported = now, {progress.id: progress for progress in self.store.progress()}
        for job_id, job in self.running.items():
            (before, since), progress = self.heard[job_id], reported.get(job_id)
            if progress != before or (progress is None and self.executor.queues):
                self.heard[job_id] = progress, now
            elif now - since > (patience if progress else max(patience, START_SECONDS)):
                self.heard[job_id] = before, now
                what = describe_job(job) + (f" on {progress.worker}" if progress else "")
                self._tell("say", f"{what}: nothing was heard of it for {now - since:.0f} s; it is given up")
                self.executor.cancel(job)

    def _tell(self, what: str, *values: Any) -> None:
        for observer in [*self.watching]:
            try:
                getattr(observer, what)(*values)
            except Exception as error:
                self.watching.remove(observer)
                name, why = type(observer).__name__.lower(), f"{type(error).__name__}: {error}"
                self._tell("say", f"the {name} is left out from here on ({why})")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """In this block SIGINT and SIGTERM raise, and are written down: Python ignores what `__del__` raises."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, _: FrameType | None) -> NoReturn:
            self.interrupts.append(Terminated if number == signal.SIGTERM else KeyboardInterrupt)
            raise self.interrupts[-1]

        unheard = sys.unraisablehook
        sys.unraisablehook = lambda one: None if isinstance(one.exc_value, KeyboardInterrupt) else unheard(one)
        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            sys.unraisablehook = unheard
            for number, handler in before.items():
                signal.signal(number, handler)
