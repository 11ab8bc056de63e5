"""What a run writes into the results folder of an experiment: each result as one folder, by one rename."""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from glue_bench.errors import UserError
from glue_bench.files import prove_writable, set_aside, whole_folder, write_atomically
from glue_bench.records.disk import Arrays, Labels, arrays_digest, dump_arrays, file_digest, read_labels, shrunk
from glue_bench.records.plan import Plan
from glue_bench.records.stored import STAMP, Finish, Stored
from glue_bench.records.values import Failure, PretrainingRecord, Progress, Record


class Store(Stored):
    """The results folder of one experiment, to write to."""

    def prepare(self, *, make: bool = True) -> None:
        """Make the folder, and prove that it can be written; without `make` nothing stays of the attempt.

        Raises:
            UserError: it cannot.
        """
        try:
            if make:
                self.folder.mkdir(parents=True, exist_ok=True)
            prove_writable(self.folder)
        except OSError as error:
            raise UserError(
                f"cannot write results to '{self.folder}': {error.strerror}; choose another folder with --results"
            ) from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one driver. The lock is free as soon as its process has ended, however that was.

        Raises:
            UserError: another driver holds it, which is named by host and process.
        """
        lock, holder = FileLock(self.folder / ".lock", blocking=False), self.folder / ".driver"
        try:
            lock.acquire()
        except Timeout:
            name = holder.read_text() if holder.is_file() else "another run"
            raise UserError(f"{self.folder} is in use by {name}; wait, or choose another --results") from None
        except OSError as error:
            raise UserError(f"cannot lock '{self.folder}': {error.strerror}; choose another --results") from error
        try:
            write_atomically(holder, f"{socket.gethostname()}:{os.getpid()}".encode())
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def write_plan(self, plan: Plan, labels: Mapping[str, Labels]) -> Plan:
        """Replace the plan, and store the `labels` of tasks; the plan as it was stored, which names their digests."""
        tasks = {}
        for task, facts in plan.tasks.items():
            path = self._labels(task, facts.digest)
            if task in labels:
                write_atomically(self.folder / path, labels[task].file(facts.digest))
            there = (self.folder / path).exists()
            named = read_labels(self.folder, path, facts.digest)[1] if there else None
            tasks[task] = facts.model_copy(update={"labels": named})
        plan = plan.model_copy(update={"tasks": tasks}).seal()
        write_atomically(self.folder / "plan.json", plan.file())
        return plan

    def write(self, record: Record, logits: Arrays, tests: Arrays | None = None, model: Path | None = None) -> Record:
        """Store a finished cell as one folder, in the place of an older one; the record as it was stored.

        `model` is the folder that its model was saved to, in `aside`, which is moved.
        """
        kept = {path.name: file_digest(path) for path in sorted(model.iterdir())} if model else None
        return self._write(record.model_copy(update={"model": kept}), {"logits": logits, "tests": tests or None}, model)

    def write_pretraining(
        self, record: PretrainingRecord, losses: Arrays | None = None, sums: Arrays | None = None
    ) -> PretrainingRecord:
        """Store a finished pretraining as one folder, in the place of an older one; the record as it was stored.

        `losses` are those of `Store.losses`; `sums` has the sums and the counts of each measure, (2, sequences).
        """
        arrays = {"losses": losses, "sums": sums}
        return self._write(record, {name: shrunk(each) if each else None for name, each in arrays.items()})

    def _write(self, record: Finish, beside: Mapping[str, Arrays | None], model: Path | None = None) -> Finish:
        digests = {name: None if arrays is None else arrays_digest(arrays) for name, arrays in beside.items()}
        if "losses" in digests:  # which in a record are the curve
            digests["piece_losses"] = digests.pop("losses")
        record = record.model_copy(update=digests).seal()
        with whole_folder(self.folder / record.job.kind / record.job.id, replaces=True) as folder:
            for name, arrays in beside.items():
                if arrays is not None:
                    (folder / f"{name}.safetensors").write_bytes(dump_arrays(arrays, record=record.digest))
            if model:
                model.rename(folder / "model").chmod(0o755)  # `aside` is private
                (folder / "model" / STAMP).write_text(record.digest)
            (folder / "record.json").write_bytes(record.file())
        (self.folder / "failures" / f"{record.job.id}.json").unlink(missing_ok=True)
        return record

    def write_failure(self, failure: Failure) -> None:
        """Store why a job failed; a later success removes it."""
        write_atomically(self.folder / "failures" / f"{failure.id}.json", failure.model_dump_json(indent=1).encode())

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """A folder to save a model in before its record is there; what is left of it in the end goes."""
        (self.folder / "cells").mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self.folder / "cells", prefix=".model-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def drop_model(self, cell_id: str) -> None:
        """Delete a cell's model, if it is there; its record stays."""
        set_aside(self.folder / "cells" / cell_id / "model")

    def write_progress(self, progress: Progress) -> None:
        """Replace what is known of a job under way. It is not flushed: nothing depends on it after a power cut."""
        path = self.folder / "progress" / f"{progress.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            aside.write_bytes(progress.model_dump_json().encode())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)  # of a disk that is full

    def drop_progress(self, name: str) -> None:
        """The job has ended."""
        (self.folder / "progress" / f"{name}.json").unlink(missing_ok=True)
