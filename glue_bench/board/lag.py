"""How many tokens later one arm reaches the validation loss of another.

A difference in nats depends on how steep a curve is. The lag does not: if arm A has a loss after t
tokens, and the reference has it after t' tokens, the lag of the reference is t' - t, and its ratio
t' / t. A late start alone makes a constant lag; a constant ratio means that every token teaches
less.

An arm has reached a loss where its curve first falls to it. Between two measurements the curve is a
straight line over tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

LEVEL_STEP = 0.25
"""Nats between the losses of `reached_frame`."""
CURVE_POINTS = 80
"""Points of a curve of lags."""
LAG_POINTS = 8
"""The number of equal steps of tokens at which the lag is given."""
TAIL = 0.025
REACHED_COLUMNS = ["arm", "pretraining_seed", "loss", "tokens"]
LAG_COLUMNS = [
    "arm",
    "reference",
    "tokens",
    "lag",
    "lag_low",
    "lag_high",
    "ratio",
    "ratio_low",
    "ratio_high",
    "seeds",
    "in_decay",
]


@dataclass(frozen=True)
class Pair:
    """The curves of an arm and of the reference, by the pretraining seeds that both have."""

    arm: str
    reference: str
    runs: Mapping[int, pd.Series]
    reference_runs: Mapping[int, pd.Series]
    seeds: Sequence[int]


def curves(
    losses: pd.DataFrame, column: str = "validation_loss"
) -> dict[str, dict[int, pd.Series]]:
    """Return the measured losses of each arm and pretraining seed, by tokens seen.

    Args:
        losses: `Results.losses`.
        column: The loss: "validation_loss" or "train_loss".
    """
    measured = losses.dropna(subset=column)
    by_arm: dict[str, dict[int, pd.Series]] = {}
    for arm, of_arm in measured.groupby("arm", sort=False):
        by_arm[str(arm)] = {}
        for seed in of_arm["pretraining_seed"].unique():
            rows = of_arm[of_arm["pretraining_seed"] == seed]
            by_tokens = rows.set_index("tokens")
            curve = by_tokens[column].sort_index()
            by_arm[str(arm)][int(seed)] = curve
    return by_arm


def pairs_of(
    losses: pd.DataFrame, reference: str, column: str = "validation_loss"
) -> Iterator[Pair]:
    """Yield every other arm beside the reference, if both have curves of a common seed.

    Args:
        losses: `Results.losses`.
        reference: The arm that the others are compared with.
        column: The loss: "validation_loss" or "train_loss".
    """
    by_arm = curves(losses, column)
    reference_runs = by_arm.get(reference, {})
    for arm, runs in by_arm.items():
        shared = set(runs) & set(reference_runs)
        if arm != reference and shared:
            yield Pair(arm, reference, runs, reference_runs, sorted(shared))


def tokens_until(curve: pd.Series, loss: float) -> float:
    """Return the tokens at which a curve first falls to a loss; NaN if it never does.

    Args:
        curve: Losses by tokens, in the order of tokens.
        loss: The loss in nats.
    """
    values = curve.to_numpy(float)
    tokens = curve.index.to_numpy(float)
    below = np.flatnonzero(values <= loss)
    if not len(below):
        return float("nan")
    last = int(below[0])
    if last == 0:
        return float(tokens[0])
    before = values[last - 1]
    share = (before - loss) / (before - values[last])
    start = tokens[last - 1]
    step = tokens[last] - start
    return float(start + share * step)


def reached_frame(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the tokens at which each run first had each loss: one row for each arm, seed and loss.

    Losses are multiples of LEVEL_STEP that a run has passed.
    """
    rows = []
    for arm, runs in curves(losses).items():
        for seed, curve in runs.items():
            lowest = np.ceil(curve.min() / LEVEL_STEP) * LEVEL_STEP
            for level in np.arange(curve.iloc[0], lowest - LEVEL_STEP / 2, -LEVEL_STEP):
                loss = float(np.floor(level / LEVEL_STEP) * LEVEL_STEP)
                tokens = tokens_until(curve, loss)
                if not np.isnan(tokens):
                    rows.append((arm, seed, loss, round(tokens)))
    return pd.DataFrame(rows, columns=REACHED_COLUMNS)


def lags(curve: pd.Series, reference: pd.Series, tokens: np.ndarray) -> np.ndarray:
    """Return how many tokens later the reference has the loss that a curve has after these tokens.

    Args:
        curve: Losses of an arm by tokens.
        reference: Losses of the reference in the same seed.
        tokens: The tokens at which the lag is asked, within the arm's curve, (tokens,).

    Returns:
        Lags, (tokens,): negative where the reference was earlier, NaN where it never had the loss.
    """
    measured = curve.to_numpy(float)
    lowest = np.minimum.accumulate(measured)
    places = curve.index.to_numpy(float)
    reached = np.interp(tokens, places, lowest)
    later: list[float] = []
    for loss in reached:
        later.append(tokens_until(reference, float(loss)))
    return np.asarray(later) - tokens


