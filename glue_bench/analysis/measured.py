"""What a measure of an encoder leaves: numbers, tidy frames, or the reason why it does not apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy import stats
from torch import Tensor

from glue_bench.analysis.sums import Sums

COVERAGE = 0.95
SEED = 0  # of everything that the measures draw
EXACT = 1e-5  # of the largest value: what rounding in float32 may make of a sum


class LeftOut(Exception):
    """A measure does not apply to an encoder; the message is the reason, and how to get the measure."""


@dataclass(frozen=True)
class Measured:
    """`numbers` by nested names, as analysis.json has them; `frames` by name, without the column `checkpoint`."""

    numbers: dict[str, Any]
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def middle(draws: Sequence[float] | np.ndarray) -> list[float]:
    """[low, high]: the middle 95% of many draws (200 or more) of what chance gives."""
    tail = (1 - COVERAGE) / 2
    return [float(value) for value in np.quantile(draws, [tail, 1 - tail])]


def expected(draws: Sequence[float] | np.ndarray) -> list[float]:
    """[low, high]: where 95% of further draws fall, told from a few, as if they were normal.

    mean -+ t * s * sqrt(1 + 1 / m) of m draws, t of Student's distribution with m - 1 degrees of freedom.
    """
    m = len(draws)
    reach = stats.t.ppf((1 + COVERAGE) / 2, m - 1) * np.std(draws, ddof=1) * np.sqrt(1 + 1 / m)
    return [float(np.mean(draws) - reach), float(np.mean(draws) + reach)]


def expected_share(draws: Sequence[float] | np.ndarray, trials: int, tried: int) -> list[float]:
    """[low, high]: as `expected`, of the share that is told of `tried` when each draw had so many `trials`.

    Draws that all tell everything do not spread, and another sample may still miss some. So the band is at least the
    middle 95% of what a sample of `tried` gives after the draws: of the beta-binomial distribution with one told and
    one missed added, as Agresti & Caffo (2000) add them to compare two proportions.
    """
    low, high = expected(draws)
    told, missed = (share * trials * len(draws) + 1 for share in (np.mean(draws), 1 - np.mean(draws)))
    tail = (1 - COVERAGE) / 2
    few, many = np.asarray(stats.betabinom.ppf([tail, 1 - tail], tried, told, missed)) / tried
    return [max(0.0, min(low, float(few))), min(1.0, max(high, float(many)))]


def confidence(values: np.ndarray) -> np.ndarray:
    """The half width of the 95% interval of a mean over the first axis, by Student's t: the shape of the rest."""
    n = len(values)
    return stats.t.ppf((1 + COVERAGE) / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)


def ratio_interval(sums: Sums) -> list[float] | None:
    """The 95% interval of a ratio of sums over sequences, by Student's t; None of fewer than two sequences."""
    if sums.n < 2:
        return None
    half = float(stats.t.ppf((1 + COVERAGE) / 2, sums.n - 1)) * sums.standard_error
    return [sums.value - half, sums.value + half]


def share_interval(sums: Sums) -> list[float] | None:
    """As `ratio_interval`, of a share from 0 to 1.

    Near 0 and 1 few sequences hardly spread, so it is at least as wide as the exact binomial interval (Clopper &
    Pearson 1934) of all trials; and at 0 and 1 as that of so many sequences, however alike the trials of each are.
    Sequences that all say the same between 0 and 1 have no interval but that: all ties of the swap test are exact.
    """
    interval = ratio_interval(sums)
    if interval is None:
        return None
    trials = sums.n if sums.value in (0, 1) else float(sums.counts.sum())
    told, tail = sums.value * trials, (1 - COVERAGE) / 2
    exact = [
        float(stats.beta.ppf(tail, told, trials - told + 1)) if told else 0.0,
        float(stats.beta.ppf(1 - tail, told + 1, trials - told)) if told < trials else 1.0,
    ]
    if 0 < sums.value < 1 and not sums.standard_error:
        return interval
    return [max(0.0, min(interval[0], exact[0])), min(1.0, max(interval[1], exact[1]))]


def moving(table: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, " d"]:
    """In which dimensions centred rows differ by more than rounding; a table of zeros moves in all of them."""
    largest = np.abs(table).max(0)
    found: np.ndarray = largest >= EXACT * largest.max()
    return found


def numpy(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers in float64."""
    return tensor.double().cpu().numpy()
