"""`nyu-mll/glue` at a pinned revision, from the hub or from a local clone of the repository."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.folder import FolderSource
from glue_bench.data.task import Task
from glue_bench.data.task_data import TEXT_COLUMNS, Source, TaskData
from glue_bench.data.tasks import find_task
from glue_bench.data.tsv import SCORES, unlabelled
from glue_bench.errors import DiskError, UserError, first_line, quoted
from glue_bench.files import check_file, disk_trouble, parse_json, read_file
from glue_bench.remote import hub_fault

REPOSITORY = "nyu-mll/glue"
PINNED = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
LFS_POINTER = b"version https://git-lfs"
MAX_PARQUET_BYTES = 2**40
"""Large enough for anything that Parquet reads in parts."""
PATTERNS = ("{}-*.parquet", "{}/*.parquet", "data/{}-*.parquet", "{}.parquet")
"""The files of a split in the folder of a task.

In order: in the repository, in its branch `refs/convert/parquet`, as `push_to_hub` names them, and
as one file.
"""
SHARD = re.compile(r"(?:[a-z_]+-)?(\d+)(?:-of-(\d+))?(?:-[0-9a-f]{16})?")
STATE = "state.json"
"""A file of each split that `save_to_disk` writes, with the names of the split's other files."""


def repository_of(task: Task) -> str:
    """Return the data set on the hub that has a task's rows, or "" if they are in files alone."""
    if task.origin is None:
        return REPOSITORY
    return task.origin.hub.repository if task.origin.hub else ""


class HubSource(Source):
    """The dataset repository on the hub; nothing is fetched before the first `load`."""

    kind = "hub"
    revision = PINNED

    def load(self, task: str) -> TaskData:
        row = find_task(task)
        name = f"{REPOSITORY} of the hub, task {row.name}"
        folders = "classic TSV layout, or a clone of the dataset repository"
        advice = f"give a folder instead: --data PATH ({folders})"
        loaded = load_dataset(name, advice, REPOSITORY, row.name, revision=PINNED)
        rows: dict[str, Rows] = {}
        for split, dataset in loaded.items():
            rows[split] = Rows(dataset.data, _label_names(dataset))
        data = to_task_data(row, rows, f"{REPOSITORY}/{row.name}")
        return replace(data, revision=PINNED)


class CloneSource(FolderSource):
    """A local clone of the dataset repository, `cola/train-00000-of-00001.parquet` and so on.

    A part of a clone will do. The other layouts that the hub and `datasets` give Parquet files are
    read as well, see PATTERNS. The revision of a working copy is not known for certain; the digest
    of the data tells.
    """

    kind = "hub"
    example = (
        f"Parquet files as in a clone of {REPOSITORY} (such as cola/train-00000-of-00001.parquet)"
    )

    def expected(self, task: Task, split: str) -> str:
        return f"{task.name}/{split}-*.parquet"

    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        files_by_pattern: dict[str, list[Path]] = {}
        for pattern in PATTERNS:
            name = pattern.format(split)
            paths = sorted(place.glob(name))
            if paths:
                files_by_pattern[name] = paths
        if len(files_by_pattern) > 1:
            patterns = " and ".join(files_by_pattern)
            fault = f"{place} has the {split} split of {task.title} twice, in {patterns}"
            raise UserError(f"{fault}; keep one of them")
        return next(iter(files_by_pattern.values()), [])

    def load(self, task: str) -> TaskData:
        row, files = self.task_and_files(task)
        for split, paths in files.items():
            _check_shards(split, paths)
        rows: dict[str, Rows] = {}
        for split, paths in files.items():
            tables = list(map(read_parquet, paths))
            rows[split] = _joined(tables, paths[0])
        return to_task_data(row, rows, str(self.folder / row.name))


class SavedSource(FolderSource):
    """What `save_to_disk` of the library `datasets` has left of each task in a folder.

    A task's folder is `cola/dataset_dict.json` and so on.
    """

    kind = "hub"
    example = "folders of save_to_disk (such as cola/dataset_dict.json)"

    def expected(self, task: Task, split: str) -> str:
        return f"{task.name}/{split}/{STATE}"

    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        state = place / split / STATE
        if not state.exists():
            return []
        try:
            entries = parse_json(read_file(state))["_data_files"]
            names = [Path(entry["filename"]).name for entry in entries]
        except (ValueError, LookupError, TypeError, OSError) as error:
            reason = first_line(error)
            advice = f"save {task.title} again with save_to_disk"
            raise UserError(f"cannot read {state} ({reason}); {advice}") from error
        return [state.with_name(name) for name in names]

    def load(self, task: str) -> TaskData:
        row, files = self.task_and_files(task)
        rows: dict[str, Rows] = {}
        for split, paths in files.items():
            tables = list(map(_read_arrow, paths))
            rows[split] = _joined(tables, paths[0])
        return to_task_data(row, rows, str(self.folder / row.name))


