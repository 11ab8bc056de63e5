"""`nyu-mll/glue` at a pinned revision, from the hub or from a local clone of the repository."""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.folder import FolderSource
from glue_bench.data.task_data import Source, TaskData
from glue_bench.data.tasks import Task, find_task
from glue_bench.data.tsv import SCORES, unlabelled
from glue_bench.errors import DiskError, UserError, first_line, quoted
from glue_bench.files import check_file, disk_trouble, parse_json, read_file

REPOSITORY = "nyu-mll/glue"
PINNED = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
LFS_POINTER = b"version https://git-lfs"
LARGEST = 2**40  # bytes of a file: large enough for anything that Parquet reads in parts
PATTERNS = ("{}-*.parquet", "{}/*.parquet", "data/{}-*.parquet", "{}.parquet")
"""The files of a split in the folder of a task: in the repository, in its branch `refs/convert/parquet`, as
`push_to_hub` names them, and as one file."""
SHARD = re.compile(r"(?:[a-z_]+-)?(\d+)(?:-of-(\d+))?(?:-[0-9a-f]{16})?")
STATE = "state.json"  # of one split of `save_to_disk`, with the names of its files


class HubSource(Source):
    """The dataset repository on the hub; nothing is fetched before the first `load`."""

    kind, revision = "hub", PINNED

    def load(self, task: str) -> TaskData:
        row = find_task(task)
        instead = "give a folder instead: --data PATH (classic TSV layout, or a clone of the dataset repository)"
        what = f"{REPOSITORY} of the hub, task {row.name}"
        loaded = load_dataset(what, instead, REPOSITORY, row.name, revision=PINNED)
        rows = {split: Rows(dataset.data, _names_of(dataset)) for split, dataset in loaded.items()}
        return replace(to_task_data(row, rows, f"{REPOSITORY}/{row.name}"), revision=PINNED)


class CloneSource(FolderSource):
    """A local clone of the dataset repository, `cola/train-00000-of-00001.parquet` and so on; a part of it, too.

    The other layouts that the hub and `datasets` give Parquet files are read as well, see PATTERNS. The revision of a
    working copy is not known for certain; the digest of the data tells.
    """

    kind = "hub"
    example = (
        f"Parquet files as in a clone of {REPOSITORY} (such as cola/train-00000-of-00001.parquet)"
    )

    def expected(self, task: Task, split: str) -> str:
        return f"{task.name}/{split}-*.parquet"

    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        by_pattern = {
            pattern.format(split): sorted(place.glob(pattern.format(split))) for pattern in PATTERNS
        }
        present = {pattern: paths for pattern, paths in by_pattern.items() if paths}
        if len(present) > 1:
            patterns = " and ".join(present)
            raise UserError(
                f"{place} has the {split} split of {task.title} twice, in {patterns}; keep one of them"
            )
        return next(iter(present.values()), [])

    def load(self, task: str) -> TaskData:
        row, files = self.task_and_files(task)
        for split, paths in files.items():
            _check_shards(split, paths)
        rows = {
            split: _joined([_read_parquet(path) for path in paths], paths[0])
            for split, paths in files.items()
        }
        return to_task_data(row, rows, str(self.folder / row.name))


class SavedSource(FolderSource):
    """A folder with what `save_to_disk` of the library `datasets` has left of each task: `cola/dataset_dict.json`."""

    kind = "hub"
    example = "folders of save_to_disk (such as cola/dataset_dict.json)"

    def expected(self, task: Task, split: str) -> str:
        return f"{task.name}/{split}/{STATE}"

    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        state = place / split / STATE
        if not state.exists():
            return []
        try:
            names = [entry["filename"] for entry in parse_json(read_file(state))["_data_files"]]
            return [state.with_name(Path(name).name) for name in names]
        except (ValueError, LookupError, TypeError, OSError) as error:
            reason = first_line(error)
            raise UserError(
                f"cannot read {state} ({reason}); save {task.title} again with save_to_disk"
            ) from error

    def load(self, task: str) -> TaskData:
        row, files = self.task_and_files(task)
        rows = {
            split: _joined([_read_arrow(path) for path in paths], paths[0])
            for split, paths in files.items()
        }
        return to_task_data(row, rows, str(self.folder / row.name))


@dataclass(frozen=True)
class Rows:
    """The rows of a split as an Arrow table, and the names of its label ids; None where they have no names."""

    table: Any
    label_names: tuple[str, ...] | None

    @classmethod
    def of(cls, table: Any) -> "Rows":
        """The rows of a file of the library `datasets`, whose metadata have the names."""
        try:
            metadata = parse_json((table.schema.metadata or {})[b"huggingface"])
            return cls(table, tuple(metadata["info"]["features"]["label"]["names"]))
        except (LookupError, TypeError, ValueError):
            return cls(table, None)


def _read_parquet(path: Path) -> Any:
    """The table of a Parquet file. It is read anew each time: `datasets` would keep rows by the path and its time."""
    from pyarrow.parquet import ParquetFile

    return _read_table(path, lambda: ParquetFile(path).read(), f"Parquet files of {REPOSITORY}")


