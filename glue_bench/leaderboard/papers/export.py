"""A published table beside ours as Markdown, CSV and JSON: the same numbers in all three."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.errors import unknown
from glue_bench.leaderboard.export import BANNER, FORMATS, METRIC_INITIALS, PARTIAL, frame_csv
from glue_bench.leaderboard.frame import Results
from glue_bench.leaderboard.interval import LEVEL
from glue_bench.leaderboard.markdown import MISSING, aligned, number
from glue_bench.leaderboard.papers import TABLES
from glue_bench.leaderboard.papers.arms import is_demo, short, tasks_of
from glue_bench.leaderboard.papers.compare import Comparison, compare
from glue_bench.leaderboard.papers.published import AVERAGE, Published
from glue_bench.leaderboard.rules import protocol_notes
from glue_bench.store import open_store

TEXT_COLUMNS = ("Model", "Row")
UNLIKE = "Not like for like"
RATE = "Our rates compete by the metrics of this table."
_NAMES = {place: column for column, place in COLUMNS.items()}


def compare_named(name: str, path: str | Path | None = None) -> Comparison:
    """The published table `name` beside the experiment in the folder `path`, or alone.

    Raises:
        UserError: there is no such table or experiment, or a record cannot be read.
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return compare(TABLES[name], None if path is None else open_store(path))


def render(name: str, path: str | Path | None = None, format: str = "markdown") -> str:
    """As `compare_named`, as "markdown", "csv" or "json".

    Raises:
        UserError: the format is unknown, or as `compare_named`.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    comparison = compare_named(name, path)
    return {"markdown": to_markdown, "csv": to_csv, "json": to_json}[format](comparison)


def to_csv(comparison: Comparison) -> str:
    """A line a printed value and arm: the comparison's cells, what is published as it is printed."""
    return frame_csv(comparison.cells)


