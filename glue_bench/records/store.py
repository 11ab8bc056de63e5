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
plugins/<digest>/<file>                     the text of a plugin (records/plugin_files.py)
checkpoints/<id>/step-<n>/                  weights of a pretraining after n steps (training/pretraining_folder.py)
checkpoints/<id>/resume.pt                  the latest state of a pretraining that has not ended
progress/<id>.json                          a job under way
{cells,pretrainings}/.replaced-<id>/        an older result while a new one takes its place
analysis/                                   what `analyse` has written
slurm.json                                  the Slurm jobs of this folder (sweep/slurm.py), whose logs lie in slurm/

Every file beside a record has the record's digest in it and is refused otherwise: with a UserError, as is one that is
missing or damaged.
"""

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from glue_bench.errors import UserError
from glue_bench.files import (
    check_part,
    clear_abandoned,
    file_digest,
    prove_writable,
    read_file,
    restore_replaced,
    results_written_to,
    set_aside,
    visible_files,
    whole_folder,
    write_atomically,
)
from glue_bench.records.arrays import (
    Arrays,
    arrays_digest,
    dump,
    read_arrays,
    read_metadata,
    shrunk,
    widened,
)
from glue_bench.records.base import NAME
from glue_bench.records.done import replaced_start
from glue_bench.records.lock import driver_lock
from glue_bench.records.values import (
    Cell,
    Failure,
    Job,
    Plan,
    PretrainingRecord,
    Progress,
    Record,
    Result,
)
from glue_bench.remote import refuse_url

LARGEST = 2**27  # bytes of a plan: one of 50,000 cells has 40 million
STAMP = "record.digest"  # in a kept model's folder, the digest of its cell's record
WEIGHTS = "weights.digest"  # in a checkpoint's folder, the digest of its encoder's weights
LABELS = "labels/{}-{:.12}.safetensors"  # of a task's data with this digest
SHARE = "held_out_share"  # in the header of such a file, the part of train that its baselines were not fitted on
WHOLE = (
    "0"  # that of baselines that were fitted on all of train; files without any are older than this
)
PARTS = ("cells", "pretrainings", "failures", "labels")  # folders without which results are others
IS_ID = re.compile(NAME).fullmatch
Labels = Mapping[str, Arrays]
"""Of one task's data: `gold` labels by scored split, (rows,), and by baseline and split what it predicts, (rows,)."""
Ended = TypeVar("Ended", Record, PretrainingRecord)
Kind = TypeVar("Kind", Plan, Record, PretrainingRecord)


@dataclass(frozen=True)
class Finished:
    """What is stored of a plan, by id. `problems` are damaged records in words, `left_out` counts cells outside it.

    `outdated` are the records of cells that started from weights which were made again since: they count as missing.
    """

    records: Mapping[str, Record]
    pretrainings: Mapping[str, PretrainingRecord]
    left_out: int
    problems: Mapping[str, str]
    outdated: Mapping[str, Record]

    @property
    def done(self) -> set[str]:
        """The ids of all jobs that have a record which counts."""
        return {*self.records, *self.pretrainings}


