"""A published table beside ours in every format, the same numbers in all of them; and the list of the tables."""

from pathlib import Path

import pandas as pd

from glue_bench.errors import unknown
from glue_bench.reporting.formats import render_with
from glue_bench.reporting.grid import Grid, Page, PageSection
from glue_bench.reporting.papers import TABLES
from glue_bench.reporting.papers.compare import Beside, set_beside
from glue_bench.reporting.papers.page import paper_page
from glue_bench.tables.results import read_results

LISTED = ("Table", "What it is", "Set", "Rows", "Source")


def beside_named(name: str, path: str | Path | None = None) -> Beside:
    """The published table `name` beside the experiment in the folder `path`, or alone.

    Raises:
        UserError: there is no such table or experiment.
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return set_beside(TABLES[name], None if path is None else read_results(path))


def render(name: str, path: str | Path | None = None, format: str = "markdown") -> str:
    """As `beside_named`, in one of FORMATS; as CSV and JSON one row per printed value and arm.

    Raises:
        UserError: the format is unknown, or as `beside_named`.
    """
    beside = beside_named(name, path)
    published, results = beside.published, beside.board.results if beside.board else None
    return render_with(
        paper_page(beside),
        beside.cells,
        format,
        source=published.source,
        split=published.split,
        experiment=results.experiment if results else None,
        data_source=results.data_source if results else None,
    )


def render_list(format: str = "markdown") -> str:
    """The published tables by name, in one of FORMATS.

    Raises:
        UserError: the format is unknown.
    """
    frame = pd.DataFrame(_listed(), columns=["table", "title", "split", "rows", "source"])
    return render_with(list_page(), frame, format)


def list_page(columns: int = len(LISTED)) -> Page:
    """One row per published table: so many of LISTED."""
    grid = Grid.of(LISTED, (map(str, row) for row in _listed()), texts=(0, 1, 2, 4))
    return Page(title="Published tables", sections=(PageSection(title="", grid=grid.columns(range(columns))),))


def _listed() -> list[tuple[str, str, str, int, str]]:
    return [(name, table.title, table.split, len(table.rows), table.source) for name, table in TABLES.items()]
