"""What has to be said beside an arm's scores: one answer to everything, runs that are missing, another machine."""

import pandas as pd

from glue_bench.board.aggregation import BOTH_SEEDS
from glue_bench.board.board import Board
from glue_bench.data.measures import AVERAGE, PRETRAINING_MEASURES
from glue_bench.data.tasks import COLUMNS
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.verdicts import Group


def collapsed_arms(board: Board) -> dict[str, set[str]]:
    """The arms with a run that gave one answer to everything after its last epoch, by column."""
    last = board.reported[
        board.reported["cell_id"].isin(board.runs.loc[board.runs["last"], "cell_id"])
    ]
    by_place = last.explode("collapsed").groupby(["task", "collapsed"])["arm"].agg(set).to_dict()
    return {column: by_place.get(COLUMNS[column], set()) for column in board.columns}


def incomplete_arms(
    board: Board, estimates: dict[str, list[ColumnEstimate]]
) -> dict[str, set[str]]:
    """The arms with fewer runs than planned, at any rate, by column; `estimates` are those of measures of pretraining.

    The average lacks what one of its parts lacks.
    """
    missing = board.cells[~board.cells["finished"]]
    arms = {}
    for column in board.columns:
        task, _ = COLUMNS[column]
        arms[column] = set(missing.loc[missing["task"] == task, "arm"])
    seeds: dict[str, dict[str, int]] = {}
    most = board.cells["pretraining_seed"].nunique()
    for measure in PRETRAINING_MEASURES:
        seeds[measure] = {}
        for estimate in reversed(estimates.get(measure, [])):
            seeds[measure] |= estimate.seeds
        most = max(most, 0, *seeds[measure].values())
    for measure, seeds_of_arms in seeds.items():
        arms[measure] = {arm for arm, count in seeds_of_arms.items() if count < most}
    arms[AVERAGE] = {arm for part in board.average.parts for arm in arms[part]}
    return arms


def unlike_arms(board: Board, group: Group) -> set[str]:
    """The arms of a group with a run on another processor, or in another precision, than the reference's.

    Compared are the runs that are reported, of the same task and seeds, and the pretrainings of the same seed. What is
    not recorded of one of the two is not compared.
    """
    pretrainings = board.results.pretrainings
    pretrainings = pretrainings[pretrainings["finished"] & ~pretrainings["is_search"]]
    runs = _unlike(board.reported, ["task", *BOTH_SEEDS], group)
    return runs | _unlike(pretrainings, ["seed"], group)


def _unlike(runs: pd.DataFrame, keys: list[str], group: Group) -> set[str]:
    """The arms of a group with a run that was computed otherwise than the reference's with the same keys."""
    facts = ["processor", "precision"]
    of_reference = runs.loc[runs["arm"] == group.reference, [*keys, *facts]]
    both = runs[runs["arm"].isin(group.arms)].merge(
        of_reference, on=keys, suffixes=("", "_reference")
    )
    differs = pd.Series(False, index=both.index)
    for fact in facts:
        reference = both[f"{fact}_reference"]
        is_known = (both[fact] != "") & (reference != "")
        differs |= is_known & (both[fact] != reference)
    return set(both.loc[differs, "arm"])


def joined(columns: list[str], arms: dict[str, set[str]], arm: str) -> str:
    """The columns in which an arm is among `arms`, with semicolons between them."""
    return ";".join(column for column in columns if arm in arms.get(column, ()))
