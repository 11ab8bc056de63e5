"""Which arms of an experiment differ: stored predictions are read once, for every table."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.board.board import BLOCK_COLUMNS, ENCODER_COLUMNS, Board, floors, open_board
from glue_bench.board.column_runs import read_measures, read_outcomes
from glue_bench.board.marks import collapsed_arms, incomplete_arms, joined, unlike_arms
from glue_bench.data.measures import AVERAGE, PRETRAINING_MEASURES
from glue_bench.data.tasks import COLUMNS
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION, Group, assess, verdicts

CONVERSION = "conversion"
CONTRAST_COLUMNS = ["difference", "low", "high", "verdict", "smallest"]
"""What a leaderboard's frame has of the contrasts of a column."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that is known of which arms differ.

    `assessed` are the blocks, and behind them, of the kind CONVERSION, for each arm from whose checkpoint others were
    made that arm and the converted ones, which are in no block. `contrasts` has VERDICT_COLUMNS: of the kind
    "reference" within blocks, CONVERSION for what a conversion costs, which ranks nothing, and "declared" for those
    that the protocol names; behind its kind the `origin` and `shape` of the (first) arm. `primary` is the column by
    which arms are judged, the first one of each group.
    """

    board: Board
    primary: str
    assessed: tuple[Group, ...]
    contrasts: pd.DataFrame

    def contrasts_of(self, *kinds: str) -> pd.DataFrame:
        """The contrasts of these kinds."""
        return self.contrasts[self.contrasts["kind"].isin(kinds)]

    def estimates(self, column: str) -> list[ColumnEstimate]:
        """What is known of a column, by group."""
        return [one for group in self.assessed for one in group.estimates if one.column == column]

    def leaves_seeds_out(self, column: str) -> bool:
        """Whether contrasts of a column leave out pretraining seeds of an arm, because another arm lacks them."""
        board = self.board
        if column in COLUMNS:
            runs = board.runs[board.runs["task"] == COLUMNS[column][0]]
        else:
            done = board.results.pretrainings
            runs = done[done["finished"] & ~done["is_search"]].assign(pretraining_seed=done["seed"])
        seeds = runs.groupby("arm")["pretraining_seed"].nunique()
        for estimate in self.estimates(column):
            if estimate.blocked and any(seeds[arm] > estimate.seeds[arm] for arm in estimate.arms):
                return True
        return False


def compare(board: Board) -> Comparison:
    """Read every prediction once, and make every contrast."""
    primary: str = board.protocol.primary
    if (
        primary == AVERAGE and len(board.average.parts) == 1
    ):  # the average of a single column is that column
        primary = next(iter(board.average.parts))
    assessed = assess(chain(read_outcomes(board), read_measures(board)), groups_of(board), primary)
    contrasts = verdicts(assessed, board.protocol.contrasts)
    blocks = contrasts[["arm"]].join(board.table.set_index("arm")[BLOCK_COLUMNS], on="arm")[
        BLOCK_COLUMNS
    ]
    return Comparison(
        board=board,
        primary=primary,
        assessed=tuple(assessed),
        contrasts=pd.concat([contrasts[["kind"]], blocks, contrasts.drop(columns="kind")], axis=1),
    )


def groups_of(board: Board) -> list[Group]:
    """Arms that are compared: those of a block, and those that were converted from one arm's checkpoint, with it.

    That arm is the pretrained one that starts from the checkpoint, too, the reference if there are several.
    """
    table, variants, sources = (
        board.table,
        board.results.arms["variant"].loc[board.arms],
        dict[str, str](),
    )

    def reference(arms: pd.Series) -> str:
        return reference_arm(variants[variants.index.isin(arms)], board.protocol.reference)

    for _, started in table.groupby("start", sort=False):
        pretrained = started.loc[started["origin"] == "pretrained", "arm"]
        if len(pretrained):
            converted = started.loc[started["origin"].isin(["grafted", "adapted"]), "arm"]
            sources |= dict.fromkeys(converted, reference(pretrained))
    source = table["arm"].map(sources)
    blocks = [block["arm"] for _, block in table[source.isna()].groupby(BLOCK_COLUMNS, sort=False)]
    conversions = [(arm, *made) for arm, made in table["arm"].groupby(source, sort=False)]
    return [
        *(Group(arms=tuple(block), reference=reference(block)) for block in blocks),
        *(Group(arms=arms, reference=arms[0], kind=CONVERSION) for arms in conversions),
    ]


def reference_arm(variants: pd.Series, chosen: str | None = None) -> str:
    """The arm that others are compared with, of variants by their arms, in the experiment's order.

    It is `chosen` (`protocol.reference`) if that is among them, else the first whose variant is `add`, else the first.
    """
    if chosen in variants.index:
        return str(chosen)
    return str([*variants.index[variants == "add"], *variants.index][0])


def leaderboard_frame(comparison: Comparison) -> pd.DataFrame:
    """What `export.leaderboard` returns, and CSV and JSON have; where a loss decides, it orders the arms of a block."""
    board = comparison.board
    contrasts = comparison.contrasts_of("reference", CONVERSION)
    columns = score_columns(comparison)
    table, results = board.table, board.results
    for measure in (name for name in columns if name in PRETRAINING_MEASURES):
        means, deviations = dict[str, float](), dict[str, float]()
        for one in comparison.estimates(measure)[
            ::-1
        ]:  # the source of a conversion has the values of its block
            means |= one.means
            if one.blocked and one.arms:
                of_arms = zip(one.arms, one.by_block().std(axis=1, ddof=1).tolist(), strict=True)
                deviations |= {
                    arm: value for arm, value in of_arms if one.seeds[arm] >= LEAST_FOR_DEVIATION
                }
        added = {
            measure: table["arm"].map(means),
            f"{measure}_std": table["arm"].map(deviations).astype(float),
        }
        table = table.assign(**added)
    if columns[:1] == ["validation_loss"]:
        blocks = [
            block.sort_values(columns[0], kind="stable")
            for _, block in table.groupby(BLOCK_COLUMNS, sort=False)
        ]
        table = pd.concat(blocks)
    table = pd.concat(
        [table, floors(board).assign(origin="baseline", variant="")], ignore_index=True
    )
    made = {"data_source": results.data_source, "partial_tasks": ";".join(results.partial_tasks)}
    table = table.drop(columns=ENCODER_COLUMNS).assign(**made).join(table[ENCODER_COLUMNS])
    table = table.assign(**marks_of_arms(comparison, table["arm"]))
    table = table.merge(contrasts[["arm", "reference"]].drop_duplicates(), on="arm", how="left")
    for column in columns:
        of_column = contrasts[contrasts["column"] == column].set_index("arm")[CONTRAST_COLUMNS]
        table = table.join(of_column.add_prefix(f"{column}_"), on="arm")
    return table.astype({f"{column}_n": "Int64" for column in board.columns})


def marks_of_arms(comparison: Comparison, arms: pd.Series) -> dict[str, list[Any]]:
    """What a reader of the frame has to know of each arm's scores.

    `collapsed` and `incomplete` are the columns in which a run gave one answer to everything, or runs are missing, with
    semicolons between them. `unlike_reference` says whether a run was computed on another processor, or in another
    precision, than the reference's.
    """
    board = comparison.board
    columns = score_columns(comparison)
    collapsed = collapsed_arms(board)
    incomplete = incomplete_arms(
        board, {name: comparison.estimates(name) for name in PRETRAINING_MEASURES}
    )
    unlike = {arm for group in comparison.assessed for arm in unlike_arms(board, group)}
    return {
        "collapsed": [joined(columns, collapsed, arm) for arm in arms],
        "incomplete": [joined(columns, incomplete, arm) for arm in arms],
        "unlike_reference": [arm in unlike for arm in arms],
    }


def score_columns(comparison: Comparison) -> list[str]:
    """The columns in the order of a page: the one that decides, the measures, the average, the tasks."""
    board = comparison.board
    measures = [name for name in PRETRAINING_MEASURES if comparison.estimates(name)]
    columns = [*measures, *([AVERAGE] if len(board.average.parts) > 1 else []), *board.columns]
    return sorted(columns, key=lambda column: column != comparison.primary)


def open_comparison(path: str | Path, protocol: Sequence[str] = ()) -> Comparison:
    """The comparison of an experiment, by its protocol or one changed by KEY=VALUE; raises as `open_board`."""
    return compare(open_board(path, protocol))
