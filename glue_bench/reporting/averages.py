"""The conventions of averaging GLUE side by side, and whether the winner depends on the choice."""

from typing import Any

import pandas as pd

from glue_bench.reporting.document import Cell, Grid, Section
from glue_bench.reporting.leaders import Leaders, highest
from glue_bench.reporting.markdown import MISSING, number
from glue_bench.results.board import Board
from glue_bench.results.encoders import named_blocks
from glue_bench.results.protocol import AVERAGES, at_rates, average

OTHERS = ("average_eight_columns", "average_eight_tasks")
MEANING = "The same scores, averaged as others do: " + "; ".join(
    f"{AVERAGES[name].short.lower()}: {AVERAGES[name].rule}" for name in OTHERS
)


def averages_frame(board: Board) -> pd.DataFrame:
    """Every convention side by side: origin, arm, variant; for each of AVERAGES its value and `_std`; and shape.

    Rows as in the leaderboard. Empty where the experiment lacks the tasks of every convention.
    """
    frame = board.table[["origin", "arm", "variant"]].set_index("arm", drop=False)
    if not available(board):
        return frame.iloc[:0].assign(shape="")
    scores, statistic = at_rates(board.results.scores, board.rates), board.results.protocol.seeds
    for name, convention in AVERAGES.items():
        mine = average(scores, convention, statistic).reindex(frame.index)
        frame = frame.assign(**{name: mine[statistic], f"{name}_std": mine["std"]})
    return frame.assign(shape=board.table.set_index("arm")["shape"]).reset_index(drop=True)


def available(board: Board) -> list[str]:
    """The conventions whose tasks the experiment has."""
    tasks = set(board.results.cells["task"])
    return [name for name, convention in AVERAGES.items() if tasks.issuperset(convention.tasks)]


def averages_section(board: Board, frame: pd.DataFrame, leaders: Leaders | None = None) -> Section:
    """The means as a section of a page; `leaders` as in `leaderboard_page`."""
    names = available(board)
    marked = highest(frame, names) | dict(leaders or {})
    rows = [
        (Cell(row["arm"]), Cell(block), *(_cell(row, name, marked) for name in names))
        for block, mine in named_blocks(frame)
        for row in mine.to_dict("records")
    ]
    header = ("Arm", "Origin", *(AVERAGES[name].short for name in names))
    grid = Grid(header=header, rows=tuple(rows), texts=frozenset({0, 1}))
    return Section(title="Averages side by side", text=MEANING, grid=grid)


def winner_notes(board: Board, frame: pd.DataFrame) -> list[str]:
    """A warning for each block in which the choice of a convention decides who wins."""
    notes = []
    for name, block in named_blocks(frame):
        winners = _winners(block, available(board))
        if len(winners) > 1:
            told = "; ".join(f"{who} by {', '.join(titles)}" for who, titles in winners.items())
            notes.append(f"**The winner depends on the convention of averaging** ({name}): {told}.")
    return notes


def _winners(block: pd.DataFrame, names: list[str]) -> dict[str, list[str]]:
    """The arms that win, ties to two decimals together -> the conventions by which; only arms that have them all."""
    ranked = block.set_index("arm")[names].dropna()
    winners: dict[str, list[str]] = {}
    for name in names if len(ranked) > 1 else []:
        best = ranked.index[ranked[name].map(number) == number(ranked[name].max())]
        winners.setdefault(" and ".join(best), []).append(AVERAGES[name].short)
    return winners


def _cell(row: dict[Any, Any], name: str, leaders: Leaders) -> Cell:
    return Cell(number(row[name]) or MISSING, bold=row["arm"] in leaders[name])
