"""The file that notes which jobs of a results folder Slurm was given. It outlives the driver."""

import hashlib
import json
from collections.abc import Collection, Iterable

from glue_bench.errors import UserError
from glue_bench.files import parse_json, read_file, write_atomically
from glue_bench.records.store import Store
from glue_bench.records.values import Job
from glue_bench.sweep.squeue import live_jobs

Versions = dict[str, str]
"""The jobs of a batch, in order: each id with the job's `Store.result_version` when it was sent."""
Batch = list[tuple[Job, str]]
"""The jobs for one Slurm job, each with its `Store.result_version` when it is sent."""


class SentJobs:
    """Notes which jobs each Slurm job of a results folder was given.

    Attributes:
        batches: the jobs of each Slurm job that have no result yet, by its number.
        numbers: the numbers of all Slurm jobs that were ever in `batches`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.batches: dict[str, Versions] = {}
        self.numbers: set[str] = set()

    @property
    def job_ids(self) -> set[str]:
        """The ids of all jobs in the batches."""
        job_ids: set[str] = set()
        for versions in self.batches.values():
            job_ids.update(versions)
        return job_ids

    def take_over(self, live: Collection[str]) -> None:
        """Read an earlier driver's batches; keep jobs of `live` Slurm jobs or with new results."""
        for number, versions in read_batches(self.store).items():
            pending = {}
            for job_id, version in versions.items():
                if number in live or self.store.result_version(job_id) != version:
                    pending[job_id] = version
            self.batches[number] = pending
            self.numbers.add(number)

    def add(self, number: str, batch: Batch) -> None:
        """Note the number of a Slurm job that has been sent, and its batch."""
        self.batches[number] = {job.id: version for job, version in batch}
        self.numbers.add(number)

    def numbers_of(self, job_id: str) -> list[str]:
        """Return the numbers of the Slurm jobs that have this job."""
        return [number for number, versions in self.batches.items() if job_id in versions]

    def pop_stored(self, job_ids: Iterable[str]) -> list[str]:
        """Remove and return those of the jobs that have a new result."""
        awaited = set(job_ids)
        stored = []
        # Copies are read, because entries are deleted in the loops.
        for number, versions in [*self.batches.items()]:
            for job_id, version in [*versions.items()]:
                if self.store.result_version(job_id) == version:
                    break  # a batch runs in order, so that later jobs have no result either
                if job_id in awaited:
                    awaited.remove(job_id)
                    del versions[job_id]
                    stored.append(job_id)
            if not versions:
                del self.batches[number]
        return stored

    def write(self) -> None:
        """Write the batches down for the next driver."""
        write_atomically(self.store.slurm_file, json.dumps(self.batches, indent=1).encode())


def read_batches(store: Store) -> dict[str, Versions]:
    """Read the batches that a driver has written down. Raises UserError for a damaged file."""
    file = store.slurm_file
    try:
        return parse_json(read_file(file)) if file.exists() else {}
    except (OSError, ValueError) as error:
        advice = f"end the jobs (scancel --name {job_name(store)}) and delete it"
        fault = f"'{file}', which has the jobs that Slurm was given, is damaged"
        raise UserError(f"{fault}; {advice}") from error


def job_name(store: Store) -> str:
    """Return the name that all jobs of this folder have in Slurm."""
    path = str(store.folder.resolve())
    return f"glue-bench-{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def refuse_live_jobs(store: Store) -> None:
    """Raise UserError if Slurm has, or may have, jobs of this folder. They would run twice."""
    read_batches(store)  # this raises UserError if the file is damaged
    if not store.slurm_file.exists():
        return
    name = job_name(store)
    live = live_jobs(name)
    if live is None:
        look = f"look where squeue works (squeue --name {name})"
        advice = f"{look}; if none runs any more, delete '{store.slurm_file}'"
        raise UserError(f"{store.folder} has jobs in Slurm, which does not answer here; {advice}")
    if live:
        advice = f"go on with --slurm, or end them: scancel --name {name}"
        raise UserError(f"{store.folder} has {len(live)} jobs in Slurm; {advice}")