def _read_arrow(path: Path) -> Any:
    """The table of a file of `save_to_disk`."""
    from pyarrow.ipc import open_stream

    return _read_table(
        path, lambda: open_stream(path.read_bytes()).read_all(), "what save_to_disk has written"
    )


def _read_table(path: Path, read: Callable[[], Any], expected: str) -> Any:
    from pyarrow import ArrowException

    try:
        check_file(path, LARGEST)
        with path.open("rb") as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                raise UserError(
                    f"{path}: a Git LFS pointer, not the data; run 'git lfs pull' in the clone"
                )
        table = read()
        table.validate(
            full=True
        )  # offsets of a damaged file may point anywhere, and text may be no UTF-8
        list(table.column_names)  # which may be no UTF-8 either
        return table
    except (ArrowException, UnicodeDecodeError, OSError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"cannot read {path} ({reason}); expected {expected}") from error


def _check_shards(split: str, paths: list[Path]) -> None:
    """Refuse a split of which a file is missing, or that is there twice: its rows would change places."""
    shards = [SHARD.fullmatch(path.stem) for path in paths]
    numbers = [int(shard[1]) for shard in shards if shard]
    counts = {int(shard[2]) for shard in shards if shard and shard[2]}
    is_whole = numbers == [*range(len(paths))] and counts <= {len(paths)}
    if not is_whole and (numbers or len(paths) > 1):
        names = ", ".join(path.name for path in paths)
        raise UserError(
            f"{paths[0].parent}: split {split} is not whole, or is there twice ({names}); clone it again"
        )


def _names_of(dataset: Any) -> tuple[str, ...] | None:
    """The names of the label ids of a dataset of the library `datasets`."""
    names = getattr(dataset.features.get("label"), "names", None)
    return tuple(names) if names else None


def _joined(tables: list[Any], first: Path) -> Rows:
    """The rows of the files of a split, in order. Raises UserError where the files differ in columns or label names."""
    from pyarrow import ArrowException, concat_tables

    rows = [Rows.of(table) for table in tables]
    try:
        table = concat_tables(tables)
    except ArrowException as error:
        raise UserError(
            f"{first} has other columns than the files that follow it ({first_line(error)})"
        ) from error
    if len({part.label_names for part in rows}) > 1:
        raise UserError(
            f"{first} has other label names than the files that follow it; clone it again"
        )
    return Rows(table, rows[0].label_names)


def to_task_data(task: Task, loaded: Mapping[str, Rows], where: str) -> TaskData:
    """The splits of a task; `where` starts the messages of UserError.

    Ids are translated by the names that the rows bring with them; without names they already have the order of
    `Task.labels`. Test labels are dropped: MRPC's are on the hub, but GLUE does not publish them.
    """
    frames = {}
    for split in (split for split in task.splits if split in loaded):
        rows, place = loaded[split], f"{where}, split {split}"
        if not rows.table.num_rows:
            raise UserError(f"{place}: no rows; expected at least one")
        texts = [
            _column(rows, name, place, lambda value: isinstance(value, str), "text")
            for name in task.texts
        ]
        data: dict[str, object] = dict(zip(("text_a", "text_b"), texts, strict=False))
        is_test = split in task.test_splits
        data["label"] = (
            unlabelled(task, rows.table.num_rows) if is_test else _labels(task, rows, place)
        )
        frames[split] = pd.DataFrame(data)
    return TaskData(task.name, "hub", frames)


def _labels(task: Task, rows: Rows, where: str) -> np.ndarray:
    """Labels (rows,): scores, or ids translated by name into the order of `Task.labels`."""
    names = rows.label_names or task.labels
    if set(names) != set(task.labels):
        raise UserError(
            f"{where}: label names {', '.join(map(str, names))}; expected {', '.join(task.labels)}"
        )
    kind, low, high = (float, *SCORES) if task.is_regression else (int, 0, len(names) - 1)
    expected = f"{'a number' if task.is_regression else 'an id'} from {low:g} to {high:g}"
    values = _column(
        rows,
        "label",
        where,
        lambda value: isinstance(value, kind) and low <= value <= high,
        expected,
    )
    if task.is_regression:
        return np.round(np.array(values, dtype=np.float64), 6)  # undo what float32 adds to 3.8
    return np.array([task.labels.index(name) for name in names], dtype=np.int64)[values]


def _column(
    rows: Rows, name: str, where: str, fits: Callable[[Any], bool], expected: str
) -> list[Any]:
    if name not in rows.table.column_names:
        raise UserError(f"{where}: no column {name}; found {', '.join(rows.table.column_names)}")
    values: list[Any] = rows.table.column(name).to_pylist()
    for row, value in enumerate(values):
        if not fits(value):
            raise UserError(
                f"{where}, row {row}: {name} holds {quoted(value)}; expected {expected}"
            )
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
            raise DiskError(
                f"cannot keep {what}: {trouble}; make room in the cache of datasets"
            ) from error
        raise UserError(
            f"cannot read {what} ({first_line(error.__cause__ or error)}); {instead}"
        ) from error
