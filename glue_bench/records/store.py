"""The results folder of one experiment: its plan and its results (layout.py has all places).

Every file beside a record has the record's digest in it. If it has another one, is missing or is
damaged, reading it raises UserError.
"""

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import (
    REPLACED,
    check_part,
    clear_abandoned,
    file_digest,
    prove_writable,
    read_file,
    restore_replaced,
    results_written_to,
    visible_files,
    whole_folder,
    write_atomically,
)
from glue_bench.records import layout
from glue_bench.records.arrays import Arrays, arrays_digest, dump, read_arrays, shrink, widen
from glue_bench.records.base import NAME
from glue_bench.records.checkpoints import CheckpointStore
from glue_bench.records.done import replaced_start
from glue_bench.records.finished import Finished
from glue_bench.records.labels import Labels, LabelStore
from glue_bench.records.lock import driver_lock
from glue_bench.records.models import RECORD_DIGEST_FILE, ModelStore
from glue_bench.records.progress import ProgressStore
from glue_bench.records.values import Cell, Failure, Job, Plan, PretrainingRecord, Record, Result
from glue_bench.remote import refuse_url

MAX_PLAN_BYTES = 2**27  # a plan of 50,000 cells has 40 million bytes
IS_ID = re.compile(NAME).fullmatch
Ended = TypeVar("Ended", Record, PretrainingRecord)
Kind = TypeVar("Kind", Plan, Record, PretrainingRecord)


class ResultFile(NamedTuple):
    """A record or failure of a job, and the state of its file."""

    path: Path
    stat: os.stat_result


