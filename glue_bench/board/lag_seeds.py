"""The lags of single seeds, and how many times the tokens of the reference an arm needs for a loss.

A ratio is asked at two kinds of places: at losses that are multiples of LEVEL_STEP, and at the loss
that the reference has after equal steps of its tokens. Where a run never had the loss, there is no
ratio, and the row says so.
"""

from typing import Any

import numpy as np
import pandas as pd

from glue_bench.board.lag import (
    LAG_POINTS,
    LEVEL_STEP,
    Pair,
    lags,
    last_tokens,
    pairs_of,
    student_interval,
    tokens_until,
)

YES = "yes"
IN_DECAY = "in decay"
NEVER = "never"
AT_LOSS = "loss"
AT_TOKENS = "tokens"
LAG_SEED_COLUMNS = [
    "arm",
    "reference",
    "pretraining_seed",
    "tokens",
    "lag",
    "ratio",
    "reached",
    "tokens_seen",
]
RATIO_SEED_COLUMNS = [
    "arm",
    "reference",
    "pretraining_seed",
    "at",
    "loss",
    "reference_tokens",
    "tokens",
    "ratio",
    "reached",
    "tokens_seen",
]
RATIO_COLUMNS = [
    "arm",
    "reference",
    "at",
    "loss",
    "reference_tokens",
    "tokens",
    "ratio",
    "ratio_low",
    "ratio_high",
    "seeds",
    "reached",
]
Row = dict[str, Any]


def lag_seed_frame(
    losses: pd.DataFrame, reference: str, decay_share: float | None = None
) -> pd.DataFrame:
    """Return the lags that `lag_frame` averages: a row for each arm, seed and step of tokens.

    Args:
        losses: `Results.losses`.
        reference: The arm that the others are compared with.
        decay_share: The part of a run in which the learning rate falls, at its end.

    Returns:
        LAG_SEED_COLUMNS; `reached` says whether the reference had the loss of the arm: "yes", "in
        decay" (while its rate fell) or "never" (within the `tokens_seen` of its run).
    """
    rows: list[Row] = []
    for pair in pairs_of(losses, reference):
        end = last_tokens(pair.runs, pair.seeds)
        tokens = end * np.arange(1, LAG_POINTS + 1) / LAG_POINTS
        for seed in pair.seeds:
            curve = pair.reference_runs[seed]
            of_seed = lags(pair.runs[seed], curve, tokens)
            for place, lag in zip(tokens, of_seed, strict=True):
                row = {
                    "arm": pair.arm,
                    "reference": pair.reference,
                    "pretraining_seed": seed,
                    "tokens": np.round(place),
                    "lag": np.round(lag),
                    "ratio": 1 + lag / place,
                    "reached": _reached(place + lag, curve, decay_share),
                    "tokens_seen": curve.index[-1],
                }
                rows.append(row)

    frame = pd.DataFrame(rows, columns=LAG_SEED_COLUMNS)
    return _whole(frame, ("tokens", "lag", "tokens_seen"))


def ratio_seed_frame(
    losses: pd.DataFrame, reference: str, decay_share: float | None = None
) -> pd.DataFrame:
    """Return the tokens of an arm for a loss over the reference's, for each arm, seed and place.

    Losses are those that the reference had in every common seed.

    Args:
        losses: `Results.losses`.
        reference: The arm that the others are compared with.
        decay_share: The part of a run in which the learning rate falls, at its end.

    Returns:
        RATIO_SEED_COLUMNS; `reached` says whether the arm had the loss: "yes", "in decay" (while
        the rate of one of both fell) or "never" (within the `tokens_seen` of its run).
    """
    rows: list[Row] = []
    for pair in pairs_of(losses, reference):
        for level in _common_levels(pair):
            for seed in pair.seeds:
                reference_tokens = tokens_until(pair.reference_runs[seed], level)
                row = _ratio_row(pair, seed, level, reference_tokens, decay_share)
                rows.append(row | {"at": AT_LOSS})
        end = last_tokens(pair.reference_runs, pair.seeds)
        for place in end * np.arange(1, LAG_POINTS + 1) / LAG_POINTS:
            for seed in pair.seeds:
                curve = pair.reference_runs[seed]
                loss = float(np.interp(place, curve.index, curve.cummin()))
                row = _ratio_row(pair, seed, loss, float(place), decay_share)
                rows.append(row | {"at": AT_TOKENS})
    frame = pd.DataFrame(rows, columns=RATIO_SEED_COLUMNS)
    return _whole(frame, ("reference_tokens", "tokens", "tokens_seen"))


