"""One job in one process: its checks, its storing, and a file that says how far it is."""

import math
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from glue_bench.config import Experiment, Resources
from glue_bench.config.machine import AUTO
from glue_bench.config.own_task import add_own_tasks
from glue_bench.errors import DiskError, UserError
from glue_bench.files import GOES_ON, disk_trouble, results_written_to
from glue_bench.model.plugins import load_file
from glue_bench.records import values
from glue_bench.records.values import Failure, Job, Pretraining, Record, Result
from glue_bench.sweep.outputs import FailedCheckError, JobOutput, Report, compute_output
from glue_bench.training.device import Compute, choose_compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.pretraining_folder import OtherComputerError
from glue_bench.training.quiet import quiet_transformers

MIN_REPORT_SECONDS = 2.0  # seconds between two reports of how far a job is
MAX_LISTING_SECONDS = 60.0  # a shared disk lists the files of another machine by then


def make_worker(
    experiment: Experiment,
    folder: Path,
    device: str = AUTO,
    precision: str = AUTO,
    graph: str = AUTO,
) -> "Worker":
    """Make a worker for this process, whose share of the machine it has.

    Raises UserError where the machine lacks a file.
    """
    quiet_transformers()
    add_own_tasks(experiment.own_tasks)
    for path in experiment.plugins:
        load_file(Path(path).expanduser())
    torch.set_num_threads(experiment.resources.cpus)
    return Worker(Inputs(experiment, folder), choose_compute(device, precision, graph))


def workers_with_room(resources: Resources, compute: Compute) -> int | None:
    """Return how many workers this machine has room for; None if one process is as fast.

    One process is as fast on a GPU that is not shared. On CPUs, a worker gets `resources.cpus` of
    the threads that PyTorch uses by itself, which is one for each permitted core.
    """
    count = compute.threads // resources.cpus
    if resources.gpus:
        count = min(count, resources.jobs_on(torch.cuda.device_count()))
    elif compute.device.type != "cpu":
        return None
    return count if count > 1 else None


class Worker:
    """A worker runs jobs one after another. A failing job ends itself, never the sweep."""

    def __init__(self, inputs: Inputs, compute: Compute) -> None:
        self.inputs = inputs
        self.store = inputs.store
        self.compute = compute

    def run(self, job: Job) -> Result:
        """Run a job, and store its record or the reason of its failure.

        Raises UserError for an error that every job would meet: a full disk, files that differ from
        the files of the plan, or a damaged model or state to start from.
        """
        with self._reporting(job.id) as report:
            try:
                self._wait_for_starts(job)
                self._check_files(job)
                output = compute_output(job, self.inputs, self.compute, report)
                return self._store(output)
            except (OtherComputerError, FailedCheckError) as error:
                return self._fail(job, str(error))  # the sweep goes on without this worker
            except UserError:
                raise
            except Exception as error:
                trouble = disk_trouble(error)
                if trouble:
                    place = getattr(error, "filename", None) or "the results or the cache folder"
                    raise DiskError(f"cannot write to '{place}': {trouble}; {GOES_ON}") from error
                place = " in pretraining" if isinstance(job, Pretraining) else ""
                return self._fail(job, f"{type(error).__name__}{place}: {error}")

    def _wait_for_starts(self, job: Job) -> None:
        """Wait for the results of earlier jobs: a shared disk lists other machines' files late."""
        until = time.monotonic() + MAX_LISTING_SECONDS
        for job_id in job.prerequisites:
            while not self.store.result_version(job_id) and time.monotonic() < until:
                time.sleep(0.5)

    def _check_files(self, job: Job) -> None:
        """Raise UserError if this machine has other files than the machine that planned the job."""
        changed = self.inputs.changed_files(job)
        if changed:
            host = socket.gethostname()
            fault = f"{host} has another {', '.join(changed)} for '{job.id}'"
            advice = "all machines must see the same files"
            raise UserError(f"{fault} than the machine that planned it; {advice}")

    def _store(self, output: JobOutput) -> Result:
        """Store the output of a job, and delete the state that a pretraining continues from.

        The checkpoints of a search are deleted, too.
        """
        record = output.record
        if isinstance(record, Record):
            return self.store.write(record, output.save, **output.arrays)
        job = record.pretraining
        with results_written_to(self.store.folder):
            stored = self.store.write(record, output.save, **output.arrays)
            self.store.checkpoints.end(job.id, keeps=not job.is_search)
        return stored

    def _fail(self, job: Job, error: str) -> Failure:
        """Store the failure of a job, with the traceback of the current error, and return it."""
        failure = Failure(
            id=job.id,
            error=error,
            traceback=traceback.format_exc(),
            environment=self.compute.environment(),
        )
        self.store.write_failure(failure)
        return failure

    @contextmanager
    def _reporting(self, job_id: str) -> Iterator[Report]:
        """In this block a file has the progress of the job. Errors of writing it are ignored."""
        began = time.time()
        worker = f"{socket.gethostname()}:{os.getpid()}"
        written_at = -math.inf

        def report(step: int, steps: int | None, loss: Callable[[], float] | None) -> None:
            nonlocal written_at
            if step and time.monotonic() < written_at + MIN_REPORT_SECONDS:
                return
            # After step 0, with which a job or its next attempt begins, a step is written at once.
            written_at = time.monotonic() if step else -math.inf
            progress = values.Progress(
                id=job_id,
                worker=worker,
                began=began,
                updated=time.time(),
                step=step,
                steps=steps,
                loss=_finite_or_none(loss),
            )
            with suppress(OSError):
                self.store.progress.write(progress)

        report(0, None, None)
        try:
            yield report
        finally:
            with suppress(OSError):
                self.store.progress.drop(job_id)


def _finite_or_none(loss: Callable[[], float] | None) -> float | None:
    """Compute a loss; None if there is none, or it is not finite, which JSON cannot have."""
    if loss is None:
        return None
    value = loss()
    return value if math.isfinite(value) else None
