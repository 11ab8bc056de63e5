"""Where jobs run: in this process, in Ray's actors, or in Slurm's jobs (slurm.py). The loop in drive.py says which."""

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from glue_bench.config import Resources
from glue_bench.errors import UserError, plain
from glue_bench.records.values import Failure, Job, Result

CONNECT_SECONDS = (
    20.0  # to a Ray cluster, at most; Ray alone would try for a minute and then end this process
)
ANSWER_SECONDS = 5.0  # until a machine that can be reached takes a connection
# Nothing is told to Ray's makers. To a worker zero GPUs are none, not all. Workers have the
# priority of their driver; with Ray's own (nice 15) they would starve. No processes are started in
# advance: they would lack the workers' environment. What becomes of workers is said by the loop;
# Ray would say it between the tables.
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}
RAY_QUIET = {"configure_logging": False, "log_to_driver": False, "logging_level": "ERROR"}
STORE_BYTES = (
    256 * 2**20
)  # nothing but jobs and results passes through it; Ray would take a third of the memory
# Where text and checkpoints are kept, and how to train, is the same on all machines of a cluster.
PASSED_ON = ("GLUE_BENCH_CACHE", "HF_HOME", "HF_HUB_OFFLINE", "GLUE_BENCH_PRECISION")

MakeWorker = Callable[[], Any]
"""Makes what runs jobs, like `worker.Worker`. It is called in the process that runs them, and travels there."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as a batch system sends it."""


class Executor(ABC):
    """Runs jobs. It is a context outside which no job runs, but those of Slurm after a SIGTERM."""

    queues: bool = False
    """Whether a job may wait for a machine of which nothing is known here; else a job that says nothing hangs."""
    in_parallel: bool = True
    """Whether several jobs may run at once, in other processes than this one."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many more jobs it takes now."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Take a job, to run it as soon as there is room."""

    @abstractmethod
    def wait(self, seconds: float) -> list[tuple[Job, Result]]:
        """Wait up to about so many `seconds`; return the jobs that have ended, with their results.

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
        """While a job runs, nobody can ask for its end."""


class Slot:
    """What an actor is. Its worker is made at the first job: what is wrong on its machine is then this job's error."""

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

    Actors, not tasks: a process of plain tasks that Ray used again was given GPU 1, and later GPU
    0.
    """

    def __init__(
        self, make: MakeWorker, resources: Resources, *, workers: int | None, address: str | None
    ) -> None:
        """`workers` processes on this machine, or at `address` (HOST:PORT) at most so many, or all it has room for.

        Raises UserError where Ray is not installed, or no cluster at the address can be used.
        """
        os.environ.update(
            {name: os.environ.get(name, value) for name, value in RAY_SETTINGS.items()}
        )
        logging.getLogger("ray._private").setLevel(
            logging.ERROR
        )  # not that of "ray", which ray.init sets
        self.ray = import_extra("ray", "ray", "--workers and --address")  # which reads them
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
            passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            self.queues = True
            self.options = {"address": address, "runtime_env": {"env_vars": passed_on}}

    def __enter__(self) -> Self:
        """Connect. Raises UserError where Ray does not start, or no machine has room for a job."""
        before = signal.getsignal(signal.SIGTERM)
        try:
            self.ray.init(**self.options, **RAY_QUIET)
        except Exception as error:  # of no class of its own where the machine is too busy
            raise UserError(f"Ray did not start: {str(error).splitlines()[0]}") from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(
                signal.SIGTERM, before
            )  # Ray's own handler would not let ours end the sweep
        slot = self.ray.remote(Slot)
        self.actor = slot.options(
            num_cpus=self.resources.cpus, num_gpus=self.resources.gpus, max_restarts=0
        )
        if not self.free:
            self.__exit__(None)
            takes = f"{self.resources.cpus} CPUs and {self.resources.gpus:g} GPUs"
            raise UserError(f"no machine has room for a job, which takes {takes} (resources)")
        return self

    def __exit__(self, *error: object) -> None:
        self.ray.shutdown()  # with which SIGTERM gets its default action back: it then ends this process at once
        self.idle = []
        self.running = {}

    @property
    def free(self) -> int:
        room = 0
        for node in self.ray.nodes():
            has = node["Resources"]
            by_gpu = self.resources.fitting(has.get("GPU", 0)) if self.resources.gpus else math.inf
            room += (
                int(min(has.get("CPU", 0) // self.resources.cpus, by_gpu)) if node["Alive"] else 0
            )
        return min(room, self.workers or room) - len(self.running)

    def submit(self, job: Job) -> None:
        actor = self.idle.pop() if self.idle else self.actor.remote(self.make, Path.cwd())
        self.running[actor.run.remote(job)] = actor, job

    def wait(self, seconds: float) -> list[tuple[Job, Result]]:
        done, _ = self.ray.wait([*self.running], timeout=seconds)
        return [self._ended(stream) for stream in done]

    def _ended(self, stream: Any) -> tuple[Job, Result]:
        actor, job = self.running.pop(stream)
        try:
            result = self.ray.get(stream)
        except self.ray.exceptions.RayTaskError as error:  # raised in the worker
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            self.ray.kill(actor)  # it may only be out of reach
            self.idle = []  # these may have gone with the same machine; an actor that nobody holds ends
            return job, lost_failure(job, str(error).splitlines()[0])
        self.idle.append(actor)
        return job, result

    def cancel(self, job: Job) -> None:
        for actor, running in self.running.values():
            if running.id == job.id:
                self.ray.kill(actor)


def enter(folder: Path) -> None:
    """Go to the folder in which a sweep was started. Raises UserError where this machine has no such folder."""
    try:
        os.chdir(folder)
    except OSError as error:
        host = socket.gethostname()
        raise UserError(f"{host} has no folder '{folder}'; all machines must see it") from error


def lost_failure(job: Job, cause: str) -> Failure:
    """The failure of a job whose worker is gone."""
    return Failure(id=job.id, error=plain(cause).replace("\n", " "), lost=True)


def import_extra(module: str, extra: str, options: str) -> Any:
    """The package of an engine, which is an extra. Raises UserError where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"{options} needs {module}; install it: pip install '.[{extra}]'"
        ) from error


def check_answer(address: str) -> None:
    """Raise UserError where nothing answers at HOST:PORT: that takes a moment, to ask for a Ray cluster seconds."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address}: {error.strerror or error}"
        ) from error


def _refuse_what_is_no_cluster(address: str) -> None:
    """Another process connects first: where no cluster answers, or one that asks for another token, Ray ends it."""
    host, _, port = address.rpartition(":")
    connect = f"socket.create_connection(({host.strip('[]')!r}, {port}), 5)"  # which tells at once; Ray tries for long
    command = [
        sys.executable,
        "-P",
        "-c",
        f"import socket; {connect}; import ray; ray.init({address!r}, **{RAY_QUIET})",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=CONNECT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"no Ray cluster answers at {address} within {CONNECT_SECONDS:.0f} s"
        ) from None
    if done.returncode:
        why = (done.stderr.strip() or "no answer").splitlines()[-1]
        raise UserError(f"cannot use the Ray cluster at {address}: {why}")
