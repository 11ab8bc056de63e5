"""Scores by steps of pretraining, if several checkpoints of a pretraining are fine-tuned."""

from collections.abc import Mapping

import pandas as pd

from glue_bench.board.board import ARM_KEYS, Board
from glue_bench.board.marks import Marks


def steps_frame(board: Board) -> pd.DataFrame:
    """Return the leaderboard's columns by arm and fine-tuned checkpoint (`steps` of pretraining).

    The frame is empty if only one checkpoint is fine-tuned.
    """
    if len(board.results.all_steps) < 2:
        return pd.DataFrame()
    tables = [after.table.assign(steps=after.steps) for after in board.by_steps]
    # The last column is `steps`. It goes behind the names of the arm.
    names = tables[0].columns
    scores = names[len(ARM_KEYS) : -1]
    columns = [*ARM_KEYS, "steps", *scores]
    return pd.concat(tables, ignore_index=True)[columns]


def marked_steps(board: Board, marks_by_steps: Mapping[int | None, Marks]) -> pd.DataFrame:
    """Return the `steps_frame` with `collapsed` and `incomplete`, by the arms' names and the steps.

    Args:
        board: The board.
        marks_by_steps: The marks of the board after each number of steps.
    """
    steps = steps_frame(board)
    if steps.empty:
        return steps
    collapsed = []
    incomplete = []
    for arm, count in zip(steps["arm"], steps["steps"], strict=True):
        marks = marks_by_steps[count]
        collapsed.append(marks.collapsed.get(arm, ""))
        incomplete.append(marks.incomplete.get(arm, ""))
    marked = steps.assign(collapsed=collapsed, incomplete=incomplete)
    return marked.sort_values(["arm", "steps"], kind="stable", ignore_index=True)
