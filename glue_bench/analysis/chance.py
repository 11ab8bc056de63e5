"""The rows of measures, with intervals of measured values and bands of what chance gives.

No torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy  # its stats take half a second to load; they are loaded when they are used

COVERAGE = 0.95
TAILS = (1 - COVERAGE) / 2, (1 + COVERAGE) / 2
CHANCE_SEED = 0  # decides all random numbers of the measures
ROUNDING_ERROR = 1e-5  # the largest error by rounding in float32, as a share of the largest value
Interval = tuple[float, float]
NO_INTERVAL: Interval = (nan, nan)


class LeftOut(Exception):
    """A measure does not apply to an encoder.

    The message says why, and how to get the measure.
    """


class Row(NamedTuple):
    """A value, its 95% interval over `n` sequences, and the band of 95% of the values by chance.

    `layer` 0 is the input of the first block; layer n is the output of block n, or a value inside
    it. Values are means over heads.
    """

    measure: str
    value: float
    low: float = nan
    high: float = nan
    chance_low: float = nan
    chance_high: float = nan
    layer: int | None = None
    n: int = 0


@dataclass(frozen=True)
class Measured:
    """The result of a measure.

    It has rows, the matrices that figures draw, and the reasons for rows that are left out.
    """

    rows: list[Row]
    matrices: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """The measures of several checkpoints. Every frame has the column `checkpoint` first.

    `subjects` has a row for each checkpoint: its variant, origin and sizes, and the digest of its
    `weights`. `measures` has the columns of `Row`. `left_out` has a row for each measure that does
    not apply, with the reason. `matrices` are drawn by figures. `gone` has a line for each
    experiment with arms whose checkpoint is missing.
    """

    text: str
    text_digest: str
    sequences: int
    subjects: pd.DataFrame
    measures: pd.DataFrame
    left_out: pd.DataFrame
    matrices: Mapping[str, pd.DataFrame]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sums:
    """The measure sum / count over all sequences.

    `sums` and `counts` are float64 (n,) and have one value per sequence.
    Arms that read the same text have the same sequences, so that differences can be paired over
    them.
    """

    sums: np.ndarray
    counts: np.ndarray

    @property
    def value(self) -> float:
        """The mean over all that was counted; NaN if nothing was counted."""
        total = self.counts.sum()
        return float(self.sums.sum() / total) if total else nan

    @property
    def n(self) -> int:
        """The number of sequences with a count above 0."""
        return int((self.counts > 0).sum())

    @property
    def standard_error(self) -> float:
        """The standard error of a ratio of sums (Cochran 1977, equation 6.13).

        With R = value, it is sqrt(n / (n - 1) * sum_k (s_k - R c_k)^2) / sum_k c_k over the
        sequences with a count above 0, as if they were drawn at random. It is NaN if there are
        fewer than two sequences.
        """
        if self.n < 2:
            return nan
        residuals = (self.sums - self.value * self.counts)[self.counts > 0]
        variance = self.n / (self.n - 1) * np.square(residuals).sum()
        return float(np.sqrt(variance) / self.counts.sum())

    @property
    def interval(self) -> Interval:
        """The 95% interval over sequences, by Student's t; NaN for fewer than two sequences."""
        half = float(scipy.stats.t.ppf(TAILS[1], self.n - 1)) * self.standard_error
        return self.value - half, self.value + half

    @property
    def share_interval(self) -> Interval:
        """The 95% interval of a share from 0 to 1.

        Near 0 and 1 sequences hardly differ, so that `interval` would be too narrow. The interval
        of a share is at least as wide as the exact binomial interval of all trials (Clopper &
        Pearson 1934). At 0 and 1 it is at least as wide as the binomial interval of one trial per
        sequence, because the trials of a sequence may be alike. If all sequences have the same
        share between 0 and 1, the result is `interval`: an encoder without positions has a share of
        exactly 50% in every sequence.
        """
        low, high = self.interval
        if isnan(low) or (0 < self.value < 1 and not self.standard_error):
            return low, high
        trials = self.n if self.value in (0, 1) else float(self.counts.sum())
        hits = self.value * trials
        exact_low = 0.0
        exact_high = 1.0
        if hits:
            exact_low = float(scipy.stats.beta.ppf(TAILS[0], hits, trials - hits + 1))
        if hits < trials:
            exact_high = float(scipy.stats.beta.ppf(TAILS[1], hits + 1, trials - hits))
        return max(0.0, min(low, exact_low)), min(1.0, max(high, exact_high))


def row(
    measure: str,
    value: float,
    interval: Interval = NO_INTERVAL,
    chance: Interval = NO_INTERVAL,
    **place: Any,
) -> Row:
    """Make a row from pairs of bounds.

    Args:
        measure: The name of the measure.
        value: Its value.
        interval: The 95% interval of the value.
        chance: The band that holds 95% of what chance gives.
        place: `layer` and `n` of the row.
    """
    return Row(measure, float(value), *interval, *chance, **place)


def mean_row(measure: str, values: np.ndarray, chance: Interval = NO_INTERVAL, **place: Any) -> Row:
    """Make the row of a mean over sequences.

    Args:
        measure: The name of the measure.
        values: The value of each sequence, (n,).
        chance: The band that holds 95% of what chance gives.
        place: `layer` of the row.
    """
    mean = Sums(values, np.ones(len(values)))
    return row(measure, mean.value, mean.interval, chance, n=mean.n, **place)


def seeded_generator(*parts: int) -> np.random.Generator:
    """Return a generator for draws of chance. Generators with other `parts` draw other numbers."""
    return np.random.default_rng([CHANCE_SEED, *parts])


def middle_band(draws: Sequence[float] | np.ndarray) -> Interval:
    """Return the middle 95% of many draws (200 or more) of what chance gives."""
    low, high = np.quantile(draws, TAILS)
    return float(low), float(high)


def prediction_band(draws: Sequence[float] | np.ndarray) -> Interval:
    """Return the band of 95% of further draws, if the m draws are of normal numbers.

    It is mean -+ t_{m-1} * s * sqrt(1 + 1 / m).
    """
    m = len(draws)
    mean = float(np.mean(draws))
    quantile = scipy.stats.t.ppf(TAILS[1], m - 1)
    reach = float(quantile * np.std(draws, ddof=1) * np.sqrt(1 + 1 / m))
    return mean - reach, mean + reach


def share_band(draws: Sequence[float] | np.ndarray, trials: int, examples: int) -> Interval:
    """Return the band of 95% of further draws of a share.

    If every draw scored 100%, their spread is 0. So the band is at least the 95% range of a
    beta-binomial sample, with one hit and one miss added (Agresti & Caffo 2000).

    Args:
        draws: The shares of the draws, from 0 to 1.
        trials: The number of examples of each draw.
        examples: The number of examples of the share that is compared with the band.
    """
    low, high = prediction_band(draws)
    hits = np.mean(draws) * trials * len(draws) + 1
    misses = (1 - np.mean(draws)) * trials * len(draws) + 1
    counts = scipy.stats.betabinom.ppf(TAILS, examples, hits, misses)
    exact_low, exact_high = np.asarray(counts) / examples
    return max(0.0, min(low, float(exact_low))), min(1.0, max(high, float(exact_high)))
