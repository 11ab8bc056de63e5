"""Executors of jobs: this process, and actors of Ray. Slurm is in slurm.py."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from glue_bench.config import Resources
from glue_bench.errors import UserError, escape_controls
from glue_bench.records.values import Failure, Job, Result

# By itself Ray would try for a minute to connect to a cluster, and then end this process.
RAY_CONNECT_SECONDS = 20.0
RAY_ANSWER_SECONDS = 5.0  # a machine that can be reached takes a connection by then
# Ray sends no usage statistics to its makers. A worker with zero GPUs sees no GPU, and not all.
# Workers have the priority of their driver; with Ray's own (nice 15) they would starve. No
# processes are started in advance, because they would lack the workers' environment. The loop
# reports the end of workers, because Ray would print it between the tables.
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}
RAY_QUIET = {"configure_logging": False, "log_to_driver": False, "logging_level": "ERROR"}
# Nothing but jobs and results passes through Ray's store; Ray would take a third of the memory.
STORE_BYTES = 256 * 2**20
# These settings, of where text and checkpoints are kept and how to train, hold on all machines.
PASSED_ON = ("GLUE_BENCH_CACHE", "HF_ENDPOINT", "HF_HOME", "HF_HUB_OFFLINE", "GLUE_BENCH_PRECISION")

MakeWorker = Callable[[], Any]
"""Makes a worker, which runs jobs as `worker.Worker` does, in the process that calls it.

A job needs a process for itself, because it draws from the random numbers of the process.
"""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as a batch system sends it."""


class Executor(ABC):
    """Runs jobs, each in a process that runs no other job at the same time.

    It is a context. Outside the context no job runs, except jobs of Slurm after a SIGTERM.
    `Engine.make` says which executor a person has asked for.
    """

    queues: bool = False
    """Whether a job may wait for another machine. If not, a job without progress hangs."""
    in_parallel: bool = True
    """Whether several jobs may run at once, in other processes than this one."""

    @property
    @abstractmethod
    def free(self) -> int:
        """The number of further jobs that the executor takes now."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Take a job, to run it as soon as there is room."""

    @abstractmethod
    def wait(self, seconds: float) -> list[tuple[Job, Result]]:
        """Wait about `seconds` at most; return the jobs that have ended, with their results.

        A job whose worker is gone has a `lost` failure. Raises UserError for what every job would
        meet.
        """

    @abstractmethod
    def cancel(self, job: Job) -> None:
        """End the worker of a job; `wait` returns the job as lost."""

    def __enter__(self) -> Self:
        """Begin. Raises UserError where nothing can run."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End what runs."""
        return


class Inline(Executor):
    """One job at a time in this process, which is busy until the job has ended."""

    in_parallel = False

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.jobs: list[Job] = []

    @property
    def free(self) -> int:
        return 1 - len(self.jobs)

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, Result]]:  # noqa: ARG002
        job = self.jobs.pop()
        return [(job, self.worker.run(job))]

    def cancel(self, job: Job) -> None:
        """Do nothing: while a job runs in this process, nobody can ask for its end."""


class Slot:
    """An actor of Ray, which makes its worker at the first job.

    If something is wrong on the machine, the first job gets the error.
    """

    def __init__(self, make: MakeWorker, current: Path) -> None:
        self.make, self.current = make, current
        self.worker: Any = None

    def run(self, job: Job) -> Result:
        """Run the job in the folder in which the sweep was started."""
        if self.worker is None:
            enter(self.current)
            self.worker = self.make()
        result: Result = self.worker.run(job)
        return result


