"""Estimates of a column and of an average: which arms have an interval, and from which runs."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.simulated import outcomes_of

from glue_bench.stats.averages import average_estimate
from glue_bench.stats.estimates import column_estimate
from glue_bench.stats.runs import ColumnRuns


def runs_in_blocks(column: str, pretrainings: dict[str, list[int]]) -> ColumnRuns:
    """Return a run of an arm after each of its pretrainings, right on half of forty examples."""
    generator = np.random.default_rng(4)
    predictions: dict[str, np.ndarray] = {}
    for arm, seeds in pretrainings.items():
        predictions[arm] = generator.integers(0, 2, (len(seeds), 40))
    labels = np.ones(40, int)
    drawn = outcomes_of(column, predictions, labels)
    pretraining_seeds = np.concatenate(list(pretrainings.values()))
    seeds = np.ones(len(pretraining_seeds), int)
    runs = drawn.runs._replace(pretraining_seeds=pretraining_seeds, seeds=seeds)
    return replace(drawn, runs=runs)


def test_columns_of_other_pretrainings_have_no_average_that_is_tested():
    two = runs_in_blocks("rte", {"a": [1, 2], "b": [1, 2]})
    three = runs_in_blocks("sst2", {"a": [1, 2, 3], "b": [1, 2, 3]})
    columns = [column_estimate(runs, "ab", "a") for runs in (two, three)]
    average = average_estimate(columns, "ab")
    reason = "its columns differ in their pretraining seeds"
    expected = {"a": reason, "b": reason}
    assert average.untested == expected
    assert average.seeds == {"a": 2, "b": 2}


def test_an_average_is_over_pretrainings_if_any_of_its_columns_is():
    same = runs_in_blocks("rte", {"a": [1, 1], "b": [1, 1]})
    different = runs_in_blocks("sst2", {"a": [1, 2], "b": [1, 2]})
    of_finetuning = column_estimate(same, "ab", "a")
    of_pretraining = column_estimate(different, "ab", "a")
    average = average_estimate([of_finetuning, of_pretraining], "ab")
    assert of_finetuning.kind == "fine-tuning"
    assert of_pretraining.kind == "pretraining"
    assert average.kind == "pretraining"


def test_arms_with_one_pretraining_in_common_are_not_compared():
    """The reference has only one pretraining, and every arm has it."""
    runs = runs_in_blocks("rte", {"a": [1], "b": [1, 2], "c": [1, 3]})
    estimate = column_estimate(runs, "abc", "a")
    reason = "the arms have fewer than two pretraining seeds in common"
    expected = {
        "a": "one pretraining seed does not show how much scores vary",
        "b": reason,
        "c": reason,
    }
    assert estimate.untested == expected
    assert estimate.arms == ()


def test_an_arm_that_is_not_tested_has_its_own_number_of_pretraining_seeds():
    """The tested arms have the number of their common seeds."""
    runs = runs_in_blocks("rte", {"a": [1, 2], "b": [1, 2, 3], "c": [2, 3, 4]})
    estimate = column_estimate(runs, "abc", "a")
    assert estimate.untested == {"c": "1 of 2 pretraining seeds are missing"}
    expected = {"a": 2, "b": 2, "c": 3}
    assert estimate.seeds == expected


def test_an_arm_with_one_undefined_score_is_not_compared():
    drawn = runs_in_blocks("rte", {"a": [1, 1], "b": [1, 1, 1], "c": [1, 1]})
    values = drawn.runs.values.copy()
    values[3] = np.nan
    runs = drawn.runs._replace(values=values)
    estimate = column_estimate(replace(drawn, runs=runs), "abc", "a")
    assert estimate.untested == {"b": "a run has no score"}
    assert estimate.arms == ("a", "c")


@pytest.mark.parametrize("column", ["rte", "cola", "stsb", "validation_loss", "swap_1"])
def test_one_example_alone_has_no_interval_and_no_warning(column):
    predictions = {"a": np.array([[1.0], [0.0]]), "b": np.array([[1.0], [1.0]])}
    runs = outcomes_of(column, predictions, np.array([1]))
    estimate = column_estimate(runs, "ab", "a")
    reason = "one example does not show how much scores vary"
    expected = {"a": reason, "b": reason}
    assert estimate.untested == expected
    assert estimate.means.keys() == {"a", "b"}


def test_one_cluster_of_examples_alone_has_no_interval():
    predictions = {"a": np.array([[1, 1, 0]]), "b": np.array([[1, 0, 0]])}
    runs = outcomes_of("rte", predictions, np.ones(3, int))
    runs = replace(runs, clusters=np.zeros(3, int), single_runs=True)
    estimate = column_estimate(runs, "ab", "a")
    reason = "one cluster of examples does not show how much scores vary"
    expected = {"a": reason, "b": reason}
    assert estimate.untested == expected


def test_the_variance_over_examples_is_the_mean_over_all_contrasts_with_the_reference():
    runs = runs_in_blocks("rte", {"a": [1, 1], "b": [1, 1, 1], "c": [1, 1]})
    estimate = column_estimate(runs, "abc", "b")
    of_contrasts = estimate.examples[1] - estimate.shared[1]
    of_others = of_contrasts[[0, 2]]
    expected = np.mean(np.maximum(0, of_others))
    variance = estimate.example_variance("b")
    assert variance == pytest.approx(expected)


def test_the_variance_between_pretrainings_is_the_rest_after_fine_tuning_by_hand():
    """Two arms and pretrainings, with unequal numbers of fine-tuning seeds.

    The first arm has one and three fine-tuning seeds, the second arm two and two.
    """
    drawn = runs_in_blocks("rte", {"a": [1, 2, 2, 2], "b": [1, 1, 2, 2]})
    scores = np.array([70.0, 50.0, 52.0, 54.0, 40.0, 44.0, 60.0, 60.0])
    seeds = np.array([1, 1, 2, 3, 1, 2, 1, 2])
    runs = drawn.runs._replace(values=scores, seeds=seeds)
    estimate = column_estimate(replace(drawn, runs=runs), "ab", "a")
    residual = ((70 - 42) - (52 - 60)) / 4
    of_finetuning = (8 + 8) / (2 + 1 + 1)
    of_means = of_finetuning * (1 + 1 / 3 + 1 / 2 + 1 / 2) / 4
    expected = 4 * residual**2 - of_means
    assert estimate.pretraining_variance == pytest.approx(expected)


def test_an_average_lies_within_the_mean_of_its_columns_limits():
    runs = runs_in_blocks("rte", {"a": [1, 1], "b": [1, 1]})
    rte = column_estimate(runs, "ab", "a")
    cola = replace(rte, column="cola", limits=(-100.0, 100.0))
    sst2 = replace(rte, column="sst2")
    average = average_estimate([rte, cola, sst2], "ab")
    assert average.limits == pytest.approx((-100 / 3, 100.0))
