"""The leaderboard in a terminal: the numbers of its page, in columns narrow enough for a window."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from glue_bench.records.store import open_store
from glue_bench.reporting import averages, page
from glue_bench.reporting.assessment import TESTED, assess_experiment, leaders_of
from glue_bench.reporting.leaders import HIGHEST, Leaders, highest
from glue_bench.reporting.markdown import MISSING, number
from glue_bench.results.board import Board, open_board
from glue_bench.results.encoders import named_blocks
from glue_bench.results.protocol import AVERAGES

COLUMN = 9  # "MNLI-mm", "100.00 ‡" and one space fit; a count of seeds takes more
_SHORT = {
    **{"average_official": "avg\nofficial", "average_nine_columns": "avg 9\ncolumns"},
    **{"Arm": "arm", "Variant": "variant", "Parameters": "size"},
}


def show(path: str | Path | Sequence[str | Path], console: Console, protocol: Iterable[str] = ()) -> None:
    """Print the leaderboard of an experiment, or of several together: a table a block, and the notes.

    Raises:
        UserError: as `open_board`.
    """
    board = open_board(path, protocol)
    tested = leaders_of(assess_experiment(open_store(path), board)) if isinstance(path, str | Path) else {}
    leaders = highest(board.table, [*board.columns, *board.averages]) | dict(tested)
    console.print(Text(f"Leaderboard: {board.results.experiment}", style="bold"))
    if page.is_demo(board):
        console.print(Text(page.BANNER, style="yellow"))
    for name, block in named_blocks(board.table):
        console.print(Text.assemble("\n", (name, "bold"), f": {page.block_means(block)}"))
        for table in _tables(board, block, leaders, console.width):
            console.print(table)
    frame = averages.averages_frame(board)
    if len(frame):
        console.print(f"\n[bold]averages[/bold]: {averages.MEANING}", highlight=False)
        console.print(_averages(board, frame))
    for note in page.make_notes(board, TESTED if tested else HIGHEST):
        console.print(Padding(Text(f"- {note}", style="dim"), (0, 0, 0, 1)))


def _tables(board: Board, block: pd.DataFrame, leaders: Leaders, width: int) -> Iterator[Table]:
    """The block in as many tables, one under the other, as it takes to fit the window."""
    names, values = page.arm_columns(block), [*board.columns, *board.averages]
    left = sum(max(map(len, [_SHORT[name], *texts])) + 1 for name, texts in names.items())
    shown = (page.parts(board, row, name) for row in block.to_dict("records") for name in values)
    fit = max(1, (width - left) // max([COLUMN, *(len(mean + marks) + 1 for mean, _, marks in shown)]))
    for start in range(0, len(values), fit):
        yield _table(board, block, leaders, names, values[start : start + fit])


def _table(
    board: Board, block: pd.DataFrame, leaders: Leaders, names: dict[str, list[str]], values: list[str]
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(_SHORT[name], no_wrap=True, justify="right" if name == "Parameters" else "left")
    for name in values:
        header = _SHORT.get(name) or page.short_header(board, name)
        table.add_column(header, justify="right", no_wrap=True, min_width=COLUMN - 1)
    for *texts, row in zip(*names.values(), block.to_dict("records"), strict=True):
        table.add_row(*map(Text, texts), *(_cell(board, row, name, leaders) for name in values))
    return table


def _averages(board: Board, frame: pd.DataFrame) -> Table:
    names = averages.available(board)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("arm", no_wrap=True)
    for name in names:
        table.add_column(AVERAGES[name].short.replace(" ", "\n"), justify="right")
    for row in frame.to_dict("records"):
        table.add_row(row["arm"], *(number(row[name]) or MISSING for name in names))
    return table


def _cell(board: Board, row: dict[Any, Any], name: str, leaders: Leaders) -> Text:
    """The mean, and under it the deviation."""
    mean, deviation, marks = page.parts(board, row, name)
    style = "bold" if row["arm"] in leaders[name] else ""
    return Text.assemble((mean + marks, style), (f"\n±{deviation}" if deviation else "\n", "dim"))