class Store:
    """Reads and writes the results folder of an experiment.

    Attributes:
        folder: the results folder.
        labels: gold labels and what baselines predict.
        models: fine-tuned models.
        checkpoints: weights of pretrainings.
        progress: jobs under way.
        analysis: the folder that `analyse` writes into.
        tensorboard: the folder of TensorBoard's logs.
        slurm_file: the file of the jobs that Slurm was given (sweep/sent.py).
        slurm_logs: the folder of the logs of these jobs.
        failures_folder: the folder with the reasons of failures.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.labels = LabelStore(self.folder)
        self.models = ModelStore(self.folder)
        self.checkpoints = CheckpointStore(self.folder)
        self.progress = ProgressStore(self.folder)
        self.analysis = self.folder / layout.ANALYSIS
        self.tensorboard = self.folder / layout.TENSORBOARD
        self.slurm_file = self.folder / layout.SLURM_FILE
        self.slurm_logs = self.folder / layout.SLURM_LOGS
        self.failures_folder = self.folder / layout.FAILURES

    @classmethod
    def of_checkpoint(cls, checkpoint: Path) -> Self | None:
        """Return the store of the pretraining that wrote a checkpoint; None if it is not ours."""
        pretraining = checkpoint.resolve().parent
        checkpoints = pretraining.parent
        store = cls(checkpoints.parent)
        return store if checkpoints.name == layout.CHECKPOINTS and store.has_plan else None

    @property
    def has_plan(self) -> bool:
        """Whether an experiment has been run here."""
        return (self.folder / layout.PLAN).is_file()

    def plan(self) -> Plan:
        """Read the plan that was written last.

        Raises UserError if it is missing or damaged, or a folder is not there.
        """
        self._check_parts()
        return self._read(Plan, layout.PLAN)

    def finished(self, plan: Plan) -> Finished:
        """Read the results of a plan.

        A record that cannot be believed counts as missing, and has a line in `problems`. One that
        is `outdated` counts as missing, too. Raises UserError where a folder is not there.
        """
        self._check_parts()
        cell_ids = self._ids(layout.CELLS)
        planned = [cell.id for cell in plan.cells if cell.id in cell_ids]
        stored, problems = self._records(Record, planned)
        pretraining_ids = {job.id for job in plan.pretrainings} & self._ids(layout.PRETRAININGS)
        pretrainings, damaged = self._records(PretrainingRecord, sorted(pretraining_ids))
        problems = problems | damaged | self._waiting(plan)
        records = {}
        outdated = {}
        for name, record in stored.items():
            if replaced_start(record, stored, pretrainings):
                outdated[name] = record
            else:
                records[name] = record
        return Finished(records, pretrainings, len(self._outside(plan)), problems, outdated)

    def record(self, cell_id: str) -> Record | None:
        """Return the record of a cell; None without a whole record."""
        records, _ = self._records(Record, [cell_id])
        return records.get(cell_id)

    def pretraining(self, pretraining_id: str) -> PretrainingRecord | None:
        """Return the record of a pretraining; None without a whole record."""
        records, _ = self._records(PretrainingRecord, [pretraining_id])
        return records.get(pretraining_id)

    def records_outside(self, plan: Plan) -> list[Record]:
        """Return the records of cells outside the plan; damaged records are left out."""
        records, _ = self._records(Record, self._outside(plan))
        return [*records.values()]

    def recorded(self) -> set[str]:
        """Return the ids of all cells and pretrainings that have a record, even a damaged one."""
        return self._ids(layout.CELLS) | self._ids(layout.PRETRAININGS)

    def failures(self, plan: Plan, done: Collection[str]) -> list[Failure]:
        """Return why jobs of the plan that are not `done` failed, in the order of the plan."""
        paths = {path.stem: path for path in self.failures_folder.glob("*.json")}
        failed = [job.id for job in plan.jobs if job.id in paths and job.id not in done]
        return [_read_failure(paths[name]) for name in failed]

    def result(self, job: Job) -> Result | None:
        """Return the last stored result of a job; None if no result can be believed."""
        files = [*self._result_files(job.id)]
        if files:
            latest = max(files, key=lambda file: file.stat.st_mtime_ns)
            if latest.path.parent == self.failures_folder:
                return _read_failure(latest.path)
        return self.record(job.id) if isinstance(job, Cell) else self.pretraining(job.id)

    def result_version(self, job_id: str) -> str:
        """Return a text that changes with each stored result of a job, even a failure; or ""."""
        stats = [file.stat for file in self._result_files(job_id)]
        return " ".join(f"{stat.st_ino}-{stat.st_mtime_ns}" for stat in stats)

    def stored_at(self, job_id: str) -> float:
        """Return the time of a job's last result, in seconds since 1970; 0 without a result."""
        return max((file.stat.st_mtime for file in self._result_files(job_id)), default=0.0)

    def logits(self, record: Record, *, test: bool = False) -> dict[str, np.ndarray]:
        """Read a cell's predictions.

        Args:
            record: the record of the cell.
            test: whether to read the predictions of test splits and AX, not of scored splits.

        Returns:
            Logits float32 (rows, labels) by split; empty if they were not asked for.

        Raises:
            UserError: they are missing, damaged, or of another run.
        """
        digest = record.tests if test else record.logits
        stored = self._beside(record, "tests" if test else "logits", digest)
        return {split: values.astype(np.float32, copy=False) for split, values in stored.items()}

    def losses(self, record: PretrainingRecord) -> dict[str, np.ndarray]:
        """Return the validation losses after a pretraining's last step; empty if it diverged.

        A piece has at most 512 tokens of one document. `loss_sum` float64 (pieces,) is the sum over
        its masked tokens, in nats. `count` int64 (pieces,) is the number of these tokens, and
        `document` int64 (pieces,) the number of its document in the corpus. Pretrainings on the
        same text with the same tokenizer have the same pieces, counts and documents.
        """
        return widen(self._beside(record, "losses", record.piece_losses))

    def measure_sums(self, record: PretrainingRecord) -> dict[str, np.ndarray]:
        """Return the sums and counts of each sequence, float64 (2, sequences), by measure."""
        return widen(self._beside(record, "sums", record.sums))

    def prepare(self, *, make: bool = True) -> None:
        """Make the folder, and check that it can be written. Without `make` nothing stays on disk.

        The parts of the folder are tried, too: a link may have moved one to another disk.
        """
        parts = (*layout.RESULT_FOLDERS, layout.CHECKPOINTS)
        self._check_parts(*parts)
        for place in (self.folder, *(self.folder / part for part in parts)):
            with results_written_to(place, "choose another folder with --results"):
                if make:
                    self.folder.mkdir(parents=True, exist_ok=True)
                prove_writable(place)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one driver; clean up after a killed one. Raises as `driver_lock`."""
        with driver_lock(self.folder):
            for kind in (layout.CELLS, layout.PRETRAININGS):
                restore_replaced(self.folder / kind)
                clear_abandoned(self.folder / kind)
            yield

    def write_plan(self, plan: Plan, labels: Mapping[str, Labels]) -> Plan:
        """Replace the plan, and store the `labels` of tasks; return the plan with their digests."""
        share = plan.experiment.finetuning.held_out_share
        tasks = {}
        for task, facts in plan.tasks.items():
            if task in labels:
                digest: str | None = self.labels.write(task, facts.digest, share, labels[task])
            else:
                digest = self.labels.digest(task, facts.digest)
            tasks[task] = facts.model_copy(update={"labels": digest})
        plan = plan.model_copy(update={"tasks": tasks}).seal()
        write_atomically(self.folder / layout.PLAN, plan.file())
        return plan

    def write(
        self, record: Ended, save: Callable[[Path], None] | None = None, **arrays: Arrays | None
    ) -> Ended:
        """Store a finished job as one folder, in the place of an older one.

        Args:
            record: the record of the job.
            save: writes the files of a cell's model into an empty folder, if the model is kept.
            **arrays: the `logits` and `tests` of a cell; the `losses` and `sums` of a pretraining.

        Returns:
            The record as stored, with the digests of the arrays and of the model's files.
        """
        is_cell = isinstance(record, Record)
        beside = {}
        for name, values in arrays.items():
            if values:
                beside[name] = values if is_cell else shrink(values)
        fields = ("model", "logits", "tests") if is_cell else ("piece_losses", "sums")
        facts: dict[str, Any] = dict.fromkeys(fields)
        for name, values in beside.items():  # the field `losses` of a record is its curve
            facts["piece_losses" if name == "losses" else name] = arrays_digest(values)
        job = record.job
        place = self.folder / layout.job_folder(job.kind, job.id)
        with results_written_to(self.folder), whole_folder(place, replaces=True) as folder:
            model = folder / layout.MODEL
            if save:
                model.mkdir()
                save(model)
                names = sorted(visible_files(model))
                facts["model"] = {name: file_digest(model / name) for name in names}
            record = record.model_copy(update=facts).seal()
            if save:
                (model / RECORD_DIGEST_FILE).write_text(record.digest)
            for name, values in beside.items():
                content = dump(values, record=record.digest)
                (folder / layout.arrays_name(name)).write_bytes(content)
            (folder / layout.RECORD).write_bytes(record.file())
        (self.folder / layout.failure_file(job.id)).unlink(missing_ok=True)
        return record

    def write_failure(self, failure: Failure) -> None:
        """Store why a job failed; a later success removes it."""
        with results_written_to(self.folder):
            write_atomically(self.folder / layout.failure_file(failure.id), failure.file())

    def _check_parts(self, *parts: str) -> None:
        """Raise UserError where a part, by default one of RESULT_FOLDERS, is a broken link."""
        for part in parts or layout.RESULT_FOLDERS:
            check_part(self.folder / part)

    def _read(self, kind: type[Kind], place: str) -> Kind:
        try:
            return kind.read(read_file(self.folder / place, MAX_PLAN_BYTES))
        except OSError as error:
            fault = f"cannot be read ({error.strerror})"
            raise UserError(f"{place}: {fault}; delete it and run again") from error
        except ValueError as error:
            raise UserError(f"{place}: damaged or edited; delete it and run again") from error

    def _records(
        self, kind: type[Ended], names: Iterable[str]
    ) -> tuple[dict[str, Ended], dict[str, str]]:
        """Return the records of these jobs, and a line about each record that was damaged."""
        records: dict[str, Ended] = {}
        problems: dict[str, str] = {}
        folder = layout.CELLS if kind is Record else layout.PRETRAININGS
        for name in names:
            place = layout.record_file(folder, name)
            try:
                record = self._read(kind, place)
                if record.job.id != name:
                    fault = f"it is the record of '{record.job.id}'"
                    raise UserError(f"{place}: {fault}; delete the folder and run again")
                records[name] = record
            except UserError as error:
                problems[name] = str(error)
        return records, problems

    def _outside(self, plan: Plan) -> list[str]:
        """Return the ids of cells outside the plan that have a record, even a damaged one."""
        outside = self._ids(layout.CELLS).difference(cell.id for cell in plan.cells)
        files = {name: self.folder / layout.record_file(layout.CELLS, name) for name in outside}
        return sorted(name for name, file in files.items() if file.exists())

    def _waiting(self, plan: Plan) -> dict[str, str]:
        """Return a line about each job whose result a killed run has left aside."""
        kinds = {job.id: job.kind for job in plan.jobs}
        problems = {}
        for kind in (layout.CELLS, layout.PRETRAININGS):
            for older in (self.folder / kind).glob(f"{REPLACED}*"):
                name = older.name.removeprefix(REPLACED)
                if kinds.get(name) == kind and not os.path.lexists(older.with_name(name)):
                    fault = f"its result lies in {older.name}, where an interrupted run has put it"
                    problems[name] = f"{kind}/{name}: {fault}; run again, which puts it back"
        return problems

    def lies_aside(self, job: Job) -> bool:
        """Return whether a killed run has left a job's result aside. The next run puts it back."""
        place = self.folder / layout.job_folder(job.kind, job.id)
        older = place.with_name(f"{REPLACED}{place.name}")
        return older.is_dir() and not os.path.lexists(place)

    def _ids(self, kind: str) -> set[str]:
        """Return the names of folders that may hold a record, without files of the system."""
        try:
            with os.scandir(self.folder / kind) as entries:
                return {entry.name for entry in entries if IS_ID(entry.name) and entry.is_dir()}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def _result_files(self, job_id: str) -> Iterator[ResultFile]:
        places = (
            layout.record_file(layout.CELLS, job_id),
            layout.record_file(layout.PRETRAININGS, job_id),
            layout.failure_file(job_id),
        )
        for place in places:
            path = self.folder / place
            with contextlib.suppress(FileNotFoundError):
                yield ResultFile(path, path.stat())

    def _beside(self, record: Ended, name: str, digest: str | None) -> dict[str, np.ndarray]:
        """Return the arrays beside a record that have this digest."""
        folder = layout.job_folder(record.job.kind, record.job.id)
        place = f"{folder}/{layout.arrays_name(name)}"
        if digest:
            return read_arrays(self.folder, place, record=record.digest, digest=digest)
        if (self.folder / place).exists():
            raise UserError(f"{place}: its record knows of no such file; delete it")
        return {}


