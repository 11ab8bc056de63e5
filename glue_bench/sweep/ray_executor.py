"""Jobs on many workers: processes of this machine, or of all machines of a Ray cluster.

This process alone decides what runs and stores what comes of it. A worker computes; when it is lost, so is only the
job that it was running, which is run again elsewhere: a cell anew, a pretraining from its last state on.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import ray
import torch
from ray.exceptions import RayActorError, RayError, RayTaskError

from glue_bench import recipe as recipes
from glue_bench.config import Experiment
from glue_bench.errors import UserError
from glue_bench.records.environment import versions
from glue_bench.records.record import LossPoint
from glue_bench.sweep.attempts import attempt
from glue_bench.sweep.cluster import LOOK_SECONDS, Cluster, Machine, connected
from glue_bench.sweep.executors import ClusterLostError, Executor, OnStart, Results, this_process
from glue_bench.sweep.jobs import Failure, Job, PlannedPretraining, Said
from glue_bench.sweep.patience import Start
from glue_bench.sweep.schedule import Schedule
from glue_bench.testing import load_plugins
from glue_bench.training.compute import AUTO, PRECISION_VARIABLE, Compute, choose_compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.quiet import quiet_libraries

Attempt = Callable[[Job, Inputs, Compute], Iterator[Said]]

RETRIES = 2
"""How often a job is run again after the worker that ran it was lost."""
LOST_AT_START = 20
"""The number of workers lost one after another, none of them ready, that shows that something is wrong with all."""
POLL_SECONDS = 1.0
PLACELESS_SECONDS = 60.0
"""After so long without any worker a line says that the cluster starts none."""
# Where text and checkpoints are kept, and how to train, is the same on all machines.
PASSED_ON = ("GLUE_BENCH_CACHE", "HF_HOME", "HF_HUB_OFFLINE", PRECISION_VARIABLE)


class Worker:
    """A process that keeps what its jobs share: imports, data, checkpoints, tokens.

    Its methods are generators, so that Ray hands on what they yield as it comes.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        current: Path,
        attempt: Attempt,
        device: str = AUTO,
        precision: str = AUTO,
    ) -> None:
        self.experiment, self.folder, self.current, self.attempt = experiment, folder, current, attempt
        self.device, self.precision = device, precision

    def ready(self) -> Iterator[str]:
        """Get ready for the first job; what is wrong with this machine shows here. Yields host:pid.

        Raises:
            UserError: the folder in which the sweep was started is not there, or a plugin cannot be loaded.
        """
        try:
            os.chdir(self.current)
        except OSError as error:
            raise UserError(f"{socket.gethostname()} has no folder '{self.current}' ({error.strerror})") from error
        quiet_libraries()
        load_plugins(self.experiment.plugins)
        versions()  # before any job: the commit is that of the code now loaded
        self.compute = choose_compute(self.device, self.precision)
        self.inputs = Inputs(self.experiment, self.folder)
        yield this_process()

    def run(self, job: Job) -> Iterator[Said]:
        """What a job says, at last its result.

        Raises:
            UserError: on this machine it would be another job, whatever its name.
        """
        if job.recipe != recipes.RECIPE:
            raise UserError(
                f"{socket.gethostname()} trains by recipe {recipes.RECIPE}, {job.kind} '{job.id}' is of recipe "
                f"{job.recipe}; all machines must have the same version of glue-bench"
            )
        if not job.id.endswith(f"-{job.digest(self.inputs)}"):
            raise UserError(
                f"{socket.gethostname()} sees other data, text, checkpoint, tokenizer or plugin than this one for "
                f"{job.kind} '{job.id}'; all machines must see the same files"
            )
        yield from self.attempt(job, self.inputs, self.compute)


@dataclass
class _Task:
    """What a worker is doing: a job, or getting ready."""

    worker: Any
    job: Job | None


