"""Resampling of a column's examples: how far scores spread over dev sets, and what swapping two arms would give.

One resample of the examples serves every run, so arms are compared on the same rows. The numbers follow from the
predictions alone: the generator starts from the column's place among the columns and its number of rows.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from glue_bench.benchmark.tasks import COLUMNS
from glue_bench.stats.outcomes import Outcomes
from glue_bench.stats.weighted import LINEAR, score_sums, sums_of

RESAMPLES = 10_000
CHUNK = 2**22
"""Weights held at a time: 16 MB of float32 and twice 32 MB while they are drawn."""
BOOTSTRAP, PERMUTATION = 0, 1
Pair = tuple[str, str]


@dataclass(frozen=True)
class Swapped:
    """Differences of two arms in points: `observed`, and after every random swap, (resamples,)."""

    observed: float
    differences: np.ndarray

    @property
    def p(self) -> float:
        """Two-sided: (1 + swaps with a difference as large) / (1 + swaps) (Phipson and Smyth 2010)."""
        large = np.abs(self.differences) >= abs(self.observed) * (1 - 1e-6)  # equal but for rounding is as large
        return float((1 + large.sum()) / (1 + len(self.differences)))


def bootstrap_covariance(outcomes: Outcomes, resamples: int = RESAMPLES) -> np.ndarray:
    """Covariance (runs, runs) of the runs' scores, in points, over bootstrap samples of the examples.

    The runs are held fixed (Efron and Tibshirani 1993, chapter 6). For a mean over examples it is known what endless
    resamples give, the covariance of the examples over their number; other metrics are resampled. Both times
    rows / (rows - 1): a sample drawn with replacement from few rows spreads too little by so much.
    """
    if outcomes.metric in LINEAR:
        hits = sums_of(outcomes.metric, outcomes.predictions, outcomes.labels)[:, :, 0]
        return np.atleast_2d(np.cov(100.0 * hits, rowvar=False, dtype=np.float64)) / outcomes.rows
    scores = 100.0 * resampled_scores(outcomes, resamples)
    return np.atleast_2d(np.cov(scores, rowvar=False)) * outcomes.rows / (outcomes.rows - 1)


def resampled_scores(outcomes: Outcomes, resamples: int) -> np.ndarray:
    """Scores (resamples, runs), at most 1, on bootstrap samples of the examples."""
    parts = sums_of(outcomes.metric, outcomes.predictions, outcomes.labels)
    rows, runs, k = parts.shape
    flat, generator = np.ascontiguousarray(parts.reshape(rows, runs * k)), _generator(outcomes, BOOTSTRAP)
    sums = [_counts(generator, size, rows, flat.dtype) @ flat for size in _sizes(resamples, rows)]
    return score_sums(outcomes.metric, np.concatenate(sums).reshape(resamples, runs, k), rows)


def swapped(outcomes: Outcomes, resamples: int = RESAMPLES) -> dict[Pair, Swapped]:
    """Every pair of arms after swapping their predictions of each example with probability one half.

    All seeds of an example are swapped together. Where the metric is no mean over examples, runs are matched in the
    order of their seeds, and those that one arm has more than the other are left out.
    """
    pairs = [pair for pair in combinations(outcomes.arms, 2) if all(len(outcomes.runs[arm]) for arm in pair)]
    parts = sums_of(outcomes.metric, outcomes.predictions, outcomes.labels)
    make = _linear if outcomes.metric in LINEAR else _matched
    return make(outcomes, pairs, parts, resamples) if pairs else {}


def _linear(outcomes: Outcomes, pairs: list[Pair], parts: np.ndarray, resamples: int) -> dict[Pair, Swapped]:
    """Examples that move the difference by equally much are interchangeable: only how many are swapped is drawn."""
    hits, generator, result = parts[:, :, 0], _generator(outcomes, PERMUTATION), {}
    for first, second in pairs:
        a, b = outcomes.runs[first], outcomes.runs[second]
        common = math.lcm(len(a), len(b))  # whole steps, so that a tie with the observed difference is one
        steps = hits[:, a].sum(axis=1) * (common // len(a)) - hits[:, b].sum(axis=1) * (common // len(b))
        sizes, counts = np.unique(np.abs(steps), return_counts=True)
        kept = generator.binomial(counts, 0.5, size=(resamples, len(counts)))
        unit = 100.0 / (common * len(hits))
        result[first, second] = Swapped(float(steps.sum()) * unit, ((2 * kept - counts) @ sizes) * unit)
    return result


def _matched(outcomes: Outcomes, pairs: list[Pair], parts: np.ndarray, resamples: int) -> dict[Pair, Swapped]:
    """Every example has a sign a resample, the same for all pairs: minus where a pair's predictions are swapped.

    With sums A and B over all examples, and signed sums a and b, the first arm's after swapping is
    (A + B) / 2 + (a - b) / 2, the second's the same with a minus.
    """
    totals, signed, result = parts.sum(axis=0, dtype=np.float64), _signed_sums(outcomes, parts, resamples), {}
    for pair in pairs:
        number = min(len(outcomes.runs[arm]) for arm in pair)
        a, b = (outcomes.runs[arm][:number] for arm in pair)
        middle, moved = (totals[a] + totals[b]) / 2, (signed[:, a] - signed[:, b]) / 2
        observed = _difference(outcomes, totals[a], totals[b])
        result[pair] = Swapped(float(observed), _difference(outcomes, middle + moved, middle - moved))
    return result


def _difference(outcomes: Outcomes, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    rows = outcomes.rows
    scores = (score_sums(outcomes.metric, sums, rows).mean(axis=-1) for sums in (first, second))
    return 100.0 * np.subtract(*scores)


def _signed_sums(outcomes: Outcomes, parts: np.ndarray, resamples: int) -> np.ndarray:
    """Sums over examples with a random sign each: (resamples, runs, k) from (rows, runs, k)."""
    rows, runs, k = parts.shape
    flat, generator = np.ascontiguousarray(parts.reshape(rows, runs * k)), _generator(outcomes, PERMUTATION)
    sums = [_coins(generator, size, rows, flat.dtype) @ flat for size in _sizes(resamples, rows)]
    signed = 2 * np.concatenate(sums).astype(np.float64) - flat.sum(axis=0, dtype=np.float64)
    return signed.reshape(resamples, runs, k)


def _generator(outcomes: Outcomes, purpose: int) -> np.random.Generator:
    return np.random.default_rng([purpose, list(COLUMNS).index(outcomes.column), outcomes.rows])


def _sizes(resamples: int, rows: int) -> Iterator[int]:
    """Resamples a chunk, so that memory does not grow with their number."""
    chunk = max(1, CHUNK // max(1, rows))
    for start in range(0, resamples, chunk):
        yield min(chunk, resamples - start)


def _counts(generator: np.random.Generator, resamples: int, rows: int, dtype: np.dtype) -> np.ndarray:
    """How often each example is drawn, (resamples, rows)."""
    drawn = generator.integers(rows, size=(resamples, rows), dtype=np.int32).astype(np.int64)
    drawn += rows * np.arange(resamples)[:, None]
    return np.bincount(drawn.ravel(), minlength=resamples * rows).reshape(resamples, rows).astype(dtype)


def _coins(generator: np.random.Generator, resamples: int, rows: int, dtype: np.dtype) -> np.ndarray:
    """Zeros and ones, (resamples, rows)."""
    width = -(-rows // 8)
    drawn = np.frombuffer(generator.bytes(resamples * width), np.uint8).reshape(resamples, width)
    return np.unpackbits(drawn, axis=1, count=rows).astype(dtype)
