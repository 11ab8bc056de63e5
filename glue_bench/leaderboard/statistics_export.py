"""The verbs `statistics` and `power` as text: a page, or the numbers behind it as CSV or JSON."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from glue_bench.errors import unknown
from glue_bench.leaderboard.document import Grid, Page
from glue_bench.leaderboard.markdown import aligned
from glue_bench.leaderboard.power import power_frame
from glue_bench.leaderboard.statistics_page import page_of, power_page, statistics_of
from glue_bench.store import open_store

FORMATS = ("markdown", "csv", "json")
DECIMALS = 6


def render_statistics(path: str | Path, format: str = "markdown") -> str:
    """Pairs and ranks of the experiment in the folder `path`; CSV has the pairs alone.

    Raises:
        UserError: the format is unknown, there is no experiment in `path`, or a record cannot be read.
    """
    _check(format)
    statistics = statistics_of(open_store(path))
    if format == "csv":
        return _csv(statistics.pairs)
    page = page_of(statistics)
    if format == "json":
        return _json(page.notes, pairs=statistics.pairs, ranks=statistics.ranks)
    return render_text(page)


def render_power(path: str | Path, difference: float, power: float, format: str = "markdown") -> str:
    """Seeds needed to see a difference; raises as `render_statistics` and `power_frame`."""
    _check(format)
    statistics = statistics_of(open_store(path))
    page = power_page(statistics, difference, power)
    if format == "markdown":
        return render_text(page)
    frame = power_frame(statistics.blocks, difference, power)
    return _csv(frame) if format == "csv" else _json(page.notes, rows=frame)


def render_text(page: Page) -> str:
    """A page as Markdown."""
    sections = (
        part
        for section in page.sections
        for part in (f"## {section.title}", section.text, _table(section.grid) if section.grid else "")
    )
    parts = [f"# {page.title}", page.banner, *sections, "## Notes", "\n".join(f"- {note}" for note in page.notes)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(grid: Grid) -> str:
    shown = [[f"**{c.text}**{c.marks}" if c.bold else c.text + c.marks for c in row] for row in grid.rows]
    return aligned([list(grid.header), *shown], text_columns=1)


def _check(format: str) -> None:
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)


def _csv(frame: pd.DataFrame) -> str:
    return frame.round(DECIMALS).to_csv(index=False, lineterminator="\n")


def _json(notes: Sequence[str], **frames: pd.DataFrame) -> str:
    rows = {name: json.loads(f.round(DECIMALS).to_json(orient="records")) for name, f in frames.items()}
    return json.dumps({"notes": list(notes), **rows}, indent=1, ensure_ascii=False) + "\n"