class RayExecutor(Executor):
    """Workers on this machine, or on a cluster; a context that ends with them."""

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        *,
        workers: int | None = None,
        address: str | None = None,
        attempt: Attempt = attempt,
        device: str = AUTO,
        precision: str = AUTO,
    ) -> None:
        """`workers` processes on this machine, or at `address` ("auto" or HOST:PORT) as many as there is room for.

        `folder` is the inputs's, which all machines see. Each worker chooses its device and precision by itself, as far
        as they are not given.
        """
        self.experiment, self.folder = experiment, folder
        self.workers, self.address, self.attempt = workers, address, attempt
        self.device, self.precision = device, precision
        self._under_way: dict[Any, _Task] = {}
        self._idle: list[Any] = []
        self._names: dict[Any, str] = {}
        self._again: list[Job] = []
        self._losses: dict[str, int] = {}
        self._lost_at_start = 0
        self._room, self._room_at = 0, 0.0
        self._ending = ExitStack()
        self._placed_at, self._homeless = 0.0, False
        self._asked_at = 0.0
        self._cluster = Cluster()

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            UserError: there is no such cluster, or no machine of it has room for a cell.
        """
        with ExitStack() as entering:
            if not ray.is_initialized():
                # As many CPUs as the workers ask for, whatever the machine has: so many were asked for.
                cpus = (self.workers or 1) * self.experiment.resources.cpus
                entering.enter_context(connected(cpus, self.address))
            self._cluster = Cluster()
            try:
                while (machines := self._cluster.machines()) is None:  # its head is slow
                    time.sleep(POLL_SECONDS)
            except ClusterLostError as error:
                raise UserError(str(error)) from error
            _check_room(self.experiment, machines)
            self._ending = entering.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with self._ending:
            for worker in [*self._idle, *(task.worker for task in self._under_way.values())]:
                ray.kill(worker)

    def check(self) -> None:
        """What entering would refuse. A cluster is connected to, and left again; on this machine nothing is started.

        Raises:
            UserError: as `__enter__`.
        """
        if self.address is not None or ray.is_initialized():
            with self:
                return
        cpus = (self.workers or 1) * self.experiment.resources.cpus
        _check_room(self.experiment, [{"CPU": cpus, "GPU": torch.cuda.device_count()}])

    def run(self, schedule: Schedule, on_start: OnStart) -> Results:
        """Each job with what it says, as it comes.

        Raises:
            UserError: workers cannot start, or the disk is full.
            ClusterLostError: its head does not answer any more.
        """
        self._placed_at = time.monotonic()
        while True:
            self._hand_out(schedule, on_start)
            if not (schedule.open or (self._again and not schedule.stop.asked) or self._works(schedule)):
                return
            schedule.stop.check()
            self._hire(schedule)
            self._say_if_homeless(schedule)
            waited = list(self._under_way)
            if not waited:
                time.sleep(POLL_SECONDS)
                continue
            done, _ = ray.wait(waited, num_returns=1, timeout=POLL_SECONDS)
            for stream in done:
                task = self._under_way[stream]
                said = self._said(stream, task)
                self._hand_out(schedule, on_start)  # a worker does not wait until its last result is on the disk
                if said and task.job:
                    yield task.job, said
            yield from self._give_up(schedule)

    def _works(self, schedule: Schedule) -> bool:
        """Whether there is a job to wait for. After Ctrl-C no pretraining is: it can go on from its last state."""
        jobs = [task.job for task in self._under_way.values() if task.job]
        return any(not (schedule.stop.asked and isinstance(job, PlannedPretraining)) for job in jobs)

    def _hand_out(self, schedule: Schedule, on_start: OnStart) -> None:
        while self._idle and not schedule.stop.asked:
            job = self._again.pop() if self._again else schedule.take()
            if job is None:
                return
            worker = self._idle.pop()
            on_start(job, self._names[worker])
            self._under_way[worker.run.remote(job)] = _Task(worker, job)

    def _hire(self, schedule: Schedule) -> None:
        """Start workers in place of lost ones, and where a machine has joined; never more than there are jobs."""
        now, present = time.monotonic(), len(self._under_way) + len(self._idle)
        # To start a worker waits for the head without end: where one is missing, the head has to answer first.
        if now >= self._room_at or present < min(self._room, schedule.left):
            machines = self._cluster.machines()
            if machines is None:
                return
            room = _room(self.experiment, machines)
            self._room, self._room_at = min(self.workers or room, room), now + LOOK_SECONDS
        while len(self._under_way) + len(self._idle) < min(self._room, schedule.left):
            worker = _remote(self.experiment).remote(
                self.experiment, self.folder, Path.cwd(), self.attempt, self.device, self.precision
            )
            self._under_way[worker.ready.remote()] = _Task(worker, None)

    def _said(self, stream: Any, task: _Task) -> Said | None:
        """What comes next of a job; None where it will be run again, or where a worker has just become ready."""
        try:
            said = ray.get(next(stream))
        except RayTaskError as error:
            # A user's mistake ends the sweep, and so does anything that keeps a worker from getting ready.
            if isinstance(error.cause, UserError):
                raise UserError(str(error.cause)) from error
            if task.job is None:
                raise UserError(f"a worker cannot start: {type(error.cause).__name__}: {error.cause}") from error
            said = Failure(f"{type(error.cause).__name__}: {error.cause}", str(error))
        except RayError as error:
            del self._under_way[stream]
            ray.kill(task.worker)  # of a worker that only cannot be reached
            return self._lost(task.job, _cause(error), getattr(error, "actor_init_failed", False))
        if isinstance(said, LossPoint):
            return said
        del self._under_way[stream]
        self._idle.append(task.worker)
        self._lost_at_start = 0
        if task.job is None:
            self._names[task.worker] = said
            return None
        return said

    def _say_if_homeless(self, schedule: Schedule) -> None:
        """Once. Workers that wait for a machine are under way, too."""
        now = time.monotonic()
        if self._idle or any(task.worker in self._names for task in self._under_way.values()):
            self._placed_at = now
        elif not self._homeless and (not self._room or now - self._placed_at > PLACELESS_SECONDS):
            self._homeless = True
            taken = f"has started a worker for {PLACELESS_SECONDS:.0f} s, perhaps because others use it"
            why = taken if self._room else "has room for a job any more"
            schedule.say(f"no machine of the cluster {why}; waiting for one")

    def _give_up(self, schedule: Schedule) -> Results:
        """The worker of a job that hangs counts as lost, and so does one that hangs before it is ready."""
        # Those that no machine has begun to start wait for one. Ray itself ends processes that do not come so far.
        starting = [task.worker for task in self._under_way.values() if task.worker not in self._names]
        if starting and time.monotonic() >= self._asked_at + POLL_SECONDS:
            found, self._asked_at = self._cluster.processes(), time.monotonic()
            self._names |= {worker: found[worker._actor_id] for worker in starting if worker._actor_id in found}
        for stream, task in list(self._under_way.items()):
            name = self._names.get(task.worker)
            if name and schedule.patience.is_over(task.job or Start(name), name):
                del self._under_way[stream]
                ray.kill(task.worker)
                failure = self._lost(task.job, f"nothing was heard of it on {name}")
                if task.job and failure:
                    yield task.job, failure

    def _lost(self, job: Job | None, cause: str, at_once: bool = False) -> Failure | None:
        if job is None:
            self._lost_at_start += 1
            if at_once or self._lost_at_start >= LOST_AT_START:
                raise UserError(f"workers die before they are ready: {cause}")
            return None
        self._losses[job.id] = self._losses.get(job.id, 0) + 1
        if self._losses[job.id] <= RETRIES:
            self._again.append(job)
            return None
        return Failure(f"its worker was lost {RETRIES + 1} times: {cause}", "")


def _room(experiment: Experiment, machines: Iterable[Machine]) -> int:
    """How many workers fit onto these machines."""
    needs = experiment.resources
    fits = [
        min(int(has.get("CPU", 0) // needs.cpus), needs.fitting(has.get("GPU", 0)) if needs.gpus else 10**9)
        for has in machines
    ]
    return sum(fits)


def _check_room(experiment: Experiment, machines: Sequence[Machine]) -> None:
    if _room(experiment, machines) == 0:
        needs = experiment.resources
        cpus, gpus = (sum(has.get(kind, 0) for has in machines) for kind in ("CPU", "GPU"))
        raise UserError(
            f"no machine has room for a cell, which takes {needs.cpus} CPUs and {needs.gpus:g} GPUs (resources); "
            f"in all there are {cpus:g} CPUs and {gpus:g} GPUs"
        )


def _remote(experiment: Experiment) -> Any:
    needs = experiment.resources
    variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    # Two workers of one thread each do more than one of two: a thread waits for the other at every operation.
    variables["OMP_NUM_THREADS"] = str(needs.cpus)
    return ray.remote(Worker).options(
        num_cpus=needs.cpus, num_gpus=needs.gpus, max_restarts=0, runtime_env={"env_vars": variables}
    )


def _cause(error: RayError) -> str:
    """The line of Ray's message that says why, without its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, RayActorError):
        telling = [line for line in lines if "cause" in line.lower() or "died" in line.lower() or "killed" in line]
        lines = telling[-1:] or lines
    return lines[0].partition(" Some common causes")[0] if lines else type(error).__name__
