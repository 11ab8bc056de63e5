"""Warnings on top of a table whose runs can tell no arms apart: the reason, and a remedy.

Without a warning such a table would only say "not told apart", like the table of a good comparison.
To add a warning, give it a constant, and let `table_warnings` return it.
"""

import pandas as pd
from pandas import DataFrame

from glue_bench.board.board import Board
from glue_bench.board.compare import Comparison
from glue_bench.config import FINISHED
from glue_bench.data.tasks import scored_columns
from glue_bench.stats.verdicts import Group

FLOOR = "none"
"""The variant without positions, whose arms are meant to fail where order decides."""
NEARLY_ALL = 99.0
"""Scores from this value on leave no room for a difference that could be seen."""
SWAPS_AT_CHANCE = 55.0
"""Encoders that never learned the order of words had up to 53 in the swap test."""
UNRANKED = "wnli"
"""The task that no average contains; its best known answer is one answer to everything."""
TOO_EASY = (
    "All arms with positions score 99 or more on every task: these tasks are too easy to tell "
    "arms apart. Take harder tasks, fewer rows (`limit`) or fewer epochs."
)
NO_ORDER = (
    "No arm beats chance on the swap test: their pretraining has not taught the order of words, so "
    "these runs say little about positions. Train longer, or raise `initializer_range` for narrow "
    "encoders."
)
ONE_ANSWER = (
    "Every run gave one answer to everything on {columns}: there the runs say nothing about arms. "
    "Train longer, take another learning rate, or take more rows."
)
FINISHED_TOO_EASY = (
    "All checkpoints score 99 or more on every task: these tasks are too easy to tell them apart. "
    "Take harder tasks."
)
FINISHED_ONE_ANSWER = (
    "Every checkpoint gave one answer to everything on {columns}: there the scores say nothing "
    "about checkpoints. Take checkpoints that were fine-tuned on this task, with their own "
    "tokenizers."
)


def table_warnings(comparison: Comparison, group: Group, rows: DataFrame) -> tuple[str, ...]:
    """Give the warnings of the table of a group.

    Args:
        comparison: The comparison that has the group.
        group: The arms of the table.
        rows: The rows of these arms in a `leaderboard_frame`.

    Returns:
        Sentences; empty if the runs could have told the arms apart.
    """
    board = comparison.board
    variants = board.results.arms["variant"].loc[rows["arm"]].to_numpy()
    with_positions = rows[variants != FLOOR]
    columns = [column for column in board.columns if scored_columns()[column][0] != UNRANKED]
    is_finished = (rows["origin"] == FINISHED).all()
    warnings = []
    if len(with_positions) > 1 and columns:
        lowest = with_positions[columns].to_numpy(dtype=float, na_value=0.0).min()
        if lowest >= NEARLY_ALL:
            warnings.append(FINISHED_TOO_EASY if is_finished else TOO_EASY)
    if "swap_1" in with_positions:
        highest = with_positions["swap_1"].astype(float).max()
        if pd.notna(highest) and highest < SWAPS_AT_CHANCE:
            warnings.append(NO_ORDER)
    silent_titles = []
    for column in columns:
        if gave_one_answer(board, group, column):
            silent_titles.append(board.title_of(column))
    if silent_titles:
        sentence = FINISHED_ONE_ANSWER if is_finished else ONE_ANSWER
        warnings.append(sentence.format(columns=", ".join(silent_titles)))
    return tuple(warnings)


def gave_one_answer(board: Board, group: Group, column: str) -> bool:
    """Say whether each reported run of a group's arms gave one answer to all rows of a column."""
    task, place = scored_columns()[column]
    last_runs = board.runs.loc[board.runs["last"], "cell_id"]
    cells = board.reported
    cells = cells[(cells["task"] == task) & cells["arm"].isin(group.arms)]
    if cells.empty or not cells["cell_id"].isin(last_runs).all():
        return False
    return all(place in places for places in cells["collapsed"])
