"""The conventions of averaging GLUE side by side."""

import pandas as pd

from glue_bench.results.board import Board
from glue_bench.results.protocol import AVERAGES, at_rates, average


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
