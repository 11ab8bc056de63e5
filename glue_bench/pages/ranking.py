"""The table that a leaderboard shows for one group of arms.

The arms come first, the best one on top. The baselines and the smallest differences follow.

The rows come from `board.compare.leaderboard_frame`. To show another fact of an arm, give it a
column in FACT_COLUMNS; to show another measure, add it to `data.measures`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from pandas import DataFrame, Series

from glue_bench.board.board import Board
from glue_bench.board.compare import (
    CONTRAST_COLUMNS,
    CONVERSION,
    Comparison,
    score_columns,
    uncontrolled_columns,
)
from glue_bench.data.measures import AVERAGE, MEASURES, Measure
from glue_bench.data.tasks import scored_columns
from glue_bench.pages.groups import summary_line
from glue_bench.pages.marks import (
    PARTIAL,
    SMALLEST,
    UNCONTROLLED,
    arm_marks,
    is_partial,
    score_marks,
)
from glue_bench.pages.numbers import abbreviate_number, format_difference, format_number
from glue_bench.pages.page import Column, Table
from glue_bench.pages.table_warnings import table_warnings
from glue_bench.stats.verdicts import Group

FACT_COLUMNS = {
    "arm": Column("Arm"),
    "parameters": Column("Params", show=abbreviate_number),
}
"""The first columns of the table, by their names in a `leaderboard_frame`. The scores follow."""
FLOOR_TEXT = "{average}: best arm {best}, {baseline} {floor}"


def group_table(comparison: Comparison, group: Group, heading: str, frame: DataFrame) -> Table:
    """Make the table of a group of arms.

    Args:
        comparison: The contrasts that the marks show.
        group: The arms, and the one that the others are compared with.
        heading: The title of the table.
        frame: A `leaderboard_frame`.

    Returns:
        A table with a row for each arm, the best one first. Its feet are the baselines, and the
        difference that must be reached to get a mark. The table has no legend yet.
    """
    board = comparison.board
    names = score_columns(comparison)
    rows = rows_to_rank(group, frame, names)
    arms = rows[rows["arm"].isin(group.arms)]
    is_compared = bool((rows["reference"] == group.reference).any())
    if is_compared:
        rows["difference"] = difference_texts(comparison, group, rows)
    smallest = smallest_differences(comparison, arms, names)
    if smallest:
        last_row = DataFrame([{"arm": SMALLEST, **smallest}])
        rows = pd.concat([rows, last_row], ignore_index=True)

    marks = score_marks(rows, names)
    if is_compared:
        marks["arm"] = arm_marks(board, group, rows["arm"])
    bold = DataFrame()
    if group.kind != CONVERSION:
        bold = DataFrame({name: is_best(arms[name], MEASURES[name]) for name in names})
    notes = set(rows["arm"].iloc[len(arms) :])
    if any(is_partial(board, name) for name in names):
        notes.add(PARTIAL)
    columns = ranking_columns(board, names, is_compared=is_compared)
    for name in uncontrolled_columns(comparison, group):
        columns[name] = replace(columns[name], title=columns[name].title + UNCONTROLLED)
        notes.add(UNCONTROLLED)
    return Table(
        title=heading,
        warnings=table_warnings(comparison, group, arms),
        caption=summary_line(comparison, [group], floor_text(board, rows, arms)),
        frame=rows[list(columns)],
        columns=columns,
        bold=bold,
        marks=marks,
        feet=len(rows) - len(arms),
        notes=frozenset(notes),
    )


def rows_to_rank(group: Group, frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Take the rows of a group's arms and of the baselines from a `leaderboard_frame`.

    A conversion is not ranked, and its source is the first row. The reference has no contrast in
    its own group, so its columns of contrasts are NaN.
    """
    is_shown = frame["arm"].isin(group.arms) | (frame["origin"] == "baseline")
    rows = frame[is_shown].reset_index(drop=True)
    if group.kind == CONVERSION:
        is_source = rows["arm"] == group.reference
        rows = pd.concat([rows[is_source], rows[~is_source]], ignore_index=True)
    is_reference = rows["arm"] == group.reference
    for name in names:
        for part in CONTRAST_COLUMNS:
            column = f"{name}_{part}"
            rows[column] = rows[column].mask(is_reference)
    return rows


