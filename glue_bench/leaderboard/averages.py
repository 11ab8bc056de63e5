"""The conventions of averaging GLUE side by side, and whether the winner depends on the choice."""

import pandas as pd

from glue_bench.leaderboard.markdown import MISSING, aligned, number
from glue_bench.leaderboard.protocol import AVERAGES, at_rates, average
from glue_bench.leaderboard.table import Board

OTHERS = ("average_eight_columns", "average_eight_tasks")
MEANING = "The same scores, averaged as others do: " + "; ".join(
    f"{AVERAGES[name].short.lower()}: {AVERAGES[name].rule}" for name in OTHERS
)


def averages_frame(board: Board) -> pd.DataFrame:
    """Every convention side by side: origin, arm, variant and, for each of AVERAGES, its value and `_std`.

    Rows as in the leaderboard. Empty where the experiment lacks the tasks of every convention.
    """
    frame = board.table[["origin", "arm", "variant"]].set_index("arm", drop=False)
    if not available(board):
        return frame.iloc[:0]
    scores, statistic = at_rates(board.results.scores, board.rates), board.results.protocol.seeds
    for name, convention in AVERAGES.items():
        mine = average(scores, convention, statistic).reindex(frame.index)
        frame = frame.assign(**{name: mine[statistic], f"{name}_std": mine["std"]})
    return frame.reset_index(drop=True)


def available(board: Board) -> list[str]:
    """The conventions whose tasks the experiment has."""
    tasks = set(board.results.cells["task"])
    return [name for name, convention in AVERAGES.items() if tasks.issuperset(convention.tasks)]


def to_markdown(board: Board, frame: pd.DataFrame) -> str:
    """The means as a Markdown table, the best of each origin in bold where there is a contest."""
    names = available(board)
    lines = [["Arm", "Origin", *(AVERAGES[name].short for name in names)]]
    for _, block in frame.groupby("origin", sort=False):
        for row in block.to_dict("records"):
            lines.append([row["arm"], row["origin"], *(_cell(block, name, row[name]) for name in names)])
    return aligned(lines, text_columns=2)


def winner_notes(board: Board, frame: pd.DataFrame) -> list[str]:
    """A warning for each origin in which the choice of a convention decides who wins."""
    notes = []
    for origin, block in frame.groupby("origin", sort=False):
        winners = _winners(block, available(board))
        if len(winners) > 1:
            told = "; ".join(f"{who} by {', '.join(titles)}" for who, titles in winners.items())
            notes.append(f"**The winner depends on the convention of averaging** ({origin}): {told}.")
    return notes


def _winners(block: pd.DataFrame, names: list[str]) -> dict[str, list[str]]:
    """The arms that win, ties to two decimals together -> the conventions by which; only arms that have them all."""
    ranked = block.set_index("arm")[names].dropna()
    winners: dict[str, list[str]] = {}
    for name in names if len(ranked) > 1 else []:
        best = ranked.index[ranked[name].map(number) == number(ranked[name].max())]
        winners.setdefault(" and ".join(best), []).append(AVERAGES[name].short)
    return winners


def _cell(block: pd.DataFrame, name: str, mean: float) -> str:
    shown, contest = number(mean), block[name].dropna()
    won = len(contest) > 1 and shown == number(contest.max())
    return f"**{shown}**" if won else shown or MISSING
