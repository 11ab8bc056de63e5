"""The variance of a difference: exact reductions to well-known tests, and cases by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import ttest_ind

from glue_bench.stats.spreads import (
    Spread,
    combine_variances,
    spread_over_blocks,
    spread_over_seeds,
)
from glue_bench.stats.verdicts import two_sided


def spread_of(variances: list[float], seeds: list[int]) -> Spread:
    """Return the spread of arms with these variances of a run, and these numbers of seeds."""
    return spread_over_seeds(np.array(variances), np.array(seeds))


def combined(spread: Spread, examples: float, shared: float = 0.0):
    """Return V of the difference of the first two arms, and its degrees of freedom."""
    return combine_variances([spread], [0, 1], examples, shared)


def test_equal_variances_without_examples_are_students_t_test():
    first = np.array([1.0, 2.0, 3.0])
    second = np.array([5.0, 6.0, 7.0])
    spread = spread_of([1.0, 1.0], [3, 3])
    variance, freedom = combined(spread, 0.0)
    error = np.sqrt(variance)
    expected = ttest_ind(first, second).pvalue
    assert freedom == pytest.approx(4)
    p = two_sided(-4.0, error, freedom)
    assert p == pytest.approx(expected)


def test_arms_of_different_variance_by_hand():
    """The pooled variance is 4. The first arm has its own, 9, with two degrees of freedom."""
    spread = spread_of([9.0, 1.0, 2.0], [3, 3, 3])
    variance, freedom = combined(spread, 0.5, 0.1)
    assert variance == pytest.approx(0.5 + 3 + 4 / 3 - 0.1)
    parts = 3**2 / 2 + (4 / 3) ** 2 / 6
    expected = variance**2 / parts
    assert freedom == pytest.approx(expected)


def test_own_variances_have_no_more_freedom_than_all_runs():
    """The freedom is smaller than with two independent variances."""
    spread = spread_of([9.0, 1.0], [2, 2])
    _, freedom = combined(spread, 0.0)
    assert freedom == pytest.approx(2)


def test_two_seeds_have_no_freedom_of_their_own():
    spread = spread_of([9.0, 1.0, 1.0], [2, 2, 2])
    assert spread.freedom.tolist() == [3, 3, 3]
    assert spread.is_own.tolist() == [True, False, False]


def test_the_shared_variance_is_subtracted_once():
    spread = spread_of([1.0, 1.0], [3, 3])
    variance, _ = combined(spread, 4.0, 0.3)
    expected = 4.0 + 2 / 3 - 0.3
    assert variance == pytest.approx(expected)


def test_the_variance_is_never_below_the_variance_over_examples():
    spread = spread_of([1.0, 1.0], [3, 3])
    variance, _ = combined(spread, 4.0, 5.0)
    assert variance == pytest.approx(4.0)


def test_without_any_spread_the_difference_is_normal():
    spread = spread_of([0.0, 0.0], [3, 3])
    variance, freedom = combined(spread, 4.0)
    error = np.sqrt(variance)
    p = two_sided(1.959964 * 2, error, freedom)
    assert np.isinf(freedom)
    assert p == pytest.approx(0.05, abs=1e-6)


def test_blocks_of_two_arms_are_the_paired_t_test():
    generator = np.random.default_rng(0)
    of_arms = generator.normal(size=(2, 5))
    of_blocks = 10 * generator.normal(size=5)
    first, second = of_arms + of_blocks
    spread = spread_over_blocks(np.stack([first, second]))
    variance, freedom = combined(spread, 0.0)
    expected = np.var(first - second, ddof=1) / 5
    assert freedom == pytest.approx(4)
    assert variance == pytest.approx(expected)


def test_few_documents_have_all_the_freedom_if_seeds_do_not_vary():
    spread = spread_of([1e-12, 1e-12], [3, 3])
    _, freedom = combine_variances([spread], [0, 1], 1.0, 0.0, 6.5)
    assert freedom == pytest.approx(6.5)


def test_few_documents_and_seeds_of_equal_variance_have_the_freedom_of_satterthwaite():
    """The part of the seeds in V is 1, with six degrees of freedom."""
    spread = spread_of([1.5, 1.5, 1.5], [3, 3, 3])
    _, freedom = combine_variances([spread], [0, 1], 1.0, 0.0, 6.0)
    assert freedom == pytest.approx(12.0)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_intervals_hold_with_few_degrees_of_freedom(degrees, ratio):
    """The spread over seeds is `ratio` times the spread over examples.

    With Satterthwaite's freedom up to 13% of the intervals miss.
    """
    generator = np.random.default_rng(0)
    squares = generator.chisquare(degrees, 40_000)
    variances = ratio * squares / degrees
    of_an_arm = variances / 2
    spread = Spread(
        variance=np.stack([of_an_arm, of_an_arm], axis=-1),
        freedom=np.full((1, 2), degrees),
        is_own=np.zeros((1, 2), dtype=bool),
        pooled=variances,
        pooled_freedom=degrees,
    )
    variance, freedom = combined(spread, 1.0)
    errors = np.sqrt(1 + ratio) * generator.normal(size=40_000)
    half_width = -stdtrit(freedom, 0.025) * np.sqrt(variance)
    is_missed = np.abs(errors) > half_width
    assert is_missed.mean() < 0.052


@given(seed=st.integers(0, 2**32 - 1), arms=st.integers(2, 6), blocks=st.integers(2, 5))
def test_an_effect_that_all_arms_of_a_block_share_changes_nothing(seed, arms, blocks):
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(arms, blocks))
    block_effects = 100 * generator.normal(size=blocks)
    arm_effects = generator.normal(size=(arms, 1))
    spread = spread_over_blocks(means)
    moved = spread_over_blocks(means + block_effects + arm_effects)
    np.testing.assert_allclose(spread.variance, moved.variance, rtol=1e-6)


@given(seed=st.integers(0, 2**32 - 1), arms=st.integers(2, 6), blocks=st.integers(2, 5))
def test_no_variance_over_blocks_is_below_the_pooled_one(seed, arms, blocks):
    means = np.random.default_rng(seed).normal(size=(arms, blocks))
    spread = spread_over_blocks(means)
    of_a_mean = spread.pooled / blocks
    assert (spread.variance >= of_a_mean - 1e-12).all()


def test_an_arms_own_variance_over_blocks_is_estimated():
    """One arm has nine times the variance of four others; over many blocks each is known well."""
    means = np.random.default_rng(0).normal(size=(5, 20_000))
    means[0] *= 3.0
    spread = spread_over_blocks(means)
    variances = spread.variance * 20_000
    assert spread.pooled == pytest.approx(13 / 5, rel=0.02)
    np.testing.assert_allclose(variances, [9, 2.6, 2.6, 2.6, 2.6], rtol=0.03)
    assert spread.is_own.tolist() == [True, False, False, False, False]


def test_unequal_seeds_pool_by_degrees_of_freedom_by_hand():
    spread = spread_of([9.0, 1.0, 4.0], [2, 5, 3])
    pooled = (9 * 1 + 1 * 4 + 4 * 2) / 7
    variances = [9 / 2, pooled / 5, 4 / 3]
    assert spread.pooled == pytest.approx(pooled)
    assert spread.variance.tolist() == pytest.approx(variances)
    assert spread.freedom.tolist() == [7, 7, 2]