def to_json(comparison: Comparison) -> str:
    """The comparison as JSON: title, source, split, experiment, data_source, notes, rows; null where missing."""
    published, results = comparison.published, comparison.results
    document = {
        "title": published.title,
        "source": published.source,
        "split": published.split,
        "experiment": results.experiment if results else None,
        "data_source": results.data_source if results else None,
        "notes": make_notes(comparison),
        "rows": [_json_row(model, block) for model, block in comparison.cells.groupby("model", sort=False)],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_markdown(comparison: Comparison) -> str:
    """The paper's own layout with our rows under its rows, and what has to be known before comparing."""
    header, lines = grid(comparison)
    parts = [f"# {comparison.published.title}"]
    if comparison.results and is_demo(comparison.results):
        parts.append(f"**{BANNER}**")
    parts.append(aligned([header, *lines], text_columns=len(TEXT_COLUMNS), text_last=header[-1] == UNLIKE))
    parts += ["## Notes", "\n".join(f"- {note}" for note in make_notes(comparison))]
    return "\n\n".join(parts) + "\n"


def grid(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the paper's layout: TEXT_COLUMNS, the printed columns, and UNLIKE beside an experiment."""
    published = comparison.published
    header = [*TEXT_COLUMNS, *(_header(comparison, column) for column in published.rows[0].printed)]
    lines: list[list[str]] = []
    for row in published.rows:
        block = comparison.cells[comparison.cells["model"] == row.label]
        steps = "" if row.steps is None else f", {short(row.steps)} steps"
        lines.append([row.label, f"paper{steps}", *row.printed.values(), ""])
        if comparison.results:
            for _, cells in block.groupby("arm", sort=False):
                lines += (["", *line] for line in _our_lines(cells))
    if comparison.results:
        return [*header, UNLIKE], lines
    return header, [line[:-1] for line in lines]


def make_notes(comparison: Comparison) -> list[str]:
    """Where the table is from, by which conventions it is made, and what of ours is beside it."""
    published, results = comparison.published, comparison.results
    notes = [f"Source: {published.source}.", f"Published: {published.split} set; {published.protocol}."]
    if published.has_average:
        notes.append(f"Average, theirs and ours: {published.average.rule}.")
    return [*notes, *published.notes, *(_our_notes(comparison, results) if results else [])]


def _our_notes(comparison: Comparison, results: Results) -> list[str]:
    cells = comparison.cells
    notes = [
        f"Ours: experiment `{results.experiment}`, validation set; the difference is ours minus theirs.",
        *protocol_notes(results),
        *([RATE] if results.cells["learning_rate"].nunique() > 1 else []),
        f"Interval: {LEVEL:.0%}, Student's t of the mean over seeds of fine-tuning; one seed has none, nor has an "
        "average whose parts differ in their seeds. It says nothing of other seeds of pretraining.",
    ]
    if comparison.without_row:
        notes.append(f"Arms of ours that this table has no row for: {', '.join(comparison.without_row)}.")
    if any(PARTIAL in _header(comparison, column) for column in cells["column"].unique()):
        notes.append(f"{PARTIAL} ours is on partial data.")
    return notes


def _our_lines(cells: pd.DataFrame) -> Iterator[list[str]]:
    """The lines of one arm under a published row: ours, its interval, the difference, whether theirs lies inside."""
    first = cells.iloc[0]
    if not first["arm"]:
        yield ["missing", *[MISSING] * len(cells), first["unlike"]]
        return
    yield [_who(first, cells["seeds"]), *(number(value) or MISSING for value in cells["ours"]), first["unlike"]]
    if cells["low"].notna().any():
        intervals = zip(cells["low"], cells["high"], strict=True)
        yield [f"{LEVEL:.0%} interval", *(_interval(low, high) for low, high in intervals), ""]
    if cells["difference"].notna().any():
        yield ["difference", *(_signed(value) for value in cells["difference"]), ""]
    if cells["inside"].any():
        yield ["theirs inside", *(inside or MISSING for inside in cells["inside"]), ""]


def _who(cell: pd.Series, seeds: pd.Series) -> str:
    """The arm, its variant where the name does not say it, its steps and seeds."""
    name = cell["arm"] if cell["arm"] == cell["variant"] else f"{cell['arm']} ({cell['variant']})"
    counts = sorted({int(count) for count in seeds if count})
    steps = [] if pd.isna(cell["steps"]) else [f"{short(cell['steps'])} steps"]
    if counts:
        many = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        steps.append(f"{many} seed{'' if many == '1' else 's'}")
    return ", ".join([f"ours: {name}", *steps])


def _interval(low: float, high: float) -> str:
    return MISSING if math.isnan(low) else f"{number(low)} to {number(high)}"


def _signed(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:+z.2f}"


def _header(comparison: Comparison, column: str) -> str:
    published, results = comparison.published, comparison.results
    score = published.columns.get(column)
    tasks = published.average.tasks if column == AVERAGE else [score[0]] if score else []
    partial = tasks_of(published, results.partial_tasks) if results and not is_demo(results) else []
    return _title(column, published) + (f" {PARTIAL}" if set(tasks) & set(partial) else "")


def _title(column: str, published: Published) -> str:
    """The task as the leaderboard writes it, and its metric; a column that is no GLUE task by its own name."""
    score = published.columns.get(column)
    if score is None:
        return "Avg." if column == AVERAGE else column
    task, split, metric = score
    suffix = _NAMES.get((task, split), task).removeprefix(task).replace("_", "-")
    return f"{TASKS[task].title}{suffix} ({METRIC_INITIALS[metric]})"


def _json_row(model: Any, block: pd.DataFrame) -> dict[str, Any]:
    by_arm = list(block.groupby("arm", sort=False))
    printed = by_arm[0][1]
    return {
        "model": model,
        "published": {
            column: float(text) for column, text in zip(printed["column"], printed["published"], strict=True)
        },
        "ours": [_json_arm(cells) for arm, cells in by_arm if arm],
        "missing": None if by_arm[0][0] else printed["unlike"].iloc[0] or None,
    }


def _json_arm(cells: pd.DataFrame) -> dict[str, Any]:
    first = cells.iloc[0]
    values = ("ours", "low", "high", "difference")
    return {
        **{key: first[key] for key in ("arm", "variant", "origin")},
        "steps": None if pd.isna(first["steps"]) else int(first["steps"]),
        "unlike": first["unlike"].split("; ") if first["unlike"] else [],
        "values": {
            cell["column"]: {
                **{key: float(number(cell[key])) if number(cell[key]) else None for key in values},
                "seeds": int(cell["seeds"]),
                "inside": {"yes": True, "no": False}.get(cell["inside"]),
            }
            for cell in cells.to_dict("records")
        },
    }
