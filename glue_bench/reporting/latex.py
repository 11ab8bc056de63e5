r"""Pages as a LaTeX fragment to \input into a paper: one booktabs table per grid, no other package.

A table that is too wide for a column of a two-column article spans both, and one that is too wide for that goes on
below, with its first columns repeated: no box is overfull in an article of one column or two.

Where a text could meet LaTeX's own syntax it is escaped: `[` and `*` too, which after `\\` and `\midrule` would be
taken for an option, and repeated hyphens, apostrophes and commas, which would become one dash or quotation mark.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from glue_bench.reporting.document import Grid, GridCell, Page, PageSection, folded, long_columns, one_line, spans

MINUS = "\N{MINUS SIGN}"
COMMANDS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': r"\char34{}",
    "[": "{[}",
    "*": "{*}",
    "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",  # noqa: RUF001
    "–": r"\textendash{}",  # noqa: RUF001
    "—": r"\textemdash{}",
    MINUS: r"\ensuremath{-}",
    "▲": r"\ensuremath{\uparrow}",
    "▼": r"\ensuremath{\downarrow}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    **{special: f"\\{special}" for special in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, COMMANDS)))
_LIGATURE = re.compile(r"([-',])(?=\1)")
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")
COLUMN, LINE = 220.0, 345.0
"""Points of a column of a two-column article on A4 paper, and of the line of an article of one column."""
DIGIT = {"small": 5.3, "footnotesize": 4.9, "scriptsize": 4.6}
"""Points of a bold digit, by size of type (cmbx9, cmbx8, cmbx7; rounded up)."""
SEPARATION, SHARE = 6.0, 0.3
"""Points between two columns, and the part of the line that a column of long texts takes."""
_WIDE, _NARROW = frozenset("MWmw@%▲▼†‡±–—"), frozenset("Iijlft.,:;|!'()[]- ")  # noqa: RUF001
SPANS = {"plain": "%s", "bold": r"\textbf{%s}", "code": r"\texttt{%s}"}


def render(page: Page) -> str:
    r"""The page as a fragment: tables (which float, so that each caption repeats the page's title), then the notes."""
    environment = Environment(
        loader=PackageLoader("glue_bench.reporting"),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,  # every text passes `escape`; what jinja2 escapes is HTML's
    )
    environment.filters |= {
        "plain": escape,
        "sentence": sentence,
        "caption": caption,
        "label": label,
        "columns": columns,
        "layout": layout_of,
        "header": header,
        "body": body,
    }
    return environment.get_template("page.tex").render(page=page)


def escape(text: str) -> str:
    """Plain text as LaTeX that prints it as it is."""
    return _LIGATURE.sub(r"\1{}", _SPECIAL.sub(lambda match: COMMANDS[match[0]], one_line(text)))


def sentence(text: str) -> str:
    """A sentence with the markup of `document.spans` as LaTeX."""
    return "".join(SPANS[kind] % escape(run) for kind, run in spans(text))


def label(page: Page, section: PageSection) -> str:
    r"""What `\ref` finds a section's table by: its titles in lower case, so that it stays while numbers change."""
    words = re.findall(r"[a-z0-9]+", f"{page.title} {section.title}".lower())
    return "tab:" + ("-".join(words) or "table")


def caption(page: Page, section: PageSection) -> str:
    """All that a floating table would lose: the page's title and banner, the section's title and text."""
    titles = [f"{escape(title)}." for title in (page.title, section.title) if title]
    banner = [SPANS["bold"] % escape(page.banner)] if page.banner else []
    return " ".join([*titles, *banner, *([sentence(section.text)] if section.text else [])])


def columns(grid: Grid) -> str:
    """How columns are set: numbers to the right, texts to the left, in lines of their own where they are long."""
    long = long_columns(grid)
    sides = ["l" if i in grid.texts else "r" for i in range(len(grid.header))]
    return "".join(rf"p{{{SHARE}\linewidth}}" if i in long else side for i, side in enumerate(sides))


class Layout(NamedTuple):
    r"""How a grid is set: in `table` (one column of two) or `table*`, at a size of type, in one tabular per part."""

    environment: str
    size: str
    parts: list[Grid]


def layout_of(grid: Grid) -> Layout:
    """The narrowest and largest that fits; folded at the smallest size where nothing does."""
    for environment, room in (("table", COLUMN), ("table*", LINE)):
        for size in DIGIT:
            parts = list(folded(grid, room, points(grid, size, room)))
            if len(parts) == 1:
                return Layout(environment, size, parts)
    return Layout("table*", size, parts)


def points(grid: Grid, size: str, room: float) -> list[float]:
    """What each column takes at a size of type, as Computer Modern has it, rounded up."""
    long, digit = long_columns(grid), DIGIT[size]
    texts = replace(grid, header=tuple("\n".join(_broken(name)) for name in grid.header))
    return [
        SEPARATION + (SHARE * room if i in long else digit * texts.width(i, _digits)) for i in range(len(grid.header))
    ]


def _digits(text: str) -> float:
    """A text's width in digits."""
    return sum(1.75 if c in _WIDE else 0.65 if c in _NARROW else 1.5 if c.isupper() else 1.1 for c in text)


def header(grid: Grid) -> list[str]:
    """The cells of the header, over two lines where they have a parenthesis."""
    cells = []
    for i, name in enumerate(grid.header):
        lines = r" \\ ".join(map(escape, _broken(name)))
        side = "l" if i in grid.texts else "r"
        cells.append(f"\\shortstack[{side}]{{{lines}}}" if len(_broken(name)) > 1 else lines)
    return cells


def body(rows: Iterable[tuple[GridCell, ...]], texts: frozenset[int]) -> Iterator[list[str]]:
    """The cells of each row; among numbers a hyphen before a digit is a minus."""
    for row in rows:
        shown = []
        for i, cell in enumerate(row):
            text = escape(cell.text if i in texts else _MINUS.sub(MINUS, cell.text))
            aside = rf" {{\tiny({escape(_MINUS.sub(MINUS, cell.aside))})}}" if cell.aside else ""
            shown.append((SPANS["bold"] % text if cell.bold else text) + escape(cell.marks) + aside)
        yield shown


def _broken(name: str) -> list[str]:
    """A header over two lines where it has a parenthesis: CoLA, (Matthews)."""
    first, bracket, rest = one_line(name).partition(" (")
    return [first, f"({rest}"] if bracket else [first]
