"""The variance of a difference: exact reductions to tests of others, and cases by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import ttest_ind

from glue_bench.stats.estimates import Spread, combined, of_blocks, of_seeds
from glue_bench.stats.verdicts import two_sided

THREE = np.array([3, 3])


def judged(scores, examples=0.0, shared=0.0):
    """p of the first arm's difference from the second, from run scores (arms, seeds)."""
    spread = of_seeds(np.var(scores, axis=1, ddof=1), np.array([len(runs) for runs in scores]))
    variance, freedom = combined([spread], [0, 1], examples, shared)
    return two_sided(scores[0].mean() - scores[1].mean(), np.sqrt(variance), freedom), freedom


def test_equal_variances_without_examples_are_students_t_test():
    scores = np.array([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]])
    p, freedom = judged(scores)
    assert freedom == pytest.approx(4)
    assert p == pytest.approx(ttest_ind(*scores).pvalue)


def test_arms_of_different_variance_by_hand():
    spread = of_seeds(np.array([9.0, 1.0, 2.0]), np.array([3, 3, 3]))  # pooled 4; the first has its own, with 2 degrees
    variance, freedom = combined([spread], [0, 1], 0.5, 0.1)
    assert variance == pytest.approx(0.5 + 3 + 4 / 3 - 0.1)
    assert freedom == pytest.approx(variance**2 / (3**2 / 2 + (4 / 3) ** 2 / 6))


def test_own_variances_have_no_more_freedom_than_all_runs_and_two_seeds_none_of_their_own():
    spread = of_seeds(np.array([9.0, 1.0]), np.array([2, 2]))
    assert combined([spread], [0, 1], 0.0, 0.0)[1] == pytest.approx(2)  # not that of two independent variances
    spread = of_seeds(np.array([9.0, 1.0, 1.0]), np.array([2, 2, 2]))
    assert (spread.freedom.tolist(), spread.own.tolist()) == ([3, 3, 3], [True, False, False])


def test_what_examples_have_already_is_taken_off_once_and_never_below_them():
    spread = of_seeds(np.array([1.0, 1.0]), THREE)
    assert combined([spread], [0, 1], 4.0, 0.3)[0] == pytest.approx(4.0 + 2 / 3 - 0.3)
    assert combined([spread], [0, 1], 4.0, 5.0)[0] == pytest.approx(4.0)
    variance, freedom = combined([of_seeds(np.zeros(2), THREE)], [0, 1], 4.0, 0.0)  # without any spread: a normal
    assert np.isinf(freedom)
    assert two_sided(1.959964 * 2, np.sqrt(variance), freedom) == pytest.approx(0.05, abs=1e-6)


def test_blocks_of_two_arms_are_the_paired_t_test():
    generator = np.random.default_rng(0)
    means = generator.normal(size=(2, 5)) + 10 * generator.normal(size=5)
    variance, freedom = combined([of_blocks(means)], [0, 1], 0.0, 0.0)
    paired = means[0] - means[1]
    assert freedom == pytest.approx(4)
    assert variance == pytest.approx(np.var(paired, ddof=1) / 5)


def test_few_documents_are_few_degrees_of_freedom():
    """Of spreads that are nothing beside them, all the freedom; of equal parts, Satterthwaite's."""
    spread = of_seeds(np.array([1e-12, 1e-12]), np.array([3, 3]))
    assert combined([spread], [0, 1], 1.0, 0.0, 6.5)[1] == pytest.approx(6.5)
    spread = of_seeds(np.array([1.5, 1.5, 1.5]), np.array([3, 3, 3]))  # its part of V is 1, with six degrees
    assert combined([spread], [0, 1], 1.0, 0.0, 6.0)[1] == pytest.approx(12.0)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_intervals_hold_with_few_degrees_of_freedom(degrees, ratio):
    """The spread over seeds is `ratio` times that over examples. With Satterthwaite's freedom up to 13% miss."""
    generator = np.random.default_rng(0)
    found = ratio * generator.chisquare(degrees, 40_000) / degrees
    halves = np.stack([found, found], axis=-1) / 2
    spread = Spread(halves, np.full((1, 2), degrees), np.zeros((1, 2), dtype=bool), found, degrees)
    variance, freedom = combined([spread], [0, 1], 1.0, 0.0)
    true = np.sqrt(1 + ratio) * generator.normal(size=40_000)
    assert np.mean(np.abs(true) > -stdtrit(freedom, 0.025) * np.sqrt(variance)) < 0.052


@given(seed=st.integers(0, 2**32 - 1), arms=st.integers(2, 6), blocks=st.integers(2, 5))
def test_what_all_arms_of_a_block_share_changes_nothing(seed, arms, blocks):
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(arms, blocks))
    moved = means + 100 * generator.normal(size=blocks) + generator.normal(size=(arms, 1))
    np.testing.assert_allclose(of_blocks(means).variance, of_blocks(moved).variance, rtol=1e-6)
    assert (of_blocks(means).variance >= of_blocks(means).pooled / blocks - 1e-12).all()


def test_an_arms_own_variance_over_blocks_is_found():
    """Over many blocks, of one arm with nine times the variance of four others, each gets its own or the mean."""
    deviations = np.array([3.0, 1.0, 1.0, 1.0, 1.0])
    means = np.random.default_rng(0).normal(size=(5, 20_000)) * deviations[:, None]
    spread = of_blocks(means)
    assert spread.pooled == pytest.approx(13 / 5, rel=0.02)
    np.testing.assert_allclose(spread.variance * 20_000, [9, 2.6, 2.6, 2.6, 2.6], rtol=0.03)
    assert spread.own.tolist() == [True, False, False, False, False]
