"""Where jobs run: one after another in this process, or on workers."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Self

import torch

from glue_bench.config.sections import Resources
from glue_bench.sweep.attempts import attempt
from glue_bench.sweep.jobs import Job, PlannedPretraining, Said
from glue_bench.sweep.schedule import Schedule
from glue_bench.training.compute import Compute
from glue_bench.training.inputs import Inputs

POLL_SECONDS = 0.2

Results = Iterator[tuple[Job, Said]]
OnStart = Callable[[Job, str], None]


class ClusterLostError(Exception):
    """The cluster that ran the jobs is gone; the message says so in words."""


class Executor:
    """Runs what a schedule hands out; a context outside which nothing runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing has to be ended."""

    def check(self) -> None:
        """What entering would refuse, without starting anything."""

    def run(self, schedule: Schedule, on_start: OnStart) -> Results:
        """Each job with what it says. The caller stores its result and tells the schedule, then asks for the next.

        `on_start` is called with each job that starts, and the worker (host:pid) that runs it.

        Raises:
            ClusterLostError: there is nothing any more that could run jobs.
        """
        raise NotImplementedError


class InlineExecutor(Executor):
    """One job after another, in this process."""

    def __init__(self, inputs: Inputs, compute: Compute) -> None:
        self.inputs, self.compute = inputs, compute

    def run(self, schedule: Schedule, on_start: OnStart) -> Results:
        """Each job with what it says, in the schedule's order.

        A pretraining can go on from its last state, so that Ctrl-C ends it at once.
        """
        while schedule.open:
            job = schedule.take()
            if job is None:
                time.sleep(POLL_SECONDS)
                continue
            on_start(job, this_process())
            with schedule.stop.at_once() if isinstance(job, PlannedPretraining) else nullcontext():
                for said in attempt(job, self.inputs, self.compute):
                    yield job, said


def room_here(resources: Resources, compute: Compute) -> int | None:
    """How many workers this machine has room for; None where one process does as much.

    That is so on a GPU which `resources` do not share out. A worker takes `resources.cpus` of the threads that PyTorch
    takes by itself: a thread for each core that this process may use.
    """
    fits = compute.threads // resources.cpus
    if resources.gpus:
        fits = min(fits, resources.fitting(torch.cuda.device_count()))
    elif compute.device.type != "cpu":
        return None
    return fits if fits > 1 else None


def this_process() -> str:
    """Where a job runs, as logs name it: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
