"""How far the mean of an arm spreads over seeds, and the variance V of the difference of two arms.

A run's score is y = mu + a + b + c: `a` is the effect of the examples (the runs of an arm share it,
and all arms see the same examples), `b` is the effect of the seed, and `c` is the effect of seed
and example together. The difference of two arms' means over n seeds varies by

    V = V_ex + max(0, s - I_a / n_a - I_r / n_r)        s = s_a^2 / n_a + s_r^2 / n_r

V_ex is the variance over examples with the runs held fixed, s_a^2 the variance of an arm's scores
over seeds, and I the variance of `c`. V_ex and s both contain `c`, so that it is subtracted once.

With few seeds, s_a^2 is a poor estimate. So it is pooled over the arms of a block. But if one arm
is less stable than the others, the pooled variance is too small for this arm. So the larger
variance counts: s_a^2 = max(S_a^2, S_p^2). The difference over sqrt(V) is taken as Student's t. Its
degrees of freedom are V^2 over the sum of v^2 / f (Satterthwaite 1946), where v are the parts of s,
and f are their degrees of freedom.

With several pretraining seeds the arms of one seed share initial weights, masks and order: they are
a randomised block. Then the mean square of the residuals counts, after the effects of the arm and
of the block are subtracted from an arm's mean in a block. An arm that is less stable than the
others shows it in its own residuals.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit  # a tenth of the time that scipy.stats takes to load

MIN_SEEDS_FOR_OWN_FREEDOM = 3
"""The fewest seeds for which an arm's own variance counts: two give one degree of freedom."""
TWO_SIDED_TAIL = 0.025
FEW_DEGREES = 4
"""Up to this many pooled degrees of freedom `combine_variances` lowers the freedom of V."""


class Spread(NamedTuple):
    """The variances of the arms' means over seeds.

    Attributes:
        variance: The variance of an arm's mean, (..., arms).
        freedom: Its degrees of freedom, (..., arms).
        is_own: Whether it was estimated from the arm alone, (..., arms); else it is pooled.
        pooled: The pooled variance of one seed, (...).
        pooled_freedom: The degrees of freedom of `pooled`.
    """

    variance: np.ndarray
    freedom: np.ndarray
    is_own: np.ndarray
    pooled: np.ndarray
    pooled_freedom: float


def spread_over_seeds(variances: np.ndarray, seeds: np.ndarray) -> Spread:
    """Return the spread of means over independent runs.

    Args:
        variances: The sample variance of an arm's runs, (..., arms).
        seeds: The number of an arm's runs, (arms,), two at least.
    """
    freedom = seeds - 1
    total_freedom = freedom.sum()
    squares = variances * freedom
    pooled = squares.sum(axis=-1, keepdims=True) / total_freedom
    return _larger_variance(variances, pooled, seeds, total_freedom)


def spread_over_blocks(means: np.ndarray) -> Spread:
    """Return the spread of the arms' means over blocks, for differences within blocks.

    With A arms, P blocks and the variances v, the sum R_a of an arm's squared residuals has the
    expectation (P - 1) ((1 - 2/A) v_a + sum_b v_b / A^2). With the pooled mean square S_p^2 in
    place of the mean of all v_b, v_a = (R_a / (P - 1) - S_p^2 / A) A / (A - 2). The residuals of
    two arms differ only in sign, so two arms get the same variance.

    Args:
        means: The mean of an arm in a block, (..., arms, blocks), two by two at least.
    """
    *_, arms, blocks = means.shape
    of_arms = means.mean(axis=-1, keepdims=True)
    within_arms = means - of_arms
    of_blocks = within_arms.mean(axis=-2, keepdims=True)
    residuals = within_arms - of_blocks
    squares = np.sum(residuals**2, axis=-1)
    freedom = (arms - 1) * (blocks - 1)
    pooled = squares.sum(axis=-1, keepdims=True) / freedom
    own_variance = np.broadcast_to(pooled, squares.shape)
    if arms > 2:
        mean_squares = squares / (blocks - 1)
        difference = mean_squares - pooled / arms
        own_variance = difference * arms / (arms - 2)
    seeds = np.full(arms, blocks)
    return _larger_variance(own_variance, pooled, seeds, freedom)