@dataclass(frozen=True)
class Rows:
    """The rows of a split as an Arrow table, and the names of its label ids.

    `label_names` is None if the ids have no names.
    """

    table: Any
    label_names: tuple[str, ...] | None

    @classmethod
    def from_table(cls, table: Any) -> "Rows":
        """Take the names from the metadata that the library `datasets` writes into a file."""
        try:
            metadata = parse_json((table.schema.metadata or {})[b"huggingface"])
            names = metadata["info"]["features"]["label"]["names"]
            return cls(table, tuple(names))
        except (LookupError, TypeError, ValueError):
            return cls(table, None)


def read_parquet(path: Path, expected: str = f"Parquet files of {REPOSITORY}") -> Any:
    """Read the table of a Parquet file; `expected` says in messages what it should be.

    It is read anew each time. `datasets` would keep rows by the path and its time. Raises UserError
    for a file that is none.
    """
    from pyarrow.parquet import ParquetFile

    return _read_table(path, lambda: ParquetFile(path).read(), expected)


def _read_arrow(path: Path) -> Any:
    """Read the table of a file of `save_to_disk`."""
    from pyarrow.ipc import open_stream

    def read() -> Any:
        return open_stream(path.read_bytes()).read_all()

    return _read_table(path, read, "what save_to_disk has written")


def _read_table(path: Path, read: Callable[[], Any], expected: str) -> Any:
    """Read a table with `read`, and turn what is wrong with the file into a UserError."""
    from pyarrow import ArrowException

    try:
        check_file(path, MAX_PARQUET_BYTES)
        with path.open("rb") as file:
            start = file.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            fault = f"{path}: a Git LFS pointer, not the data"
            raise UserError(f"{fault}; run 'git lfs pull' in the clone")
        table = read()
        # Offsets of a damaged file may point anywhere, and texts and names may be no UTF-8.
        table.validate(full=True)
        list(table.column_names)
        return table
    except (ArrowException, UnicodeDecodeError, OSError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"cannot read {path} ({reason}); expected {expected}") from error


def _check_shards(split: str, paths: list[Path]) -> None:
    """Refuse a split that lacks a file, or is there twice: its rows would change places."""
    matches = [SHARD.fullmatch(path.stem) for path in paths]
    shards = [match for match in matches if match]
    numbers = [int(shard[1]) for shard in shards]
    counts = {int(shard[2]) for shard in shards if shard[2]}
    is_whole = numbers == list(range(len(paths))) and counts <= {len(paths)}
    if not is_whole and (numbers or len(paths) > 1):
        names = ", ".join(path.name for path in paths)
        fault = f"split {split} is not whole, or is there twice ({names})"
        raise UserError(f"{paths[0].parent}: {fault}; clone it again")


def _label_names(dataset: Any) -> tuple[str, ...] | None:
    """Return the names of the label ids of a dataset of the library `datasets`."""
    names = getattr(dataset.features.get("label"), "names", None)
    return tuple(names) if names else None


def _joined(tables: list[Any], first: Path) -> Rows:
    """Join the rows of the files of a split, in order.

    Raises UserError where the files differ in columns or label names.
    """
    from pyarrow import ArrowException, concat_tables

    rows = [Rows.from_table(table) for table in tables]
    try:
        table = concat_tables(tables)
    except ArrowException as error:
        fault = f"{first} has other columns than the files that follow it"
        raise UserError(f"{fault} ({first_line(error)})") from error
    if len({part.label_names for part in rows}) > 1:
        fault = f"{first} has other label names than the files that follow it"
        raise UserError(f"{fault}; clone it again")
    return Rows(table, rows[0].label_names)