def lag_curves(
    losses: pd.DataFrame, reference: str, column: str, decay_share: float | None = None
) -> dict[str, pd.DataFrame]:
    """Return by arm the lag of the reference behind it: tokens seen (rows) by pretraining seed.

    Rows stop where the reference, in a seed, never reached the arm's loss or reached it while its
    learning rate fell: all losses fall faster then.

    Args:
        losses: `Results.losses`.
        reference: The arm that the others are compared with.
        column: The loss: "validation_loss" or "train_loss".
        decay_share: The part of a run in which the rate falls, at its end.
    """
    lags_by_arm: dict[str, pd.DataFrame] = {}
    for pair in pairs_of(losses, reference, column):
        end = last_tokens(pair.runs, pair.seeds)
        tokens = end * np.arange(1, CURVE_POINTS + 1) / CURVE_POINTS
        of_seeds = lags_of_seeds(pair, tokens)
        table = pd.DataFrame(of_seeds, index=tokens).dropna()
        reached = table.max(axis=1) + table.index
        constant = end * (1 - (decay_share or 0.0))
        lags_by_arm[pair.arm] = table[reached <= constant]
    return lags_by_arm


def last_tokens(runs: Mapping[int, pd.Series], seeds: Sequence[int]) -> float:
    """Return the tokens at which the shortest curve of these seeds ends."""
    ends: list[float] = []
    for seed in seeds:
        curve = runs[seed]
        ends.append(float(curve.index[-1]))
    return min(ends)


def lags_of_seeds(pair: Pair, tokens: np.ndarray) -> dict[int, np.ndarray]:
    """Return the lags of the reference in each seed, (tokens,), after these tokens of the arm."""
    by_seed: dict[int, np.ndarray] = {}
    for seed in pair.seeds:
        by_seed[seed] = lags(pair.runs[seed], pair.reference_runs[seed], tokens)
    return by_seed


def lag_frame(
    losses: pd.DataFrame, reference: str, decay_share: float | None = None
) -> pd.DataFrame:
    """Return the lag of the reference behind every other arm, over their common pretraining seeds.

    Lags are given at equal steps of the arm's tokens. A row is there if the reference has reached
    the arm's loss in every common seed. Intervals are Student's 95% intervals over seeds, each for
    one row alone.

    Args:
        losses: `Results.losses`.
        reference: The arm that the others are compared with.
        decay_share: The part of a run in which the learning rate falls, at its end. All losses fall
            faster there, so that a lag shrinks.

    Returns:
        LAG_COLUMNS. `lag` is in tokens. `ratio` is the reference's tokens over the arm's tokens.
        `in_decay` says whether the reference reached the loss while its rate fell, in any seed.
    """
    rows: list[dict[str, float | int | str]] = []
    for pair in pairs_of(losses, reference):
        end = last_tokens(pair.runs, pair.seeds)
        constant = end * (1 - (decay_share or 0.0))
        tokens = end * np.arange(1, LAG_POINTS + 1) / LAG_POINTS
        of_common = lags_of_seeds(pair, tokens)
        seed_lags = list(of_common.values())
        table = np.stack(seed_lags, axis=1)
        for place, of_seeds in zip(tokens, table, strict=True):
            if not np.isnan(of_seeds).any():
                row = _lag_row(pair, float(place), of_seeds)
                latest = (place + of_seeds).max()
                row["in_decay"] = bool(latest > constant)
                rows.append(row)
    whole = dict.fromkeys(("tokens", "lag", "lag_low", "lag_high", "seeds"), "Int64")
    return pd.DataFrame(rows, columns=LAG_COLUMNS).astype(whole)


def _lag_row(pair: Pair, tokens: float, of_seeds: np.ndarray) -> dict[str, float | int | str]:
    """Return a row of `lag_frame` from the lags of all seeds."""
    low, high = student_interval(of_seeds)
    ratios = 1 + of_seeds / tokens
    ratio_low, ratio_high = student_interval(ratios)
    return {
        "arm": pair.arm,
        "reference": pair.reference,
        "tokens": round(tokens),
        "lag": round(float(of_seeds.mean())),
        "lag_low": float(np.round(low)),
        "lag_high": float(np.round(high)),
        "ratio": float(ratios.mean()),
        "ratio_low": ratio_low,
        "ratio_high": ratio_high,
        "seeds": len(of_seeds),
    }


def student_interval(values: np.ndarray) -> tuple[float, float]:
    """Return Student's 95% interval of the mean of independent values; NaN of a single value."""
    count = len(values)
    if count < 2:
        return float("nan"), float("nan")
    mean = float(values.mean())
    deviation = float(values.std(ddof=1))
    quantile = float(stdtrit(count - 1, 1 - TAIL))
    half = quantile * deviation / np.sqrt(count)
    return mean - half, mean + half
