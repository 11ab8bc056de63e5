"""The formats of a table: which there are, which a file's name asks for, and a page in one of them."""

from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.errors import unknown
from glue_bench.reporting import html, latex, markdown
from glue_bench.reporting.grid import Page
from glue_bench.tables.numbers import frame_csv, json_text, plain_rows

FORMATS = ("markdown", "csv", "json", "latex", "html")
SUFFIXES = {".md": "markdown", ".csv": "csv", ".json": "json", ".tex": "latex", ".html": "html"}
PAGES = {"markdown": markdown.render, "latex": latex.render, "html": html.render}


def render_page(page: Page, format: str = "markdown") -> str:
    """The page as "markdown", "latex" (a fragment that needs booktabs) or "html" (a whole document).

    Raises:
        UserError: there is no such format of pages; CSV and JSON are made from the numbers behind a page.
    """
    if format not in PAGES:
        raise unknown("format", format, PAGES)
    return PAGES[format](page)


def render_with(page: Page, frame: pd.DataFrame, format: str, decimals: int = 2, **facts: Any) -> str:
    """The page in one of FORMATS; as CSV the frame behind it, as JSON title, notes, `facts`, and the frame's rows."""
    if format == "csv":
        return frame_csv(frame, decimals)
    if format == "json":
        head = {"title": page.title, "notes": list(page.notes), **facts}
        return json_text(head | {"rows": plain_rows(frame, decimals)})
    return render_page(page, format)


def chosen_format(format: str | None, output: Path | None = None) -> str:
    """The format asked for; else that of the file's suffix, and Markdown for any other suffix or none.

    Raises:
        UserError: the format is unknown.
    """
    if format is None:
        return SUFFIXES.get(output.suffix.lower(), "markdown") if output else "markdown"
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    return format
