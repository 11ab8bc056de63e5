"""Variances over examples: against the bootstrap, the jackknife, formulas and cases by hand."""

import numpy as np
import pytest
from helpers.simulated import outcomes_of

from glue_bench.stats.examples import example_variance, finetuning_variance, shared_variance
from glue_bench.stats.runs import ColumnRuns
from glue_bench.stats.sums import contributions, example_terms, score_from_sums

ROWS = 300


def drawn_runs(column: str, arms: int = 2) -> ColumnRuns:
    """Return two runs of each arm on ROWS examples."""
    generator = np.random.default_rng(0)
    predictions: dict[str, np.ndarray] = {}
    if column == "stsb":
        labels = generator.uniform(0, 5, ROWS)
        for arm in range(arms):
            errors = generator.normal(size=(2, ROWS))
            predictions[f"a{arm}"] = labels + errors
        return outcomes_of(column, predictions, labels)
    labels = (generator.random(ROWS) < 0.6).astype(int)
    right = generator.random((arms, 2, ROWS)) < 0.8
    for arm in range(arms):
        is_right = right[arm]
        predictions[f"a{arm}"] = np.where(is_right, labels, 1 - labels)
    return outcomes_of(column, predictions, labels)


def values_of(runs: ColumnRuns) -> np.ndarray:
    return contributions(runs.measure, runs.predictions, runs.labels)


def scores_of_rows(runs: ColumnRuns, rows: np.ndarray) -> np.ndarray:
    """Return the scores of runs on some examples, which may be repeated."""
    predictions = runs.predictions[:, rows]
    terms = example_terms(runs.metric, predictions, runs.labels[rows])
    sums = terms.sum(axis=0, dtype=float)
    return 100 * score_from_sums(runs.metric, sums, len(terms))


def equal_arms(column: str) -> ColumnRuns:
    """Return two arms that agree on all examples."""
    runs = drawn_runs(column, arms=1)
    return outcomes_of(column, {"a": runs.predictions, "b": runs.predictions}, runs.labels)


def variances_of(runs: ColumnRuns) -> np.ndarray:
    """Return the variances over examples, with arms that are the mean of their runs."""
    arms = np.arange(len(runs.arms))
    members = (arms[:, None] == runs.runs.arms).astype(float)
    weights = members / members.sum(axis=1, keepdims=True)
    return example_variance(runs, weights, values_of(runs))


