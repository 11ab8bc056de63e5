"""Where GLUE's data comes from: the hub, a folder, or made-up rows; all read into `TaskData`."""

import os
from pathlib import Path

import pandas as pd

from glue_bench.data.demo import DemoSource
from glue_bench.data.hub import REPOSITORY, CloneSource, HubSource
from glue_bench.data.official import split_digest
from glue_bench.data.task_data import UNLABELLED, Source, TaskData
from glue_bench.data.tasks import TASKS
from glue_bench.data.tsv import TsvSource
from glue_bench.errors import UserError, unknown
from glue_bench.remote import fetched, is_url

DESCRIPTION = ["task", "split", "rows", "official_rows", "skipped", "labels", "digest", "difference", "status"]
UNCHECKED = "complete by count, content not checked in every split"


def open_source(name: str) -> Source:
    """The source called `name`: `hub`, `demo`, or a folder or its URL (TSV layout or clone). UserError otherwise."""
    if name in ("hub", "demo"):
        return HubSource() if name == "hub" else DemoSource()
    folder = fetched(name) if is_url(name) else Path(name).expanduser()
    if not folder.exists():
        if os.sep in name or name.startswith((".", "~")):
            raise UserError(f"folder {name} does not exist; give hub, demo or the path of a folder")
        raise UserError(f"{unknown('data source', name, ('hub', 'demo'))} (or give the path of a folder)")
    if not folder.is_dir():
        raise UserError(f"data source {name} is a file; expected a folder")
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise UserError(f"cannot read the folder {folder}: {error.strerror or error}") from error
    for source in (TsvSource(folder), CloneSource(folder)):
        if source.tasks():
            return source
    raise UserError(
        f"no GLUE data in {folder}; looked for the classic TSV layout (such as CoLA/train.tsv) "
        f"and for a clone of {REPOSITORY} (such as cola/train-00000-of-00001.parquet)"
    )


def describe(source: Source) -> pd.DataFrame:
    """One row per task and official split, in the columns of DESCRIPTION; raises whatever `load` raises.

    `status` is the task's: "complete", UNCHECKED (the digest of an official split is not known), "partial" (a split is
    absent or of another size than the official one), "not the official rows" (`difference` says of each split how it
    differs), "demo", or "missing" (one row, no split). `digest` is the start of the split's digest.
    """
    present, rows = set(source.tasks()), list[tuple[object, ...]]()
    for name, task in TASKS.items():
        if name not in present:
            rows.append((name, "", 0, sum(split.rows for split in task.splits.values()), 0, "", "", "", "missing"))
            continue
        data = source.load(name)
        status = _status(data)
        for split, official in task.splits.items():
            facts: tuple[object, ...] = (0, official.rows, data.skipped.get(split, 0), "", "")
            if (frame := data.splits.get(split)) is not None:
                gold = frame["label"]
                shares = [f"{label} {(gold == number).mean():.0%}" for number, label in enumerate(task.labels)]
                labels = " / ".join(shares) or f"{gold.min():.1f}-{gold.max():.1f} mean {gold.mean():.1f}"
                labels = "unlabelled" if (gold == UNLABELLED).all() else labels
                facts = (len(frame), *facts[1:3], labels, split_digest(split, frame)[:12])
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