class Store:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.slurm = self.folder / "slurm.json"

    @property
    def has_plan(self) -> bool:
        return (self.folder / "plan.json").is_file()

    def plan(self) -> Plan:
        """The plan last written. Raises UserError if there is none, it is damaged, or a folder is not there."""
        self._check_parts(*PARTS)
        return self._read(Plan, "plan.json")

    def _check_parts(self, *names: str) -> None:
        for name in names:
            check_part(self.folder / name)

    def _read(self, kind: type[Kind], name: str) -> Kind:
        try:
            return kind.read(read_file(self.folder / name, LARGEST))
        except OSError as error:
            raise UserError(
                f"{name}: cannot be read ({error.strerror}); delete it and run again"
            ) from error
        except ValueError as error:
            raise UserError(f"{name}: damaged or edited; delete it and run again") from error

    def finished(self, plan: Plan) -> Finished:
        """What is stored of a plan. A record that cannot be believed counts as missing, with a line in `problems`.

        So does one that is `outdated`, without a line. Raises UserError where a folder is not there.
        """
        self._check_parts(*PARTS)
        cells, there = [cell.id for cell in plan.cells], self._ids("cells")
        stored, bad = self._records(Record, (name for name in cells if name in there))
        pretrained = {each.id for each in plan.pretrainings} & self._ids("pretrainings")
        pretrainings, worse = self._records(PretrainingRecord, sorted(pretrained))
        outdated = {
            name: one for name, one in stored.items() if replaced_start(one, stored, pretrainings)
        }
        records = {name: one for name, one in stored.items() if name not in outdated}
        return Finished(records, pretrainings, len(self._outside(plan)), bad | worse, outdated)

    def record(self, cell_id: str) -> Record | None:
        """The record of a cell; None without a whole one."""
        return self._records(Record, [cell_id])[0].get(cell_id)

    def pretraining(self, pretraining_id: str) -> PretrainingRecord | None:
        """The record of a pretraining; None without a whole one."""
        return self._records(PretrainingRecord, [pretraining_id])[0].get(pretraining_id)

    def strays(self, plan: Plan) -> list[Record]:
        """The records of cells outside the plan, as far as they are whole."""
        records, _ = self._records(Record, self._outside(plan))
        return [*records.values()]

    def _outside(self, plan: Plan) -> list[str]:
        """The ids of cells outside the plan that have a record, whether or not it can be believed."""
        outside = self._ids("cells").difference(cell.id for cell in plan.cells)
        return sorted(
            name for name in outside if (self.folder / "cells" / name / "record.json").exists()
        )

    def _records(
        self, kind: type[Ended], names: Iterable[str]
    ) -> tuple[dict[str, Ended], dict[str, str]]:
        """The records of these jobs, and a line about each that is not as it was written."""
        records, problems = dict[str, Ended](), dict[str, str]()
        for name in names:
            path = f"{'cells' if kind is Record else 'pretrainings'}/{name}/record.json"
            try:
                value = self._read(kind, path)
                if value.job.id != name:
                    raise UserError(
                        f"{path}: it is the record of '{value.job.id}'; delete the folder and run again"
                    )
                records[name] = value
            except UserError as error:
                problems[name] = str(error)
        return records, problems

    def recorded(self) -> set[str]:
        """The ids of all cells and pretrainings that have a record, whether it can be believed or not."""
        return self._ids("cells") | self._ids("pretrainings")

    def _ids(self, kind: str) -> set[str]:
        """The names of folders that may hold a record; what systems leave in any folder has no such name."""
        try:
            with os.scandir(self.folder / kind) as entries:
                return {entry.name for entry in entries if IS_ID(entry.name) and entry.is_dir()}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def failures(self, plan: Plan, done: Collection[str]) -> list[Failure]:
        """Why jobs of the plan failed that are not `done`, as `recorded` says, in its order."""
        paths = {path.stem: path for path in (self.folder / "failures").glob("*.json")}
        return [
            Failure.of(paths[job.id]) for job in plan.jobs if job.id in paths and job.id not in done
        ]

    def stamp(self, name: str) -> str:
        """Changes whenever a result of this job is stored, a failure included; empty without one."""
        return " ".join(f"{seen.st_ino}-{seen.st_mtime_ns}" for _, seen in self._results(name))

    def stored_at(self, name: str) -> float:
        """When the last result of a job was stored, in seconds since 1970 by the disk's clock; 0 without one."""
        return max((seen.st_mtime for _, seen in self._results(name)), default=0.0)

    def result(self, job: Job) -> Result | None:
        """What was stored last of a job; None if nothing can be believed."""
        last, _ = max(
            self._results(job.id), key=lambda one: one[1].st_mtime_ns, default=(None, None)
        )
        if last and last.parent.name == "failures":
            return Failure.of(last)
        return self.record(job.id) if isinstance(job, Cell) else self.pretraining(job.id)

    def _results(self, name: str) -> Iterator[tuple[Path, os.stat_result]]:
        for place in (f"cells/{name}/record", f"pretrainings/{name}/record", f"failures/{name}"):
            with contextlib.suppress(FileNotFoundError):
                path = self.folder / f"{place}.json"
                yield path, path.stat()

    def logits(self, record: Record, *, test: bool = False) -> dict[str, np.ndarray]:
        """Logits float32 (rows, labels) by scored split, or those of test splits and of AX; empty if not asked for."""
        kind, digest = ("tests", record.tests) if test else ("logits", record.logits)
        return {
            name: each.astype(np.float32, copy=False)
            for name, each in self._beside(record, kind, digest).items()
        }

    def losses(self, record: PretrainingRecord) -> dict[str, np.ndarray]:
        """The validation loss of a pretraining's last step, piece by piece; empty for searches that diverged.

        A piece is at most 512 tokens of one document. `loss_sum` float64 (pieces,), in nats, over its masked tokens;
        `count` int64 (pieces,), how many these are; `document` int64 (pieces,), the number of its document in the
        corpus. Pretrainings on the same text with the same tokenizer have the same pieces, counts and documents.
        """
        return widened(self._beside(record, "losses", record.piece_losses))

    def sums(self, record: PretrainingRecord) -> dict[str, np.ndarray]:
        """By measure the sums and counts of its sequences, float64 (2, sequences); empty without measures."""
        return widened(self._beside(record, "sums", record.sums))

    def _beside(self, record: Ended, kind: str, digest: str | None) -> dict[str, np.ndarray]:
        name = f"{record.job.kind}/{record.job.id}/{kind}.safetensors"
        if digest:
            return read_arrays(self.folder, name, record=record.digest, holds=digest)
        if (self.folder / name).exists():
            raise UserError(f"{name}: its record knows of no such file; delete it")
        return {}

    def labels(self, task: str, data: str, named: str | None = None) -> Labels:
        """The labels of a task's data with this digest (a plan may have `named` theirs); no `gold` without a file."""
        name, by_kind = LABELS.format(task, data), {"gold": dict[str, np.ndarray]()}
        if (self.folder / name).exists():
            stored = read_arrays(self.folder, name, data=data, holds=named)
            for key, values in widened(stored).items():
                kind, _, split = key.rpartition("/")
                by_kind.setdefault(kind, {})[split] = values
        return by_kind

    def has_labels(self, task: str, data: str, held_out_share: float | None) -> bool:
        """Whether the labels of a task's data are stored, with baselines fitted on the training rows of this setting.

        Of a file that does not say it, baselines may be fitted on a part of these rows. Raises UserError where the file
        is damaged.
        """
        if not self.labels(task, data)["gold"]:
            return False
        fitted_without = read_metadata(self.folder / LABELS.format(task, data)).get(SHARE)
        return fitted_without == (str(held_out_share) if held_out_share else WHOLE)

    def model(self, record: Record, *, whole: bool = False) -> Path | None:
        """Where a cell's model lies, if it is kept; with `whole` it has the files of its record, and no others.

        They are `record.model`, by their places in the folder; hidden files are no part of a model.
        """
        name = f"cells/{record.cell.id}/model"
        folder = self.folder / name
        if record.model is None or not folder.is_dir():
            return None
        try:
            stamp = read_file(folder / STAMP, 64).decode()
            damaged = [
                file
                for file, digest in record.model.items()
                if whole and file_digest(folder / file) != digest
            ]
            strange = sorted(visible_files(folder) - {STAMP, *record.model}) if whole else []
        except (OSError, ValueError) as error:
            raise UserError(f"{name}: {error}; delete it and run again") from error
        if stamp != record.digest:
            raise UserError(f"{name}: it belongs to another run; delete it and run again")
        if damaged:
            raise UserError(
                f"{name}/{damaged[0]}: changed since the run wrote it; delete the model and run again"
            )
        if strange:
            raise UserError(
                f"{name}/{strange[0]}: no file of the model that the run has kept; take it away"
            )
        return folder

    def checkpoints(self, pretraining_id: str) -> Path:
        return self.folder / "checkpoints" / pretraining_id

    def checkpoint(self, pretraining_id: str, step: int) -> Path:
        """The checkpoint of a pretraining after `step` steps, whether or not it exists."""
        return self.checkpoints(pretraining_id) / f"step-{step}"

    def holds(self, pretraining_id: str, step: int, digest: str | None) -> bool:
        """Whether the checkpoint after `step` steps is there, and says that its weights have this digest.

        While lost weights are made anew, the checkpoints of two runs lie beside each other.
        """
        try:
            return read_file(self.checkpoint(pretraining_id, step) / WEIGHTS, 64).decode() == digest
        except (OSError, ValueError):
            return False

    def progress(self) -> list[Progress]:
        """The jobs under way, or that were when their worker was killed, by id."""
        under_way = []
        for path in sorted((self.folder / "progress").glob("*.json")):
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                under_way.append(Progress.read(read_file(path)))
        return under_way

    def prepare(self, *, make: bool = True) -> None:
        """Make the folder, and prove that it can be written; without `make` nothing stays of the attempt.

        Its parts are tried, too: a link may have moved one to another disk.
        """
        self._check_parts(*PARTS, "checkpoints")
        for place in (self.folder, *(self.folder / name for name in (*PARTS, "checkpoints"))):
            with results_written_to(place, "choose another folder with --results"):
                if make:
                    self.folder.mkdir(parents=True, exist_ok=True)
                prove_writable(place)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one driver, and tidy up what a killed one has left. Raises as `driver_lock`."""
        with driver_lock(self.folder):
            for kind in ("cells", "pretrainings"):
                restore_replaced(self.folder / kind)
                clear_abandoned(self.folder / kind)
            yield

    def write_plan(self, plan: Plan, labels: Mapping[str, Labels]) -> Plan:
        """Replace the plan, and store the `labels` of tasks; the plan as it was stored, which names their digests."""
        tasks = {}
        share = plan.experiment.finetuning.held_out_share
        fitted_without = {SHARE: str(share) if share else WHOLE}
        for task, facts in plan.tasks.items():
            name, arrays = LABELS.format(task, facts.digest), dict[str, np.ndarray]()
            if task in labels:
                kinds = labels[task].items()
                arrays = shrunk(
                    {
                        f"{kind}/{split}": each
                        for kind, splits in kinds
                        for split, each in splits.items()
                    }
                )
                write_atomically(
                    self.folder / name, dump(arrays, data=facts.digest, **fitted_without)
                )
            elif (self.folder / name).exists():
                arrays = read_arrays(self.folder, name, data=facts.digest)
            tasks[task] = facts.model_copy(
                update={"labels": arrays_digest(arrays) if arrays else None}
            )
        plan = plan.model_copy(update={"tasks": tasks}).seal()
        write_atomically(self.folder / "plan.json", plan.file())
        return plan

    def write(
        self, record: Ended, save: Callable[[Path], None] | None = None, **arrays: Arrays | None
    ) -> Ended:
        """Store a finished job as one folder, in the place of an older one; the record as it was stored.

        `arrays` are the `logits` and `tests` of a cell, the `losses` and `sums` of a pretraining, as the methods read
        them. `save` writes the files of a cell's model into an empty folder, if the model is kept.
        """
        is_cell = isinstance(record, Record)
        there = {name: each if is_cell else shrunk(each) for name, each in arrays.items() if each}
        facts: dict[str, Any] = dict.fromkeys(
            ("model", "logits", "tests") if is_cell else ("piece_losses", "sums")
        )
        for name, each in there.items():  # the losses in a record are the curve
            facts["piece_losses" if name == "losses" else name] = arrays_digest(each)
        place = self.folder / record.job.kind / record.job.id
        with results_written_to(self.folder), whole_folder(place, replaces=True) as folder:
            if save:
                (folder / "model").mkdir()
                save(folder / "model")
                files = sorted(visible_files(folder / "model"))
                facts["model"] = {name: file_digest(folder / "model" / name) for name in files}
            record = record.model_copy(update=facts).seal()
            if save:
                (folder / "model" / STAMP).write_text(record.digest)
            for name, each in there.items():
                (folder / f"{name}.safetensors").write_bytes(dump(each, record=record.digest))
            (folder / "record.json").write_bytes(record.file())
        (self.folder / "failures" / f"{record.job.id}.json").unlink(missing_ok=True)
        return record

    def write_failure(self, failure: Failure) -> None:
        """Store why a job failed; a later success removes it."""
        with results_written_to(self.folder):
            write_atomically(self.folder / "failures" / f"{failure.id}.json", failure.file())

    def has_model(self, cell_id: str) -> bool:
        """Whether a cell has left a model, of whatever run."""
        return (self.folder / "cells" / cell_id / "model").is_dir()

    def drop_model(self, cell_id: str) -> None:
        """Delete a cell's model, if it is there; its record stays."""
        cell = self.folder / "cells" / cell_id
        set_aside(
            cell / "model", cell.resolve().parent
        )  # if the cell is a link, on the disk that it leads to

    def write_progress(self, progress: Progress) -> None:
        """Replace what is known of a job under way. It is not flushed: nothing depends on it after a power cut."""
        path = self.folder / "progress" / f"{progress.id}.json"
        text = progress.model_dump_json(exclude_none=True)
        write_atomically(path, text.encode(), flush=False)

    def drop_progress(self, name: str) -> None:
        (self.folder / "progress" / f"{name}.json").unlink(missing_ok=True)


def open_store(folder: str | Path) -> Store:
    """The store of an experiment that has been run. Raises UserError if there is no experiment in the folder."""
    refuse_url(folder)
    if (store := Store(folder)).has_plan:
        return store
    inside = ", ".join(
        child.folder.name for child in map(Store, sorted(store.folder.glob("*"))) if child.has_plan
    )
    hint = f"it holds experiments: {inside}" if inside else "give DIR/<experiment> of a run"
    why = "no plan.json in it" if store.folder.is_dir() else "no such folder"
    raise UserError(f"no experiment in '{store.folder}' ({why}); {hint}")


def experiments_in(folder: str | Path) -> list[Store]:
    """The store in a folder, or those of all experiments in it, by name. Raises UserError if there is none."""
    store = Store(folder)
    within = (
        []
        if store.has_plan
        else [child for child in map(Store, sorted(store.folder.glob("*"))) if child.has_plan]
    )
    return within or [open_store(folder)]
