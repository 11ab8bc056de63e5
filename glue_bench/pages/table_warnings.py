"""Warnings on top of a table whose runs can tell no arms apart: the reason, and a remedy.

Without a warning such a table would only say "not told apart", like the table of a good comparison.
To add a warning, give it a constant, and let `table_warnings` return it.
"""

import pandas as pd

from glue_bench.board.board import Board
from glue_bench.board.standings import Standing
from glue_bench.config import FINISHED
from glue_bench.data.tasks import scored_columns

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


def table_warnings(board: Board, standing: Standing) -> tuple[str, ...]:
    """Give the warnings of the table of a group of a board's arms.

    They are sentences. There is none if the runs could have told the arms apart.
    """
    rows = standing.arms
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
    silent_titles = [board.titles[column] for column in columns if column in standing.silent]
    if silent_titles:
        sentence = FINISHED_ONE_ANSWER if is_finished else ONE_ANSWER
        warnings.append(sentence.format(columns=", ".join(silent_titles)))
    return tuple(warnings)
