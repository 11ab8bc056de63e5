"""Marks beside an arm's scores: one answer to everything, missing runs, another machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from glue_bench.board.aggregation import BOTH_SEEDS
from glue_bench.board.board import Board
from glue_bench.data.measures import AVERAGE, PRETRAINING_MEASURES
from glue_bench.data.tasks import scored_columns
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.verdicts import Group

MACHINE_COLUMNS = ["processor", "precision"]
NO_ESTIMATES: Mapping[str, list[ColumnEstimate]] = {}


@dataclass(frozen=True, kw_only=True)
class GroupMarks:
    """What a reader has to know about a group of arms.

    Attributes:
        unlike: The arms that were computed on another machine than the reference.
        silent: The columns in which each reported run gave one answer to everything.
    """

    unlike: set[str]
    silent: set[str]


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What a reader has to know about scores beside their numbers.

    Attributes:
        collapsed: By arm the columns with a run that gave one answer to everything, with semicolons
            between them.
        incomplete: By arm the columns with fewer runs than planned, likewise.
        groups: The marks of each group, by its kind and its reference.
    """

    collapsed: dict[str, str]
    incomplete: dict[str, str]
    groups: dict[tuple[str, str], GroupMarks]

    @property
    def unlike(self) -> set[str]:
        """Return the arms of any group that were computed on another machine than its reference."""
        arms: set[str] = set()
        for group in self.groups.values():
            arms |= group.unlike
        return arms


def marks_of(
    board: Board,
    columns: Sequence[str],
    groups: Sequence[Group] = (),
    estimates: Mapping[str, list[ColumnEstimate]] = NO_ESTIMATES,
) -> Marks:
    """Return the marks of a board.

    Args:
        board: The board.
        columns: The columns of the page, in their order.
        groups: Groups of its arms.
        estimates: The estimates of each measure of pretraining.
    """
    marks_of_groups: dict[tuple[str, str], GroupMarks] = {}
    for group in groups:
        marks_of_groups[group.kind, group.reference] = GroupMarks(
            unlike=unlike_arms(board, group),
            silent={column for column in board.columns if gave_one_answer(board, group, column)},
        )
    return Marks(
        collapsed=columns_by_arm(columns, collapsed_arms(board)),
        incomplete=columns_by_arm(columns, incomplete_arms(board, estimates)),
        groups=marks_of_groups,
    )


def columns_by_arm(columns: Sequence[str], arms: Mapping[str, set[str]]) -> dict[str, str]:
    """Return by arm the columns that have it, with semicolons between them.

    Args:
        columns: The columns in their order.
        arms: The arms of a column; a column that is not there has none.
    """
    columns_of_arms: dict[str, list[str]] = {}
    for column in columns:
        for arm in arms.get(column, ()):
            columns_of_arms.setdefault(arm, []).append(column)
    return {arm: ";".join(of_arm) for arm, of_arm in columns_of_arms.items()}


def collapsed_arms(board: Board) -> dict[str, set[str]]:
    """Return by column the arms with a run that gave one answer to everything in the end."""
    last_runs = board.runs.loc[board.runs["last"], "cell_id"]
    reported = board.reported
    is_last = reported["cell_id"].isin(last_runs)
    cells = reported[is_last]
    arms = cells.explode("collapsed").groupby(["task", "collapsed"])["arm"]
    arms_by_place = arms.agg(set).to_dict()
    places = scored_columns()
    return {column: arms_by_place.get(places[column], set()) for column in board.columns}


def incomplete_arms(
    board: Board, estimates: Mapping[str, list[ColumnEstimate]]
) -> dict[str, set[str]]:
    """Return by column the arms with fewer runs than planned, at any rate.

    The average lacks what one of its parts lacks.

    Args:
        board: The board.
        estimates: The estimates of each measure of pretraining.
    """
    arms = _arms_with_fewer_pretrainings(board, estimates)
    missing = board.cells[~board.cells["finished"]]
    places = scored_columns()
    for column in board.columns:
        task, _ = places[column]
        is_of_task = missing["task"] == task
        names = missing.loc[is_of_task, "arm"]
        arms[column] = set(names)
    arms[AVERAGE] = set()
    for part in board.average.parts:
        arms[AVERAGE] |= arms[part]
    return arms


def _arms_with_fewer_pretrainings(
    board: Board, estimates: Mapping[str, list[ColumnEstimate]]
) -> dict[str, set[str]]:
    """Return by measure of pretraining the arms that have it of fewer seeds than planned.

    The seeds of the cells are planned. If an arm has more, its number is planned for all arms.
    """
    seeds_by_measure: dict[str, dict[str, int]] = {}
    planned = board.cells["pretraining_seed"].nunique()
    for measure in PRETRAINING_MEASURES:
        seeds: dict[str, int] = {}
        # An arm is in its block, and again in a group of conversions if others were made from it.
        # Blocks come first, so that the number in the block is the last one here, which stays.
        for estimate in reversed(estimates.get(measure, [])):
            seeds |= estimate.seeds
        seeds_by_measure[measure] = seeds
        planned = max(planned, *seeds.values(), 0)
    arms: dict[str, set[str]] = {}
    for measure, seeds in seeds_by_measure.items():
        arms[measure] = {arm for arm, count in seeds.items() if count < planned}
    return arms


def gave_one_answer(board: Board, group: Group, column: str) -> bool:
    """Return whether all reported runs of a group gave one answer to all rows of a column."""
    task, split = scored_columns()[column]
    last_runs = board.runs.loc[board.runs["last"], "cell_id"]
    cells = board.reported
    cells = cells[(cells["task"] == task) & cells["arm"].isin(group.arms)]
    if cells.empty or not cells["cell_id"].isin(last_runs).all():
        return False
    return all(split in splits for splits in cells["collapsed"])


def unlike_arms(board: Board, group: Group) -> set[str]:
    """Return the arms of a group that were computed on another machine than the reference.

    Such an arm has a run that used another processor or another precision than the reference's run
    of the same task and seeds. Pretrainings of the same seed are compared, too. Only reported runs
    count. A fact that is not recorded for one of the two runs is not compared.
    """
    pretrainings = board.results.pretrainings
    is_counted = pretrainings["finished"] & ~pretrainings["is_search"]
    arms_by_runs = _unlike(board.reported, ["task", *BOTH_SEEDS], group)
    return arms_by_runs | _unlike(pretrainings[is_counted], ["seed"], group)


def _unlike(runs: pd.DataFrame, keys: list[str], group: Group) -> set[str]:
    """Return the arms with a run that differs from the reference's run with the same keys."""
    if all(runs[column].nunique(dropna=False) < 2 for column in MACHINE_COLUMNS):
        return set()  # as on most boards, and to pair the runs takes longer
    reference_rows = runs["arm"] == group.reference
    of_reference = runs.loc[reference_rows, [*keys, *MACHINE_COLUMNS]]
    of_group = runs[runs["arm"].isin(group.arms)]
    pairs = of_group.merge(of_reference, on=keys, suffixes=("", "_reference"))
    differs = pd.Series(data=False, index=pairs.index)
    for column in MACHINE_COLUMNS:
        value = pairs[column]
        reference = pairs[f"{column}_reference"]
        differs |= (value != "") & (reference != "") & (value != reference)
    return set(pairs.loc[differs, "arm"])
