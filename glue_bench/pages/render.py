"""How pages are written: Markdown, CSV, JSON, LaTeX, HTML and a terminal.

Every format prints the texts of `Table.rows`, so that none can say anything else.
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
from markupsafe import Markup, escape
from pandas import DataFrame
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text
from tabulate import tabulate

from glue_bench.errors import UNSHOWN, unknown
from glue_bench.pages.numbers import number
from glue_bench.pages.page import (
    BETTER,
    LONG,
    WORSE,
    Drawing,
    Page,
    Part,
    Report,
    ShownCell,
    Table,
    one_line,
)

NO_DECIMALS: Mapping[str, int] = MappingProxyType({})
SUFFIXES = {".md": "markdown", ".csv": "csv", ".json": "json", ".tex": "latex", ".html": "html"}
FORMATS = tuple(SUFFIXES.values())
_FORMULA = re.compile(r"[=@\t\r]|[-+](?!(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z)")
_MARKED = re.compile(r"\*\*([^*]+)\*\*|`([^`]+)`")
# An underscore between letters or digits marks nothing in Markdown, nor does an ampersand that begins no entity;
# number signs are taken off the end of a heading.
_MARKDOWN = re.compile(r"[\\`*|>\[\]~$]|<(?=[\w/!?])|(?<![^\W_])_|_(?![^\W_])|&(?=#|\w+;)|#(?=#*$)")
_LINK = re.compile(
    r"https?://(?:[^\s()<>&]|&amp;)*[\w/]"
)  # in escaped text, where other entities end an address
_TEX = str.maketrans({
    **{special: f"\\{special}" for special in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\textasciigrave{}",
    "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", '"': r"\char34{}",
    "[": "{[}", "*": "{*}",  # after \\ and \midrule they would be taken for an option
    "†": r"\textdagger{}", "‡": r"\textdaggerdbl{}", "◇": r"$\diamond$", "±": r"$\pm$", "°": r"\textdegree{}",
    "–": r"\textendash{}", "\N{MINUS SIGN}": "$-$", BETTER: r"$\uparrow$", WORSE: r"$\downarrow$",  # noqa: RUF001
})  # fmt: skip
_LIGATURE = re.compile(r"([-',])(?=\1)")
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


def render(page: Page, format: str = "markdown") -> str:
    """Write a page in one of FORMATS."""
    return _RENDERERS[format](page)


def to_markdown(page: Page) -> str:
    """Write a page as GitHub-flavoured Markdown, with aligned columns."""
    parts = [f"# {_markdown(page.title)}"]
    if page.banner:
        parts.append(f"**{_markdown(page.banner)}**")
    for table in page.tables:
        parts += _markdown_table(table)
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> list[str]:
    """The paragraphs of a table: title, caption, rows, legend."""

    def cell_text(cell: ShownCell) -> str:
        text = _markdown(cell.text)
        return f"**{text}**" if cell.bold and text else text

    paragraphs = []
    if table.title:
        paragraphs.append(f"## {_markdown(table.title)}")
    if table.caption:
        paragraphs.append(sentence(table.caption))
    rows = [[cell_text(cell) for cell in row] for row in table.rows]
    sides = ["right" if style == "number" else "left" for style in table.styles]
    header = [_markdown(title) for title in table.header]
    paragraphs.append(
        tabulate(
            rows, header, tablefmt="pipe", disable_numparse=True, colalign=sides if rows else None
        )
    )
    if table.legend:
        paragraphs.append("\n".join(f"- {sentence(line)}" for line in table.legend))
    return paragraphs


def to_csv(page: Page) -> str:
    """Write the data of a page as CSV."""
    return csv_text(page.rows, page.decimals, page.column_decimals)


def to_json(page: Page) -> str:
    """Write title, banner, captions, legend, the data as `rows` (null: missing), and all `tables`.

    A table has the titles of its `columns` by their names, and the texts of its cells as `rows`.
    """

    def json_value(name: str, value: Any) -> Any:
        if not isinstance(value, float):
            return None if value is pd.NA else value
        if not math.isfinite(value):
            return None
        return float(number(value, page.column_decimals.get(name, page.decimals)))

    rows = []
    for record in page.rows.rename(columns=str).to_dict("records"):
        rows.append({name: json_value(str(name), value) for name, value in record.items()})
    tables = []
    for table in page.tables:
        texts = [
            dict(zip(table.columns, (cell.text for cell in row), strict=True)) for row in table.rows
        ]
        titles = dict(zip(table.columns, table.header, strict=True))
        tables.append({"title": table.title, "columns": titles, "rows": texts})
    document = {
        "title": page.title,
        "banner": page.banner,
        "captions": [table.caption for table in page.tables if table.caption],
        "legend": [line for table in page.tables for line in table.legend],
        "rows": rows,
        "tables": tables,
    }
    return json_text(document)


def to_latex(page: Page) -> str:
    r"""Write a fragment to \input: floating tables, so that each caption repeats the title, each with its legend."""
    tables = (_latex(page, number, table) for number, table in enumerate(page.tables, 1))
    return "\n".join([r"% Needs \usepackage{booktabs,graphicx}", *tables])


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
    environment.filters["sentence"] = lambda text: Markup(sentence(text, "html"))
    environment.filters["anchor"] = lambda title: "-".join(re.findall(r"\w+", title.lower()))
    environment.filters["address"] = _figure_address
    environment.filters["pixels"] = _figure_width
    is_report = isinstance(page, Report)
    parts = (
        page.parts if isinstance(page, Report) else (Part(title=page.title, tables=page.tables),)
    )
    lead = page.lead if isinstance(page, Report) else ""
    template = environment.get_template("page.html")
    return template.render(
        title=page.title, banner=page.banner, lead=lead, parts=parts, is_report=is_report
    )


def _figure_address(drawing: Drawing) -> str:
    from glue_bench.pages.figures import (
        svg_address,
    )  # matplotlib, which pages without figures do without

    return svg_address(drawing.figure)


def _figure_width(drawing: Drawing) -> int:
    from glue_bench.pages.figures import width_in_pixels

    return width_in_pixels(drawing.figure)


def print_page(page: Page, console: Console, file: str = "") -> None:
    """Print a page in a terminal. Where columns do not fit, the last ones are left out, and a line names the `file`."""
    if page.banner:
        console.print(Text(page.banner, style="yellow"))
    for table in page.tables:
        if table.title:
            console.print(Text(table.title, style="bold"))
        if table.caption:
            console.print(Text(one_line(table.caption).replace("`", "")))
        _print_table(table, console, file)


def _print_table(table: Table, console: Console, file: str) -> None:
    """Print the columns of a table that fit."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline")
    used = -1
    for title, style, *cells in zip(table.header, table.styles, *table.rows, strict=True):
        width = LONG if style == "long" else max([len(title), *(len(cell.text) for cell in cells)])
        used += 1 + width
        if used > console.width and grid.columns:
            break
        side: Any = "right" if style == "number" else "left"
        grid.add_column(Text(title), justify=side, no_wrap=style != "long")
    fitting = len(grid.columns)
    first_foot = len(table.rows) - table.feet
    for place, row in enumerate(table.rows):
        texts = [Text(cell.text, style="bold" if cell.bold else "") for cell in row[:fitting]]
        grid.add_row(*texts, style="dim" if place >= first_foot else "")
    console.print(grid)
    if fitting < len(table.columns):
        console.print(Text(f"More columns ({len(table.columns) - fitting}): {file}", style="dim"))