@pytest.mark.parametrize("column", ["sst2", "cola", "stsb"])
def test_pseudo_values_come_from_leaving_one_example_out(column):
    runs = drawn_runs(column)
    remaining = np.delete(np.arange(ROWS), 7)
    without = scores_of_rows(runs, remaining)
    expected = ROWS * runs.runs.values - (ROWS - 1) * without
    pseudo_values = values_of(runs)[:, 7]
    np.testing.assert_allclose(pseudo_values, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("column", ["sst2", "cola", "stsb"])
def test_the_variance_is_near_the_variance_of_the_bootstrap(column):
    runs = drawn_runs(column)
    generator = np.random.default_rng(1)
    differences = []
    for _ in range(2000):
        rows = generator.integers(ROWS, size=ROWS)
        first, second = scores_of_rows(runs, rows).reshape(2, 2).mean(axis=1)
        differences.append(first - second)
    first_values, second_values = values_of(runs).reshape(2, 2, ROWS).mean(axis=1)
    variance = np.var(first_values - second_values, ddof=1) / ROWS
    expected = np.var(differences)
    assert variance == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("column", ["sst2", "cola", "stsb"])
def test_two_added_examples_keep_the_variance_of_equal_arms_above_zero(column):
    """The variance does not depend on the order of the arms."""
    variances = variances_of(equal_arms(column))
    assert variances[0, 1] == variances[1, 0] > 0


def test_two_added_examples_of_an_accuracy_are_two_differences_of_100_points():
    variances = variances_of(equal_arms("sst2"))
    expected = 2 * 100**2 / (ROWS + 2) ** 2
    assert variances[0, 1] == pytest.approx(expected)


def test_two_added_examples_of_a_share_do_not_depend_on_the_order_of_the_arms():
    """One arm is always right, and one is always tied."""
    tied = np.full((2, 60), 0.5)
    right = np.ones((2, 60))
    labels = np.ones(60)
    runs = outcomes_of("sst2", {"a": tied, "b": right}, labels, metric="share")
    variances = variances_of(runs)
    assert variances[0, 1] == variances[1, 0] > 0


def test_equal_losses_have_no_variance():
    counts = np.array([10.0, 400.0, 100.0])
    losses = np.array([[20.0, 1000.0, 230.0]])
    runs = outcomes_of("sst2", {"a": losses, "b": losses}, counts, metric="loss", scale=1.0)
    assert variances_of(runs)[0, 1] == 0.0


def test_runs_of_independent_coins_share_all_their_variance_over_seeds():
    generator = np.random.default_rng(0)
    is_right = generator.random((40, 2000)) < 0.7
    owners = np.repeat([0, 1], 20)
    shared = shared_variance(100.0 * is_right, owners, blocked=False)
    of_a_run = 100**2 * 0.21 / 2000
    of_a_mean = of_a_run / 20
    expected = [of_a_mean, 2 * of_a_mean]
    assert shared[0].tolist() == pytest.approx(expected, rel=0.1)


def test_an_effect_that_the_arms_of_a_block_have_in_common_is_in_no_difference():
    generator = np.random.default_rng(0)
    common = generator.normal(size=(6, 1000))
    of_arms = generator.normal(size=(2, 6, 1000))
    values = (10 * common + of_arms).reshape(12, 1000)
    owners = np.repeat([0, 1], 6)
    shared = shared_variance(values, owners, blocked=True)
    expected = [101 / 6 / 1000, 2 / 6 / 1000]
    assert shared[0].tolist() == pytest.approx(expected, rel=0.1)


def test_an_arm_with_one_run_shares_nothing():
    values = np.random.default_rng(0).normal(size=(3, 50))
    owners = np.array([0, 1, 1])
    shared = shared_variance(values, owners, blocked=False)
    assert shared[0, 0] == 0
    assert shared[0, 1] == shared[1, 1] > 0


def test_the_part_of_fine_tuning_seeds_over_unequal_blocks_by_hand():
    """The variance of one run is pooled over the arm's blocks, and divided by the runs of a block.

    The first arm has one and three runs in its blocks, the second one and two.
    """
    values = np.random.default_rng(2).normal(size=(7, 12))
    cells = np.array([1, 0, 0, 0, 2, 3, 3])
    owners = np.array([0, 0, 1, 1])
    of_one_run = []
    for rows in ([1, 2, 3], [5, 6]):
        of_block = values[rows]
        residuals = of_block - of_block.mean(axis=0)
        residuals -= residuals.mean(axis=1, keepdims=True)
        freedom = len(rows) - 1
        squares = np.sum(residuals**2)
        of_one_run.append(squares / (freedom * 12 * 11))
    of_first_mean = of_one_run[0] * (1 + 1 / 3) / 4
    of_second_mean = of_one_run[1] * (1 + 1 / 2) / 4
    variances = finetuning_variance(values, cells, owners)
    assert variances[0, 0] == pytest.approx(of_first_mean)
    assert variances[1, 1] == pytest.approx(of_second_mean)
    expected = of_first_mean + of_second_mean
    assert variances[0, 1] == pytest.approx(expected)


LABELS = np.array([0.0, 1.0, 3.0, 4.5, 2.0])


def pearson_contributions(predictions: np.ndarray, added: list[float]) -> np.ndarray:
    """Return pseudo-values after two examples with the highest label were added."""
    values = np.append(predictions, added)
    gold = np.append(LABELS, [4.5, 4.5])
    score = np.corrcoef(values, gold)[0, 1]
    pseudo_values = []
    for row in range(7):
        other_values = np.delete(values, row)
        other_gold = np.delete(gold, row)
        without = np.corrcoef(other_values, other_gold)[0, 1]
        pseudo_values.append(100 * (7 * score - 6 * without))
    return np.array(pseudo_values)


def test_two_added_examples_of_a_correlation_lie_at_the_ends_by_hand():
    """Both added examples have the highest label.

    One arm predicts its own highest value and the other its own lowest, and then the other way
    round.
    """
    first = np.array([0.5, 1.5, 2.5, 4.0, 2.0])
    second = np.array([0.1, 1.0, 3.5, 4.4, 2.2])
    runs = outcomes_of("stsb", {"a": first[None], "b": second[None]}, LABELS)
    floors = []
    for ahead, behind in ((first, second), (second, first)):
        right = [ahead.max(), ahead.min()]
        wrong = [behind.min(), behind.max()]
        of_ahead = pearson_contributions(ahead, right)
        of_behind = pearson_contributions(behind, wrong)
        differences = of_ahead - of_behind
        floors.append(np.var(differences) / 7)
    variance = variances_of(runs)[0, 1]
    assert variance == pytest.approx(max(floors))
