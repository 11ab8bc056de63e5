"""A published table beside ours in every format, the same numbers in all of them; and the list of the tables."""

from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.errors import unknown
from glue_bench.records.store import open_store
from glue_bench.reporting.document import Grid, GridCell, Page, PageSection
from glue_bench.reporting.formats import chosen_format, render_page
from glue_bench.reporting.numbers import frame_csv, json_text, number
from glue_bench.reporting.papers import TABLES
from glue_bench.reporting.papers.compare import Comparison, compare
from glue_bench.reporting.papers.page import make_notes, paper_page

LISTED = {"table": "Table", "title": "What it is", "split": "Set", "rows": "Rows", "source": "Source"}


def compare_named(name: str, path: str | Path | None = None) -> Comparison:
    """The published table `name` beside the experiment in the folder `path`, or alone.

    Raises:
        UserError: there is no such table or experiment.
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return compare(TABLES[name], None if path is None else open_store(path))


def render(name: str, path: str | Path | None = None, format: str = "markdown") -> str:
    """As `compare_named`, in one of FORMATS.

    Raises:
        UserError: the format is unknown, or as `compare_named`.
    """
    format = chosen_format(format)
    comparison = compare_named(name, path)
    if format == "csv":
        return to_csv(comparison)
    return to_json(comparison) if format == "json" else render_page(paper_page(comparison), format)


def render_list(format: str = "markdown") -> str:
    """The published tables by name, in one of FORMATS.

    Raises:
        UserError: the format is unknown.
    """
    format, tables = chosen_format(format), listed()
    if format == "csv":
        return frame_csv(tables)
    if format == "json":
        return json_text(tables.to_dict("records"))
    rows = tuple(tuple(GridCell(str(value)) for value in row) for row in tables.itertuples(index=False))
    grid = Grid(header=tuple(LISTED.values()), rows=rows, texts=frozenset({0, 1, 2, 4}))
    return render_page(Page(title="Published tables", sections=(PageSection(title="", grid=grid),)), format)


def listed() -> pd.DataFrame:
    """One row per published table: LISTED."""
    rows = [(name, table.title, table.split, len(table.rows), table.source) for name, table in TABLES.items()]
    return pd.DataFrame(rows, columns=list(LISTED))


def to_csv(comparison: Comparison) -> str:
    """One line per printed value and arm: the comparison's cells, what is published as it is printed."""
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
    return json_text(document)


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
