"""Jobs in batches on a Slurm cluster, through submitit.

The results on the shared disk are the truth; submitit's own results are never read. Without
accounting, submitit would wait for a killed job forever. And the driver that has sent a job may be
gone when the job ends.
"""

import contextlib
import io
import math
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Job, Result
from glue_bench.sweep.executors import (
    Executor,
    MakeWorker,
    Terminated,
    enter,
    import_extra,
    lost_failure,
)
from glue_bench.sweep.progress import TimeEstimate
from glue_bench.sweep.sent import Batch, SentJobs, job_name
from glue_bench.sweep.squeue import (
    HELD,
    NEVER_STARTS,
    NO_SLURM,
    SlurmJob,
    cancel_all,
    cancel_jobs,
    check_slurm,
    live_jobs,
)

POLL_SECONDS = 30.0  # seconds between two questions to Slurm, each of them about all jobs
LOOK_SECONDS = 2.0  # seconds between two looks at the stored results
MIN_ABSENT_POLLS = 2  # a Slurm job has ended if so many answers in a row do not name it
MAX_JOBS_OF_UNKNOWN_PACE = 64  # each is sent alone until the duration of jobs is known
MAX_CUTS = 3  # a cell fails when the time limit of its Slurm job has cut it off so often
BATCH_MINUTES = 20
MIN_TIME_LIMIT = 30  # minutes
SUBMITIT_OPTIONS = ("timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node")
"""Options that submitit has for every kind of cluster."""
SUBMITIT_SLURM_OPTIONS = ("setup", "array_parallelism")
"""Options that submitit has for Slurm alone, and calls by longer names."""
NO_CAUSE = re.compile(
    "^srun: .*(Exited with exit code|Force Terminated|Terminating|Job step aborted)|^\\s*$"
)
"""Lines that srun adds after the last words of a process, and empty lines."""
USER_ERROR = "glue_bench.errors.UserError: "


class JobBatch:
    """Runs jobs one after another in a Slurm job. After a restart it skips stored jobs.

    Args:
        make: makes the worker.
        folder: the results folder.
    """

    def __init__(self, make: MakeWorker, folder: Path) -> None:
        self.make = make
        self.folder = folder
        self.current = Path.cwd()
        self.cuts: Counter[str] = Counter()
        self.job: Job | None = None

    def __call__(self, jobs: Batch) -> None:
        """Run the jobs that have no newer result than the version beside each.

        They run in the folder in which the sweep was started, because places of data and text may
        be relative to it.
        """
        try:
            enter(self.current)
            store = Store(self.folder)
            worker = self.make()
            for job, version in jobs:
                if store.result_version(job.id) == version:
                    self.job = job
                    worker.run(job)
        except UserError as error:
            # The last line in the log begins with USER_ERROR, also for subclasses.
            raise UserError(str(error)) from error

    def checkpoint(self, jobs: Batch) -> Any:
        """Return the jobs that submitit puts back into the queue when the time limit is near."""
        from submitit.helpers import DelayedSubmission

        job = self.job
        if job:  # None until the first job begins, because torch is imported first
            self.cuts[job.id] += 1
            if self.cuts[job.id] == MAX_CUTS and not job.resumes:
                error = "it takes longer than a Slurm job may: give --slurm a larger timeout_min"
                Store(self.folder).write_failure(Failure(id=job.id, error=error))
        return DelayedSubmission(self, jobs)


