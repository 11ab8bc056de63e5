"""The tables of how many tokens each arm needs for a validation loss, beside the reference."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from glue_bench.board.compare import Comparison
from glue_bench.board.lag_seeds import lag_seed_frame, ratio_frame, ratio_seed_frame
from glue_bench.pages.numbers import MISSING, abbreviate_number, format_number
from glue_bench.pages.page import Column, Table

MAX_LOSSES = 4
LAG_TABLE_COLUMNS = {
    "arm": Column("Arm"),
    "tokens": Column("After", show=str),
    "lag": Column("Lag of the reference", show=str),
    "ratio": Column("Ratio", show=str),
    "seeds": Column("Seeds", 0),
}
REACHED_LEGEND = (
    "The first tokens at this loss, the mean over seeds. A dash: a seed did not reach it."
)
LAG_LEGEND = (
    "Lag: how many tokens later the reference has the loss of the arm. Ratio: its tokens over "
    "those of the arm. A late start alone makes a constant lag; if every token teaches less, the "
    "ratio is constant. Intervals are Student's 95% over seeds, for one row alone, before the "
    "learning rate falls; `lags.csv` has the earlier rows."
)


def lag_tables(comparison: Comparison) -> list[Table]:
    """Make the tables of tokens until a loss and of lags. A single arm's curve has none."""
    is_in_decay = comparison.lags["in_decay"].astype(bool)
    lags = comparison.lags[~is_in_decay]
    if lags.empty:
        return []
    reference = str(lags["reference"].iloc[0])
    rows: list[dict[str, Any]] = []
    for row in lags.groupby("arm", sort=False).tail(1).to_dict("records"):
        rows.append(_lag_texts({str(name): value for name, value in row.items()}))
    lag_table = Table(
        title=f"Lag of {reference}",
        frame=DataFrame(rows, columns=list(LAG_TABLE_COLUMNS)),
        columns=LAG_TABLE_COLUMNS,
        legend=(LAG_LEGEND,),
    )
    losses = losses_to_show(comparison.reached, reference)
    if not losses:
        return [lag_table]
    return [reached_table(comparison, losses), lag_table]


def losses_to_show(reached: DataFrame, reference: str) -> list[float]:
    """Give a few losses that some seed of the reference reached, the highest first.

    Args:
        reached: `Comparison.reached`.
        reference: The arm.
    """
    of_reference = reached.loc[reached["arm"] == reference, "loss"]
    levels = np.sort(of_reference.unique())[::-1]
    # At the first loss all runs have hardly begun.
    places = np.linspace(0, len(levels) - 1, MAX_LOSSES + 1)[1:].round().astype(int)
    return [float(level) for level in levels[np.unique(places)]] if len(levels) else []


def reached_table(comparison: Comparison, levels: Sequence[float]) -> Table:
    """Make the table of tokens until each of these losses."""
    reached = comparison.reached
    losses = comparison.board.results.losses
    measured = losses.dropna(subset="validation_loss")
    runs = measured.groupby("arm", sort=False)["pretraining_seed"].nunique()
    columns = {"arm": Column("Arm")}
    frame = DataFrame({"arm": runs.index})
    for loss in levels:
        of_loss = reached[reached["loss"] == loss].groupby("arm")["tokens"]
        counts = of_loss.count().reindex(runs.index)
        tokens = of_loss.mean().reindex(runs.index).where(counts == runs)
        name = f"loss {loss:.2f}"
        columns[name] = Column(f"{loss:.2f} nats", show=str)
        frame[name] = tokens.map(_tokens_text).to_numpy()
    return Table(
        title="Tokens until a loss", frame=frame, columns=columns, legend=(REACHED_LEGEND,)
    )


def seed_frames(comparison: Comparison) -> dict[str, DataFrame]:
    """Give by file the lags of single seeds, and the ratios of tokens."""
    losses = comparison.board.results.losses
    reference = comparison.reference
    decay_share = comparison.decay_share
    ratio_seeds = ratio_seed_frame(losses, reference, decay_share)
    return {
        "lag_seeds.csv": lag_seed_frame(losses, reference, decay_share),
        "ratios.csv": ratio_frame(ratio_seeds),
        "ratio_seeds.csv": ratio_seeds,
    }


def _lag_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Write a row of `lag_frame` as the texts of its row."""
    lag = _tokens_text(row["lag"])
    ratio = format_number(row["ratio"])
    if not math.isnan(row["ratio_low"]):
        low = _tokens_text(row["lag_low"])
        high = _tokens_text(row["lag_high"])
        lag += f" ({low} to {high})"
        ratio += f" ({format_number(row['ratio_low'])} to {format_number(row['ratio_high'])})"
    return {
        "arm": row["arm"],
        "tokens": _tokens_text(row["tokens"]),
        "lag": lag,
        "ratio": ratio,
        "seeds": row["seeds"],
    }


def _tokens_text(tokens: float) -> str:
    """Write a number of tokens with a letter for its size."""
    return MISSING if math.isnan(tokens) else abbreviate_number(tokens)
