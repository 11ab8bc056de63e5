"""Where GLUE's data comes from: the hub, a folder, or made-up rows; all read into `TaskData`."""

import os
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from glue_bench.data.demo import DemoSource
from glue_bench.data.folder import FolderSource, advice_for, list_names, listed_names, task_of
from glue_bench.data.hub import CloneSource, HubSource, SavedSource
from glue_bench.data.task import OWN, Task
from glue_bench.data.task_data import UNLABELLED, Source, TaskData
from glue_bench.data.tasks import TASKS, titles
from glue_bench.data.tsv import TsvSource
from glue_bench.errors import UserError, unknown
from glue_bench.remote import fetched, is_url

DESCRIPTION = [
    "task",
    "split",
    "rows",
    "official_rows",
    "skipped",
    "labels",
    "digest",
    "difference",
    "status",
]
EXPORTS = (".csv", ".json", ".jsonl")
"""Formats that `datasets` writes, and that are not read."""
NO_TABLES = ("dataset_dict.json", "dataset_info.json", "state.json")
"""Files of save_to_disk without rows."""
UNCHECKED = "complete by count, content not checked in every split"
DIGEST_LENGTH = 12


def open_source(name: str) -> Source:
    """Open the source of a name: `hub`, `demo`, or a folder or its URL (TSV layout or clone).

    Raises UserError where there is no such source, or a folder has no GLUE, or has it twice.
    """
    if name == "hub":
        return HubSource()
    if name == "demo":
        return DemoSource()
    folder = fetched(name) if is_url(name) else Path(name).expanduser()
    _check_folder(folder, name)
    sources: list[FolderSource] = [TsvSource(folder), CloneSource(folder), SavedSource(folder)]
    tasks_by_source: dict[FolderSource, list[str]] = {}
    for source in sources:
        tasks = source.tasks()
        if tasks:
            tasks_by_source[source] = tasks
    if len(tasks_by_source) > 1:
        raise UserError(_several_layouts(folder, tasks_by_source))
    for source in tasks_by_source:
        return source
    expected = ", ".join(source.example for source in sources)
    raise UserError(f"no GLUE data in {folder}: {_describe_folder(folder)}; looked for {expected}")


def check_place(name: str) -> None:
    """Refuse the name of a source that is no folder here; nothing in the folder is read."""
    if name not in ("hub", "demo") and not is_url(name):
        _check_folder(Path(name).expanduser(), name)


def _check_folder(folder: Path, name: str) -> None:
    """Refuse what is no folder that can be read."""
    if not folder.exists():
        if os.sep in name or name.startswith((".", "~")):
            advice = "give hub, demo or the path of a folder"
            raise UserError(f"folder {name} does not exist; {advice}")
        fault = unknown("data source", name, ("hub", "demo"))
        raise UserError(f"{fault} (or give the path of a folder)")
    if not folder.is_dir():
        raise UserError(f"data source {name} is a file; expected a folder")
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise UserError(f"cannot read the folder {folder}: {error.strerror or error}") from error


def _several_layouts(folder: Path, tasks_by_source: Mapping[FolderSource, list[str]]) -> str:
    """Say which layouts a folder has, and for which tasks."""
    descriptions: list[str] = []
    for source, tasks in tasks_by_source.items():
        descriptions.append(f"{source.example} for {titles(tuple(tasks))}")
    layouts = " and ".join(descriptions)
    fault = f"{folder} has GLUE in more than one layout: {layouts}"
    return f"{fault}; put each into a folder of its own"


def _describe_folder(folder: Path) -> str:
    """Say what a folder without GLUE in a known layout has, and what to do if that is plain."""
    if _is_folder_of_a_task(folder):
        return _advice_for_folder_of_a_task(folder)
    children = sorted(folder.iterdir())
    exports = _exports(folder)
    if exports:
        names = list_names(str(path.relative_to(folder)) for path in exports)
        kind = exports[0].suffix[1:].upper()
        return f"it has {names}, and {kind} is not read; save each split with to_parquet"
    for child in children:
        if task_of(child) and child.is_dir():
            return f"its folder {child.name} has {listed_names(child)}{advice_for(child)}"
    for child in children:
        if child.is_dir() and any(map(task_of, child.glob("*/"))):
            return f"its folder {child.name} may be meant, which has {listed_names(child)}"
    return f"it has {listed_names(folder)}"


def _is_folder_of_a_task(folder: Path) -> bool:
    """Whether a folder has files of a single task."""
    known_names = {"dataset_dict.json"}
    for task in TASKS.values():
        for split in task.splits.values():
            known_names.add(split.file)
    names = [path.name for path in folder.iterdir()]
    has_parquet = any(name.endswith(".parquet") for name in names)
    return has_parquet or not known_names.isdisjoint(names)


