"""A published table beside ours in a terminal: the lines of its page, in as many tables as it takes to fit."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from glue_bench.reporting.document import Cell
from glue_bench.reporting.page import BANNER
from glue_bench.reporting.papers.arms import is_demo
from glue_bench.reporting.papers.compare import Comparison
from glue_bench.reporting.papers.export import LISTED, compare_named, listed
from glue_bench.reporting.papers.page import TEXT_COLUMNS, UNLIKE, make_notes, paper_grid

COLUMN = 9


def tables() -> Table:
    """What `glue-bench table` lists."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name, title in LISTED.items():
        shown.add_column(title.lower(), no_wrap=name not in ("title", "source"))
    for row in listed().itertuples(index=False):
        shown.add_row(*map(str, row))
    return shown


def show(name: str, path: str | Path | None, console: Console) -> None:
    """Print the published table `name` beside the experiment in `path`, what is not alike, and the notes.

    Raises:
        UserError: there is no such table or experiment.
    """
    comparison = compare_named(name, path)
    console.print(Text(comparison.published.title, style="bold"))
    if comparison.results and is_demo(comparison.results):
        console.print(Text(BANNER, style="yellow"))
    for table in _tables(comparison, console.width):
        console.print(table)
    for note in make_notes(comparison):
        console.print(Padding(Text(f"- {note}", style="dim"), (0, 0, 0, 1)))


def _tables(comparison: Comparison, width: int) -> list[Table]:
    grid = paper_grid(comparison)
    header, lines = grid.header, grid.rows
    texts = len(TEXT_COLUMNS)
    values = range(texts, len(header) - (header[-1] == UNLIKE))
    left = sum(max(len(header[i]), *(len(line[i].text) for line in lines)) + 1 for i in range(texts))
    fit = max(1, (width - left) // COLUMN)
    chunks = [values[start : start + fit] for start in range(0, len(values), fit)]
    shown = [_table(header, lines, chunk) for chunk in chunks]
    return [*shown, *([_unlike(lines)] if header[-1] == UNLIKE else [])]


def _table(header: Sequence[str], lines: Sequence[Sequence[Cell]], values: range) -> Table:
    """Labels and some of the values of each line."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in header[: len(TEXT_COLUMNS)]:
        table.add_column(name, no_wrap=True)
    for column in values:
        table.add_column(header[column].replace(" ", "\n", 1), justify="right", min_width=COLUMN - 1)
    for line in lines:
        labels = [Text(line[0].text, style="bold"), *(Text(cell.text) for cell in line[1 : len(TEXT_COLUMNS)])]
        table.add_row(*labels, *(_value(line[column]) for column in values))
    return table


def _value(cell: Cell) -> Text:
    return Text(cell.text.replace(" to ", "\n"), style="bold" if cell.bold else "")


def _unlike(lines: Sequence[Sequence[Cell]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=UNLIKE, title_justify="left")
    for name in ("Model", "Row", ""):
        table.add_column(name)
    model = ""
    for line in lines:
        model = line[0].text or model
        if line[-1].text:
            table.add_row(model, line[1].text, line[-1].text)
    return table
