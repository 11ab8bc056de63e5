"""Where GLUE's data comes from: the hub, a folder, or made-up rows; all read into `TaskData`."""

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

import pandas as pd

from glue_bench.data.hub import REPOSITORY, CloneSource, HubSource
from glue_bench.data.schema import UNLABELLED, TaskData, split_digest
from glue_bench.data.tasks import TASKS, Task, find_task
from glue_bench.data.tsv import TsvSource
from glue_bench.errors import UserError
from glue_bench.remote import fetched, is_url

NAMES = ("hub", "demo")
DESCRIPTION = ["task", "split", "rows", "official_rows", "skipped", "labels", "digest", "status"]


class Source(Protocol):
    """Anything that gives `TaskData`: `kind` is "demo", "hub" or "tsv"; `revision` is None if unknown."""

    kind: str
    revision: str | None

    def tasks(self) -> list[str]:
        """Tasks that are present, in the order of TASKS."""
        ...

    def load(self, task: str) -> TaskData:
        """All splits of one task; UserError says what is wrong with the data and where."""
        ...


class DemoSource:
    """Made-up rows, for trying things out; scores on them mean nothing."""

    kind = "demo"
    revision: str | None = None

    def tasks(self) -> list[str]:
        """Every task."""
        return list(TASKS)

    def load(self, task: str) -> TaskData:
        """Generate one task."""
        from glue_bench.data.demo import generate

        row = find_task(task)
        splits = generate(row.name)
        return TaskData(row.name, self.kind, splits, dict.fromkeys(splits, 0))


def open_source(name: str) -> Source:
    """The source called `name`: `hub`, `demo`, or a folder or its URL (TSV layout or clone). UserError otherwise."""
    if name == "hub":
        return HubSource()
    if name == "demo":
        return DemoSource()
    folder = fetched(name) if is_url(name) else Path(name).expanduser()
    if folder.is_dir():
        return _open_folder(folder)
    if folder.exists():
        raise UserError(f"data source {name} is a file; expected a folder")
    raise _no_such_source(name)


def _no_such_source(name: str) -> UserError:
    near = get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
    if name == REPOSITORY:
        near = ["hub"]
    elif os.sep in name or "/" in name or name.startswith((".", "~")):
        return UserError(f"folder {name} does not exist; give hub, demo or the path of a folder")
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(NAMES)}."
    return UserError(
        f"unknown data source '{name}'; {hint} The path of a folder may be given too, but '{name}' is none"
    )


def _open_folder(folder: Path) -> Source:
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
    """One row per task and official split, in the columns of DESCRIPTION.

    `status` is the task's: "complete", "partial" (a split is absent or of another size than the
    official one), "demo", or "missing" (one row, no split). `digest` is the start of the split's
    digest. Loads everything, so it raises whatever `load` raises.
    """
    present = set(source.tasks())
    rows: list[dict[str, object]] = []
    for name, task in TASKS.items():
        if name in present:
            rows += _split_rows(source.load(name))
        else:
            official = sum(split.rows for split in task.splits.values())
            rows.append(dict(zip(DESCRIPTION, (name, "", 0, official, 0, "", "", "missing"), strict=True)))
    return pd.DataFrame(rows, columns=DESCRIPTION)


def _split_rows(data: TaskData) -> list[dict[str, object]]:
    status = "demo" if data.source == "demo" else "partial" if data.partial else "complete"
    task, rows = TASKS[data.task], []
    for name, split in task.splits.items():
        frame = data.splits.get(name)
        size, labels, digest = 0, "", ""
        if frame is not None:
            size, labels, digest = len(frame), _balance(task, frame), split_digest(name, frame)[:12]
        values = (task.name, name, size, split.rows, data.skipped.get(name, 0), labels, digest, status)
        rows.append(dict(zip(DESCRIPTION, values, strict=True)))
    return rows


def _balance(task: Task, frame: pd.DataFrame) -> str:
    """Labels of a split in a few words."""
    labels = frame["label"]
    if (labels == UNLABELLED).all():
        return "unlabelled"
    if task.is_regression:
        return f"{labels.min():.1f}-{labels.max():.1f} mean {labels.mean():.1f}"
    shares = (f"{name} {(labels == number).mean():.0%}" for number, name in enumerate(task.labels))
    return " / ".join(shares)
