"""Pages in a terminal: the numbers of the page, in as many tables as it takes for columns to fit the window."""

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from glue_bench.reporting.grid import LONG, Grid, Page, folded, long_columns, spans

PARTS = (attrgetter("text"), attrgetter("marks"), attrgetter("aside"))
STYLES = {"plain": "", "bold": "bold", "code": "cyan"}


def show(page: Page, console: Console, ending: Iterable[str] = ()) -> None:
    """Print a page, and then lines; a table wider than the window goes on below, with its first columns repeated."""
    if page.title:
        console.print(Text(page.title, style="bold"))
    if page.banner:
        console.print(Text(page.banner, style="yellow"))
    if page.lead:
        console.print(sentence(page.lead))
    for section in page.sections:
        if section.title or section.text:
            colon = ": " * bool(section.title and section.text)
            console.print(Text.assemble((section.title + colon, "bold"), sentence(section.text)))
        for part in parts(section.grid, console.width) if section.grid else ():
            console.print(table(part))
    for note in page.notes:
        console.print(Padding(sentence(f"- {note}", "dim"), (0, 0, 0, 1)))
    for line in ending:
        console.print(sentence(line), soft_wrap=True)


def sentence(text: str, style: str = "") -> Text:
    """A sentence with the markup of `document.spans`."""
    return Text.assemble(*((run, STYLES[kind] or style) for kind, run in spans(text)))


def parts(grid: Grid, width: int) -> list[Grid]:
    """The grid in parts that fit the width, its numbers one below the other; a blank stands between columns."""
    even, long = evened(grid), long_columns(grid)
    widths = [1 + (LONG if i in long else even.width(i, len)) for i in range(len(grid.header))]
    return list(folded(even, width + 1, widths))


def evened(grid: Grid) -> Grid:
    """Filled up with blanks, so that numbers, marks, and what stands beside a number each align in their column."""
    header, rows = list(grid.header), [list(row) for row in (*grid.rows, *grid.feet)]
    for i in (i for i in range(len(header)) if i not in grid.texts):
        text, marks, aside = (max((len(cell) for row in rows for cell in [part(row[i])]), default=0) for part in PARTS)
        aside += aside > 0  # the blank before it
        width = max(len(header[i]), text + marks + aside)
        header[i] = header[i].rjust(width)
        for row in rows:
            filled = (row[i].text.rjust(width - marks - aside), row[i].marks.ljust(marks), row[i].aside.rjust(aside))
            row[i] = replace(row[i], text=filled[0], marks=filled[1], aside=filled[2])
    done = tuple(map(tuple, rows))
    return replace(grid, header=tuple(header), rows=done[: len(grid.rows)], feet=done[len(grid.rows) :])


def table(grid: Grid) -> Table:
    """One part of an evened grid, its feet dim."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold underline")
    long = long_columns(grid)
    for i, name in enumerate(grid.header):
        table.add_column(Text(name), no_wrap=i not in long)
    for rows, style in ((grid.rows, ""), (grid.feet, "dim")):
        for row in rows:
            shown = (Text.assemble((c.text, "bold" if c.bold else ""), c.marks, (c.aside, "dim")) for c in row)
            table.add_row(*shown, style=style)
    return table
