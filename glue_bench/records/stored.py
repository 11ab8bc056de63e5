"""The results folder of one experiment. Nobody else knows a path in it.

plan.json                                   what the experiment asks for
cells/<id>/record.json                      a finished cell; the folder appears whole, by one rename
cells/<id>/{logits,tests}.safetensors       its predictions: split -> (rows, labels)
cells/<id>/model/                           its fine-tuned model and tokenizer, where they are kept
pretrainings/<id>/record.json               a finished pretraining and its measures
pretrainings/<id>/losses.safetensors        its last validation losses, piece by piece
pretrainings/<id>/sums.safetensors          the sums and counts behind its measures, sequence by sequence
failures/<id>.json                          why the last attempt of a job failed
labels/<task>-<digest of data>.safetensors  gold labels, and what trivial baselines predict
checkpoints/<id>/step-<n>/                  weights of a pretraining after n steps (training/pretrained.py)
checkpoints/<id>/resume.pt                  the latest state of a pretraining that has not ended
progress/<id>.json                          a job under way
analysis/                                   what `analyse` has written
slurm.json                                  the Slurm jobs of this folder (sweep/executors.py)

Every file beside a record has the record's digest in it and is refused otherwise.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import check_json, read_file
from glue_bench.records.disk import Labels, file_digest, read_beside, read_failure, read_labels, read_sealed, widened
from glue_bench.records.plan import Plan
from glue_bench.records.values import Cell, Failure, Job, PretrainingRecord, Progress, Record, Result
from glue_bench.remote import refuse_url

STAMP = "record.digest"
"""The file in a kept model's folder that has the digest of its cell's record."""
WEIGHTS = "weights.digest"
"""The file in a checkpoint's folder that has the digest of its encoder's weights."""
Finish = TypeVar("Finish", Record, PretrainingRecord)


@dataclass(frozen=True)
class Finished:
    """What is stored of a plan, by id. `left_out` counts cells outside it; `problems` has a line per damaged record."""

    records: Mapping[str, Record]
    pretrainings: Mapping[str, PretrainingRecord]
    left_out: int
    problems: tuple[str, ...]


class Stored:
    """What the results folder of one experiment holds."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()

    @property
    def has_plan(self) -> bool:
        """Whether the folder is that of an experiment."""
        return (self.folder / "plan.json").is_file()

    @property
    def slurm(self) -> Path:
        """The file of this folder's Slurm jobs; their logs lie in the folder beside it, `slurm`."""
        return self.folder / "slurm.json"

    @property
    def analysis(self) -> Path:
        """Where `analyse` writes."""
        return self.folder / "analysis"

    def plan(self) -> Plan:
        """The plan last written.

        Raises:
            UserError: there is none, or it is damaged.
        """
        if not self.has_plan:
            raise UserError(f"no plan.json in '{self.folder}'; run the experiment again (finished cells are kept)")
        return read_sealed(Plan, self.folder, "plan.json")

    def finished(self, plan: Plan) -> Finished:
        """What is stored of a plan. A record that cannot be believed counts as missing, with a line in `problems`."""
        cells, there = [cell.id for cell in plan.cells], self._ids("cells")
        pretrained = {each.id for each in plan.pretrainings} & self._ids("pretrainings")
        records, bad = self._records(Record, (name for name in cells if name in there))
        trained, worse = self._records(PretrainingRecord, sorted(pretrained))
        return Finished(records, trained, len(there.difference(cells)), (*bad, *worse))

    def record(self, cell_id: str) -> Record | None:
        """The record of a cell; None without a whole one."""
        return self._records(Record, [cell_id])[0].get(cell_id)

    def pretraining(self, pretraining_id: str) -> PretrainingRecord | None:
        """The record of a pretraining; None without a whole one."""
        return self._records(PretrainingRecord, [pretraining_id])[0].get(pretraining_id)

    def strays(self, plan: Plan) -> Iterator[Record]:
        """The records of cells outside the plan, as far as they are whole."""
        outside = self._ids("cells").difference(cell.id for cell in plan.cells)
        return filter(None, map(self.record, sorted(outside)))

    def _records(self, kind: type[Finish], names: Iterable[str]) -> tuple[dict[str, Finish], list[str]]:
        """The records of these jobs, and a line about each that is not as it was written."""
        found, problems = dict[str, Finish](), list[str]()
        for name in names:
            path = f"{'cells' if kind is Record else 'pretrainings'}/{name}/record.json"
            try:
                value = read_sealed(kind, self.folder, path)
                if value.job.id != name:
                    raise UserError(f"{path}: it is the record of '{value.job.id}'; delete the folder and run again")
                found[name] = value
            except UserError as error:
                problems.append(str(error))
        return found, problems

    def recorded(self) -> set[str]:
        """The ids of all cells and pretrainings that have a record, whether it can be believed or not."""
        return self._ids("cells") | self._ids("pretrainings")

    def _ids(self, kind: str) -> set[str]:
        try:
            with os.scandir(self.folder / kind) as entries:
                return {entry.name for entry in entries if not entry.name.startswith(".")}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def failures(self, plan: Plan) -> list[Failure]:
        """Why jobs of the plan failed that have not ended well since, in its order."""
        paths, done = {path.stem: path for path in (self.folder / "failures").glob("*.json")}, self.recorded()
        return [read_failure(paths[job.id]) for job in plan.jobs if job.id in paths and job.id not in done]

    def stamp(self, name: str) -> str:
        """Changes whenever a result of this job is stored, a failure included; empty without one."""
        return " ".join(f"{seen.st_ino}-{seen.st_mtime_ns}" for seen in self._results(name).values())

    def stored_at(self, name: str) -> float:
        """When the last result of a job was stored, in seconds since 1970 by the disk's clock; 0 without one."""
        return max((seen.st_mtime for seen in self._results(name).values()), default=0.0)

    def result(self, job: Job) -> Result | None:
        """What was stored last of a job; None without anything that can be believed."""
        seen = self._results(job.id)
        last = max(seen, key=lambda path: seen[path].st_mtime_ns, default=None)
        if last and last.parent.name == "failures":
            return read_failure(last)
        return self.record(job.id) if isinstance(job, Cell) else self.pretraining(job.id)

    def _results(self, name: str) -> dict[Path, os.stat_result]:
        paths = [self.folder / kind / name / "record.json" for kind in ("cells", "pretrainings")]
        seen = {}
        for path in (*paths, self.folder / "failures" / f"{name}.json"):
            with contextlib.suppress(FileNotFoundError):
                seen[path] = path.stat()
        return seen

    def logits(self, record: Record, *, test: bool = False) -> dict[str, np.ndarray]:
        """Logits float32 (rows, labels) by scored split, or those of test splits and of AX; empty if not asked for.

        Raises:
            UserError: the file is missing or damaged, or another run's.
        """
        arrays = self._beside(record, "tests", record.tests) if test else self._beside(record, "logits", record.logits)
        return {split: each.astype(np.float32, copy=False) for split, each in arrays.items()}

    def losses(self, record: PretrainingRecord) -> dict[str, np.ndarray]:
        """The validation loss of a pretraining's last step, piece by piece; empty for searches that diverged.

        A piece is at most 512 tokens of one document. `loss_sum` float64 (pieces,), in nats, over its masked tokens;
        `count` int64 (pieces,), how many these are; `document` int64 (pieces,), the number of its document in the
        corpus. Pretrainings on the same text with the same tokenizer have the same pieces, counts and documents.

        Raises:
            UserError: as `logits`.
        """
        return widened(self._beside(record, "losses", record.piece_losses))

    def sums(self, record: PretrainingRecord) -> dict[str, np.ndarray]:
        """By measure the sums and counts of its sequences, float64 (2, sequences); empty without measures.

        Raises:
            UserError: as `logits`.
        """
        return widened(self._beside(record, "sums", record.sums))

    def _beside(self, record: Record | PretrainingRecord, name: str, digest: str | None) -> dict[str, np.ndarray]:
        path = f"{record.job.kind}/{record.job.id}/{name}.safetensors"
        return read_beside(self.folder, path, record, digest) if digest else {}

    def labels(self, task: str, data: str, named: str | None = None) -> Labels:
        """The labels of a task's data with this digest; empty ones where none are stored.

        Raises:
            UserError: the file is damaged, of other data, or not the one that the plan has `named` by its digest.
        """
        path = self._labels(task, data)
        if not (self.folder / path).exists():
            return Labels({})
        labels, digest = read_labels(self.folder, path, data)
        if named not in (None, digest):
            raise UserError(f"{path}: changed since the run wrote it; delete it and run again")
        return labels

    @staticmethod
    def _labels(task: str, data: str) -> str:
        return f"labels/{task}-{data[:12]}.safetensors"

    def model(self, record: Record, *, whole: bool = False) -> Path | None:
        """Where a cell's model lies, if it is kept; with `whole` each of its files is compared with its digest.

        Raises:
            UserError: it is another run's, or with `whole` damaged.
        """
        name = f"cells/{record.cell.id}/model"
        folder = self.folder / name
        if record.model is None or not folder.is_dir():
            return None
        try:
            stamp = read_file(folder / STAMP, 64).decode()
            damaged = [file for file, digest in record.model.items() if whole and file_digest(folder / file) != digest]
        except (OSError, ValueError) as error:
            raise UserError(f"{name}: {error}; delete it and run again") from error
        if stamp != record.digest:
            raise UserError(f"{name}: it belongs to another run; delete it and run again")
        if damaged:
            raise UserError(f"{name}/{damaged[0]}: changed since the run wrote it; delete the model and run again")
        return folder

    def checkpoints(self, pretraining_id: str) -> Path:
        """Where a pretraining keeps weights, and the state that it would go on from."""
        return self.folder / "checkpoints" / pretraining_id

    def checkpoint(self, pretraining_id: str, step: int) -> Path:
        """The checkpoint of a pretraining after `step` steps, whether or not it exists."""
        return self.checkpoints(pretraining_id) / f"step-{step}"

    def holds(self, pretraining_id: str, step: int, digest: str | None) -> bool:
        """Whether the checkpoint after `step` steps is there, and says that its weights have this digest.

        Where lost weights are made anew, on another processor perhaps, the checkpoints of two runs lie here until the
        second one has ended.
        """
        try:
            return read_file(self.checkpoint(pretraining_id, step) / WEIGHTS, 64).decode() == digest
        except (OSError, ValueError):
            return False

    def progress(self) -> list[Progress]:
        """The jobs under way, or that were when their worker was killed, by id."""
        found = []
        for path in sorted((self.folder / "progress").glob("*.json")):
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                found.append(Progress.model_validate_json(check_json(read_file(path))))
        return found


def open_store(folder: str | Path) -> Stored:
    """The store of an experiment that has been run.

    Raises:
        UserError: there is no such folder, or no experiment in it.
    """
    refuse_url(folder)
    store = Stored(folder)
    if store.has_plan:
        return store
    inside = ", ".join(child.folder.name for child in _inside(store.folder))
    hint = f"; it holds experiments: {inside}" if inside else "; give DIR/<experiment> of a finished run"
    raise UserError(f"no experiment in '{store.folder}' (no plan.json in it){hint}")


def experiments_in(folder: str | Path) -> list[Stored]:
    """The store in a folder, or those of all experiments in it, by name.

    Raises:
        UserError: there is none.
    """
    store = Stored(folder)
    return [store] if store.has_plan else _inside(store.folder) or [open_store(folder)]


def _inside(folder: Path) -> list[Stored]:
    return [store for store in map(Stored, sorted(folder.glob("*"))) if store.has_plan]