class Slurm(Executor):
    """Sends batches of jobs to Slurm, and takes over what a lost driver has sent.

    Cells go in batches that take some minutes, a pretraining goes alone.
    """

    queues = True

    def __init__(
        self,
        make: MakeWorker,
        resources: Resources,
        store: Store,
        estimate: TimeEstimate,
        options: Mapping[str, Any],
    ) -> None:
        """Prepare to send jobs.

        Args:
            make: makes a worker in a Slurm job.
            resources: the resources of one job.
            store: the store of the results folder, which all machines see.
            estimate: the estimate of how long jobs take.
            options: the options of submitit and of sbatch, and `minutes`: how much work goes into a
                batch.

        Raises:
            UserError: submitit is not installed, no Slurm answers, or an option is of another type.
        """
        submitit = import_extra("submitit", "slurm", "--slurm needs")
        largest_array = re.findall(r"MaxArraySize\s*=\s*(\d+)", check_slurm())
        self.max_array = max(1, int(largest_array[0]) - 1)  # 0 where arrays are off

        self.store = store
        self.estimate = estimate
        self.name = job_name(store)
        self.logs = store.slurm_logs.absolute()

        self.engine = submitit.AutoExecutor(
            self.logs / "%A", cluster="slurm", slurm_max_num_timeout=10**6
        )
        try:
            self.seconds = 60 * float(options.get("minutes", BATCH_MINUTES))
            parameters = submitit_parameters(options, resources, self.seconds)
            self.engine.update_parameters(name=self.name, **parameters)
        except (AssertionError, TypeError, ValueError) as error:
            raise UserError(f"--slurm: {error}") from error

        # The folder is absolute, because sbatch's `chdir` may let jobs run elsewhere.
        self.batch = JobBatch(make, store.folder.absolute())
        self.jobs: dict[str, Job] = {}
        self.unsent: list[Job] = []
        self.sent = SentJobs(store)

        self.absent_polls: Counter[str] = Counter()
        self.polled_at = 0.0

    def __enter__(self) -> Self:
        """Take over jobs that run, or have ended unseen. Raises UserError if no Slurm answers."""
        live = live_jobs(self.name)
        if live is None:
            raise UserError(NO_SLURM)
        self.sent.take_over(live)
        self._cancel_unknown(live)
        self.sent.write()  # before a job is sent, because other engines look for this file
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind and issubclass(kind, Terminated):
            return
        if kind or self.sent.batches:
            cancel_all(self.name)  # also jobs that Slurm took while this process was interrupted
            self.sent.write()
        if kind is None:
            self.store.slurm_file.unlink(missing_ok=True)
            shutil.rmtree(self.logs, ignore_errors=True)

    @property
    def free(self) -> int:
        if self.estimate.ended:
            return 10**9
        return max(0, MAX_JOBS_OF_UNKNOWN_PACE - len(self.jobs))

    def submit(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.unsent.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, Result]]:  # noqa: ARG002
        self._send()
        time.sleep(LOOK_SECONDS)
        ended = self._ended()
        if time.monotonic() < self.polled_at + POLL_SECONDS:
            return ended
        live = live_jobs(self.name)
        if live is not None:
            self.polled_at = time.monotonic()
            self._cancel_unknown(live)
            self._forget_progress(live)
            self._end_stuck(live)
            ended += self._lost(live)
        return ended

    def cancel(self, job: Job) -> None:
        cancel_jobs(*self.sent.numbers_of(job.id))

    def _send(self) -> None:
        """Send the submitted jobs, in arrays of batches."""
        batches = self._batches()
        self.unsent = []
        for first in range(0, len(batches), self.max_array):
            array = batches[first : first + self.max_array]
            try:
                # The error has the message of sbatch, too.
                with contextlib.redirect_stderr(io.StringIO()):
                    slurm_jobs = self.engine.map_array(self.batch, array)
            except Exception as error:  # these errors have several classes
                if live_jobs(self.name) is None:  # Slurm is out of reach for now
                    for batch in batches[first:]:
                        self.unsent += [job for job, _ in batch]
                    return
                raise UserError(f"--slurm: Slurm refuses the jobs: {str(error).strip()}") from error
            for slurm_job, batch in zip(slurm_jobs, array, strict=True):
                self.sent.add(slurm_job.job_id, batch)
            self.sent.write()

    def _batches(self) -> list[Batch]:
        """Divide the jobs to send into batches: pretrainings and cells of unknown pace go alone."""
        sent_before = self.sent.job_ids  # sent by an earlier driver
        batches: list[Batch] = []
        room = -math.inf
        for job in self.unsent:
            if job.id in sent_before:
                continue
            expected = None if job.resumes else self.estimate.seconds(job.id)
            if expected is None:
                expected = math.inf
            if expected > room:
                batches.append([])
                room = self.seconds
            batches[-1].append((job, self.store.result_version(job.id)))
            room -= expected
        return batches

    def _ended(self) -> list[tuple[Job, Result]]:
        """Return the jobs whose results were stored since the last look, with these results."""
        ended: list[tuple[Job, Result]] = []
        for job_id in self.sent.pop_stored(self.jobs):
            job = self.jobs.pop(job_id)
            result = self.store.result(job) or lost_failure(job, "its record is damaged")
            if result.ok:
                self.estimate.learn(job.id, result.seconds)
            ended.append((job, result))
        return ended

    def _cancel_unknown(self, live: Mapping[str, SlurmJob]) -> None:
        """End Slurm jobs whose numbers no driver knows. Their jobs are sent again."""
        unknown = live.keys() - self.sent.numbers
        if unknown:
            cancel_jobs(*unknown)

    def _forget_progress(self, live: Mapping[str, SlurmJob]) -> None:
        """Drop the progress of jobs that wait in the queue again: it would look as if they hung."""
        queued: set[str] = set()
        for number, slurm_job in live.items():
            if slurm_job.state != "RUNNING":
                queued.update(self.sent.batches.get(number, ()))
        for progress in self.store.progress.read():
            if progress.id in queued:
                self.store.progress.drop(progress.id)

    def _end_stuck(self, live: Mapping[str, SlurmJob]) -> None:
        """End jobs that Slurm holds back. Raises UserError if Slurm will never start a job."""
        for number, slurm_job in live.items():
            reason = slurm_job.reason
            if NEVER_STARTS.fullmatch(reason):
                fault = f"Slurm will never start job {number} ({reason})"
                raise UserError(f"--slurm: {fault}; change the options of --slurm")
            if reason == HELD:
                cancel_jobs(number)

    def _lost(self, live: Mapping[str, SlurmJob]) -> Iterator[tuple[Job, Result]]:
        """Return the job that ran in each batch that is gone, with the end of its log.

        The jobs after it are sent again.

        Raises UserError if a job has ended with a UserError.
        """
        before = self.absent_polls
        self.absent_polls = Counter()
        for number in [*self.sent.batches]:
            if number in live:
                continue
            self.absent_polls[number] = before[number] + 1
            if self.absent_polls[number] < MIN_ABSENT_POLLS:
                continue

            batch = self.sent.batches.pop(number)
            unfinished = [name for name in batch if name in self.jobs]
            if not unfinished:
                continue
            job = self.jobs.pop(unfinished[0])
            self.unsent += [self.jobs[name] for name in unfinished[1:]]

            log = self.logs / number.partition("_")[0] / f"{number}_0_log.err"
            cause = last_words(log)
            if cause.startswith(USER_ERROR):
                raise UserError(cause.removeprefix(USER_ERROR))
            yield job, lost_failure(job, f"{cause} (Slurm job {number}, {log})")

        self.sent.write()


def submitit_parameters(
    options: Mapping[str, Any], resources: Resources, seconds: float
) -> dict[str, Any]:
    """Translate the user's options into the parameters of submitit's executor.

    Args:
        options: the options of submitit and of sbatch.
        resources: the resources of one job.
        seconds: how much work goes into a batch.
    """
    wishes: dict[str, Any] = {
        "timeout_min": max(MIN_TIME_LIMIT, int(seconds / 30) + 10),
        "cpus_per_task": resources.cpus,
    }
    if resources.gpus:
        wishes["gpus_per_node"] = math.ceil(resources.gpus)
    wishes.update(options)
    wishes.pop("minutes", None)
    parameters: dict[str, Any] = {}
    sbatch_options = {}
    for name, value in wishes.items():
        if name in SUBMITIT_OPTIONS:
            parameters[name] = value
        elif name in SUBMITIT_SLURM_OPTIONS:
            parameters[f"slurm_{name}"] = value
        else:
            sbatch_options[name] = value
    return {**parameters, "slurm_additional_parameters": sbatch_options}


def last_words(log: Path) -> str:
    """Return the last line in the log of a job that says why it ended."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    for line in reversed(lines):
        if not NO_CAUSE.search(line):
            return line
    return "it was never started"