def chosen_format(format: str | None, output: Path | None = None) -> str:
    """The format asked for, else that of the file's suffix, else Markdown; UserError for one that is not known."""
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    suffix = output.suffix.lower() if output else ""
    if format is None and suffix and suffix not in SUFFIXES:
        raise unknown("suffix", suffix, SUFFIXES, f"'{output}'; --format names a format")
    return format or SUFFIXES.get(suffix, "markdown")


def sentence(text: str, format: str = "markdown") -> str:
    """A sentence with its bold and its code in "markdown", "latex" or "html" (with links)."""
    plain, as_bold, as_code = _INLINE[format]
    shown, *marked = _MARKED.split(one_line(text))
    shown = plain(shown)
    for bold, code, rest in zip(marked[::3], marked[1::3], marked[2::3], strict=True):
        inner = (
            as_code.format(code if format == "markdown" else plain(code))
            if code
            else as_bold.format(plain(bold))
        )
        shown += inner + plain(rest)
    return shown


def csv_text(
    frame: DataFrame,
    decimals: int | None = None,
    column_decimals: Mapping[str, int] = NO_DECIMALS,
    **options: Any,
) -> str:
    """Write a table as CSV by the options of `DataFrame.to_csv`.

    With `decimals` floats have so many, or what `column_decimals` says of their column. A text that a spreadsheet would
    take for a formula begins with an apostrophe, which keeps it a text.
    """

    def text(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value

    if decimals is not None:
        for name in frame.select_dtypes("float"):
            exact = column_decimals.get(str(name), decimals)
            frame = frame.assign(**{str(name): [number(value, exact) for value in frame[name]]})
    texts = {str(name): frame[name].map(text) for name in frame if frame[name].dtype.kind == "O"}
    return frame.assign(**texts).to_csv(index=False, lineterminator="\n", **options)


def json_text(document: Any) -> str:
    """A document as JSON, without characters that would control a terminal."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return UNSHOWN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", text)


def _tex(text: str) -> str:
    return _LIGATURE.sub(r"\1{}", text.translate(_TEX))


def _linked(text: str) -> str:
    return _LINK.sub(r'<a href="\g<0>">\g<0></a>', str(escape(text)))


_INLINE: dict[str, tuple[Callable[[str], str], str, str]] = {
    "markdown": (_markdown, "**{}**", "`{}`"),
    "latex": (_tex, r"\textbf{{{}}}", r"\texttt{{{}}}"),
    "html": (_linked, "<strong>{}</strong>", "<code>{}</code>"),
}


def _latex(page: Page, number: int, table: Table) -> str:
    """A floating table that is made smaller only where it is wider than the line, with a rule above the feet.

    Among numbers a hyphen before a digit is a minus.
    """
    parts = [f"{_tex(title)}." for title in (page.title, table.title) if title]
    parts += [rf"\textbf{{{_tex(page.banner)}}}"] if page.banner else []
    caption = " ".join(filter(None, [*parts, sentence(table.caption, "latex")]))
    label = "-".join(re.findall(r"[a-z0-9]+", page.title.lower())[:4]) + f"-{number}" * (number > 1)

    def shown(cell: ShownCell, style: str) -> str:
        text = _tex(_MINUS.sub("\N{MINUS SIGN}", cell.text) if style == "number" else cell.text)
        return rf"\textbf{{{text}}}" if cell.bold else text

    rows = [" & ".join(map(shown, row, table.styles)) + r" \\" for row in table.rows]
    if table.feet:
        rows.insert(-table.feet, r"\midrule")
    sides = "".join(
        {"number": "r", "text": "l", "long": r"p{0.3\linewidth}"}[style] for style in table.styles
    )
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{label or 'table'}}}",
    ]
    lines += [
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{sides}}}",
    ]
    lines += [
        r"\toprule",
        " & ".join(map(_tex, table.header)) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
    ]
    legend = [rf"\item {sentence(line, 'latex')}" for line in table.legend]
    lines += [
        r"\end{tabular}}",
        r"\end{table}",
        *([r"\begin{itemize}", *legend, r"\end{itemize}"] if legend else []),
    ]
    return "\n".join([*lines, ""])


_RENDERERS: dict[str, Callable[[Page], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "json": to_json,
    "latex": to_latex,
    "html": to_html,
}
