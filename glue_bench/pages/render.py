"""How pages are written: Markdown, CSV, JSON and HTML; LaTeX and the terminal have their own files.

Every format prints the texts of `Table.rows`, so that all formats say the same.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pandas import DataFrame
from tabulate import tabulate

from glue_bench.errors import CONTROL_CHARACTERS, unknown
from glue_bench.pages.latex import to_latex
from glue_bench.pages.markup import escape_markdown, sentence
from glue_bench.pages.numbers import format_number
from glue_bench.pages.page import Drawing, Page, Part, Report, ShownCell, Table

NO_DECIMALS: Mapping[str, int] = MappingProxyType({})
FORMATS_BY_SUFFIX = {
    ".md": "markdown",
    ".csv": "csv",
    ".json": "json",
    ".tex": "latex",
    ".html": "html",
}
PAGE_FORMATS = tuple(FORMATS_BY_SUFFIX.values())
_FORMULA = re.compile(r"[=@\t\r]|[-+](?!(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z)")


def render(page: Page, format: str = "markdown") -> str:
    """Write a page in one of PAGE_FORMATS."""
    renderer = RENDERERS[format]
    return renderer(page)


def resolve_format(format: str | None, output: Path | None = None) -> str:
    """Choose one of PAGE_FORMATS.

    Args:
        format: The format that is asked for, if any.
        output: The file to write, whose suffix decides if no format is asked for.

    Returns:
        The format; Markdown if nothing decides.

    Raises:
        UserError: the format or the suffix is not known.
    """
    if format is not None:
        if format not in PAGE_FORMATS:
            raise unknown("format", format, PAGE_FORMATS)
        return format
    suffix = output.suffix.lower() if output else ""
    if suffix and suffix not in FORMATS_BY_SUFFIX:
        raise unknown("suffix", suffix, FORMATS_BY_SUFFIX, f"'{output}'; --format names a format")
    return FORMATS_BY_SUFFIX.get(suffix, "markdown")


def to_markdown(page: Page) -> str:
    """Write a page as GitHub-flavoured Markdown, with aligned columns."""
    paragraphs = [f"# {escape_markdown(page.title)}"]
    if page.banner:
        paragraphs.append(f"**{escape_markdown(page.banner)}**")
    for table in page.tables:
        paragraphs += markdown_table(table)
    return "\n\n".join(paragraphs) + "\n"


def markdown_table(table: Table) -> list[str]:
    """Write the paragraphs of a table: title, caption, rows, legend."""
    paragraphs = []
    if table.title:
        paragraphs.append(f"## {escape_markdown(table.title)}")
    paragraphs += [sentence(f"**Warning.** {warning}") for warning in table.warnings]
    if table.caption:
        paragraphs.append(sentence(table.caption))
    header = [escape_markdown(title) for title in table.header]
    rows = []
    for row in table.rows:
        rows.append([markdown_cell(cell) for cell in row])
    sides = ["right" if style == "number" else "left" for style in table.styles]
    grid = tabulate(
        rows, header, tablefmt="pipe", disable_numparse=True, colalign=sides if rows else None
    )
    paragraphs.append(grid)
    if table.legend:
        paragraphs.append("\n".join(f"- {sentence(line)}" for line in table.legend))
    return paragraphs


def markdown_cell(cell: ShownCell) -> str:
    """Write a cell of a table."""
    text = escape_markdown(cell.text)
    return f"**{text}**" if cell.bold and text else text


def to_csv(page: Page) -> str:
    """Write the data of a page as CSV."""
    return csv_text(page.rows, page.decimals, page.column_decimals)


def csv_text(
    frame: DataFrame,
    decimals: int | None = None,
    column_decimals: Mapping[str, int] = NO_DECIMALS,
    **options: Any,
) -> str:
    """Write a table as CSV.

    Args:
        frame: The table.
        decimals: How many decimals floats have; all of their digits if it is None.
        column_decimals: The columns that have another number of decimals.
        options: Passed to `DataFrame.to_csv`.

    Returns:
        The text. A cell that a spreadsheet would take for a formula begins with an apostrophe,
        which keeps it a text.
    """
    texts = {}
    if decimals is not None:
        for name in frame.select_dtypes("float"):
            exact = column_decimals.get(str(name), decimals)
            texts[str(name)] = [format_number(value, exact) for value in frame[name]]
    written = frame.assign(**texts)
    guarded = {}
    for name in written:
        if written[name].dtype.kind == "O":
            guarded[str(name)] = written[name].map(guard_formula)
    return written.assign(**guarded).to_csv(index=False, lineterminator="\n", **options)


def guard_formula(value: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would take for a formula."""
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value


