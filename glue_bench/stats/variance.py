"""How far a difference of two arms spreads, and with how many degrees of freedom that is known.

A run's score is y = mu + a + b + c: `a` of the examples (an arm's runs share it, and all arms see the same examples),
`b` of the seed, `c` of seed and example together. The difference of two arms' means over n seeds varies by

    V = V_ex + max(0, s - I_a / n_a - I_r / n_r)        s = s_a^2 / n_a + s_r^2 / n_r

V_ex is the variance over examples with the runs held fixed, s_a^2 the variance of an arm's run scores over seeds, and I
the variance of `c`, which both have and which therefore is taken off once.

Few seeds give a poor s_a^2, so it is pooled over the arms of a block; but where one arm is less stable than the others,
pooling would promise too much of it. So the larger one counts: s_a^2 = max(S_a^2, S_p^2). V is Student's, with
Satterthwaite's (1946) degrees of freedom: V^2 over the sum of squares of the parts of s, each over its own.

With several pretraining seeds the arms of one seed share initial weights, masks and order, and are a randomised block.
What counts is then the mean square of the residuals of an arm's mean in a block, without the arm and the block; an arm
that is less stable than the others is seen in its own residuals.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST_FOR_OWN = 3
"""Seeds from which an arm's own variance has degrees of freedom of its own; of two it would have one, too few."""


class Spread(NamedTuple):
    """Of each arm (..., arms): the variance of its mean over seeds, its freedom, and whether it is the arm's own.

    All that are not the arm's own are one pooled estimate: `pooled` (...), of one seed, with `pooled_freedom`.
    """

    variance: np.ndarray
    freedom: np.ndarray
    own: np.ndarray
    pooled: np.ndarray
    pooled_freedom: float


def of_seeds(variances: np.ndarray, seeds: np.ndarray) -> Spread:
    """The spread of means over independent runs: sample variances (..., arms) of so many `seeds` (arms,), each >= 2."""
    freedom = seeds - 1
    pooled = (variances * freedom).sum(axis=-1, keepdims=True) / freedom.sum()
    return _larger(variances, pooled, seeds, freedom.sum())


def of_blocks(means: np.ndarray) -> Spread:
    """The spread of differences of means over blocks, from the means (..., arms, blocks) of at least 2 by 2.

    R_a, the sum of an arm's squared residuals, has the expectation (P - 1) ((1 - 2/A) v_a + sum_b v_b / A^2); solved
    for v_a with the mean square in place of the mean of all v_b, it says what the arm's own variance is.
    """
    *_, arms, blocks = means.shape
    centred = means - means.mean(axis=-1, keepdims=True)
    squares = np.sum((centred - centred.mean(axis=-2, keepdims=True)) ** 2, axis=-1)
    pooled = squares.sum(axis=-1, keepdims=True) / ((arms - 1) * (blocks - 1))
    own = (squares / (blocks - 1) - pooled / arms) * arms / (arms - 2) if arms > 2 else pooled + 0 * squares
    return _larger(own, pooled, np.full(arms, blocks), (arms - 1) * (blocks - 1))


def _larger(own: np.ndarray, pooled: np.ndarray, seeds: np.ndarray, pooled_freedom: float) -> Spread:
    is_own = own > pooled
    freedom = np.where(is_own & (seeds >= LEAST_FOR_OWN), seeds - 1, pooled_freedom)
    return Spread(np.maximum(own, pooled) / seeds, freedom, is_own, pooled[..., 0], float(pooled_freedom))


def combined(
    spreads: Sequence[Spread],
    arms: Sequence[int],
    examples: float,
    shared: float,
    examples_freedom: float = np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """V and its degrees of freedom, (...): of the difference of two arms, or of the mean of one.

    `spreads` are of independent parts of a measure, such as the tasks of an average, each by its weight; `examples` is
    V_ex and `shared` what of it the spread over seeds has, too. V_ex is known well from hundreds of examples, and from
    few documents with `examples_freedom`.
    """
    chosen = list(arms)
    total, squares = 0.0, 0.0
    for spread in spreads:
        variance, own = spread.variance[..., chosen], spread.own[..., chosen]
        total = total + variance.sum(axis=-1)
        together = np.where(own, 0.0, variance).sum(axis=-1)
        alone = np.where(own, variance**2 / spread.freedom[..., chosen], 0.0).sum(axis=-1)
        parts = together**2 / spread.pooled_freedom + alone
        # An own and a pooled variance come from the same runs: together they have no more freedom than all of these.
        squares = squares + np.maximum(parts, variance.sum(axis=-1) ** 2 / spread.pooled_freedom)
    squares = squares + np.square(examples) / examples_freedom
    variance = examples + np.maximum(0.0, total - shared)
    with np.errstate(divide="ignore", invalid="ignore"):
        return variance, np.where(squares > 0, variance**2 / squares, np.inf)