class Ray(Executor):
    """One actor a slot, on this machine or on a cluster.

    Workers are actors, and not tasks: when Ray reused the process of a plain task, the process
    first had GPU 1, and later GPU 0.
    """

    def __init__(
        self, make: MakeWorker, resources: Resources, *, workers: int | None, address: str | None
    ) -> None:
        """Prepare to connect.

        Args:
            make: makes the worker of an actor.
            resources: the resources of one actor.
            workers: how many actors; None for as many as a cluster has room for.
            address: HOST:PORT of a cluster; None to start actors on this machine.

        Raises:
            UserError: Ray is not installed, or no cluster at the address can be used.
        """
        for name, value in RAY_SETTINGS.items():  # before Ray is imported, which reads them
            os.environ.setdefault(name, value)
        # ray.init sets the level of "ray", not of this logger.
        logging.getLogger("ray._private").setLevel(logging.ERROR)

        self.ray = import_extra("ray", "ray", "--workers and --address need")
        self.make = make
        self.resources = resources
        self.workers = workers
        self.idle: list[Any] = []
        self.running: dict[Any, tuple[Any, Job]] = {}

        self.options: dict[str, Any] = {
            "address": "local",
            "num_cpus": (workers or 1) * resources.cpus,
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
        }

        if address is not None:
            _refuse_what_is_no_cluster(address)
            passed_on = {}
            for name in PASSED_ON:
                if name in os.environ:
                    passed_on[name] = os.environ[name]
            self.queues = True
            self.options = {"address": address, "runtime_env": {"env_vars": passed_on}}

    def __enter__(self) -> Self:
        """Connect. Raises UserError where Ray does not start, or no machine has room for a job."""
        before = signal.getsignal(signal.SIGTERM)
        try:
            self.ray.init(**self.options, **RAY_QUIET)
        except Exception as error:  # the error of a busy machine has no class of its own
            raise UserError(f"Ray did not start: {str(error).splitlines()[0]}") from error
        if threading.current_thread() is threading.main_thread():
            # Ray's own handler would not let ours end the sweep.
            signal.signal(signal.SIGTERM, before)
        slot = self.ray.remote(Slot)
        self.actor = slot.options(
            num_cpus=self.resources.cpus, num_gpus=self.resources.gpus, max_restarts=0
        )
        if not self.free:
            self.__exit__(None)
            needs = f"{self.resources.cpus} CPUs and {self.resources.gpus:g} GPUs"
            raise UserError(f"no machine has room for a job, which takes {needs} (resources)")
        return self

    def __exit__(self, *error: object) -> None:
        # This gives SIGTERM its default action back, so that it then ends this process at once.
        self.ray.shutdown()
        self.idle = []
        self.running = {}

    @property
    def free(self) -> int:
        room = 0
        for node in self.ray.nodes():
            if node["Alive"]:
                room += self._room(node["Resources"])
        return min(room, self.workers or room) - len(self.running)

    def _room(self, node: Mapping[str, float]) -> int:
        """Return how many actors a machine with these resources has room for."""
        room = int(node.get("CPU", 0) // self.resources.cpus)
        if self.resources.gpus:
            room = min(room, int(self.resources.jobs_on(node.get("GPU", 0))))
        return room

    def submit(self, job: Job) -> None:
        actor = self.idle.pop() if self.idle else self.actor.remote(self.make, Path.cwd())
        self.running[actor.run.remote(job)] = actor, job

    def wait(self, seconds: float) -> list[tuple[Job, Result]]:
        done, _ = self.ray.wait([*self.running], timeout=seconds)
        return [self._ended(stream) for stream in done]

    def _ended(self, stream: Any) -> tuple[Job, Result]:
        """Return the job of a stream that has ended, with its result; its actor is idle again."""
        actor, job = self.running.pop(stream)
        try:
            result = self.ray.get(stream)
        except self.ray.exceptions.RayTaskError as error:  # the worker raised the error
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            self.ray.kill(actor)  # the actor may only be out of reach
            # Idle actors may have gone with the same machine. An actor that nobody holds ends.
            self.idle = []
            return job, lost_failure(job, str(error).splitlines()[0])
        self.idle.append(actor)
        return job, result

    def cancel(self, job: Job) -> None:
        for actor, running in self.running.values():
            if running.id == job.id:
                self.ray.kill(actor)


def enter(folder: Path) -> None:
    """Enter the folder in which a sweep was started. Raises UserError if it is not there."""
    try:
        os.chdir(folder)
    except OSError as error:
        host = socket.gethostname()
        raise UserError(f"{host} has no folder '{folder}'; all machines must see it") from error


def lost_failure(job: Job, cause: str) -> Failure:
    """Return the failure of a job whose worker is gone."""
    return Failure(id=job.id, error=escape_controls(cause).replace("\n", " "), lost=True)


def import_extra(module: str, extra: str, need: str) -> Any:
    """Import the package of an engine, which is an extra.

    Raises UserError if it is missing; `need` begins the message, such as "--slurm needs".
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        advice = f"install it: pip install '.[{extra}]'"
        raise UserError(f"{need} {module}; {advice}") from error


def check_answer(address: str) -> None:
    """Raise UserError if nothing answers at HOST:PORT. To look for a Ray cluster takes longer."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), RAY_ANSWER_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address}: {error.strerror or error}"
        ) from error


def _refuse_what_is_no_cluster(address: str) -> None:
    """Raise UserError where no Ray cluster can be used.

    A plain connection is tried first, because Ray tries for a long time. Then another process
    connects with Ray, because Ray ends a process that finds no cluster, or a cluster that asks for
    another token.
    """
    host, _, port = address.rpartition(":")
    connect = f"socket.create_connection(({host.strip('[]')!r}, {port}), 5)"
    script = f"import socket; {connect}; import ray; ray.init({address!r}, **{RAY_QUIET})"
    command = [sys.executable, "-P", "-c", script]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=RAY_CONNECT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"no Ray cluster answers at {address} within {RAY_CONNECT_SECONDS:.0f} s"
        ) from None
    if done.returncode:
        cause = (done.stderr.strip() or "no answer").splitlines()[-1]
        raise UserError(f"cannot use the Ray cluster at {address}: {cause}")