def to_json(page: Page) -> str:
    """Write a page as JSON.

    It has the title, the banner, warnings, captions, the legend, the data as `rows` (null:
    missing), and all `tables`. A table has the titles of its `columns` by their names, and its
    cells as `rows`.
    """
    rows = []
    for record in page.rows.rename(columns=str).to_dict("records"):
        row = {}
        for name, value in record.items():
            decimals = page.column_decimals.get(str(name), page.decimals)
            row[name] = json_value(value, decimals)
        rows.append(row)

    legend: list[str] = []
    warnings: list[str] = []
    for table in page.tables:
        legend += table.legend
        warnings += table.warnings

    document = {
        "title": page.title,
        "banner": page.banner,
        "warnings": warnings,
        "captions": [table.caption for table in page.tables if table.caption],
        "legend": legend,
        "rows": rows,
        "tables": [json_table(table) for table in page.tables],
    }
    return json_text(document)


def json_value(value: Any, decimals: int) -> Any:
    """Give a value as JSON can have it: rounded, and None for what is missing."""
    if not isinstance(value, float):
        return None if value is pd.NA else value
    if not math.isfinite(value):
        return None
    return float(format_number(value, decimals))


def json_table(table: Table) -> dict[str, Any]:
    """Give a table as it is shown: its title, the titles of its columns, the texts of its cells."""
    rows = []
    for row in table.rows:
        texts = [cell.text for cell in row]
        rows.append(dict(zip(table.columns, texts, strict=True)))
    titles = dict(zip(table.columns, table.header, strict=True))
    return {"title": table.title, "columns": titles, "rows": rows}


def json_text(document: Any) -> str:
    """Write a document as JSON, without characters that would control a terminal."""

    def escaped(match: re.Match[str]) -> str:
        return json.dumps(match[0])[1:-1]

    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return CONTROL_CHARACTERS.sub(escaped, text)


def to_html(page: Page | Report) -> str:
    """Write a whole document, light and dark, on screens of any width; nothing is fetched.

    A report has a table of contents, and a script that sorts its tables.
    """
    environment = Environment(
        loader=PackageLoader("glue_bench.pages", "."),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

    environment.filters["sentence"] = html_sentence
    environment.filters["anchor"] = html_anchor
    environment.filters["address"] = figure_address
    environment.filters["pixels"] = figure_width

    if isinstance(page, Report):
        report = page
    else:
        only_part = Part(title=page.title, tables=page.tables, figures=page.figures)
        report = Report(title=page.title, banner=page.banner, parts=(only_part,))

    return environment.get_template("page.html").render(
        title=report.title,
        banner=report.banner,
        lead=report.lead,
        parts=report.parts,
        is_report=isinstance(page, Report),
    )


def html_sentence(text: str) -> Markup:
    """Write a sentence as HTML, which the template does not escape again."""
    return Markup(sentence(text, "html"))


def html_anchor(title: str) -> str:
    """Make the address of a part within its page."""
    return "-".join(re.findall(r"\w+", title.lower()))


def figure_address(drawing: Drawing) -> str:
    """Write the address of a figure, which holds the figure itself."""
    # Pages without figures do without matplotlib.
    from glue_bench.pages.figure_files import svg_address

    return svg_address(drawing.figure)


def figure_width(drawing: Drawing) -> int:
    """Give the width of a figure in pixels."""
    from glue_bench.pages.figure_files import width_in_pixels

    return width_in_pixels(drawing.figure)


RENDERERS: dict[str, Callable[[Page], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "json": to_json,
    "latex": to_latex,
    "html": to_html,
}
"""The writer of each of PAGE_FORMATS."""
