"""One table, one page, and what they are written in: Markdown, CSV, JSON, LaTeX, HTML and a terminal.

Every format prints the texts of `Table.rows`, so that none can say anything else. Titles, banners and cells are plain
text; captions and legends are sentences, which may hold `**bold**` and `` `code` ``, neither within the other.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pandas import DataFrame
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text
from tabulate import tabulate

from glue_bench.errors import UNSHOWN, unknown

if TYPE_CHECKING:
    from glue_bench.pages.figures import Drawing
from glue_bench.pages.numbers import MISSING, decimals_of, number

SUFFIXES = {".md": "markdown", ".csv": "csv", ".json": "json", ".tex": "latex", ".html": "html"}
FORMATS = tuple(SUFFIXES.values())
LONG = 40
"""Columns with longer texts are broken into lines."""
BETTER, WORSE = "▲", "▼"
_FORMULA = re.compile(r"[=@\t\r]|[-+](?!(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z)")
_MARKED = re.compile(r"\*\*([^*]+)\*\*|`([^`]+)`")
# An underscore between letters or digits marks nothing in Markdown, nor does an ampersand that begins no entity;
# number signs are taken off the end of a heading.
_MARKDOWN = re.compile(r"[\\`*|>\[\]~$]|<(?=[\w/!?])|(?<![^\W_])_|_(?![^\W_])|&(?=#|\w+;)|#(?=#*$)")
_LINK = re.compile(r"https?://(?:[^\s()<>&]|&amp;)*[\w/]")  # in escaped text, where other entities end an address
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


@dataclass(frozen=True)
class Column:
    """How a column is shown: as numbers with so many `decimals`, or by `show`, to the right; else as text, to the left.

    A missing number is a dash, anything else that is missing is empty.
    """

    title: str
    decimals: int | None = None
    show: Callable[[Any], str] | None = None

    def text(self, value: Any) -> str:
        """A value as it is shown."""
        if pd.isna(value):
            return "" if self.decimals is None else MISSING
        return number(value, self.decimals) if self.decimals is not None else one_line((self.show or str)(value))


class ShownCell(NamedTuple):
    """A cell as every format shows it, its marks included."""

    text: str
    bold: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """The `columns` of a frame, by their names there, with a caption above and a legend below.

    `bold` (bool) and `marks` (str, behind the text) have the frame's index and some of its columns. The last `feet`
    rows are of another kind: what the numbers above are to be compared with.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    title: str = ""
    caption: str = ""
    legend: tuple[str, ...] = ()
    bold: DataFrame = field(default_factory=DataFrame)
    marks: DataFrame = field(default_factory=DataFrame)
    feet: int = 0

    @property
    def header(self) -> list[str]:
        """The titles of the columns."""
        return [one_line(column.title) for column in self.columns.values()]

    @cached_property
    def rows(self) -> list[list[ShownCell]]:
        """The cells, feet included."""
        names, index = list(self.columns), self.frame.index
        marks = self.marks.reindex(index=index, columns=names).astype(object).fillna("").to_numpy().tolist()
        bold = self.bold.reindex(index=index, columns=names).eq(True).to_numpy().tolist()
        texts = [map(column.text, self.frame[name].tolist()) for name, column in self.columns.items()]
        rows = zip(zip(*texts, strict=True), marks, bold, strict=True)
        return [[ShownCell(text + mark, is_bold) for text, mark, is_bold in zip(*row, strict=True)] for row in rows]

    @cached_property
    def styles(self) -> list[str]:
        """Of each column "number", "text", or "long" if its texts are broken into lines."""
        places = range(len(self.columns))
        texts = ["long" if any(len(row[i].text) > LONG for row in self.rows) else "text" for i in places]
        columns = zip(self.columns.values(), texts, strict=True)
        return [text if column.decimals is None and column.show is None else "number" for column, text in columns]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its title, a warning above everything (demo data), and its tables; or a report, whose `parts` are pages.

    `data` is what CSV and JSON have, with so many `decimals` (of losses three at least): the first table's whole frame
    unless it is given. HTML alone shows the `lead` below the title of a report, and of its parts figures, what is
    typed (`listing`), and pages that are `folded` behind their titles.
    """

    title: str
    tables: tuple[Table, ...] = ()
    banner: str = ""
    data: DataFrame | None = None
    decimals: int = 2
    lead: str = ""
    figures: tuple["Drawing", ...] = ()
    listing: str = ""
    folded: tuple["Page", ...] = ()
    parts: tuple["Page", ...] = ()

    @property
    def rows(self) -> DataFrame:
        """What CSV and JSON have."""
        return self.tables[0].frame if self.data is None else self.data

    def render(self, format: str = "markdown") -> str:
        """The page in one of FORMATS."""
        return str(getattr(self, f"to_{format}")())

    def to_markdown(self) -> str:
        """GitHub-flavoured Markdown, with aligned columns."""
        parts = [f"# {_markdown(self.title)}"]
        parts += [f"**{_markdown(self.banner)}**"] if self.banner else []
        for table in self.tables:
            rows = [[f"**{_markdown(text)}**" if bold and text else _markdown(text) for text, bold in row]
                    for row in table.rows]  # fmt: skip
            sides = ["right" if style == "number" else "left" for style in table.styles] if rows else None
            parts += [f"## {_markdown(table.title)}"] if table.title else []
            parts += [sentence(table.caption)] if table.caption else []
            header = list(map(_markdown, table.header))
            parts += [tabulate(rows, header, tablefmt="pipe", disable_numparse=True, colalign=sides)]
            parts += ["\n".join(f"- {sentence(line)}" for line in table.legend)] if table.legend else []
        return "\n\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """The data as CSV."""
        return csv_text(self.rows, self.decimals)

    def to_json(self) -> str:
        """Title, banner, captions, legend, the data as `rows` (null: missing), and the texts of all `tables`."""

        def plain(name: str, value: Any) -> Any:
            if not isinstance(value, float):
                return None if value is pd.NA else value
            return float(number(value, decimals_of(name, self.decimals))) if math.isfinite(value) else None

        data = self.rows.rename(columns=str).to_dict("records")
        texts = [[dict(zip(table.columns, (text for text, _ in row), strict=True)) for row in table.rows]
                 for table in self.tables]  # fmt: skip
        return json_text({
            "title": self.title,
            "banner": self.banner,
            "captions": [table.caption for table in self.tables if table.caption],
            "legend": [line for table in self.tables for line in table.legend],
            "rows": [{name: plain(str(name), value) for name, value in row.items()} for row in data],
            "tables": [{"title": one.title, "rows": rows} for one, rows in zip(self.tables, texts, strict=True)],
        })  # fmt: skip

    def to_latex(self) -> str:
        r"""A fragment to \input: floating tables, so that each caption repeats the title, each with its legend."""
        tables = (_latex(self, number, table) for number, table in enumerate(self.tables, 1))
        return "\n".join([r"% Needs \usepackage{booktabs,graphicx}", *tables])

    def to_html(self) -> str:
        """A whole document, light and dark, on screens of any width; nothing is fetched. Only a report has scripts."""
        flags: Any = dict.fromkeys(("autoescape", "trim_blocks", "lstrip_blocks", "keep_trailing_newline"), True)
        environment = Environment(loader=PackageLoader("glue_bench.pages", "."), undefined=StrictUndefined, **flags)
        environment.filters["sentence"] = lambda text: Markup(sentence(text, "html"))
        environment.filters["anchor"] = lambda title: "-".join(re.findall(r"\w+", title.lower()))
        return environment.get_template("page.html").render(page=self, parts=self.parts or [self])

    def show(self, console: Console, file: str = "") -> None:
        """Print it in a terminal; where columns do not fit, the last ones are left out, and a line names the `file`."""
        if self.banner:
            console.print(Text(self.banner, style="yellow"))
        for table in self.tables:
            if table.title:
                console.print(Text(table.title, style="bold"))
            if table.caption:
                console.print(Text(one_line(table.caption).replace("`", "")))
            grid, used = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline"), -1
            for title, style, *cells in zip(table.header, table.styles, *table.rows, strict=True):
                used += 1 + (LONG if style == "long" else max([len(title), *(len(cell.text) for cell in cells)]))
                if used > console.width and grid.columns:
                    break
                grid.add_column(Text(title), justify="right" if style == "number" else "left", no_wrap=style != "long")
            shown = len(grid.columns)
            for i, row in enumerate(table.rows):
                texts = (Text(cell.text, style="bold" if cell.bold else "") for cell in row[:shown])
                grid.add_row(*texts, style="dim" if i >= len(table.rows) - table.feet else "")
            console.print(grid)
            if left_out := len(table.columns) - shown:
                console.print(Text(f"More columns ({left_out}): {file}", style="dim"))


def chosen_format(format: str | None, output: Path | None = None) -> str:
    """The format asked for, else that of the file's suffix, else Markdown; UserError for one that is not known."""
    if format is not None and format not in FORMATS:
        raise unknown("format", format, FORMATS)
    suffix = output.suffix.lower() if output else ""
    if format is None and suffix and suffix not in SUFFIXES:
        raise unknown("suffix", suffix, SUFFIXES, f"'{output}'; --format names a format")
    return format or SUFFIXES.get(suffix, "markdown")


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """The facts of which anything is known, each with its name."""
    frame = DataFrame([fact for fact in facts if fact[1]], columns=["fact", "value"])
    return Table(frame=frame, columns={"fact": Column("Setup"), "value": Column("")})


