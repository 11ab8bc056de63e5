"""Records, predictions, failures and the plan of one experiment on disk: written by the sweep, read by tables.

DIR/<experiment>/plan.json                         the cells that the experiment asks for
DIR/<experiment>/records/<cell_id>.json            one finished cell, immutable
DIR/<experiment>/predictions/<cell_id>.safetensors its logits: split -> float32 or float16 (rows, labels)
DIR/<experiment>/test_predictions/<cell_id>.safetensors  those of test splits, where they were asked for
DIR/<experiment>/models/<cell_id>/                 its fine-tuned model and tokenizer, where they are kept
DIR/<experiment>/labels/<task>-<data digest>.safetensors  its gold labels: split -> (rows,)
DIR/<experiment>/failures/<cell_id>.json           why a cell failed, with its traceback
DIR/<experiment>/pretraining/<arm>-<hash>.json     how an arm was pretrained: budget, loss curve, environment
DIR/<experiment>/intrinsic/<arm>-<hash>.json       what the pretrained encoder has learnt, by measures of its own
DIR/<experiment>/pretraining/<arm>-<hash>.safetensors  its last validation loss, piece by piece
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import prove_writable, write_atomically
from glue_bench.records.disk import (
    DamagedError,
    Stamp,
    Value,
    dump,
    dump_arrays,
    load,
    load_arrays,
    load_losses,
    read_value,
    record_digest,
    shrunk,
    stamp,
    without_collections,
)
from glue_bench.records.intrinsic import IntrinsicFolder
from glue_bench.records.plan import AskedCell, Plan
from glue_bench.records.predicted import PredictedTests
from glue_bench.records.record import FailureRecord, PretrainingRecord, Record
from glue_bench.remote import refuse_url


class Store:
    """The folder of one experiment. A record exists only when it is complete."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.intrinsic = IntrinsicFolder(self.folder / "intrinsic")
        self.tests = PredictedTests(self.folder / "test_predictions")
        self._read: dict[Path, tuple[Stamp, Any]] = {}
        self._whole: dict[Path, Stamp] = {}

    def prepare(self, *, make: bool = True) -> None:
        """Create the folders, if they are to be made, and prove that they can be written.

        Raises:
            UserError: the folder cannot be created or written.
        """
        try:
            for folder in (self.folder, *(self.folder / name for name in ("records", "predictions", "failures"))):
                if make:
                    folder.mkdir(parents=True, exist_ok=True)
                prove_writable(folder)
        except OSError as error:
            raise UserError(
                f"cannot write results to '{self.folder}': {error.strerror}; choose another folder with --results"
            ) from error

    def has_record(self, cell_id: str) -> bool:
        """Whether the cell is finished: its record is there, and whole."""
        return self._is_whole(self._path("records", cell_id))

    def has_damaged_record(self, cell_id: str) -> bool:
        """Whether the cell's record is there but no JSON, as a power cut may leave it: its cell has to be run again."""
        path = self._path("records", cell_id)
        return path.exists() and not self._is_whole(path)

    def _is_whole(self, path: Path) -> bool:
        """Whether a file is there and holds a JSON object; read again only if it is another one than before."""
        try:
            now = stamp(path)
            if self._whole.get(path) != now:
                load(path)
                self._whole[path] = now
        except (OSError, DamagedError):
            return False
        return True

    def has_failure(self, cell_id: str) -> bool:
        """Whether the cell's last attempt failed."""
        return self._path("failures", cell_id).exists()

    def failure_stamp(self, cell_id: str) -> int | None:
        """When the cell's last attempt failed, in nanoseconds of the disk's clock; None if it did not."""
        try:
            return self._path("failures", cell_id).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def read_failure(self, cell_id: str) -> FailureRecord | None:
        """Why the cell's last attempt failed, if it did; of a file that is `damaged`, what is wrong with it."""
        path = self._path("failures", cell_id)
        try:
            return read_value(FailureRecord, path)
        except DamagedError as error:
            return FailureRecord(cell_id=cell_id, error=str(error), damaged=True)
        except UserError:
            if path.exists():
                raise
            return None

    def write_plan(self, plan: Plan) -> None:
        """Replace the plan: the cells that tables and `status` expect."""
        write_atomically(self.folder / "plan.json", dump(plan.document()))

    def read_plan(self) -> Plan | None:
        """The plan last written, the same object as long as it is the same file; None without one.

        Raises:
            UserError: the file cannot be read, lacks a key, has another schema version or was edited.
        """
        path = self.folder / "plan.json"
        return self._read_once(Plan, path) if path.exists() else None

    def states(self) -> list[tuple[AskedCell, str]]:
        """Every planned cell with `done`, `failed` or `missing`.

        Raises:
            UserError: the folder has no plan, or it cannot be read.
        """
        return [(cell, self.state(cell.cell_id)) for cell in self.needed_plan().cells]

    def state(self, cell_id: str) -> str:
        """Whether a cell is `done`, `failed` or `missing`."""
        return "done" if self.has_record(cell_id) else "failed" if self.has_failure(cell_id) else "missing"

    def needed_plan(self) -> Plan:
        """As `read_plan`, where there has to be one.

        Raises:
            UserError: the folder has no plan, or it cannot be read.
        """
        plan = self.read_plan()
        if plan is None:
            raise UserError(f"no plan.json in '{self.folder}'; run the experiment once (with --only for a part of it)")
        return plan

    def write_record(self, record: Record, predictions: Mapping[str, np.ndarray]) -> None:
        """Store a finished cell: predictions first, so that a record, which has their digest, never lacks them."""
        stored = dump_arrays(predictions)
        whole = record.document() | {"predictions_sha256": hashlib.sha256(stored).hexdigest()}
        write_atomically(self._path("predictions", record.cell_id, ".safetensors"), stored)
        path = self._path("records", record.cell_id)
        write_atomically(path, dump({**whole, "digest": record_digest(whole)}))
        self._whole[path] = stamp(path)
        self.drop_failure(record.cell_id)

    def write_failure(self, failure: FailureRecord) -> None:
        """Store why a cell failed; a later success removes it."""
        write_atomically(self._path("failures", failure.cell_id), dump(failure.document()))

    def drop_failure(self, cell_id: str) -> None:
        """Forget why a cell failed, if it did: it is tried again, or has a record."""
        self._path("failures", cell_id).unlink(missing_ok=True)

    def scan_records(self) -> tuple[list[Record], list[str]]:
        """The records that can be believed, sorted by cell id, and a line about each of the others.

        Paths in it start in the experiment's folder. Not believed are records that are not valid JSON, lack a key,
        have another schema version, or were edited.
        """
        records, problems = [], []
        with without_collections():
            for path in sorted((self.folder / "records").glob("*.json")):
                try:
                    records.append(self.read_record(path.stem))
                except UserError as error:
                    problems.append(str(error).replace(f"{self.folder}{os.sep}", ""))
        return records, problems

    def read_record(self, cell_id: str) -> Record:
        """The record of a cell, if it can be believed.

        Raises:
            UserError: there is none, or a problem as in `scan_records`.
        """
        return self._read_once(Record, self._path("records", cell_id))

    def _read_once(self, kind: type[Value], path: Path) -> Value:
        """The value that a file holds; read again only if the file is another one than before."""
        try:
            now = stamp(path)
        except OSError as error:
            raise UserError(f"cannot read '{path}': {error.strerror}") from error
        if path not in self._read or self._read[path][0] != now:
            self._read[path] = now, read_value(kind, path)
        value: Value = self._read[path][1]
        return value

    def when_recorded(self, cell_id: str) -> float:
        """When the cell's record was written, in seconds of the disk's clock; 0 if there is none."""
        try:
            return self._path("records", cell_id).stat().st_mtime
        except OSError:
            return 0.0

    def ids(self, kind: str) -> set[str]:
        """The ids of the files in "records", "failures" or "pretraining", whatever is in them."""
        try:
            with os.scandir(self.folder / kind) as entries:
                return {entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json")}
        except FileNotFoundError:
            return set()

    def read_failures(self) -> list[FailureRecord]:
        """Failures of cells that have not been finished since, sorted by cell id."""
        paths = sorted((self.folder / "failures").glob("*.json"))
        found = (self.read_failure(path.stem) for path in paths if not self.has_record(path.stem))
        return [failure for failure in found if failure]  # a file may be gone by now

    def has_pretraining(self, pretraining_id: str) -> bool:
        """Whether an arm's pretraining has ended, and its record is whole."""
        return self._is_whole(self._path("pretraining", pretraining_id))

    def write_pretraining(self, record: PretrainingRecord, validation: Mapping[str, np.ndarray] | None = None) -> None:
        """Store how an arm was pretrained, its validation losses first, as `read_validation` returns them.

        A failure of it is past.
        """
        document = record.document()
        if validation:
            stored = dump_arrays(shrunk(validation))
            write_atomically(self._path("pretraining", record.pretraining_id, ".safetensors"), stored)
            document["validation_sha256"] = hashlib.sha256(stored).hexdigest()
        whole = {**document, "digest": record_digest(document)}
        write_atomically(self._path("pretraining", record.pretraining_id), dump(whole))
        self.drop_failure(record.pretraining_id)

    def read_pretraining(self, pretraining_id: str) -> PretrainingRecord:
        """The record of a pretraining.

        Raises:
            UserError: there is none, or as `read_pretrainings`.
        """
        return self._read_once(PretrainingRecord, self._path("pretraining", pretraining_id))

    def read_pretrainings(self) -> list[PretrainingRecord]:
        """The records of all finished pretrainings, sorted by id.

        Raises:
            UserError: a record is not valid JSON, lacks a key, has another schema version or was edited.
        """
        paths = sorted((self.folder / "pretraining").glob("*.json"))
        return [self.read_pretraining(path.stem) for path in paths]

    def read_validation(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """The validation loss of a pretraining's last step, piece by piece; empty where none is stored.

        A piece is at most 512 tokens of one document. `loss_sum` float64 (pieces,), in nats, over its masked tokens;
        `count` int64 (pieces,), how many these are; `document` int64 (pieces,), the number of its document in the
        corpus. Pretrainings on the same text with the same tokenizer have the same pieces, counts and documents.

        Raises:
            UserError: the file is damaged, or has no such arrays.
        """
        path = self._path("pretraining", pretraining_id, ".safetensors")
        return load_losses(path) if path.exists() else {}

    def pretrained_arms(self) -> dict[str, list[bool]]:
        """By the arm's name, whether its pretrainings have ended, one for each seed; none of those not pretrained."""
        plan, found = self.read_plan(), dict[str, list[bool]]()
        for each in plan.all_pretrainings() if plan else ():
            if not each.is_search:
                found.setdefault(each.arm, []).append(self.has_pretraining(each.pretraining_id))
        return found

    def has_predictions(self, cell_id: str) -> bool:
        """Whether the cell's logits are stored."""
        return self._path("predictions", cell_id, ".safetensors").exists()

    def model_folder(self, cell_id: str) -> Path:
        """Where the cell's fine-tuned model lies, if it is kept: there and whole, or not there at all."""
        return self.folder / "models" / cell_id

    def read_predictions(self, cell_id: str) -> dict[str, np.ndarray]:
        """Logits of each predicted split: float32 (rows, labels), also of those that are stored as float16.

        Raises:
            UserError: the file is missing or damaged.
        """
        arrays = load_arrays(self._path("predictions", cell_id, ".safetensors"))
        return {split: logits.astype(np.float32, copy=False) for split, logits in arrays.items()}

    def write_labels(self, task: str, digest: str, labels: Mapping[str, np.ndarray]) -> None:
        """Store the gold labels of a task's scored splits, split -> (rows,), unless these very ones are there already.

        `digest` is that of the task's data, as records have it: other data are other labels. Classes are stored as
        int8, STS-B's scores as float64.
        """
        path = self._labels_path(task, digest)
        arrays = {name: np.asarray(values) for name, values in labels.items()}
        kinds = {name: np.int8 if values.dtype.kind in "iu" else np.float64 for name, values in arrays.items()}
        content = dump_arrays({name: values.astype(kinds[name]) for name, values in arrays.items()})
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content)

    def read_labels(self, task: str, digest: str) -> dict[str, np.ndarray]:
        """Gold labels of each scored split, (rows,); empty where none are stored for this data."""
        path = self._labels_path(task, digest)
        return load_arrays(path) if path.exists() else {}

    def _labels_path(self, task: str, digest: str) -> Path:
        return self._path("labels", f"{task}-{digest[:12]}", ".safetensors")

    def _path(self, kind: str, cell_id: str, suffix: str = ".json") -> Path:
        return self.folder / kind / f"{cell_id}{suffix}"


def open_store(folder: str | Path) -> Store:
    """The store of an experiment that has been run.

    Raises:
        UserError: there is no such folder, or it holds no records.
    """
    refuse_url(folder)
    path = Path(folder).expanduser()
    if (path / "records").is_dir():
        return Store(path)
    inside = ", ".join(child.name for child in _experiments(path))
    hint = f"; it holds experiments: {inside}" if inside else "; give DIR/<experiment> of a finished run"
    raise UserError(f"no experiment in '{path}' (no records/ in it){hint}")


def experiments_in(folder: str | Path) -> list[Store]:
    """The store in a folder, or those of all experiments in it, by name.

    Raises:
        UserError: there is none.
    """
    path = Path(folder).expanduser()
    inside = [] if (path / "records").is_dir() else _experiments(path)
    return [Store(child) for child in inside] or [open_store(path)]


def _experiments(path: Path) -> list[Path]:
    return sorted(child for child in path.glob("*") if (child / "records").is_dir()) if path.is_dir() else []