def _read_failure(path: Path) -> Failure:
    """Read a failure. If the file cannot be read, return a failure that says so."""
    try:
        return Failure.read(read_file(path))
    except (OSError, ValueError) as error:
        place = layout.failure_file(path.stem)
        return Failure(id=path.stem, error=f"{place} cannot be read: {type(error).__name__}")


def open_store(folder: str | Path) -> Store:
    """Return the store of an experiment that has been run. Raises UserError if there is none."""
    refuse_url(folder)
    store = Store(folder)
    if store.has_plan:
        return store
    inside = ", ".join(child.folder.name for child in _stores_inside(store.folder))
    hint = f"it holds experiments: {inside}" if inside else "give DIR/<experiment> of a run"
    cause = layout.explain_no_plan(store.folder)
    raise UserError(f"no experiment in '{store.folder}' ({cause}); {hint}")


def experiments_in(folder: str | Path) -> list[Store]:
    """Return the store of a folder, or the stores of all experiments in it. UserError if none."""
    store = Store(folder)
    inside = [] if store.has_plan else _stores_inside(store.folder)
    return inside or [open_store(folder)]


def _stores_inside(folder: Path) -> list[Store]:
    stores = map(Store, sorted(folder.glob("*")))
    return [store for store in stores if store.has_plan]
