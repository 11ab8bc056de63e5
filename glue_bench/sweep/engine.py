"""The choice of the engine that runs the jobs of a sweep. No torch before an engine is made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from glue_bench.errors import UserError, quoted
from glue_bench.records.values import Plan
from glue_bench.sweep.executors import Executor, Inline, MakeWorker, Ray
from glue_bench.sweep.progress import TimeEstimate
from glue_bench.sweep.slurm import Slurm

if TYPE_CHECKING:  # modules that import torch are imported where they are used
    from glue_bench.training.device import Compute
    from glue_bench.training.inputs import Inputs

MAX_WORKERS = 4096
MAX_PORT = 2**16 - 1
AS_MANY_AS_FIT: Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine that a person asks for. Without any option jobs run in this process, in turn.

    Attributes:
        workers: how many processes of Ray share the jobs; "auto" starts as many as there is room
            for.
        address: HOST:PORT of a Ray cluster, whose machines run the workers.
        slurm: options of sbatch, for jobs in Slurm.
    """

    workers: int | Literal["auto"] | None = None
    address: str | None = None
    slurm: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, workers: object, address: str | None, slurm: Mapping[str, Any] | None) -> Self:
        """Read what a caller asks for. Raises UserError for workers that are no number."""
        if workers is None:
            return cls(address=address, slurm=slurm)
        if workers == AS_MANY_AS_FIT:
            return cls(workers=AS_MANY_AS_FIT, address=address, slurm=slurm)
        if type(workers) is int and 1 <= workers <= MAX_WORKERS:
            return cls(workers=workers, address=address, slurm=slurm)
        advice = f"give a whole number from 1 to {MAX_WORKERS}, or {AS_MANY_AS_FIT}"
        raise UserError(f"workers {quoted(workers)}: {advice}")

    @property
    def is_elsewhere(self) -> bool:
        """Whether jobs run on other machines, which look for their device themselves."""
        return self.slurm is not None or self.address is not None

    def check(self) -> None:
        """Raise UserError for an address of another form, and for two engines at once."""
        if self.address is not None and not _is_host_and_port(self.address):
            form = f"HOST:PORT with a port from 1 to {MAX_PORT}"
            raise UserError(f"--address is {form}, not {quoted(self.address)}")
        if self.slurm is not None and (self.workers or self.address):
            raise UserError(
                "--slurm goes without --workers and --address: one engine runs all jobs"
            )

    def make(
        self, plan: Plan, inputs: "Inputs", compute: "Compute", make_worker: MakeWorker
    ) -> Executor:
        """Make what runs the jobs.

        Args:
            plan: the plan of the jobs.
            inputs: the inputs of the experiment, in this process.
            compute: where this process computes.
            make_worker: makes the worker of another process.

        Raises:
            UserError: what the engine needs is not there.
        """
        from glue_bench.sweep.worker import Worker, workers_with_room

        resources = inputs.experiment.resources
        if self.slurm is not None:
            return Slurm(make_worker, resources, inputs.store, TimeEstimate(plan), self.slurm)
        workers = self.workers
        if workers == AS_MANY_AS_FIT:  # Ray counts the room of a cluster
            workers = None if self.address else workers_with_room(resources, compute)
        if workers or self.address:
            return Ray(make_worker, resources, workers=workers, address=self.address)
        return Inline(Worker(inputs, compute))


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return False
    return 0 < int(port[:6]) <= MAX_PORT
