"""One difference: against Welch's and Student's tests where they hold, and its parts worked by hand."""

import numpy as np
import pytest
from scipy.stats import ttest_ind

from glue_bench.stats.differences import Measure, Part, estimate, pooled_variance, two_sided

A, B = np.array([80.0, 81.5, 82.1]), np.array([78.0, 78.4, 79.9])


def measure(scores, examples=None, interaction=0.0):
    arms = tuple(scores)
    part = Part(scores=scores, interaction=dict.fromkeys(arms, interaction))
    return Measure(arms=arms, parts=(part,), examples=np.zeros((len(arms),) * 2) if examples is None else examples)


def test_on_endless_examples_it_is_welchs_test():
    found = estimate(measure({"a": A, "b": B}), "a", "b")
    theirs = ttest_ind(A, B, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert found.p_bootstrap == pytest.approx(theirs.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_on_endless_examples_pooled_is_students_test():
    found = estimate(measure({"a": A, "b": B}), "a", "b")
    assert found.p_pooled == pytest.approx(ttest_ind(A, B).pvalue, rel=0.01)


def test_without_a_spread_over_seeds_it_is_normal():
    examples = np.array([[1.0, 0.75], [0.75, 1.0]])  # a variance of 0.5 for the difference
    found = estimate(measure({"a": np.full(3, 80.0), "b": np.full(3, 79.0)}, examples), "a", "b")
    half = 1.959964 * np.sqrt(0.5)
    assert (found.low, found.high) == pytest.approx((1 - half, 1 + half))
    assert found.p_bootstrap == pytest.approx(found.p_pooled) == pytest.approx(0.1573, abs=1e-4)


def test_what_seeds_and_examples_both_count_is_taken_off_once():
    examples = np.diag([0.4, 0.4])
    less = estimate(measure({"a": A, "b": B}, examples, interaction=0.6), "a", "b")
    by_seeds = (A.var(ddof=1) - 0.6) / 3 + (B.var(ddof=1) - 0.6) / 3
    variance = 0.8 + by_seeds
    freedom = variance**2 / (((A.var(ddof=1) / 3) ** 2 + (B.var(ddof=1) / 3) ** 2) / 2)
    assert less.p_bootstrap == pytest.approx(two_sided(A.mean() - B.mean(), np.sqrt(variance), freedom))


def test_an_arm_whose_seeds_agree_by_chance_adds_nothing_below_the_examples():
    examples = np.diag([0.5, 0.5])
    steady = {"a": np.array([80.0, 80.0]), "b": np.array([79.0, 79.0])}
    found = estimate(measure(steady, examples, interaction=0.4), "a", "b")
    assert found.high - found.low == pytest.approx(2 * 1.959964)


def test_pooling_sees_through_two_runs_that_agree_by_chance():
    """Two arms with hardly any spread are not told apart where the others show how far seeds go."""
    spread = {f"arm{i}": np.array([80.0, 84.0]) for i in range(5)}
    found = estimate(measure(spread | {"a": np.array([82.0, 82.01]), "b": np.array([80.0, 80.01])}), "a", "b")
    assert found.p_bootstrap < 1e-4
    assert found.p_pooled > 0.3


def test_pooled_variance_weighs_by_degrees_of_freedom():
    variance, freedom = pooled_variance(measure({"a": np.array([0.0, 2.0]), "b": np.array([0.0, 0.0, 3.0])}))
    assert (variance, freedom) == pytest.approx(((2.0 + 2 * 3.0) / 3, 3.0))


def test_parts_add_up():
    part = Part(scores={"a": A, "b": B}, interaction={"a": 0.0, "b": 0.0})
    both = Measure(arms=("a", "b"), parts=(part, part), examples=np.zeros((2, 2)))
    assert both.mean("a") == pytest.approx(2 * A.mean())
    one = estimate(measure({"a": A, "b": B}), "a", "b")
    two = estimate(both, "a", "b")
    assert two.difference == pytest.approx(2 * one.difference)
    # Two independent halves: sqrt(2) times as wide, less for twice the degrees of freedom.
    assert (two.high - two.low) / (one.high - one.low) < np.sqrt(2)


@pytest.mark.parametrize(("difference", "p"), [(0.0, 1.0), (0.5, 0.0)])
def test_no_spread_at_all(difference, p):
    same = {"a": np.full(2, 80.0 + difference), "b": np.full(2, 80.0)}
    found = estimate(measure(same), "a", "b")
    assert (found.p_bootstrap, found.p_pooled) == (p, p)
    assert found.low == found.high == difference
