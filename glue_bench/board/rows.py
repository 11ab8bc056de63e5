"""The rows of a leaderboard: one for each arm, then one for each trivial baseline."""

from collections.abc import Sequence

import pandas as pd

from glue_bench.board.averages import column_part
from glue_bench.board.board import BLOCK_COLUMNS, ENCODER_COLUMNS, Board
from glue_bench.board.compare import CONVERSION_KIND, Comparison
from glue_bench.board.marks import Marks
from glue_bench.data.measures import AVERAGE, PRETRAINING_MEASURES
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION

CONTRAST_COLUMNS = ["difference", "low", "high", "verdict", "smallest"]
"""What a leaderboard says of an arm's contrast with its reference, in each column of scores.

`smallest` is the smallest difference that gets a verdict.
"""


def leaderboard_frame(comparison: Comparison, marks: Marks) -> pd.DataFrame:
    """Return the frame of `glue_bench.leaderboard`, which CSV and JSON have, too.

    The arms of a block are in the order of the primary column, if this is a loss. `marks` are the
    marks of the comparison's board.
    """
    board = comparison.board
    baselines = baseline_scores(board).assign(origin="baseline", variant="")
    rows = pd.concat([_rows_of_arms(comparison), baselines], ignore_index=True)
    # The facts of the encoder stand behind those of the data.
    encoders = rows[ENCODER_COLUMNS]
    rows = rows.drop(columns=ENCODER_COLUMNS)
    rows["data_source"] = board.results.data_source
    rows["partial_tasks"] = ";".join(board.results.partial_tasks)
    rows = rows.join(encoders)
    rows["collapsed"] = [marks.collapsed.get(arm, "") for arm in rows["arm"]]
    rows["incomplete"] = [marks.incomplete.get(arm, "") for arm in rows["arm"]]
    rows["unlike_reference"] = rows["arm"].isin(marks.unlike)
    rows = _with_contrasts(rows, comparison)
    return rows.astype({f"{column}_n": "Int64" for column in board.columns})


def baseline_scores(board: Board) -> pd.DataFrame:
    """Return the scores of trivial baselines: their name as `arm`, the board's columns, AVERAGE."""
    columns = list(board.columns)
    places: list[tuple[str, ...]] = []
    for column in columns:
        (place,) = column_part(column)
        places.append((*place, column))
    column_of_place = pd.DataFrame(places, columns=["task", "split", "metric", "column"])
    baselines = board.results.baselines.merge(column_of_place, on=["task", "split", "metric"])
    table = baselines.pivot(index="baseline", columns="column", values="value")
    table = table.reindex(columns=columns)
    names = baselines["baseline"].unique()
    table = table.loc[names]
    parts = list(board.average.parts)
    table[AVERAGE] = table[parts].mean(axis=1, skipna=False)
    table = table.rename_axis(index="arm", columns=None)
    return table.reset_index()


def _rows_of_arms(comparison: Comparison) -> pd.DataFrame:
    """Return the table of the board with the measures of pretraining.

    The arms of a block are sorted by the validation loss if it is the primary column.
    """
    columns = comparison.columns
    table = comparison.board.table
    for column in columns:
        if column in PRETRAINING_MEASURES:
            table = _with_measure(table, column, comparison.estimates[column])
    is_by_loss = columns[:1] == ["validation_loss"]
    if not is_by_loss:
        return table
    blocks = table.groupby(BLOCK_COLUMNS, sort=False)
    return pd.concat([block.sort_values("validation_loss", kind="stable") for _, block in blocks])


def _with_measure(
    table: pd.DataFrame, measure: str, estimates: Sequence[ColumnEstimate]
) -> pd.DataFrame:
    """Add a measure's mean of each arm, and its `_std` over enough pretraining seeds."""
    means: dict[str, float] = {}
    deviations: dict[str, float] = {}
    # An arm is in its block, and again in a group of conversions if others were made from it.
    # Blocks come first, so that the values in the block are the last ones here, which stay.
    for estimate in reversed(estimates):
        means |= estimate.means
        if not estimate.blocked or not estimate.arms:
            continue
        # These blocks are the pretraining seeds.
        arm_deviations = estimate.by_block().std(axis=1, ddof=1).tolist()
        for arm, deviation in zip(estimate.arms, arm_deviations, strict=True):
            if estimate.seeds[arm] >= LEAST_FOR_DEVIATION:
                deviations[arm] = deviation
    columns = {
        measure: table["arm"].map(means),
        f"{measure}_std": table["arm"].map(deviations).astype(float),
    }
    return table.assign(**columns)


def _with_contrasts(rows: pd.DataFrame, comparison: Comparison) -> pd.DataFrame:
    """Add the `reference` of each arm, and CONTRAST_COLUMNS of each column of scores.

    An arm that was converted from another one of the experiment has that one as its reference.
    """
    contrasts = comparison.contrasts_of("reference", CONVERSION_KIND)
    references = contrasts[["arm", "reference"]].drop_duplicates()
    rows = rows.merge(references, on="arm", how="left")
    for column in comparison.columns:
        of_column = contrasts[contrasts["column"] == column].set_index("arm")[CONTRAST_COLUMNS]
        rows = rows.join(of_column.add_prefix(f"{column}_"), on="arm")
    return rows
