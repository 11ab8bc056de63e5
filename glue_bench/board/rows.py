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
"""What a leaderboard's frame has of the contrasts of a column."""


def leaderboard_frame(comparison: Comparison, marks: Marks) -> pd.DataFrame:
    """Return the frame of `glue_bench.leaderboard`, which CSV and JSON have, too.

    The arms of a block are in the order of the primary column, if this is a loss. `marks` are the
    marks of the comparison's board.
    """
    board = comparison.board
    baselines = floors(board).assign(origin="baseline", variant="")
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


def floors(board: Board) -> pd.DataFrame:
    """Return the scores of trivial baselines: their name as `arm`, the board's columns, AVERAGE."""
    columns = list(board.columns)
    rows = [(*column_part(column)[0], column) for column in columns]
    places = pd.DataFrame(rows, columns=["task", "split", "metric", "column"])
    baselines = board.results.baselines.merge(places, on=["task", "split", "metric"])
    table = baselines.pivot(index="baseline", columns="column", values="value")
    table = table.reindex(columns=columns)
    names = baselines["baseline"].unique()
    table = table.loc[names]
    parts = list(board.average.parts)
    table[AVERAGE] = table[parts].mean(axis=1, skipna=False)
    table = table.rename_axis(index="arm", columns=None)
    return table.reset_index()


def _rows_of_arms(comparison: Comparison) -> pd.DataFrame:
    """Return the table of the board with the measures of pretraining, in the order of the page."""
    columns = comparison.columns
    table = comparison.board.table
    for column in columns:
        if column in PRETRAINING_MEASURES:
            table = _with_measure(table, column, comparison.estimates[column])
    if columns[:1] != ["validation_loss"]:
        return table
    blocks = table.groupby(BLOCK_COLUMNS, sort=False)
    return pd.concat([block.sort_values(columns[0], kind="stable") for _, block in blocks])


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
        by_arm = estimate.by_block().std(axis=1, ddof=1).tolist()
        for arm, deviation in zip(estimate.arms, by_arm, strict=True):
            if estimate.seeds[arm] >= LEAST_FOR_DEVIATION:
                deviations[arm] = deviation
    columns = {
        measure: table["arm"].map(means),
        f"{measure}_std": table["arm"].map(deviations).astype(float),
    }
    return table.assign(**columns)


def _with_contrasts(rows: pd.DataFrame, comparison: Comparison) -> pd.DataFrame:
    """Add the `reference` of each arm, and CONTRAST_COLUMNS of each column."""
    contrasts = comparison.contrasts_of("reference", CONVERSION_KIND)
    references = contrasts[["arm", "reference"]].drop_duplicates()
    rows = rows.merge(references, on="arm", how="left")
    for column in comparison.columns:
        of_column = contrasts[contrasts["column"] == column].set_index("arm")[CONTRAST_COLUMNS]
        rows = rows.join(of_column.add_prefix(f"{column}_"), on="arm")
    return rows
