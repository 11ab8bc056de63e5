"""Pages in a terminal: the numbers of the page, in as many tables as it takes for columns to fit the window."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from glue_bench.reporting.document import Grid, GridCell, Page

COLUMN = 8
"""Columns of numbers are at least so wide: headers are broken into lines of this length where words allow it."""


def show(page: Page, console: Console) -> None:
    """Print a page; a table that is wider than the window goes on below, with its first columns repeated."""
    console.print(Text(page.title, style="bold"))
    if page.banner:
        console.print(Text(page.banner, style="yellow"))
    for section in page.sections:
        if section.title or section.text:
            console.print(Text.assemble("\n", (section.title, "bold"), ": " * bool(section.text), section.text))
        for table in tables(section.grid, console.width) if section.grid else ():
            console.print(table)
    for note in page.notes:
        console.print(Padding(Text(f"- {note}", style="dim"), (0, 0, 0, 1)))


def tables(grid: Grid, width: int) -> Iterator[Table]:
    """The columns of numbers in tables that fit the width, then each text behind them in a table of its own."""
    numbers = [i for i in range(len(grid.header)) if i not in grid.texts]
    labels = [i for i in sorted(grid.texts) if i < min(numbers, default=0)]
    used = left = sum(max(len(grid.header[i]), *(len(row[i].text) for row in grid.rows), 0) + 1 for i in labels)
    chunks: list[list[int]] = []
    for i in numbers:
        values = [_value(row[i]) for row in grid.rows]
        needed = 1 + max(len(line) for text in [_header(grid, i), *map(str, values)] for line in text.splitlines())
        if not chunks or used + needed > width:
            chunks.append([])
            used = left
        chunks[-1].append(i)
        used += needed
    yield from (_numbers(grid, labels, chunk) for chunk in chunks)
    yield from (_texts(grid, labels, i) for i in sorted(grid.texts) if i not in labels)


def _numbers(grid: Grid, labels: Sequence[int], columns: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for i in labels:
        table.add_column(Text(grid.header[i]), no_wrap=True)
    for i in columns:
        table.add_column(Text(_header(grid, i)), justify="right", no_wrap=True)
    for row in grid.rows:
        table.add_row(*(Text(row[i].text) for i in labels), *(_value(row[i]) for i in columns))
    return table


def _header(grid: Grid, column: int) -> str:
    """The header in lines that are as narrow as its numbers, where its words allow it."""
    width = max(COLUMN, *(len(row[column].text.split(" ± ")[0]) for row in grid.rows), 0)
    return "\n".join(wrap(grid.header[column], width, break_long_words=False, break_on_hyphens=False))


def _value(cell: GridCell) -> Text:
    """A number with its marks, and below it the deviation or the upper end of an interval."""
    first, sign, deviation = cell.text.partition(" ± ")
    first = first.replace(" to ", "\n")
    return Text.assemble((first + cell.marks, "bold" if cell.bold else ""), (f"\n±{deviation}" if sign else "", "dim"))


def _texts(grid: Grid, labels: Sequence[int], column: int) -> Table:
    """The rows that have a text in the column; a row whose first label is empty belongs to the one above."""
    title = grid.header[column]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
    for i in [*labels, column]:
        table.add_column("" if i == column else Text(grid.header[i]))
    name = ""
    for row in grid.rows:
        name = row[0].text or name
        if row[column].text:
            table.add_row(Text(name), *(Text(row[i].text) for i in [*labels[1:], column]))
    return table
