"""The table that a leaderboard shows for one group of arms.

The arms come first, the best one on top. The baselines and the smallest differences follow.

To show another fact of an arm, give it a column in FACT_COLUMNS. If the rows do not have it, add it
in `board.rows.leaderboard_frame`. To show another measure, add it to `data.measures`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd
from pandas import DataFrame, Series

from glue_bench.board.compare import CONVERSION_KIND, Comparison
from glue_bench.board.standings import Standing
from glue_bench.data.measures import MEASURES, Measure
from glue_bench.pages.headings import heading_of
from glue_bench.pages.marks import PARTIAL, SMALLEST, UNCONTROLLED, arm_marks, score_marks
from glue_bench.pages.numbers import abbreviate_number, format_difference, format_number
from glue_bench.pages.page import Column, Table
from glue_bench.pages.summary import floor_text, summary_line
from glue_bench.pages.table_warnings import table_warnings

FACT_COLUMNS = {
    "arm": Column("Arm"),
    "parameters": Column("Params", show=abbreviate_number),
}
"""The first columns of the table, by their names in a `leaderboard_frame`. The scores follow."""


def group_table(comparison: Comparison, standing: Standing, scores: Mapping[str, Column]) -> Table:
    """Make the table of a group of arms.

    Args:
        comparison: The contrasts that the line above the table counts.
        standing: What is known of the group.
        scores: The columns of scores, the first column first.

    Returns:
        A table with a row for each arm, the best one first. Its feet are the baselines, and the
        difference that must be reached to get a mark. The table has no legend yet.
    """
    board = comparison.board
    group = standing.group
    columns = ranking_columns(standing, scores)
    bold = best_scores(standing, scores)
    rows = ranking_rows(standing, MEASURES[comparison.columns[0]])
    feet = rows.iloc[len(standing.arms) :]

    notes = set(feet["arm"])
    if not board.partial_columns.isdisjoint(scores):
        notes.add(PARTIAL)
    if standing.uncontrolled:
        notes.add(UNCONTROLLED)

    marks = score_marks(rows, list(scores))
    if standing.is_compared:
        marks["arm"] = arm_marks(standing, rows["arm"])

    return Table(
        title=heading_of(group, comparison),
        warnings=table_warnings(board, standing),
        caption=summary_line(comparison, [group], floor_text(board, standing)),
        frame=rows[list(columns)],
        columns=columns,
        bold=bold,
        marks=marks,
        feet=len(feet),
        notes=frozenset(notes),
    )


def ranking_rows(standing: Standing, first: Measure) -> DataFrame:
    """Give the rows of a table: the arms, the baselines, and the smallest differences, if any.

    Arms that are compared have their difference in the `first` column.
    """
    rows = standing.rows
    if standing.is_compared:
        rows = rows.assign(difference=difference_texts(standing, first))
    if standing.smallest:
        last_row = DataFrame([{"arm": SMALLEST, **standing.smallest}])
        rows = pd.concat([rows, last_row], ignore_index=True)
    return rows


def ranking_columns(standing: Standing, scores: Mapping[str, Column]) -> dict[str, Column]:
    """Give the columns of a table: the facts, the first score, its difference, the other scores."""
    columns = dict(FACT_COLUMNS)
    for name, column in scores.items():
        columns[name] = column
        if name in standing.uncontrolled:
            columns[name] = replace(column, title=column.title + UNCONTROLLED)
        if standing.is_compared:
            columns.setdefault("difference", Column("Difference", show=str))
    return columns


def difference_texts(standing: Standing, measure: Measure) -> Series:
    """Write each arm's difference from the reference in the first column, and half its interval.

    Args:
        standing: The arms, and the one that the others are compared with.
        measure: The measure of the first column.

    Returns:
        A text for each row, None where there is no difference.
    """
    rows = standing.rows
    differences = rows[f"{measure.name}_difference"]
    texts: list[str | None] = []
    for arm, difference, half in zip(rows["arm"], differences, rows["half"], strict=True):
        if arm == standing.group.reference:
            texts.append("reference")
        elif pd.isna(difference):
            texts.append(None)
        elif pd.isna(half):
            texts.append(format_difference(difference, measure.decimals))
        else:
            difference_text = format_difference(difference, measure.decimals)
            half_text = format_number(half, measure.decimals)
            texts.append(f"{difference_text} ± {half_text}")
    return Series(texts, index=rows.index, dtype=object)


def best_scores(standing: Standing, names: Iterable[str]) -> DataFrame:
    """Say which scores of arms are the best in columns of these names; a conversion has no best."""
    if standing.group.kind == CONVERSION_KIND:
        return DataFrame()
    arms = standing.arms
    return DataFrame({name: is_best(arms[name], MEASURES[name]) for name in names})


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
