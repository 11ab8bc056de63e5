"""The marks of a leaderboard, and the legend that explains its columns, marks and rows.

A mark is a sign behind a text. To add one, give it a constant and a line in LEADERBOARD_LEGEND, and
let `score_mark` or `arm_marks` return it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from pandas import DataFrame, Series

from glue_bench.board.standings import Standing
from glue_bench.data.measures import AVERAGE
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import BETTER, WORSE, Table

PARTIAL = "†"
COLLAPSED = "‡"
FEWER_RUNS = "*"
UNLIKE = "◇"
UNCONTROLLED = "§"
VERDICT_MARKS = {"better": BETTER, "worse": WORSE}
SMALLEST = "smallest difference"
"""The name of the row of smallest differences."""
SCORES_NOTE = (
    "Scores are of the validation set, times 100: Matthews correlation for CoLA, "
    "Pearson correlation for STS-B, accuracy elsewhere. "
    "Avg.: mean of the task columns; WNLI never counts."
)
OTHER_TASKS_NOTE = (
    "Scores of tasks that are not GLUE's are the first of their metrics. "
    "GLUE avg.: the mean of GLUE's columns alone."
)
MEASURES_NOTE = (
    "Val. loss: nats per masked word of held-out text after pretraining; lowest is best. "
    "Swap test: how often a text is preferred to the same text with two neighbouring words "
    "swapped; chance is 50."
)
DIFFERENCE_NOTE = (
    "Difference: the arm less the reference in the column to its left, "
    "± half of a 95% interval for all arms together."
)
MEDIANS_NOTE = (
    "Scores of tasks are medians over seeds. "
    "Measures of pretraining, differences, intervals and marks are of means."
)
COMMON_SEEDS_NOTE = "Differences are over the pretraining seeds that all compared arms have."
VERDICTS_NOTE = (
    "**Bold**: best of the column. ▲ ▼: better or worse than the reference at 5%, corrected for "
    "all arms. No mark: not shown to differ, which does not mean equal."
)
PLANNED_NOTE = (
    "Planned contrasts, a family of their own, are in `statistics.md`; marks are exploratory."
)
BASELINES_NOTE = (
    "Majority class: the most frequent label of the validation set (STS-B: the mean). "
    "Word overlap, bag of words, and both together: scikit-learn on the arms' training rows. "
    "An arm at or below a baseline has shown nothing on that task."
)
SMALLEST_NOTE = (
    "Smallest difference: what a measured difference must reach to get a mark (median over arms)."
)
OTHER_ROWS_NOTE = (
    "† stands also over tasks whose rows are not the official ones. "
    "The line Data says how they differ."
)
MARKS_NOTE = (
    "† a part of the official rows: no published score compares. "
    "‡ a run gave one answer to everything. * fewer runs than planned. "
    "◇ another processor or precision than the reference. – no score. "  # noqa: RUF001
    "§ `add` is not shown above `none`: no evidence about positions."
)
LEADERBOARD_LEGEND = {
    "task": SCORES_NOTE,
    AVERAGE: SCORES_NOTE,
    "other tasks": OTHER_TASKS_NOTE,
    "validation_loss": MEASURES_NOTE,
    "swap_1": MEASURES_NOTE,
    "difference": DIFFERENCE_NOTE,
    "medians": MEDIANS_NOTE,
    "common": COMMON_SEEDS_NOTE,
    "bold": VERDICTS_NOTE,
    BETTER: VERDICTS_NOTE,
    WORSE: VERDICTS_NOTE,
    "planned": PLANNED_NOTE,
    "majority class": BASELINES_NOTE,
    "word overlap": BASELINES_NOTE,
    "bag of words": BASELINES_NOTE,
    "words and overlap": BASELINES_NOTE,
    SMALLEST: SMALLEST_NOTE,
    "differences": OTHER_ROWS_NOTE,
    PARTIAL: MARKS_NOTE,
    COLLAPSED: MARKS_NOTE,
    FEWER_RUNS: MARKS_NOTE,
    UNLIKE: MARKS_NOTE,
    UNCONTROLLED: MARKS_NOTE,
    MISSING: MARKS_NOTE,
}
"""The legend lines by the column, mark or row of a leaderboard that they explain."""
MARKS_IN_WORDS = {
    BETTER: "▲ better than the reference",
    WORSE: "▼ worse than the reference",
    "bold": "bold: the best of its column",
    FEWER_RUNS: "* fewer runs than planned",
    PARTIAL: "† a part of the rows, or other rows",
    COLLAPSED: "‡ one answer to everything",
    UNCONTROLLED: "§ add is not shown above none: no evidence about positions",
    UNLIKE: "◇ another processor or precision than the reference",
}
"""What each mark means, in few words for a terminal."""


def explain_marks(tables: Iterable[Table]) -> list[str]:
    """Explain the marks that stand in tables, each in one line for a terminal."""
    keys: set[str] = set()
    for table in tables:
        keys |= table.legend_keys
    return [line for mark, line in MARKS_IN_WORDS.items() if mark in keys]


def score_marks(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Give the marks behind the scores of a table.

    Args:
        rows: Rows of a `leaderboard_frame`, or of a `steps_frame` with marks.
        names: The columns that hold scores.

    Returns:
        A text for each row and column; empty where there is no score.
    """
    records = rows.to_dict("records")
    marks = DataFrame(index=rows.index)
    for name in names:
        signs = [score_mark(record, name) for record in records]
        marks[name] = Series(signs, index=rows.index, dtype=object)
    return marks


def score_mark(row: Mapping[Any, Any], name: str) -> str:
    """Give the marks behind one score of a row: its verdict, a collapsed run, a missing run."""
    if pd.isna(row[name]):
        return ""
    sign = VERDICT_MARKS.get(row.get(f"{name}_verdict", ""), "")
    if is_listed(row["collapsed"], name):
        sign += COLLAPSED
    if is_listed(row["incomplete"], name):
        sign += FEWER_RUNS
    return sign


def is_listed(columns: object, name: str) -> bool:
    """Say whether a text with semicolons has a column; a baseline's row has no such text."""
    return isinstance(columns, str) and name in columns.split(";")


def arm_marks(standing: Standing, arms: Series) -> list[str]:
    """Give the mark behind the name of each arm: whether it ran on another machine."""
    return [UNLIKE if arm in standing.unlike else "" for arm in arms]