def one_line(text: str) -> str:
    """Without line breaks: each ends a row in Markdown, and two end a paragraph in LaTeX."""
    return " ".join(text.splitlines())


def sentence(text: str, format: str = "markdown") -> str:
    """A sentence with its bold and its code in "markdown", "latex" or "html" (with links)."""
    plain, as_bold, as_code = _INLINE[format]
    shown, *marked = _MARKED.split(one_line(text))
    shown = plain(shown)
    for bold, code, rest in zip(marked[::3], marked[1::3], marked[2::3], strict=True):
        inner = as_code.format(code if format == "markdown" else plain(code)) if code else as_bold.format(plain(bold))
        shown += inner + plain(rest)
    return shown


def csv_text(frame: DataFrame, decimals: int | None = None, **options: Any) -> str:
    """A table as CSV, floats with `decimals` if these are given, by the options of `DataFrame.to_csv`.

    A text that a spreadsheet would take for a formula begins with an apostrophe, which keeps it a text.
    """

    def text(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value

    for name in frame.select_dtypes("float") if decimals is not None else ():
        exact = decimals_of(str(name), decimals or 0)
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
    sides = "".join({"number": "r", "text": "l", "long": r"p{0.3\linewidth}"}[style] for style in table.styles)
    lines = [r"\begin{table}[htbp]", r"\centering", rf"\caption{{{caption}}}", rf"\label{{tab:{label or 'table'}}}"]
    lines += [r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", rf"\begin{{tabular}}{{{sides}}}"]
    lines += [r"\toprule", " & ".join(map(_tex, table.header)) + r" \\", r"\midrule", *rows, r"\bottomrule"]
    legend = [rf"\item {sentence(line, 'latex')}" for line in table.legend]
    lines += [r"\end{tabular}}", r"\end{table}", *([r"\begin{itemize}", *legend, r"\end{itemize}"] if legend else [])]
    return "\n".join([*lines, ""])
