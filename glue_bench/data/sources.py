"""Where GLUE's data comes from: the hub, a folder, or made-up rows; all read into `TaskData`."""

import os
from pathlib import Path

import pandas as pd

from glue_bench.data.demo import DemoSource
from glue_bench.data.folder import FolderSource, advice_for, listed, listed_names, task_of
from glue_bench.data.hub import CloneSource, HubSource, SavedSource
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
EXPORTS = (".csv", ".json", ".jsonl")  # formats that `datasets` writes, and that are not read
NO_TABLES = (
    "dataset_dict.json",
    "dataset_info.json",
    "state.json",
)  # files of save_to_disk without rows
UNCHECKED = "complete by count, content not checked in every split"


def open_source(name: str) -> Source:
    """The source called `name`: `hub`, `demo`, or a folder or its URL (TSV layout or clone). UserError otherwise."""
    if name in ("hub", "demo"):
        return HubSource() if name == "hub" else DemoSource()
    folder = fetched(name) if is_url(name) else Path(name).expanduser()
    if not folder.exists():
        if os.sep in name or name.startswith((".", "~")):
            raise UserError(f"folder {name} does not exist; give hub, demo or the path of a folder")
        raise UserError(
            f"{unknown('data source', name, ('hub', 'demo'))} (or give the path of a folder)"
        )
    if not folder.is_dir():
        raise UserError(f"data source {name} is a file; expected a folder")
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise UserError(f"cannot read the folder {folder}: {error.strerror or error}") from error
    sources: list[FolderSource] = [TsvSource(folder), CloneSource(folder), SavedSource(folder)]
    present = {source: tasks for source in sources if (tasks := source.tasks())}
    if len(present) > 1:
        layouts = " and ".join(
            f"{source.example} for {titles(tuple(tasks))}" for source, tasks in present.items()
        )
        raise UserError(
            f"{folder} has GLUE in more than one layout: {layouts}; put each into a folder of its own"
        )
    for source in present:
        return source
    looked_for = ", ".join(source.example for source in sources)
    raise UserError(f"no GLUE data in {folder}: {_instead(folder)}; looked for {looked_for}")


def _instead(folder: Path) -> str:
    """What a folder without GLUE in a known layout has, and what to do about it where that is plain."""
    names = {path.name for path in folder.iterdir()}
    task = task_of(folder.resolve())
    files = {split.file for row in TASKS.values() for split in row.splits.values()}
    if names & (files | {"dataset_dict.json"}) or any(name.endswith(".parquet") for name in names):
        advice = f"give the folder above it, {folder.resolve().parent}"
        if task is None:
            advice = (
                "put it into a folder that has the name of its task, and give the folder above that"
            )
        return f"it is the folder of one task, with {listed(names)}; {advice}"
    tables = [
        path for path in folder.glob("*/*") if path.suffix in EXPORTS and path.name not in NO_TABLES
    ]
    below = sorted(path for path in tables if task_of(path.parent))
    if below:
        exports = listed(str(path.relative_to(folder)) for path in below)
        return f"it has {exports}, and {below[0].suffix[1:].upper()} is not read; save each split with to_parquet"
    if places := sorted(path for path in folder.iterdir() if task_of(path) and path.is_dir()):
        return f"its folder {places[0].name} has {listed_names(places[0])}{advice_for(places[0])}"
    holders = [
        path
        for path in sorted(folder.iterdir())
        if path.is_dir() and any(map(task_of, path.glob("*/")))
    ]
    if holders:
        return f"its folder {holders[0].name} may be meant, which has {listed_names(holders[0])}"
    return f"it has {listed_names(folder)}"


def describe(source: Source) -> pd.DataFrame:
    """One row per task and official split, in the columns of DESCRIPTION; raises whatever `load` raises.

    `status` is the task's: "complete", UNCHECKED (the digest of an official split is not known), "partial" (a split is
    absent or of another size than the official one), "not the official rows" (`difference` says of each split how it
    differs), "demo", or "missing" (one row, no split). `digest` is the start of the split's digest.
    """
    present, rows = set(source.tasks()), list[tuple[object, ...]]()
    for name, task in TASKS.items():
        if name not in present:
            rows.append(
                (
                    name,
                    "",
                    0,
                    sum(split.rows for split in task.splits.values()),
                    0,
                    "",
                    "",
                    "",
                    "missing",
                )
            )
            continue
        data = source.load(name)
        status = _status(data)
        for split, official in task.splits.items():
            facts: tuple[object, ...] = (0, official.rows, data.skipped.get(split, 0), "", "")
            if (frame := data.splits.get(split)) is not None:
                gold = frame["label"]
                shares = [
                    f"{label} {(gold == number).mean():.0%}"
                    for number, label in enumerate(task.labels)
                ]
                labels = (
                    " / ".join(shares)
                    or f"{gold.min():.1f}-{gold.max():.1f} mean {gold.mean():.1f}"
                )
                labels = "unlabelled" if (gold == UNLABELLED).all() else labels
                facts = (len(frame), *facts[1:3], labels, data.split_digests[split][:12])
            rows.append((name, split, *facts, data.differences.get(split, ""), status))
    return pd.DataFrame(rows, columns=DESCRIPTION)


def _status(data: TaskData) -> str:
    """The `status` of a task that is there; see `describe`."""
    if data.source == "demo":
        return "demo"
    if data.differences:
        return "not the official rows"
    if data.partial:
        return "partial"
    return UNCHECKED if data.unchecked else "complete"
