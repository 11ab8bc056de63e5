"""Bootstrap and permutation against SciPy's own, on cases that both cover."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from simulated import outcomes_of, simulate

from glue_bench.stats import resampling
from glue_bench.stats.resampling import bootstrap_covariance, resampled_scores, swapped

MIXED = ("sst2", "cola", "stsb")
each = pytest.mark.parametrize("column", MIXED)


def experiment(column, **more):
    settings = {"rates": {"a": 0.8, "b": 0.7}, "seeds": 2, "rows": 150} | more
    (outcomes,) = simulate(np.random.default_rng(3), columns=[column], **settings)
    return outcomes


def metric(outcomes, predictions, labels):
    """Points, by NumPy: the Matthews correlation is Pearson's of zeros and ones."""
    if outcomes.column == "sst2":
        return 100 * np.mean(predictions == labels)
    return 100 * np.corrcoef(predictions, labels)[0, 1]


@each
def test_a_runs_spread_is_that_of_scipys_bootstrap(column):
    outcomes = experiment(column)
    predictions, labels = outcomes.predictions[0], outcomes.labels
    theirs = scipy.stats.bootstrap(
        (np.arange(150),),
        lambda rows: metric(outcomes, predictions[rows], labels[rows]),
        vectorized=False,
        n_resamples=2000,
        method="basic",
        rng=np.random.default_rng(0),
    )
    ours = np.sqrt(bootstrap_covariance(outcomes, 10_000)[0, 0] * 149 / 150)
    assert ours == pytest.approx(theirs.standard_error, rel=0.06)  # 2,000 resamples: 1.6% standard error


def test_a_means_closed_form_is_what_resampling_gives():
    outcomes = experiment("sst2")
    resampled = np.cov(100 * resampled_scores(outcomes, 20_000), rowvar=False) * 150 / 149
    np.testing.assert_allclose(bootstrap_covariance(outcomes), resampled, rtol=0.06, atol=0.1)


def test_a_means_variance_is_that_of_its_standard_error():
    outcomes = experiment("sst2")
    right = 100 * (outcomes.predictions[0] == outcomes.labels)
    assert bootstrap_covariance(outcomes)[0, 0] == pytest.approx(right.var(ddof=1) / 150)


def test_a_difference_that_no_swap_reaches_has_the_least_p():
    labels = np.ones(200, int)
    pair = swapped(outcomes_of("sst2", {"a": labels[None], "b": 1 - labels[None]}, labels), 99)["a", "b"]
    assert (pair.observed, pair.p) == (100.0, 0.01)


@each
def test_swapping_is_scipys_permutation_of_samples(column):
    outcomes = experiment(column, seeds=1, rates={"a": 0.8, "b": 0.76})
    first, second = outcomes.predictions

    def difference(a, b):
        return metric(outcomes, a, outcomes.labels) - metric(outcomes, b, outcomes.labels)

    theirs = scipy.stats.permutation_test(
        (first, second), difference, permutation_type="samples", vectorized=False, n_resamples=2000,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    ours = swapped(outcomes, 10_000)["a", "b"]
    assert ours.observed == pytest.approx(theirs.statistic)
    # SciPy doubles the smaller tail, which of a symmetric distribution is both.
    assert ours.p == pytest.approx(theirs.pvalue, abs=0.05)
    assert np.std(ours.differences) == pytest.approx(np.std(theirs.null_distribution), rel=0.08)


@each
def test_the_observed_difference_is_that_of_the_scores(column):
    outcomes = experiment(column, seeds=3)
    means = [outcomes.scores[outcomes.runs[arm]].mean() for arm in "ab"]
    assert swapped(outcomes, 10)["a", "b"].observed == pytest.approx(means[0] - means[1])


def test_equal_predictions_have_no_difference_to_find():
    labels = np.tile([0, 1], 50)
    runs = np.stack([labels, 1 - labels])
    pair = swapped(outcomes_of("sst2", {"a": runs, "b": runs}, labels), 100)["a", "b"]
    assert (pair.observed, pair.p) == (0.0, 1.0)


@each
def test_unequal_numbers_of_seeds_are_swapped_too(column):
    outcomes = experiment(column, seeds=3)
    runs = outcomes.predictions
    uneven = outcomes_of(column, {"a": runs[:3], "b": runs[3:5]}, outcomes.labels)
    assert 0 < swapped(uneven, 200)["a", "b"].p <= 1


@each
def test_numbers_do_not_depend_on_the_chunks(column, monkeypatch):
    outcomes = experiment(column)
    whole = resampled_scores(outcomes, 50)
    monkeypatch.setattr(resampling, "CHUNK", 7 * 150)
    np.testing.assert_allclose(resampled_scores(outcomes, 50), whole, rtol=1e-12)


@each
def test_numbers_are_the_same_again(column):
    outcomes = experiment(column)
    np.testing.assert_array_equal(bootstrap_covariance(outcomes, 200), bootstrap_covariance(outcomes, 200))
    first, again = swapped(outcomes, 200), swapped(outcomes, 200)
    np.testing.assert_array_equal(first["a", "b"].differences, again["a", "b"].differences)


def test_an_arm_without_runs_is_left_out():
    outcomes = experiment("sst2")
    assert set(swapped(replace(outcomes, arms=("a", "b", "c")), 10)) == {("a", "b")}
