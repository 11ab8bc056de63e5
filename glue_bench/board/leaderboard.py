"""All numbers of a leaderboard's page.

The parts stand in files of their own: `marks` (what a reader has to know beside a score), `rows`
(the row of an arm), `standings` (a group of arms) and `steps` (scores by steps of pretraining).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from glue_bench.board.compare import Comparison, open_comparison
from glue_bench.board.marks import marks_of
from glue_bench.board.rows import leaderboard_frame
from glue_bench.board.standings import Standing, make_standing
from glue_bench.board.steps import marked_steps


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """All numbers of a leaderboard's page.

    Attributes:
        comparison: The contrasts.
        frame: The `leaderboard_frame`.
        standings: One for each of the largest groups of arms.
        steps: The `steps_frame`, with `collapsed` and `incomplete` as in `frame`; empty if only one
            checkpoint is fine-tuned.
    """

    comparison: Comparison
    frame: pd.DataFrame
    standings: tuple[Standing, ...]
    steps: pd.DataFrame


def open_leaderboard(path: str | Path, protocol: Sequence[str] = ()) -> Leaderboard:
    """Return the leaderboard of the experiment in a folder; it raises what `open_board` raises.

    Args:
        path: The folder.
        protocol: Changes of the protocol, KEY=VALUE.
    """
    return make_leaderboard(open_comparison(path, protocol))


def make_leaderboard(comparison: Comparison) -> Leaderboard:
    """Return all numbers of a leaderboard's page, each of them computed once."""
    board = comparison.board
    columns = comparison.columns
    marks = marks_of(board, columns, comparison.assessed, comparison.estimates)
    marks_by_steps = {after.steps: marks_of(after, columns) for after in board.by_steps}
    frame = leaderboard_frame(comparison, marks)
    standings: list[Standing] = []
    for group in comparison.largest_groups:
        marks_of_group = marks.groups[group.kind, group.reference]
        standings.append(make_standing(group, comparison, frame, marks_of_group))
    return Leaderboard(
        comparison=comparison,
        frame=frame,
        standings=tuple(standings),
        steps=marked_steps(board, marks_by_steps),
    )
