r"""Pages as a LaTeX fragment to \input into a paper: one booktabs table a grid, no other package.

Where a text could meet LaTeX's own syntax it is escaped: `[` and `*` too, which after `\\` and `\midrule` would be
taken for an option, and repeated hyphens, apostrophes and commas, which would become one dash or quotation mark.
"""

import re

from glue_bench.reporting.document import LONG, Cell, Grid, Page, Section, long_columns
from glue_bench.reporting.markup import convert, one_line

PACKAGES = r"% Needs \usepackage{booktabs}. Characters beyond ASCII in names are UTF-8."
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
    "\N{MINUS SIGN}": r"\ensuremath{-}",
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    **{special: f"\\{special}" for special in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, COMMANDS)))
_LIGATURE = re.compile(r"([-',])(?=\1)")
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)")
# Characters that fit into the 345 pt of an article's line, columns set apart by 3 pt a side.
SIZES = {"small": 74, "footnotesize": 81}
WIDE = "% Wide: table* takes both columns of a page that has two; with one it may need a landscape page."
GAP = 1.3
BREAK = r" \\ "


def render(page: Page) -> str:
    r"""The page as a fragment: tables (which float, so that each caption repeats the page's title), then the notes."""
    parts = [PACKAGES, *(_section(page, section) for section in page.sections), *_notes(page)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Plain text as LaTeX that prints it as it is."""
    return _LIGATURE.sub(r"\1{}", _SPECIAL.sub(lambda match: COMMANDS[match[0]], one_line(text)))


def sentence(text: str) -> str:
    """A sentence with the markup of `markup` as LaTeX."""
    return convert(text, escape, {"bold": _bold, "code": lambda run: f"\\texttt{{{run}}}"})


def label(page: Page, section: Section) -> str:
    r"""What `\ref` finds a section's table by: its titles in lower case, so that it stays while numbers change."""
    words = re.findall(r"[a-z0-9]+", f"{page.title} {section.title}".lower())
    return "tab:" + ("-".join(words) or "table")


def _section(page: Page, section: Section) -> str:
    if section.grid is None:
        return "\n".join([f"\\paragraph{{{escape(section.title)}}}", sentence(section.text)])
    size = _size(section.grid)
    environment = "table" if size else "table*"
    lines = [
        *([] if size else [WIDE]),
        f"\\begin{{{environment}}}[htbp]",
        r"\centering",
        f"\\caption{{{_caption(page, section)}}}",
        f"\\label{{{label(page, section)}}}",
        f"\\{size or 'scriptsize'}",
        r"\setlength{\tabcolsep}{3pt}",
        *_tabular(section.grid),
        f"\\end{{{environment}}}",
    ]
    return "\n".join(lines)


def _tabular(grid: Grid) -> list[str]:
    sides = ["l" if i in grid.texts else "r" for i in range(len(grid.header))]
    long = long_columns(grid)
    columns = "".join(r"p{0.3\linewidth}" if i in long else side for i, side in enumerate(sides))
    return [
        f"\\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _row([_header(name, side) for name, side in zip(grid.header, sides, strict=True)]),
        r"\midrule",
        *(_row([_cell(cell, side) for cell, side in zip(row, sides, strict=True)]) for row in grid.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _caption(page: Page, section: Section) -> str:
    titles = [f"{escape(title)}." for title in (page.title, section.title) if title]
    banner = [_bold(escape(page.banner))] if page.banner else []
    return " ".join([*titles, *banner, *([sentence(section.text)] if section.text else [])])


def _size(grid: Grid) -> str:
    """The largest size of type in which the table should fit the line; empty if none does."""
    width = sum(min(width, LONG) + GAP for width in _widths(grid))
    return next((size for size, fits in SIZES.items() if width <= fits), "")


def _widths(grid: Grid) -> list[int]:
    """Characters in the longest line of each column."""
    headers = [max(map(len, _broken(name))) for name in grid.header]
    shown = [[len(cell.text + cell.marks) for cell in column] for column in zip(*grid.rows, strict=True)]
    return [max([header, *cells]) for header, cells in zip(headers, shown or [[]] * len(headers), strict=True)]


def _broken(name: str) -> list[str]:
    """A header over two lines where it has a parenthesis: CoLA, (Matthews)."""
    first, bracket, rest = one_line(name).partition(" (")
    return [first, f"({rest}"] if bracket else [first]


def _header(name: str, side: str) -> str:
    lines = [escape(line) for line in _broken(name)]
    return lines[0] if len(lines) == 1 else f"\\shortstack[{side}]{{{BREAK.join(lines)}}}"


def _row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _cell(cell: Cell, side: str) -> str:
    """A cell; among numbers a hyphen before a digit is a minus."""
    text = escape(_MINUS.sub("\N{MINUS SIGN}", cell.text) if side == "r" else cell.text)
    return (_bold(text) if cell.bold else text) + escape(cell.marks)


def _bold(text: str) -> str:
    return f"\\textbf{{{text}}}"


def _notes(page: Page) -> list[str]:
    if not page.notes:
        return []
    items = [f"\\item {sentence(note)}" for note in page.notes]
    return ["\n".join([r"\begin{small}", r"\begin{itemize}", *items, r"\end{itemize}", r"\end{small}"])]
