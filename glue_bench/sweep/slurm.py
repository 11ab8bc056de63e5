"""Jobs in batches on a Slurm cluster, through submitit.

What is stored on the shared disk is the truth; submitit's own results are never read. Without accounting it would wait
for a killed job forever, and the driver that has sent a job may be gone when it ends.
"""

import contextlib
import hashlib
import io
import json
import math
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.files import parse_json, read_file, write_atomically
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

POLL_SECONDS = 30.0  # between two questions to Slurm, all of them about every job
LOOK_SECONDS = 2.0  # between two looks at what is stored
GOOD_POLLS = 2  # a Slurm job that so many answers in a row do not name has ended
UNKNOWN_PACE = (
    64  # how many jobs are sent, each alone, before anything is known of how long they take
)
CUTS = 3  # a cell that the time limit of its Slurm job has cut off so often fails
MINUTES = 20
SHARED = ("timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node")
SUBMITITS = ("setup", "array_parallelism")
IMPOSSIBLE = re.compile(
    "Partition(Config|TimeLimit|NodeLimit)|BadConstraints|Invalid(Account|QOS)|(Account|QOS)NotAllowed"
    "|DependencyNeverSatisfied"
)
"""Why Slurm keeps a job that it will never start."""
HELD = "launch failed requeued held"
NO_CAUSE = re.compile(
    "^srun: .*(Exited with exit code|Force Terminated|Terminating|Job step aborted)|^\\s*$"
)
"""What srun adds to the last words of a process, and empty lines."""
NO_SLURM = "--slurm: no Slurm answers here; start the command where sbatch and squeue work"
USER_ERROR = "glue_bench.errors.UserError: "
Stamps = dict[
    str, str
]  # by the ids of a batch's jobs, in their order, the `Store.result_version` of each when it was sent


class JobBatch:
    """Jobs one after another in one Slurm job. Started again, it goes on after those that are stored."""

    def __init__(self, make: MakeWorker, folder: Path) -> None:
        self.make, self.folder, self.cuts = make, folder, Counter[str]()
        self.current = Path.cwd()
        self.job: Job | None = None

    def __call__(self, jobs: list[tuple[Job, str]]) -> None:
        """Run them, as far as nothing newer than the stamp beside each job is stored.

        They run in the folder in which the sweep was started, because places of data and text may be relative to it.
        """
        try:
            enter(self.current)
            store, worker = Store(self.folder), self.make()
            for job, stamp in jobs:
                if store.result_version(job.id) == stamp:
                    self.job = job
                    worker.run(job)
        except (
            UserError
        ) as error:  # of whatever class: its last line in the log begins with USER_ERROR
            raise UserError(str(error)) from error

    def checkpoint(self, jobs: list[tuple[Job, str]]) -> Any:
        """What submitit puts back into the queue when the time limit is near."""
        from submitit.helpers import DelayedSubmission

        if self.job:  # none has begun while torch is imported
            self.cuts[self.job.id] += 1
        if self.job and self.cuts[self.job.id] == CUTS and not self.job.resumes:
            error = "it takes longer than a Slurm job may: give --slurm a larger timeout_min"
            Store(self.folder).write_failure(Failure(id=self.job.id, error=error))
        return DelayedSubmission(self, jobs)