def ranking_columns(board: Board, names: Sequence[str], *, is_compared: bool) -> dict[str, Column]:
    """Give the columns of a table: the facts, the first score, its difference, the other scores."""
    first, *further = names
    columns = dict(FACT_COLUMNS)
    columns[first] = score_column(board, first)
    if is_compared:
        columns["difference"] = Column("Difference", show=str)
    for name in further:
        columns[name] = score_column(board, name)
    return columns


def score_column(board: Board, name: str) -> Column:
    """Make the column of a task, a measure or the average, with a mark if rows are missing."""
    title = board.title_of(name)
    if is_partial(board, name):
        title += PARTIAL
    note = "task" if name in scored_columns() else name
    return Column(title, MEASURES[name].decimals, note=note)


def difference_texts(comparison: Comparison, group: Group, rows: DataFrame) -> Series:
    """Write each arm's difference from the reference in the first column, and half its interval.

    With few seeds, half an interval may be larger than the difference of any two possible scores.
    Then that largest possible difference is written.

    Args:
        comparison: The comparison.
        group: The arms, and the one that the others are compared with.
        rows: The rows of the arms, as `rows_to_rank` gives them.

    Returns:
        A text for each row, None where there is no difference.
    """
    name = score_columns(comparison)[0]
    widest = widest_difference(comparison, name)
    decimals = MEASURES[name].decimals
    differences = rows[f"{name}_difference"]
    halves = rows[f"{name}_smallest"]
    texts: list[str | None] = []
    for arm, difference, half in zip(rows["arm"], differences, halves, strict=True):
        if arm == group.reference:
            texts.append("reference")
        elif pd.isna(difference):
            texts.append(None)
        elif pd.isna(half):
            texts.append(format_difference(difference, decimals))
        else:
            difference_text = format_difference(difference, decimals)
            half_text = format_number(min(half, widest), decimals)
            texts.append(f"{difference_text} ± {half_text}")
    return Series(texts, index=rows.index, dtype=object)


def smallest_differences(
    comparison: Comparison, arms: DataFrame, names: Sequence[str]
) -> dict[str, float]:
    """Give the smallest difference that would have got a mark, by column.

    It is the median over the arms. It is NaN where no two scores can differ by that much. A column
    without a test is left out.
    """
    smallest_by_column = {}
    for name in names:
        smallest = arms[f"{name}_smallest"].astype(float).dropna().median()
        if math.isnan(smallest):
            continue
        is_possible = smallest <= widest_difference(comparison, name)
        smallest_by_column[name] = smallest if is_possible else math.nan
    return smallest_by_column


def widest_difference(comparison: Comparison, name: str) -> float:
    """Give the most that two scores of a column can differ by."""
    widest = 0.0
    for estimate in comparison.estimates(name):
        low, high = estimate.limits
        widest = max(widest, high - low)
    return widest


def floor_text(board: Board, rows: DataFrame, arms: DataFrame) -> str:
    """Write the score of the best arm and the score of the best baseline with an average."""
    column = AVERAGE
    if len(board.average.parts) == 1:
        column = next(iter(board.average.parts))
    baselines = rows[rows["origin"] == "baseline"].dropna(subset=AVERAGE)
    if baselines.empty or arms[column].isna().all():
        return ""
    best_baseline = baselines.sort_values(AVERAGE, kind="stable").iloc[-1]
    return FLOOR_TEXT.format(
        average=board.title_of(column),
        best=format_number(arms[column].max()),
        baseline=best_baseline["arm"],
        floor=format_number(best_baseline[AVERAGE]),
    )


def is_best(scores: Series, measure: Measure) -> Series:
    """Say which scores are the best after rounding to the decimals that are shown.

    Scores that are equal after rounding tie. If all scores tie, none of them is the best.
    """

    def as_shown(score: float) -> float:
        return float(format_number(score, measure.decimals))

    rounded = scores.map(as_shown, na_action="ignore")
    best_score = rounded.min() if measure.lowest_is_best else rounded.max()
    best = rounded == best_score
    return best & (best.sum() < rounded.count())
