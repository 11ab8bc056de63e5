"""`nyu-mll/glue` at a pinned revision, from the hub or from a local clone of the repository."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.task_data import Source, TaskData
from glue_bench.data.tasks import Task, find_task
from glue_bench.data.tsv import SCORES, FolderSource, unlabelled
from glue_bench.errors import DiskError, UserError, first_line, quoted
from glue_bench.files import check_file, disk_trouble

REPOSITORY = "nyu-mll/glue"
PINNED = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
LFS_POINTER = b"version https://git-lfs"
LARGEST = 2**40  # bytes of a file: large enough for anything that Parquet reads in parts


class HubSource(Source):
    """The dataset repository on the hub; nothing is fetched before the first `load`."""

    kind, revision = "hub", PINNED

    def load(self, task: str) -> TaskData:
        row = find_task(task)
        instead = "give a folder instead: --data PATH (classic TSV layout, or a clone of the dataset repository)"
        what = f"{REPOSITORY} of the hub, task {row.name}"
        loaded = load_dataset(what, instead, REPOSITORY, row.name, revision=PINNED)
        return replace(to_task_data(row, loaded, f"{REPOSITORY}/{row.name}"), revision=PINNED)


class CloneSource(FolderSource):
    """A local clone of the dataset repository, `cola/train-00000-of-00001.parquet` and so on; a part of it, too.

    The revision of a working copy is not known for certain; the digest of the data tells.
    """

    kind = "hub"

    def pattern(self, task: Task, split: str) -> str:
        return f"{task.name}/{split}-*.parquet"

    def load(self, task: str) -> TaskData:
        row, files = self.found(task)
        for split, paths in files.items():
            _check_shards(split, paths)
        # Not by the README's configs: those insist on every split, and a partial clone is welcome here.
        data_files = {split: [str(path.absolute()) for path in paths] for split, paths in files.items()}
        where = str(self.folder / row.name)
        instead = f"expected Parquet files of {REPOSITORY}"
        loaded = load_dataset(where, instead, "parquet", data_files=data_files, verification_mode="no_checks")
        return to_task_data(row, loaded, where)


def _check_shards(split: str, paths: list[Path]) -> None:
    """Refuse a split of which a file is missing or cannot be read, or that is there twice: its rows change places."""
    shards = [re.fullmatch(rf"{split}-(\d+)-of-(\d+)\.parquet", path.name) for path in paths]
    numbers = [(int(shard[1]), int(shard[2])) for shard in shards if shard]
    if numbers and numbers != [(number, len(paths)) for number in range(len(paths))]:
        names = ", ".join(path.name for path in paths)
        raise UserError(f"{paths[0].parent}: split {split} is not whole, or is there twice ({names}); clone it again")
    for path in paths:
        try:
            check_file(path, LARGEST)
            with path.open("rb") as file:
                if file.read(len(LFS_POINTER)) == LFS_POINTER:
                    raise UserError(f"{path}: a Git LFS pointer, not the data; run 'git lfs pull' in the clone")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error


def to_task_data(task: Task, loaded: Mapping[str, Any], where: str) -> TaskData:
    """What a `DatasetDict` holds; `where` starts the messages of UserError.

    Ids are translated by the names of the dataset's own ClassLabel; without one they already have the order of
    `Task.labels`. Test labels are dropped: MRPC's are on the hub, but GLUE does not publish them.
    """
    frames = {}
    for split in (split for split in task.splits if split in loaded):
        dataset, place = loaded[split], f"{where}, split {split}"
        if not len(dataset):
            raise UserError(f"{place}: no rows; expected at least one")
        texts = [_column(dataset, name, place, lambda value: isinstance(value, str), "text") for name in task.texts]
        data: dict[str, object] = dict(zip(("text_a", "text_b"), texts, strict=False))
        data["label"] = unlabelled(task, len(dataset)) if split in task.test_splits else _labels(task, dataset, place)
        frames[split] = pd.DataFrame(data)
    return TaskData(task.name, "hub", frames)


def _labels(task: Task, dataset: Any, where: str) -> np.ndarray:
    """Labels (rows,): scores, or ids translated by name into the order of `Task.labels`."""
    names = getattr(dataset.features.get("label"), "names", None) or task.labels
    if set(names) != set(task.labels):
        raise UserError(f"{where}: label names {', '.join(names)}; expected {', '.join(task.labels)}")
    kind, low, high = (float, *SCORES) if task.is_regression else (int, 0, len(names) - 1)
    expected = f"{'a number' if task.is_regression else 'an id'} from {low:g} to {high:g}"
    values = _column(dataset, "label", where, lambda value: isinstance(value, kind) and low <= value <= high, expected)
    if task.is_regression:
        return np.round(np.array(values, dtype=np.float64), 6)  # undo what float32 adds to 3.8
    return np.array([task.labels.index(name) for name in names], dtype=np.int64)[values]


def _column(dataset: Any, name: str, where: str, fits: Callable[[Any], bool], expected: str) -> list[Any]:
    if name not in dataset.column_names:
        raise UserError(f"{where}: no column {name}; found {', '.join(dataset.column_names)}")
    values: list[Any] = dataset.data.column(name).to_pylist()
    for row, value in enumerate(values):
        if not fits(value):
            raise UserError(f"{where}, row {row}: {name} holds {quoted(value)}; expected {expected}")
    return values


def load_dataset(what: str, instead: str, *names: Any, **options: Any) -> Any:
    """`datasets.load_dataset`, whose progress bars and log lines are switched off for the whole process.

    A message names `what` is read, and advises what to do `instead`. Raises DiskError where the cache of datasets is
    full or cannot be written, and UserError for anything else.
    """
    import datasets

    datasets.disable_progress_bars()
    for name in ("datasets", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        return datasets.load_dataset(*names, **options)
    except Exception as error:  # httpx, huggingface_hub, datasets and OSError: no common base
        if trouble := disk_trouble(error):
            raise DiskError(f"cannot keep {what}: {trouble}; make room in the cache of datasets") from error
        raise UserError(f"cannot read {what} ({first_line(error.__cause__ or error)}); {instead}") from error
