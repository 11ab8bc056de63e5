"""Whether two arms differ: an interval and p-values from how scores spread over examples and over seeds.

A run's score is y = mu + a + b + c: `a` of the examples in the dev set (shared by an arm's runs, and correlated between
arms, which see the same examples), `b` of the seed, and `c` of seed and examples together. The difference of two
arms' means over n seeds varies by

    V = V_examples + sum over both arms of (S2 - I) / n

V_examples is the variance of the difference over resamples of the examples with the runs held fixed; S2 the sample
variance of an arm's run scores, and I the variance of `c`, which both count and which is taken off once: the mean
over resamples of the sample variance over seeds, less S2. Runs are taken as independent between arms: equal seeds
share the order of the data only, and pairing them would halve the degrees of freedom, of which there are few.

The interval is Student's with Satterthwaite's degrees of freedom (n - 1 for each S2, as in Welch's test). A negative
S2 - I counts as 0, and then adds nothing uncertain either: V_examples has all of that arm's spread. At the small
levels that a correction for many tests asks for, this promises too much of 2 or 3 seeds: an S2 that is small by chance
passes for a small variance. So a second p-value, `p_pooled`, takes the seeds' variance from all arms of the block and
lets the difference be a normal plus a scaled t variable; a verdict needs both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2, norm
from scipy.stats import t as student_t

LEVEL = 0.95
NODES = np.concatenate([[0.0], np.geomspace(1e-8, 0.02, 100), np.linspace(0.02, 1.0, 101)[1:]])
"""Quantiles between which the chi-squared distribution of a variance is taken as constant; dense where p is small."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one task's runs add to a measure: run scores (n,) by arm, in points of the measure, and each arm's I."""

    scores: Mapping[str, np.ndarray]
    interaction: Mapping[str, float]

    def variance(self, arm: str) -> float:
        """S2, the sample variance over seeds."""
        return float(np.var(self.scores[arm], ddof=1))


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A column or an average, for the arms that have an interval in it.

    `examples` is the covariance (arms, arms) over resamples of the examples of the arms' means over seeds. Every part
    has all `arms`, each with the same seeds in every part.
    """

    arms: tuple[str, ...]
    parts: Sequence[Part]
    examples: np.ndarray

    def mean(self, arm: str) -> float:
        """The arm's mean over seeds, points."""
        return float(sum(part.scores[arm].mean() for part in self.parts))

    def seeds(self, arm: str) -> int:
        """How many runs the arm has."""
        return len(self.parts[0].scores[arm])

    def example_variance(self, a: str, b: str) -> float:
        """V_examples of a pair."""
        i, j = self.arms.index(a), self.arms.index(b)
        return float(self.examples[i, i] + self.examples[j, j] - 2 * self.examples[i, j])

    def interaction(self, arm: str) -> float:
        """I, the variance of seed and examples together, of one run."""
        return float(sum(part.interaction[arm] for part in self.parts))


@dataclass(frozen=True)
class DifferenceEstimate:
    """A difference in points, its 95% interval, and the two p-values."""

    difference: float
    low: float
    high: float
    p_bootstrap: float
    p_pooled: float


def estimate(measure: Measure, a: str, b: str) -> DifferenceEstimate:
    """The difference of arm `a` from arm `b`."""
    difference = measure.mean(a) - measure.mean(b)
    variance, freedom = _welch(measure, a, b)
    error = float(np.sqrt(variance))
    half = error * float(student_t.ppf((1 + LEVEL) / 2, freedom))
    p = two_sided(difference, error, freedom)
    return DifferenceEstimate(difference, difference - half, difference + half, p, _pooled_p(measure, a, b, difference))


def t_interval(mean: float, deviation: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Student's interval of a mean over n seeds with this sample deviation; (nan, nan) where it is undefined."""
    if n < 2 or math.isnan(mean) or math.isnan(deviation):
        return math.nan, math.nan
    half = float(student_t.ppf((1 + level) / 2, n - 1)) * deviation / math.sqrt(n)
    return mean - half, mean + half


def two_sided(difference: float, error: float, freedom: float) -> float:
    """p of a t statistic; 1 for no difference and 0 for one without any spread."""
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * student_t.sf(abs(difference) / error, freedom))


def _welch(measure: Measure, a: str, b: str) -> tuple[float, float]:
    """V and its degrees of freedom (Satterthwaite 1946): V^2 over the sum of each term's square over its own."""
    variance, squares = measure.example_variance(a, b), 0.0
    for arm in (a, b):
        n, terms = measure.seeds(arm), np.array([part.variance(arm) for part in measure.parts])
        excess = float(terms.sum()) - measure.interaction(arm)
        if excess > 0:
            variance += excess / n
            squares += float(np.sum((terms / n) ** 2)) / (n - 1)
    return variance, variance**2 / squares if squares > 0 else float("inf")


def _pooled_p(measure: Measure, a: str, b: str, difference: float) -> float:
    """p where the seeds' variance is one for all arms: the mean of a normal's p over the variances that S2 allows."""
    inverse = 1 / measure.seeds(a) + 1 / measure.seeds(b)
    total, freedom = pooled_variance(measure)
    floor = measure.interaction(a) / measure.seeds(a) + measure.interaction(b) / measure.seeds(b)
    base = max(0.0, measure.example_variance(a, b) - floor)
    weights, middles = np.diff(NODES), (NODES[1:] + NODES[:-1]) / 2
    seeds = total * inverse * freedom / chi2.ppf(middles, freedom)
    error = np.sqrt(base + np.maximum(seeds, floor))
    if not error.all():
        return two_sided(difference, 0.0, freedom)
    return float(weights @ (2 * norm.sf(abs(difference) / error)))


def pooled_variance(measure: Measure) -> tuple[float, float]:
    """The variance over seeds of one run, pooled over the measure's arms, and its degrees of freedom."""
    each = [measure.seeds(arm) - 1 for arm in measure.arms]
    terms = [np.average([part.variance(arm) for arm in measure.arms], weights=each) for part in measure.parts]
    squares = float(np.sum(np.square(terms))) / sum(each)
    return float(sum(terms)), float(sum(terms)) ** 2 / squares if squares > 0 else float(sum(each))
