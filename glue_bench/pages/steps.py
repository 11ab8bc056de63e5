"""The table of scores by steps of pretraining, if several checkpoints are fine-tuned."""

from collections.abc import Mapping

from glue_bench.board.leaderboard import Leaderboard
from glue_bench.pages.marks import score_marks
from glue_bench.pages.page import Column, Table


def steps_table(leaderboard: Leaderboard, scores: Mapping[str, Column]) -> Table:
    """Make the table of scores by steps of pretraining; `scores` are the columns of a page."""
    frame = leaderboard.steps
    names = [name for name in scores if name in frame]
    columns = {"arm": Column("Arm"), "steps": Column("Steps", show="{:,}".format)}
    for name in names:
        columns[name] = scores[name]
    return Table(
        title="Against steps of pretraining",
        frame=frame,
        columns=columns,
        marks=score_marks(frame, names),
    )
