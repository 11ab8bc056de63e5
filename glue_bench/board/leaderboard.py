"""The numbers of a leaderboard's page: a row for each arm, and what is known of each group."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from glue_bench.board.board import BLOCK_COLUMNS, ENCODER_COLUMNS, floors, steps_frame
from glue_bench.board.compare import CONVERSION, Comparison, uncontrolled_columns
from glue_bench.board.marks import Marks, marks_of
from glue_bench.data.measures import PRETRAINING_MEASURES
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION, Group

CONTRAST_COLUMNS = ["difference", "low", "high", "verdict", "smallest"]
"""What a leaderboard's frame has of the contrasts of a column."""


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


def make_leaderboard(comparison: Comparison) -> Leaderboard:
    """Return all numbers of a leaderboard's page, each of them computed once."""
    board = comparison.board
    groups = comparison.largest_groups
    marks = marks_of(board, comparison.assessed, comparison.estimates)
    marks_by_steps = {after.steps: marks_of(after) for after in board.by_steps}
    baselines = floors(board)
    steps = steps_frame(board)
    uncontrolled = [uncontrolled_columns(comparison, group) for group in groups]
    contrasts = comparison.contrasts_of("reference", CONVERSION)
    frame = _frame(comparison, marks, baselines, contrasts)
    standings: list[Standing] = []
    for group, columns in zip(groups, uncontrolled, strict=True):
        marks_of_group = marks.groups[group.kind, group.reference]
        rows = _rows_to_rank(group, frame, comparison)
        standings.append(
            Standing(
                group=group,
                rows=rows,
                smallest=_smallest_differences(rows, comparison),
                unlike=marks_of_group.unlike,
                silent=marks_of_group.silent,
                uncontrolled=columns,
            )
        )
    return Leaderboard(
        comparison=comparison,
        frame=frame,
        standings=tuple(standings),
        steps=_marked_steps(steps, marks_by_steps, comparison.columns),
    )


def leaderboard_frame(comparison: Comparison) -> pd.DataFrame:
    """Return the frame of `glue_bench.leaderboard`, which CSV and JSON have, too.

    The arms of a block are in the order of the primary column, if this is a loss.
    """
    board = comparison.board
    marks = marks_of(board, comparison.assessed, comparison.estimates)
    contrasts = comparison.contrasts_of("reference", CONVERSION)
    return _frame(comparison, marks, floors(board), contrasts)


def _frame(
    comparison: Comparison, marks: Marks, baselines: pd.DataFrame, contrasts: pd.DataFrame
) -> pd.DataFrame:
    """Return the `leaderboard_frame`.

    Args:
        comparison: The comparison.
        marks: The marks of its board.
        baselines: The scores of trivial baselines.
        contrasts: The contrasts with a reference.
    """
    board = comparison.board
    columns = comparison.columns
    measures = [column for column in columns if column in PRETRAINING_MEASURES]
    table = board.table
    for measure in measures:
        table = _with_measure(table, measure, comparison.estimates[measure])
    if columns[:1] == ["validation_loss"]:
        blocks = table.groupby(BLOCK_COLUMNS, sort=False)
        table = pd.concat([block.sort_values(columns[0], kind="stable") for _, block in blocks])
    baseline_rows = baselines.assign(origin="baseline", variant="")
    table = pd.concat([table, baseline_rows], ignore_index=True)
    encoders = table[ENCODER_COLUMNS]
    table = table.drop(columns=ENCODER_COLUMNS)
    table["data_source"] = board.results.data_source
    table["partial_tasks"] = ";".join(board.results.partial_tasks)
    table = table.join(encoders)
    table["collapsed"] = [_listed(columns, marks.collapsed, arm) for arm in table["arm"]]
    table["incomplete"] = [_listed(columns, marks.incomplete, arm) for arm in table["arm"]]
    table["unlike_reference"] = [arm in marks.unlike for arm in table["arm"]]
    references = contrasts[["arm", "reference"]].drop_duplicates()
    table = table.merge(references, on="arm", how="left")
    for column in columns:
        of_column = contrasts[contrasts["column"] == column].set_index("arm")[CONTRAST_COLUMNS]
        table = table.join(of_column.add_prefix(f"{column}_"), on="arm")
    return table.astype({f"{column}_n": "Int64" for column in board.columns})


def _with_measure(
    table: pd.DataFrame, measure: str, estimates: Sequence[ColumnEstimate]
) -> pd.DataFrame:
    """Add a measure's mean of each arm, and its `_std` over enough pretraining seeds."""
    means: dict[str, float] = {}
    deviations: dict[str, float] = {}
    # If other arms were converted from an arm, the values in the arm's block count. They come
    # first.
    for estimate in reversed(estimates):
        means |= estimate.means
        if not estimate.blocked or not estimate.arms:
            continue
        by_arm = estimate.by_block().std(axis=1, ddof=1).tolist()
        for arm, deviation in zip(estimate.arms, by_arm, strict=True):
            if estimate.seeds[arm] >= LEAST_FOR_DEVIATION:
                deviations[arm] = deviation
    columns = {
        measure: table["arm"].map(means),
        f"{measure}_std": table["arm"].map(deviations).astype(float),
    }
    return table.assign(**columns)


def _listed(columns: Sequence[str], arms: Mapping[str, Collection[str]], arm: str) -> str:
    """Return the columns in which an arm is among `arms`, with semicolons between them."""
    return ";".join(column for column in columns if arm in arms.get(column, ()))


def _rows_to_rank(group: Group, frame: pd.DataFrame, comparison: Comparison) -> pd.DataFrame:
    """Return the `rows` of a Standing from a `leaderboard_frame`."""
    is_shown = frame["arm"].isin(group.arms) | (frame["origin"] == "baseline")
    rows = frame[is_shown].reset_index(drop=True)
    if group.kind == CONVERSION:
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


def _marked_steps(
    steps: pd.DataFrame, marks_by_steps: Mapping[int | None, Marks], columns: Sequence[str]
) -> pd.DataFrame:
    """Return the `steps` of a Leaderboard, in the order of the arms' names and of the steps.

    Args:
        steps: The frame, which may be empty.
        marks_by_steps: The marks of the board after each number of steps.
        columns: The columns that may have a mark.
    """
    if steps.empty:
        return steps
    collapsed = []
    incomplete = []
    for arm, count in zip(steps["arm"], steps["steps"], strict=True):
        marks = marks_by_steps[count]
        collapsed.append(_listed(columns, marks.collapsed, arm))
        incomplete.append(_listed(columns, marks.incomplete, arm))
    marked = steps.assign(collapsed=collapsed, incomplete=incomplete)
    return marked.sort_values(["arm", "steps"], kind="stable", ignore_index=True)