class Slurm(Executor):
    """Batches of cells of some minutes; a pretraining goes alone. What a lost driver has sent is taken over."""

    queues = True

    def __init__(
        self,
        make: MakeWorker,
        resources: Resources,
        store: Store,
        estimate: TimeEstimate,
        options: Mapping[str, Any],
    ) -> None:
        """`options` are submitit's, those of sbatch, and `minutes`: how much work goes into a batch.

        Raises UserError where submitit is not installed, no Slurm answers, or an option is of another type.
        """
        submitit = import_extra("submitit", "slurm", "--slurm")
        config = check_slurm()
        largest = int(re.findall(r"MaxArraySize\s*=\s*(\d+)", config)[0])  # 0 where arrays are off
        self.most = max(1, largest - 1)
        self.name, self.logs = job_name(store), store.slurm_logs.absolute()
        self.engine = submitit.AutoExecutor(
            self.logs / "%A", cluster="slurm", slurm_max_num_timeout=10**6
        )
        try:
            self.seconds = 60 * float(options.get("minutes", MINUTES))
            parameters = {
                "timeout_min": max(30, int(self.seconds / 30) + 10),
                "cpus_per_task": resources.cpus,
            }
            parameters |= {"gpus_per_node": math.ceil(resources.gpus)} if resources.gpus else {}
            parameters |= {name: value for name, value in options.items() if name != "minutes"}
            prefixes = dict.fromkeys(SHARED, "") | dict.fromkeys(SUBMITITS, "slurm_")
            named = {
                f"{prefixes[name]}{name}": value
                for name, value in parameters.items()
                if name in prefixes
            }
            others = {name: value for name, value in parameters.items() if name not in prefixes}
            self.engine.update_parameters(
                name=self.name, slurm_additional_parameters=others, **named
            )
        except (AssertionError, TypeError, ValueError) as error:
            raise UserError(f"--slurm: {error}") from error
        self.store, self.estimate = store, estimate
        self.batch = JobBatch(
            make, store.folder.absolute()
        )  # jobs may run in another folder: chdir is sbatch's
        self.jobs, self.fresh, self.sent = dict[str, Job](), list[Job](), dict[str, Stamps]()
        self.known = set[str]()  # the numbers of all Slurm jobs that were ever in `sent`
        self.absent, self.polled_at = Counter[str](), 0.0

    def __enter__(self) -> Self:
        """Take over what is under way, or has ended unseen. Raises UserError where no Slurm answers."""
        if (live := live_jobs(self.name)) is None:
            raise UserError(NO_SLURM)
        stamp, sent = self.store.result_version, sent_jobs(self.store)
        self.sent = {
            name: {job: old for job, old in stamps.items() if name in live or stamp(job) != old}
            for name, stamps in sent.items()
        }
        self.known |= self.sent.keys()
        self._cancel_strange(live)
        self._write()  # before the first job is sent: another engine looks for this file
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind and issubclass(kind, Terminated):
            return
        if kind or self.sent:
            run_slurm_command(
                "scancel", f"--name={self.name}"
            )  # also those that Slurm took while this process was interrupted
            self._write()
        if kind is None:
            self.store.slurm_file.unlink(missing_ok=True)
            shutil.rmtree(self.logs, ignore_errors=True)

    @property
    def free(self) -> int:
        return 10**9 if self.estimate.ended else max(0, UNKNOWN_PACE - len(self.jobs))

    def submit(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.fresh.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, Result]]:  # noqa: ARG002
        self._send()
        time.sleep(LOOK_SECONDS)
        ended = [*self._ended()]
        if (
            time.monotonic() >= self.polled_at + POLL_SECONDS
            and (live := live_jobs(self.name)) is not None
        ):
            self.polled_at = time.monotonic()
            self._cancel_strange(live)
            self._forget_progress(live)
            ended += self._lost(live)
        return ended

    def cancel(self, job: Job) -> None:
        run_slurm_command(
            "scancel", *(name for name, stamps in self.sent.items() if job.id in stamps)
        )

    def _send(self) -> None:
        """Send what was submitted, in arrays of batches: pretrainings alone, and so each cell of unknown pace."""
        batches, room = list[list[tuple[Job, str]]](), -math.inf
        under_way = {
            name for stamps in self.sent.values() for name in stamps
        }  # by a driver before this one
        for job in [job for job in self.fresh if job.id not in under_way]:
            expected = None if job.resumes else self.estimate.seconds(job.id)
            expected = math.inf if expected is None else expected
            if expected > room:
                batches.append([])
                room = self.seconds
            batches[-1].append((job, self.store.result_version(job.id)))
            room -= expected
        self.fresh = []
        for first in range(0, len(batches), self.most):
            array = batches[first : first + self.most]
            try:
                with contextlib.redirect_stderr(
                    io.StringIO()
                ):  # sbatch's words come with the error, too
                    handles = self.engine.map_array(self.batch, array)
            except Exception as error:  # of several classes
                if live_jobs(self.name) is None:  # Slurm is out of reach for now
                    self.fresh = [job for batch in batches[first:] for job, _ in batch]
                    return
                raise UserError(f"--slurm: Slurm refuses the jobs: {str(error).strip()}") from error
            for handle, batch in zip(handles, array, strict=True):
                self.sent[handle.job_id] = {job.id: stamp for job, stamp in batch}
                self.known.add(handle.job_id)
            self._write()

    def _write(self) -> None:
        write_atomically(self.store.slurm_file, json.dumps(self.sent, indent=1).encode())

    def _ended(self) -> Iterator[tuple[Job, Result]]:
        """What has been stored: a batch runs its jobs in their order."""
        for name, stamps in [*self.sent.items()]:
            for job_id, stamp in [*stamps.items()]:
                if self.store.result_version(job_id) == stamp:
                    break
                if job := self.jobs.pop(
                    job_id, None
                ):  # else one that this driver has not handed out yet
                    del stamps[job_id]
                    result = self.store.result(job) or lost_failure(job, "its record is damaged")
                    if result.ok:
                        self.estimate.learn(job.id, result.seconds)
                    yield job, result
            if not stamps:
                del self.sent[name]

    def _cancel_strange(self, live: Mapping[str, list[str]]) -> None:
        """End jobs that Slurm took although no driver has heard their numbers: what they hold is sent again."""
        if strange := live.keys() - self.known:
            run_slurm_command("scancel", *strange)

    def _forget_progress(self, live: Mapping[str, list[str]]) -> None:
        """Of jobs that Slurm has put back into the queue: what a lost worker said last would look as if it hung."""
        queued = {
            job
            for name, (state, _) in live.items()
            if state != "RUNNING"
            for job in self.sent.get(name, ())
        }
        for name in queued.intersection(progress.id for progress in self.store.progress.read()):
            self.store.progress.drop(name)

    def _lost(self, live: Mapping[str, list[str]]) -> Iterator[tuple[Job, Result]]:
        """The job at work in each batch that is gone, with the end of its log; those after it are sent again.

        Raises UserError where Slurm will never start a job, or one has ended with such an error.
        """
        for name, (_, why) in live.items():
            if IMPOSSIBLE.fullmatch(why):
                raise UserError(
                    f"--slurm: Slurm will never start job {name} ({why}); change the options of --slurm"
                )
            if why == HELD:
                run_slurm_command("scancel", name)
        self.absent = Counter(
            {name: self.absent[name] + 1 for name in self.sent if name not in live}
        )
        for name in [name for name, polls in self.absent.items() if polls >= GOOD_POLLS]:
            left = [self.jobs[job_id] for job_id in self.sent.pop(name) if job_id in self.jobs]
            self.fresh += left[1:]
            for job in left[:1]:
                del self.jobs[job.id]
                log = self.logs / name.partition("_")[0] / f"{name}_0_log.err"
                lines = log.read_text(errors="replace").split("\n") if log.exists() else []
                last = next(
                    (line for line in reversed(lines) if not NO_CAUSE.search(line)),
                    "it was never started",
                )
                if last.startswith(USER_ERROR):
                    raise UserError(last.removeprefix(USER_ERROR))
                yield job, lost_failure(job, f"{last} (Slurm job {name}, {log})")
        self._write()


