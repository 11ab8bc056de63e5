"""Measures beside what chance gives: their rows, intervals of measured values, and bands of draws. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy  # its stats take half a second to load, and do when they are used

COVERAGE = 0.95
TAILS = (1 - COVERAGE) / 2, (1 + COVERAGE) / 2
SEED = 0  # of everything that the measures draw
EXACT = 1e-5  # of the largest value: what rounding in float32 may make of a sum
Interval = tuple[float, float]
NONE: Interval = (nan, nan)


class LeftOut(Exception):
    """A measure does not apply to an encoder; the message is the reason, and how to get the measure."""


class Row(NamedTuple):
    """A value with its 95% interval over `n` sequences, and the range in which 95% of what chance gives falls.

    `layer` 0 is what enters the first block, n what block n leaves or computes; values are means over heads.
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
    """What a measure leaves: rows, the matrices that figures draw, and the reasons for what it has left out."""

    rows: list[Row]
    matrices: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """What was measured of checkpoints. Every frame has the column `checkpoint` first.

    `subjects` has a row for each: its variant, origin and sizes, and the digest of its `weights`. `measures` has a row
    for each `Row`, `left_out` one for each measure that does not apply, with the reason; `matrices` are what figures
    draw. `gone` has a line for each experiment with arms whose checkpoint is not there.
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
    """A measure is sum / count over all sequences. `sums` float64 (n,), `counts` float64 (n,), one per sequence.

    Arms that read the same text have the same sequences, so that differences can be paired over them.
    """

    sums: np.ndarray
    counts: np.ndarray

    @property
    def value(self) -> float:
        """The mean over all that was counted; NaN where nothing was."""
        total = self.counts.sum()
        return float(self.sums.sum() / total) if total else nan

    @property
    def n(self) -> int:
        """Sequences that count anything."""
        return int((self.counts > 0).sum())

    @property
    def standard_error(self) -> float:
        """That of a ratio of sums, the sequences drawn at random (Cochran 1977, equation 6.13); NaN of fewer than two.

        sqrt(n / (n - 1) * sum_k (s_k - R c_k)^2) / sum_k c_k, with R = value, over the sequences that count anything.
        """
        if self.n < 2:
            return nan
        residuals = (self.sums - self.value * self.counts)[self.counts > 0]
        return float(
            np.sqrt(self.n / (self.n - 1) * np.square(residuals).sum()) / self.counts.sum()
        )

    @property
    def interval(self) -> Interval:
        """The 95% interval over sequences, by Student's t; NaN of fewer than two."""
        half = float(scipy.stats.t.ppf(TAILS[1], self.n - 1)) * self.standard_error
        return self.value - half, self.value + half

    @property
    def share_interval(self) -> Interval:
        """As `interval`, of a share from 0 to 1.

        Near 0 and 1 few sequences hardly spread, so it is at least as wide as the exact binomial interval (Clopper &
        Pearson 1934) of all trials; and at 0 and 1 as that of so many sequences, however alike the trials of each are.
        Sequences that all say the same between 0 and 1 have no interval but that: all ties of the swap test are exact.
        """
        low, high = self.interval
        if isnan(low) or (0 < self.value < 1 and not self.standard_error):
            return low, high
        trials = self.n if self.value in (0, 1) else float(self.counts.sum())
        hits = self.value * trials
        few = float(scipy.stats.beta.ppf(TAILS[0], hits, trials - hits + 1)) if hits else 0.0
        many = (
            float(scipy.stats.beta.ppf(TAILS[1], hits + 1, trials - hits)) if hits < trials else 1.0
        )
        return max(0.0, min(low, few)), min(1.0, max(high, many))


def row(
    measure: str, value: float, interval: Interval = NONE, chance: Interval = NONE, **place: Any
) -> Row:
    """A row of pairs of bounds; `place` are its layer and n."""
    return Row(measure, float(value), *interval, *chance, **place)


def mean_row(measure: str, values: np.ndarray, chance: Interval = NONE, **place: Any) -> Row:
    """The row of a mean over sequences, of which each has a value."""
    mean = Sums(values, np.ones(len(values)))
    return row(measure, mean.value, mean.interval, chance, n=mean.n, **place)


def middle(draws: Sequence[float] | np.ndarray) -> Interval:
    """The middle 95% of many draws (200 or more) of what chance gives."""
    low, high = np.quantile(draws, TAILS)
    return float(low), float(high)


def expected(draws: Sequence[float] | np.ndarray) -> Interval:
    """Where 95% of further draws fall, if m draws are of normal numbers: mean -+ t_{m-1} * s * sqrt(1 + 1 / m)."""
    m, mean = len(draws), float(np.mean(draws))
    reach = float(scipy.stats.t.ppf(TAILS[1], m - 1) * np.std(draws, ddof=1) * np.sqrt(1 + 1 / m))
    return mean - reach, mean + reach


def expected_share(draws: Sequence[float] | np.ndarray, trials: int, tried: int) -> Interval:
    """As `expected`, of the share that is told of `tried` when each draw had so many `trials`.

    If every draw scored 100%, their spread is 0. So the band is at least the 95% range of a beta-binomial sample of
    `tried`, with one told and one missed added (Agresti & Caffo 2000).
    """
    low, high = expected(draws)
    hits, misses = (
        share * trials * len(draws) + 1 for share in (np.mean(draws), 1 - np.mean(draws))
    )
    few, many = np.asarray(scipy.stats.betabinom.ppf(TAILS, tried, hits, misses)) / tried
    return max(0.0, min(low, float(few))), min(1.0, max(high, float(many)))
