r"""Pages as a LaTeX fragment to \input into a paper: one booktabs table a grid, no other package.

Where a text could meet LaTeX's own syntax it is escaped: `[` and `*` too, which after `\\` and `\midrule` would be
taken for an option, and repeated hyphens, apostrophes and commas, which would become one dash or quotation mark.
"""

import re
from collections.abc import Iterator

from jinja2 import Environment, PackageLoader, StrictUndefined

from glue_bench.reporting.document import LONG, Grid, Page, PageSection, long_columns, one_line, spans

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
GAP = 1.3
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
        "size": size_of_type,
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
    return "".join(r"p{0.3\linewidth}" if i in long else side for i, side in enumerate(sides))


def size_of_type(grid: Grid) -> str:
    """The largest size of type in which the table should fit the line; empty if none does."""
    width = 0.0
    for i, name in enumerate(grid.header):
        texts = [*_broken(name), *(row[i].text + row[i].marks for row in grid.rows)]
        width += min(max(map(len, texts)), LONG) + GAP
    return next((size for size, fits in SIZES.items() if width <= fits), "")


def header(grid: Grid) -> list[str]:
    """The cells of the header, over two lines where they have a parenthesis."""
    cells = []
    for i, name in enumerate(grid.header):
        lines = r" \\ ".join(map(escape, _broken(name)))
        side = "l" if i in grid.texts else "r"
        cells.append(f"\\shortstack[{side}]{{{lines}}}" if len(_broken(name)) > 1 else lines)
    return cells


def body(grid: Grid) -> Iterator[list[str]]:
    """The cells of each row; among numbers a hyphen before a digit is a minus."""
    for row in grid.rows:
        shown = []
        for i, cell in enumerate(row):
            text = escape(cell.text if i in grid.texts else _MINUS.sub("\N{MINUS SIGN}", cell.text))
            shown.append((SPANS["bold"] % text if cell.bold else text) + escape(cell.marks))
        yield shown


def _broken(name: str) -> list[str]:
    """A header over two lines where it has a parenthesis: CoLA, (Matthews)."""
    first, bracket, rest = one_line(name).partition(" (")
    return [first, f"({rest}"] if bracket else [first]
