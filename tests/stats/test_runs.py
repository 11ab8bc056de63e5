"""Runs of unequal numbers: means by block, variances within, and their order."""

import numpy as np
import pytest

from glue_bench.stats.runs import Runs, effective_number


def unequal_runs() -> Runs:
    """Return runs of two arms after two pretrainings.

    The first arm has one run after one pretraining and three after another; the second arm has one
    and two.
    """
    return Runs(
        arms=np.array([0, 0, 0, 0, 1, 1, 1]),
        pretraining_seeds=np.array([7, 2, 2, 2, 2, 7, 7]),
        seeds=np.array([1, 1, 2, 3, 1, 1, 2]),
        values=np.array([5.0, 1.0, 2.0, 6.0, 4.0, 8.0, 2.0]),
    )


def test_cells_are_numbered_by_arm_and_pretraining_seed():
    expected = [1, 0, 0, 0, 2, 3, 3]
    assert unequal_runs().cells.tolist() == expected


def test_means_by_block_average_the_runs_of_each_block():
    expected = [[3.0, 5.0], [4.0, 5.0]]
    assert unequal_runs().by_block().tolist() == expected


def test_unequal_fine_tuning_seeds_divide_a_variance_by_their_harmonic_mean():
    expected = 4 / (1 + 1 / 3 + 1 + 1 / 2)
    assert unequal_runs().finetuning_seeds == pytest.approx(expected)


def test_the_variance_of_fine_tuning_is_pooled_by_degrees_of_freedom():
    squares_around_three = 4 + 1 + 9
    squares_around_five = 9 + 9
    expected = (squares_around_three + squares_around_five) / (2 + 1)
    variance = unequal_runs().finetuning_variance
    assert variance == pytest.approx(expected)


def test_one_fine_tuning_seed_for_each_pretraining_has_no_variance():
    pretraining_seeds = np.array([1, 2, 3, 4, 1, 2, 3])
    runs = unequal_runs()._replace(pretraining_seeds=pretraining_seeds)
    assert np.isnan(runs.finetuning_variance)


def test_each_arm_has_a_variance_over_its_own_number_of_runs():
    variances, counts = unequal_runs().variances()
    assert counts.tolist() == [4, 3]
    of_first = np.var([5, 1, 2, 6], ddof=1)
    of_second = np.var([4, 8, 2], ddof=1)
    assert variances.tolist() == pytest.approx([of_first, of_second])


def test_runs_of_some_arms_are_in_the_order_of_the_given_arms():
    runs = unequal_runs().for_arms([1, 0])
    assert runs.values.tolist() == [4.0, 8.0, 2.0, 5.0, 1.0, 2.0, 6.0]
    assert runs.arms.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_runs_of_no_arm_are_none():
    runs = unequal_runs().for_arms([])
    assert [len(values) for values in runs] == [0, 0, 0, 0]


def test_examples_of_equal_size_count_once_each():
    sizes = np.full(24, 7)
    assert effective_number(sizes) == pytest.approx(24)


def test_a_single_large_example_counts_alone():
    sizes = np.array([1000, 1, 1, 1])
    assert effective_number(sizes) < 1.01


def test_the_effective_number_of_unequal_sizes_by_hand():
    sizes = np.array([3, 1])
    assert effective_number(sizes) == pytest.approx(16 / 10)