def _larger_variance(
    own_variance: np.ndarray, pooled: np.ndarray, seeds: np.ndarray, pooled_freedom: float
) -> Spread:
    """Return the spread with the larger of the own and the pooled variance of each arm."""
    is_own = own_variance > pooled
    has_own_freedom = is_own & (seeds >= MIN_SEEDS_FOR_OWN_FREEDOM)
    variance = np.maximum(own_variance, pooled)
    return Spread(
        variance=variance / seeds,
        freedom=np.where(has_own_freedom, seeds - 1, pooled_freedom),
        is_own=is_own,
        pooled=pooled[..., 0],
        pooled_freedom=float(pooled_freedom),
    )


def combine_variances(
    spreads: Sequence[Spread],
    arms: Sequence[int],
    examples: float,
    shared: float,
    examples_freedom: float = np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """Return V, the variance of the difference of two arms, and its degrees of freedom.

    A spread with few degrees of freedom is often far too small by chance. V then hardly exceeds the
    variance over examples, which has many degrees of freedom. With Satterthwaite's formula up to
    13% of the intervals would miss the true difference. So, up to FEW_DEGREES, the spread counts (t
    / z)^2 times in the formula for the freedom, but once in V. Here t and z are the 97.5% quantiles
    of Student's t with the spread's own degrees and of the normal distribution. In simulations
    about 5% miss at most then.

    Args:
        spreads: The spreads of independent parts of a measure, such as the tasks of an average,
            each multiplied by its weight.
        arms: The indices of the two arms.
        examples: V_ex.
        shared: The part of V_ex that the spreads contain as well.
        examples_freedom: The degrees of freedom of V_ex. Hundreds of examples are as good as
            infinitely many, but a loss may be measured on few documents.

    Returns:
        V (...) and its degrees of freedom (...), which are infinite without any spread.
    """
    total: np.ndarray | float = 0.0
    squares: np.ndarray | float = 0.0
    pooled_freedom = 0.0

    for spread in spreads:
        variances = spread.variance[..., list(arms)]
        total = total + variances.sum(axis=-1)
        squares = squares + _satterthwaite_term(spread, list(arms))
        pooled_freedom += spread.pooled_freedom

    weight = 1.0
    if pooled_freedom <= FEW_DEGREES:
        quantile = stdtrit(pooled_freedom, TWO_SIDED_TAIL)
        normal_quantile = stdtrit(np.inf, TWO_SIDED_TAIL)
        weight = float((quantile / normal_quantile) ** 2)

    alone = np.maximum(0.0, total - shared)
    variance = examples + alone
    weighted_alone = np.maximum(0.0, weight * total - shared)
    weighted = examples + weighted_alone
    of_examples = np.square(examples) / examples_freedom
    squares = weight**2 * squares + of_examples

    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(squares > 0, weighted**2 / squares, np.inf)
    return variance, freedom


def _satterthwaite_term(spread: Spread, pair: list[int]) -> np.ndarray:
    """Return the sum of v^2 / f over the variances of two arms' means, (...).

    All pooled variances are one estimate, so that they are added before they are squared. An own
    and a pooled variance come from the same runs: together they have no more freedom than all runs.
    """
    variance = spread.variance[..., pair]
    is_own = spread.is_own[..., pair]
    pooled_variance = np.where(is_own, 0.0, variance)
    from_pooled = pooled_variance.sum(axis=-1)
    freedom = spread.freedom[..., pair]
    own_terms = np.where(is_own, variance**2 / freedom, 0.0)
    from_own = own_terms.sum(axis=-1)
    terms = from_pooled**2 / spread.pooled_freedom + from_own
    total = variance.sum(axis=-1)
    smallest = total**2 / spread.pooled_freedom
    return np.maximum(terms, smallest)