def sent_jobs(store: Store) -> dict[str, Stamps]:
    """The jobs of each Slurm job that a driver of this folder has sent, as far as it has written them down."""
    try:
        return parse_json(read_file(store.slurm_file)) if store.slurm_file.exists() else {}
    except (OSError, ValueError) as error:
        advice = f"end the jobs (scancel --name {job_name(store)}) and delete it"
        raise UserError(
            f"'{store.slurm_file}', which has the jobs that Slurm was given, is damaged; {advice}"
        ) from error


def job_name(store: Store) -> str:
    """What Slurm calls the jobs of this folder."""
    return f"glue-bench-{hashlib.sha256(str(store.folder.resolve()).encode()).hexdigest()[:12]}"


def refuse_live_jobs(store: Store) -> None:
    """Another engine may not run what Slurm still runs: raises UserError where it has jobs, or cannot be asked."""
    sent_jobs(store)  # refuses what is damaged
    name, here = job_name(store), store.folder
    live = live_jobs(name) if store.slurm_file.exists() else {}
    if live is None:
        advice = f"look where squeue works (squeue --name {name}); if none runs any more, delete '{store.slurm_file}'"
        raise UserError(f"{here} has jobs in Slurm, which does not answer here; {advice}")
    if live:
        raise UserError(
            f"{here} has {len(live)} jobs in Slurm; go on with --slurm, or end them: scancel --name {name}"
        )


def live_jobs(name: str) -> dict[str, list[str]] | None:
    """Slurm's jobs of this name by their ids, each with its state and why; None where Slurm does not answer now."""
    answer = run_slurm_command(
        "squeue", "--me", "--noheader", "--array", f"--name={name}", "--format=%i|%T|%r"
    )
    return (
        None
        if answer is None
        else {name: how for name, *how in (row.split("|", 2) for row in answer.splitlines())}
    )


def check_slurm() -> str:
    """The configuration of Slurm. Raises UserError where submitit is not installed, or no Slurm answers."""
    import_extra("submitit", "slurm", "--slurm")
    config = run_slurm_command("scontrol", "show", "config")
    if config is None:
        raise UserError(NO_SLURM)
    return config


def run_slurm_command(*command: str) -> str | None:
    """What a command of Slurm prints; None where it fails."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
