"""The variance of a difference: exact reductions to tests of others, and cases by hand."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.simulated import outcomes_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import ttest_ind

from glue_bench.stats.averages import average_estimate
from glue_bench.stats.estimates import column_estimate
from glue_bench.stats.spreads import (
    Spread,
    combine_variances,
    spread_over_blocks,
    spread_over_seeds,
)
from glue_bench.stats.verdicts import two_sided

THREE = np.array([3, 3])


def judged(scores, examples=0.0, shared=0.0):
    """p of the first arm's difference from the second, from run scores (arms, seeds)."""
    spread = spread_over_seeds(
        np.var(scores, axis=1, ddof=1), np.array([len(runs) for runs in scores])
    )
    variance, freedom = combine_variances([spread], [0, 1], examples, shared)
    return two_sided(scores[0].mean() - scores[1].mean(), np.sqrt(variance), freedom), freedom


def test_equal_variances_without_examples_are_students_t_test():
    scores = np.array([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]])
    p, freedom = judged(scores)
    assert freedom == pytest.approx(4)
    assert p == pytest.approx(ttest_ind(*scores).pvalue)


def test_arms_of_different_variance_by_hand():
    spread = spread_over_seeds(
        np.array([9.0, 1.0, 2.0]), np.array([3, 3, 3])
    )  # pooled 4; the first has its own, with 2 degrees
    variance, freedom = combine_variances([spread], [0, 1], 0.5, 0.1)
    assert variance == pytest.approx(0.5 + 3 + 4 / 3 - 0.1)
    assert freedom == pytest.approx(variance**2 / (3**2 / 2 + (4 / 3) ** 2 / 6))


def test_own_variances_have_no_more_freedom_than_all_runs_and_two_seeds_none_of_their_own():
    spread = spread_over_seeds(np.array([9.0, 1.0]), np.array([2, 2]))
    assert combine_variances([spread], [0, 1], 0.0, 0.0)[1] == pytest.approx(
        2
    )  # not that of two independent variances
    spread = spread_over_seeds(np.array([9.0, 1.0, 1.0]), np.array([2, 2, 2]))
    assert (spread.freedom.tolist(), spread.is_own.tolist()) == ([3, 3, 3], [True, False, False])


def test_what_examples_have_already_is_taken_off_once_and_never_below_them():
    spread = spread_over_seeds(np.array([1.0, 1.0]), THREE)
    assert combine_variances([spread], [0, 1], 4.0, 0.3)[0] == pytest.approx(4.0 + 2 / 3 - 0.3)
    assert combine_variances([spread], [0, 1], 4.0, 5.0)[0] == pytest.approx(4.0)
    variance, freedom = combine_variances(
        [spread_over_seeds(np.zeros(2), THREE)], [0, 1], 4.0, 0.0
    )  # without any spread: a normal
    assert np.isinf(freedom)
    assert two_sided(1.959964 * 2, np.sqrt(variance), freedom) == pytest.approx(0.05, abs=1e-6)


def test_blocks_of_two_arms_are_the_paired_t_test():
    generator = np.random.default_rng(0)
    means = generator.normal(size=(2, 5)) + 10 * generator.normal(size=5)
    variance, freedom = combine_variances([spread_over_blocks(means)], [0, 1], 0.0, 0.0)
    paired = means[0] - means[1]
    assert freedom == pytest.approx(4)
    assert variance == pytest.approx(np.var(paired, ddof=1) / 5)