def _advice_for_folder_of_a_task(folder: Path) -> str:
    """Say which folder to give instead of that of a task."""
    place = folder.resolve()
    if task_of(place) is None:
        advice = "put it into a folder that has the name of its task"
        advice += ", and give the folder above that"
    else:
        advice = f"give the folder above it, {place.parent}"
    names = list_names(path.name for path in folder.iterdir())
    return f"it is the folder of one task, with {names}; {advice}"


def _exports(folder: Path) -> list[Path]:
    """Return the files of tasks in formats that are not read."""
    exports: list[Path] = []
    for path in folder.glob("*/*"):
        is_table = path.suffix in EXPORTS and path.name not in NO_TABLES
        if is_table and task_of(path.parent):
            exports.append(path)
    return sorted(exports)


def describe(source: Source) -> pd.DataFrame:
    """Describe a source in one row per task and official split, in the columns of DESCRIPTION.

    `status` is the task's: "complete", UNCHECKED (the digest of an official split is not known),
    "partial" (a split is absent or of another size than the official one), "not the official rows"
    (`difference` says of each split how it differs), "demo", "own" (a user's task, of which no
    number of rows is official), or "missing" (one row, no split).
    `digest` is the start of the split's digest. Raises what `load` raises.
    """
    present = set(source.tasks())
    rows: list[dict[str, object]] = []
    for name, task in TASKS.items():
        if name in present:
            rows += _described_splits(source.load(name))
        else:
            rows.append(_described_absence(task))
    return pd.DataFrame(rows, columns=DESCRIPTION)


def describe_task(data: TaskData) -> pd.DataFrame:
    """Describe the rows of one task as `describe` does.

    `difference` says how many rows of validation and test have texts that are in train, too.
    """
    rows = _described_splits(data)
    for row in rows:
        row["difference"] = _shared_texts(data, str(row["split"]))
    return pd.DataFrame(rows, columns=DESCRIPTION)


def _shared_texts(data: TaskData, split: str) -> str:
    """Say how many rows of a split have texts of train; an empty text if none have."""
    if split == "train" or split not in data.splits:
        return ""
    trained_texts = data.splits["train"].drop(columns="label").drop_duplicates()
    texts = data.splits[split].drop(columns="label")
    shared = texts.merge(trained_texts, how="inner")
    if not len(shared):
        return ""
    return f"{len(shared):,} of {len(texts):,} rows have texts that are in train, too"


def _described_splits(data: TaskData) -> list[dict[str, object]]:
    """Return the rows of a task, of which a split may be absent."""
    return [_described_split(data, split) for split in data.row.splits]


def _described_absence(task: Task) -> dict[str, object]:
    """Return the row of a task that is not there."""
    return {
        "task": task.name,
        "split": "",
        "rows": 0,
        "official_rows": sum(split.rows for split in task.splits.values()),
        "skipped": 0,
        "labels": "",
        "digest": "",
        "difference": "",
        "status": "missing",
    }


def _described_split(data: TaskData, split: str) -> dict[str, object]:
    """Return the row of an official split of a task, which may be absent."""
    task = data.row
    frame = data.splits.get(split)
    rows = 0
    labels = ""
    digest = ""
    if frame is not None:
        rows = len(frame)
        labels = _described_labels(task, frame["label"])
        digest = data.split_digests[split][:DIGEST_LENGTH]

    return {
        "task": data.task,
        "split": split,
        "rows": rows,
        "official_rows": task.splits[split].rows,
        "skipped": data.skipped.get(split, 0),
        "labels": labels,
        "digest": digest,
        "difference": data.differences.get(split, ""),
        "status": _status(data),
    }


def _described_labels(task: Task, labels: pd.Series) -> str:
    """Say how many rows have each label, or how scores are spread."""
    if (labels == UNLABELLED).all():
        return "unlabelled"
    if task.is_regression:
        return f"{labels.min():.1f}-{labels.max():.1f} mean {labels.mean():.1f}"
    shares: list[str] = []
    for number, name in enumerate(task.labels):
        share = (labels == number).mean()
        shares.append(f"{name} {share:.0%}")
    return " / ".join(shares)


def _status(data: TaskData) -> str:
    """Return the `status` of a task that is there; see `describe`."""
    if data.source == "demo":
        return "demo"
    if data.row.benchmark == OWN:
        return OWN
    if data.differences:
        return "not the official rows"
    if data.partial:
        return "partial"
    return UNCHECKED if data.unchecked else "complete"