def ratio_frame(of_seeds: pd.DataFrame) -> pd.DataFrame:
    """Return the means of `ratio_seed_frame` over seeds, with Student's 95% intervals of the ratio.

    Each interval is for its row alone. If a seed never had the loss, tokens and ratio are missing.
    """
    place = of_seeds["loss"].where(of_seeds["at"] == AT_LOSS, of_seeds["reference_tokens"])

    rows: list[Row] = []
    for (arm, at, _), group in of_seeds.groupby(["arm", "at", place], sort=False):
        answers = set(group["reached"])
        ratios = group["ratio"].to_numpy(float)
        low, high = student_interval(ratios)
        row = {
            "arm": arm,
            "reference": group["reference"].iloc[0],
            "at": at,
            "loss": group["loss"].mean(),
            "reference_tokens": np.round(group["reference_tokens"].mean()),
            "tokens": np.round(group["tokens"].astype(float).mean(skipna=False)),
            "ratio": ratios.mean(),
            "ratio_low": low,
            "ratio_high": high,
            "seeds": len(group),
            "reached": next(word for word in (NEVER, IN_DECAY, YES) if word in answers),
        }
        rows.append(row)

    return _whole(pd.DataFrame(rows, columns=RATIO_COLUMNS), ("reference_tokens", "tokens"))


def _common_levels(pair: Pair) -> np.ndarray:
    """Return the losses that lie below the first ones of both arms, and that the reference had."""
    first_losses: list[float] = []
    lowest_losses: list[float] = []
    for seed in pair.seeds:
        curve = pair.runs[seed]
        reference_curve = pair.reference_runs[seed]
        first_losses += [curve.iloc[0], reference_curve.iloc[0]]
        lowest_losses.append(reference_curve.min())
    highest = np.floor(min(first_losses) / LEVEL_STEP)
    lowest = np.ceil(max(lowest_losses) / LEVEL_STEP)
    return LEVEL_STEP * np.arange(highest, lowest - 1, -1)


def _ratio_row(
    pair: Pair, seed: int, loss: float, reference_tokens: float, decay_share: float | None
) -> Row:
    """Return a row of `ratio_seed_frame` without the kind of its place."""
    curve = pair.runs[seed]
    tokens = tokens_until(curve, loss)
    reached = _reached(tokens, curve, decay_share)
    of_reference = _reached(reference_tokens, pair.reference_runs[seed], decay_share)
    if reached == YES:
        reached = of_reference
    return {
        "arm": pair.arm,
        "reference": pair.reference,
        "pretraining_seed": seed,
        "loss": loss,
        "reference_tokens": np.round(reference_tokens),
        "tokens": np.round(tokens),
        "ratio": tokens / reference_tokens,
        "reached": reached,
        "tokens_seen": curve.index[-1],
    }


def _reached(tokens: float, curve: pd.Series, decay_share: float | None) -> str:
    """Say whether a run had a loss: before its rate fell, while it fell, or never (NaN)."""
    if np.isnan(tokens):
        return NEVER
    constant = curve.index[-1] * (1 - (decay_share or 0.0))
    return IN_DECAY if tokens > constant else YES


def _whole(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """Return a frame with whole numbers in these columns, which may be missing."""
    return frame.astype(dict.fromkeys(columns, "Int64"))