def test_few_documents_are_few_degrees_of_freedom():
    """Of spreads that are nothing beside them, all the freedom; of equal parts, Satterthwaite's."""
    spread = spread_over_seeds(np.array([1e-12, 1e-12]), np.array([3, 3]))
    assert combine_variances([spread], [0, 1], 1.0, 0.0, 6.5)[1] == pytest.approx(6.5)
    spread = spread_over_seeds(
        np.array([1.5, 1.5, 1.5]), np.array([3, 3, 3])
    )  # its part of V is 1, with six degrees
    assert combine_variances([spread], [0, 1], 1.0, 0.0, 6.0)[1] == pytest.approx(12.0)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_intervals_hold_with_few_degrees_of_freedom(degrees, ratio):
    """The spread over seeds is `ratio` times that over examples. With Satterthwaite's freedom up to 13% miss."""
    generator = np.random.default_rng(0)
    found = ratio * generator.chisquare(degrees, 40_000) / degrees
    halves = np.stack([found, found], axis=-1) / 2
    spread = Spread(halves, np.full((1, 2), degrees), np.zeros((1, 2), dtype=bool), found, degrees)
    variance, freedom = combine_variances([spread], [0, 1], 1.0, 0.0)
    true = np.sqrt(1 + ratio) * generator.normal(size=40_000)
    assert np.mean(np.abs(true) > -stdtrit(freedom, 0.025) * np.sqrt(variance)) < 0.052


@given(seed=st.integers(0, 2**32 - 1), arms=st.integers(2, 6), blocks=st.integers(2, 5))
def test_what_all_arms_of_a_block_share_changes_nothing(seed, arms, blocks):
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(arms, blocks))
    moved = means + 100 * generator.normal(size=blocks) + generator.normal(size=(arms, 1))
    np.testing.assert_allclose(
        spread_over_blocks(means).variance, spread_over_blocks(moved).variance, rtol=1e-6
    )
    assert (
        spread_over_blocks(means).variance >= spread_over_blocks(means).pooled / blocks - 1e-12
    ).all()


def test_an_arms_own_variance_over_blocks_is_found():
    """Over many blocks, of one arm with nine times the variance of four others, each gets its own or the mean."""
    deviations = np.array([3.0, 1.0, 1.0, 1.0, 1.0])
    means = np.random.default_rng(0).normal(size=(5, 20_000)) * deviations[:, None]
    spread = spread_over_blocks(means)
    assert spread.pooled == pytest.approx(13 / 5, rel=0.02)
    np.testing.assert_allclose(spread.variance * 20_000, [9, 2.6, 2.6, 2.6, 2.6], rtol=0.03)
    assert spread.is_own.tolist() == [True, False, False, False, False]


def test_unequal_seeds_pool_by_degrees_of_freedom_and_each_arm_has_its_own_by_hand():
    spread = spread_over_seeds(np.array([9.0, 1.0, 4.0]), np.array([2, 5, 3]))
    pooled = (9 * 1 + 1 * 4 + 4 * 2) / 7
    assert spread.pooled == pytest.approx(pooled)
    assert spread.variance.tolist() == pytest.approx([9 / 2, pooled / 5, 4 / 3])
    assert spread.freedom.tolist() == [7, 7, 2]


def in_blocks(column: str, pretrainings: dict[str, list[int]], metric: str = "accuracy"):
    """Arms with one run after each of these pretrainings, right on half of forty examples."""
    generator, number = np.random.default_rng(4), sum(map(len, pretrainings.values()))
    right = {arm: generator.integers(0, 2, (len(seeds), 40)) for arm, seeds in pretrainings.items()}
    made = outcomes_of(column, right, np.ones(40, int), metric=metric)
    places = np.concatenate(list(pretrainings.values()))
    return replace(
        made, runs=made.runs._replace(pretraining_seeds=places, seeds=np.ones(number, int))
    )


def test_columns_of_other_pretrainings_have_no_average_that_is_tested():
    two, three = {"a": [1, 2], "b": [1, 2]}, {"a": [1, 2, 3], "b": [1, 2, 3]}
    columns = [
        column_estimate(in_blocks(name, seeds), "ab", "a")
        for name, seeds in (("rte", two), ("sst2", three))
    ]
    average = average_estimate(columns, "ab")
    assert average.untested == dict.fromkeys("ab", "its columns differ in their pretraining seeds")
    assert average.seeds == {"a": 2, "b": 2}


