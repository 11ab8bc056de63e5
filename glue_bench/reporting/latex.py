r"""Pages as a LaTeX fragment to \input into a paper: one booktabs table per grid, no other package.

A table that is too wide for a column of a two-column article spans both, and one that is too wide for that goes on
below, with its first columns repeated: no box is overfull in an article of one column or two.

Where a text could meet LaTeX's own syntax it is escaped: `[` and `*` too, which after `\\` and `\midrule` would be
taken for an option, and repeated hyphens, apostrophes and commas, which would become one dash or quotation mark.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from glue_bench.reporting.grid import Grid, GridCell, Page, PageSection, folded, long_columns, one_line, spans

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
DIGIT = {"small": 4.63, "footnotesize": 4.26, "scriptsize": 3.99}
"""Points of a digit of Computer Modern, by size of type (cmr9, cmr8, cmr7)."""
BOLD = 1.16
"""How much wider a bold text is."""
SEPARATION, SHARE = 6.0, 0.3
"""Points between two columns, and the part of the line that a column of long texts takes."""
# Widths of cmr's characters in digits, rounded up; all others are as wide as a capital letter.
_WIDTHS = {
    **dict.fromkeys("ijl.,:;'|!", 0.62),
    **dict.fromkeys("frst-()[]I ", 0.81),
    **dict.fromkeys("0123456789aceovgz/–▲▼†‡", 1.07),  # noqa: RUF001
    **dict.fromkeys("bdhknpquxy", 1.13),
    **dict.fromkeys("mMW%@±−", 2.1),  # noqa: RUF001
}
CAPITAL = 1.6
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
    long, rows = long_columns(grid), (*grid.rows, *grid.feet)
    digits = [
        max([*map(_digits, _broken(name)), *(_cell_digits(row[i]) for row in rows)])
        for i, name in enumerate(grid.header)
    ]
    return [SEPARATION + (SHARE * room if i in long else DIGIT[size] * width) for i, width in enumerate(digits)]


def _digits(text: str) -> float:
    """A text's width in digits."""
    return sum(_WIDTHS.get(character, CAPITAL) for character in text)


def _cell_digits(cell: GridCell) -> float:
    text, aside = (_MINUS.sub(MINUS, part) for part in (cell.text, f" ({cell.aside})" if cell.aside else ""))
    return _digits(text) * (BOLD if cell.bold else 1) + _digits(cell.marks + aside)


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