def to_task_data(task: Task, loaded: Mapping[str, Rows], source_name: str) -> TaskData:
    """Turn the rows of each split into the splits of a task.

    Ids are translated by the names that the rows bring with them; without names they already have
    the order of `Task.labels`. Test labels are dropped: MRPC's are on the hub, but GLUE does not
    publish them.

    Args:
        task: The task.
        loaded: The rows of each split that is there.
        source_name: What messages of UserError start with.

    Returns:
        The splits that are there, in the order of the task's.

    Raises:
        UserError: a split has no rows, or a column is missing or holds something else.
    """
    frames: dict[str, pd.DataFrame] = {}
    for split in task.splits:
        if split not in loaded:
            continue
        rows = loaded[split]
        place = f"{source_name}, split {split}"
        if not rows.table.num_rows:
            raise UserError(f"{place}: no rows; expected at least one")
        data: dict[str, object] = {}
        for name, text in zip(TEXT_COLUMNS, task.texts, strict=False):
            data[name] = _column(rows, text, place, _is_text, "text")
        if split in task.test_splits:
            data["label"] = unlabelled(task, rows.table.num_rows)
        else:
            data["label"] = _labels(task, rows, place)
        frames[split] = pd.DataFrame(data)
    return TaskData(task.name, "hub", frames)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _labels(task: Task, rows: Rows, place: str) -> np.ndarray:
    """Return labels (rows,): scores, or ids translated by name into the order of `Task.labels`."""
    names = rows.label_names or task.labels
    if set(names) != set(task.labels):
        expected_names = ", ".join(task.labels)
        listed_names = ", ".join(map(str, names))
        raise UserError(f"{place}: label names {listed_names}; expected {expected_names}")
    if task.is_regression:
        return _scores(rows, place)
    highest = len(names) - 1

    def is_id(value: Any) -> bool:
        return isinstance(value, int) and 0 <= value <= highest

    ids = _column(rows, "label", place, is_id, f"an id from 0 to {highest}")
    translation = np.array([task.labels.index(name) for name in names], dtype=np.int64)
    return translation[ids]


def _scores(rows: Rows, place: str) -> np.ndarray:
    """Return the labels (rows,) of a regression, without what float32 adds to 3.8."""
    low, high = SCORES

    def is_score(value: Any) -> bool:
        return isinstance(value, float) and low <= value <= high

    values = _column(rows, "label", place, is_score, f"a number from {low:g} to {high:g}")
    return np.round(np.array(values, dtype=np.float64), 6)


def _column(
    rows: Rows, name: str, place: str, fits: Callable[[Any], bool], expected: str
) -> list[Any]:
    """Return the values of a column, each of which has to fit."""
    columns = rows.table.column_names
    if name not in columns:
        raise UserError(f"{place}: no column {name}; found {', '.join(columns)}")
    values: list[Any] = rows.table.column(name).to_pylist()
    for row, value in enumerate(values):
        if not fits(value):
            fault = f"{name} holds {quoted(value)}"
            raise UserError(f"{place}, row {row}: {fault}; expected {expected}")
    return values


def load_dataset(name: str, advice: str, *names: Any, **options: Any) -> Any:
    """Call `datasets.load_dataset` without its progress bars and log lines.

    They are switched off for the whole process.

    Args:
        name: What is read, for messages.
        advice: What to do instead, for messages.
        names: Passed on.
        options: Passed on.

    Returns:
        What `load_dataset` returns.

    Raises:
        DiskError: the cache of datasets is full or cannot be written.
        UserError: anything else went wrong.
    """
    import datasets

    datasets.disable_progress_bars()
    for library in ("datasets", "huggingface_hub"):
        logging.getLogger(library).setLevel(logging.ERROR)
    unreachable = "" if datasets.config.HF_HUB_OFFLINE else hub_fault()
    try:
        with _offline() if unreachable else nullcontext():
            return datasets.load_dataset(*names, **options)
    except Exception as error:  # httpx, huggingface_hub, datasets and OSError: no common base
        if trouble := disk_trouble(error):
            remedy = "make room in the cache of datasets"
            raise DiskError(f"cannot keep {name}: {trouble}; {remedy}") from error
        cause = unreachable or first_line(error.__cause__ or error)
        raise UserError(f"cannot read {name} ({cause}); {advice}") from error


@contextmanager
def _offline() -> Iterator[None]:
    """Let `datasets` look only into its cache, as HF_DATASETS_OFFLINE does."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