def test_an_average_is_over_pretrainings_if_any_of_its_columns_is():
    several, one = {"a": [1, 2], "b": [1, 2]}, {"a": [1, 1], "b": [1, 1]}
    columns = [
        column_estimate(in_blocks(name, seeds), "ab", "a")
        for name, seeds in (("rte", one), ("sst2", several))
    ]
    assert [column.kind for column in columns] == ["fine-tuning", "pretraining"]
    assert average_estimate(columns, "ab").kind == "pretraining"


def test_arms_with_one_pretraining_in_common_are_not_compared():
    """The reference has one alone, so that nobody lacks any of its own."""
    estimate = column_estimate(in_blocks("rte", {"a": [1], "b": [1, 2], "c": [1, 3]}), "abc", "a")
    why = "the arms have fewer than two pretraining seeds in common"
    assert estimate.untested == {
        "a": "one pretraining seed does not show how much scores vary",
        "b": why,
        "c": why,
    }
    assert estimate.arms == ()


def test_an_arm_with_one_undefined_score_among_others_is_not_compared():
    made = in_blocks("rte", {"a": [1, 1], "b": [1, 1, 1], "c": [1, 1]})
    values = made.runs.values.copy()
    values[3] = np.nan
    estimate = column_estimate(replace(made, runs=made.runs._replace(values=values)), "abc", "a")
    assert estimate.untested == {"b": "a run has no score"}
    assert estimate.arms == ("a", "c")


def test_the_variance_over_examples_is_the_mean_over_all_contrasts_with_the_reference():
    estimate = column_estimate(
        in_blocks("rte", {"a": [1, 1], "b": [1, 1, 1], "c": [1, 1]}), "abc", "b"
    )
    of_contrasts = [estimate.examples[1, place] - estimate.shared[1, place] for place in (0, 2)]
    assert estimate.example_variance("b") == pytest.approx(np.mean(np.maximum(0, of_contrasts)))


def test_between_pretrainings_is_what_unequal_fine_tuning_seeds_leave_of_the_residuals_by_hand():
    """Two arms, two pretrainings; one and three fine-tuning seeds of the first arm, two and two of the second."""
    made = in_blocks("rte", {"a": [1, 2, 2, 2], "b": [1, 1, 2, 2]})
    scores = np.array([70.0, 50.0, 52.0, 54.0, 40.0, 44.0, 60.0, 60.0])
    made = replace(
        made, runs=made.runs._replace(values=scores, seeds=np.array([1, 1, 2, 3, 1, 2, 1, 2]))
    )
    residual = ((70 - 42) - (52 - 60)) / 4
    of_finetuning = (8 + 8) / (2 + 1 + 1)
    estimate = column_estimate(made, "ab", "a")
    assert estimate.pretraining_variance == pytest.approx(
        4 * residual**2 - of_finetuning * (1 + 1 / 3 + 1) / 4
    )


def test_an_average_lies_within_the_mean_of_its_columns_limits():
    pretrainings = {"a": [1, 1], "b": [1, 1]}
    columns = [column_estimate(in_blocks("rte", pretrainings), "ab", "a")]
    columns.append(replace(columns[0], column="cola", limits=(-100.0, 100.0)))
    columns.append(replace(columns[0], column="sst2"))
    assert average_estimate(columns, "ab").limits == pytest.approx((-100 / 3, 100.0))


@pytest.mark.parametrize("column", ["rte", "cola", "stsb", "validation_loss", "swap_1"])
def test_one_example_alone_has_no_interval_and_no_warning(column):
    predictions = {"a": np.array([[1.0], [0.0]]), "b": np.array([[1.0], [1.0]])}
    runs = outcomes_of(column, predictions, np.array([1]))
    estimate = column_estimate(runs, "ab", "a")
    reason = "one example does not show how much scores vary"
    assert estimate.untested == {"a": reason, "b": reason}
    assert estimate.means.keys() == {"a", "b"}
