"""The standing of a group of arms: its rows in the order of the table, and what limits them."""

import math
from dataclasses import dataclass

import pandas as pd

from glue_bench.board.compare import CONVERSION_KIND, Comparison, uncontrolled_columns
from glue_bench.board.marks import GroupMarks
from glue_bench.board.rows import CONTRAST_COLUMNS
from glue_bench.stats.verdicts import Group


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of one group of arms.

    Attributes:
        group: The arms, and the one that the others are compared with.
        rows: The rows of the arms and of the baselines in a `leaderboard_frame`, the best arm
            first. A conversion is not ranked, and its source is the first row. The reference has
            no contrast in its own group, so its columns of contrasts are NaN. `half` is half of
            the interval of the first column's difference, or the most that two of its scores can
            differ by, if that is less, as it may be with few seeds.
        smallest: By column the smallest difference that would have got a mark, the median over the
            arms. It is NaN if no two scores can differ by that much. A column without a test has
            none.
        unlike: The arms that were computed on another machine than the reference.
        silent: The columns in which each reported run gave one answer to everything.
        uncontrolled: The columns that fail the positive control.
    """

    group: Group
    rows: pd.DataFrame
    smallest: dict[str, float]
    unlike: set[str]
    silent: set[str]
    uncontrolled: set[str]

    @property
    def arms(self) -> pd.DataFrame:
        """Return the rows of the arms."""
        is_of_group = self.rows["arm"].isin(self.group.arms)
        return self.rows[is_of_group]

    @property
    def is_compared(self) -> bool:
        """Return whether any arm has a contrast with the reference."""
        return bool((self.rows["reference"] == self.group.reference).any())


def make_standing(
    group: Group, comparison: Comparison, frame: pd.DataFrame, marks: GroupMarks
) -> Standing:
    """Return what is known of a group of arms.

    Args:
        group: The arms.
        comparison: The comparison that has the group.
        frame: The `leaderboard_frame`.
        marks: The marks of the group.
    """
    rows = _rows_to_rank(group, frame, comparison)
    return Standing(
        group=group,
        rows=rows,
        smallest=_smallest_differences(rows, comparison),
        unlike=marks.unlike,
        silent=marks.silent,
        uncontrolled=uncontrolled_columns(comparison, group),
    )


def _rows_to_rank(group: Group, frame: pd.DataFrame, comparison: Comparison) -> pd.DataFrame:
    """Return the `rows` of a Standing from a `leaderboard_frame`."""
    is_shown = frame["arm"].isin(group.arms) | (frame["origin"] == "baseline")
    rows = frame[is_shown].reset_index(drop=True)
    if group.kind == CONVERSION_KIND:
        is_source = rows["arm"] == group.reference
        rows = pd.concat([rows[is_source], rows[~is_source]], ignore_index=True)
    is_reference = rows["arm"] == group.reference
    for name in comparison.columns:
        for part in CONTRAST_COLUMNS:
            column = f"{name}_{part}"
            rows[column] = rows[column].mask(is_reference)
    first = comparison.columns[0]
    halves = rows[f"{first}_smallest"].astype(float)
    return rows.assign(half=halves.clip(upper=_widest_difference(comparison, first)))


def _smallest_differences(rows: pd.DataFrame, comparison: Comparison) -> dict[str, float]:
    """Return the `smallest` of a Standing that has these rows."""
    smallest_by_column: dict[str, float] = {}
    for name in comparison.columns:
        smallest = rows[f"{name}_smallest"].astype(float).dropna().median()
        if math.isnan(smallest):
            continue
        is_possible = smallest <= _widest_difference(comparison, name)
        smallest_by_column[name] = smallest if is_possible else math.nan
    return smallest_by_column


def _widest_difference(comparison: Comparison, name: str) -> float:
    """Return the most that two scores of a column can differ by."""
    widest = 0.0
    for estimate in comparison.estimates.get(name, []):
        low, high = estimate.limits
        widest = max(widest, high - low)
    return widest
