"""Metrics from weighted sums against the benchmark's own, with all weights 1 and with repeated rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import TASKS
from glue_bench.stats.outcomes import score_sums, sums_of

MAIN = {"sst2": "accuracy", "mnli": "accuracy", "cola": "matthews_correlation", "stsb": "pearson"}
each = pytest.mark.parametrize("task", MAIN)


def some(task, rows, runs, generator):
    logits = generator.normal(size=(runs, rows, TASKS[task].num_labels))
    labels = generator.uniform(0, 5, rows) if task == "stsb" else generator.integers(TASKS[task].num_labels, size=rows)
    return np.stack([decide(task, run) for run in logits]), labels


def weighted(task, predictions, labels, weights):
    parts = sums_of(MAIN[task], predictions, labels)
    return score_sums(MAIN[task], np.einsum("r,rsk->sk", weights, parts.astype(float)), weights.sum())


def expected(task, predictions, labels):
    return [score(task, run, labels)[MAIN[task]] for run in predictions]


@each
def test_weights_of_one_give_the_metric(task):
    predictions, labels = some(task, 60, 3, np.random.default_rng(0))
    np.testing.assert_allclose(
        weighted(task, predictions, labels, np.ones(60)), expected(task, predictions, labels), rtol=1e-10
    )


@each
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 30))
def test_whole_weights_repeat_rows(task, seed, rows):
    generator = np.random.default_rng(seed)
    predictions, labels = some(task, rows, 2, generator)
    weights = generator.integers(4, size=rows)
    weights[0] += 1
    repeated = np.repeat(predictions, weights, axis=1), np.repeat(labels, weights)
    np.testing.assert_allclose(weighted(task, predictions, labels, weights), expected(task, *repeated), atol=1e-9)


@pytest.mark.parametrize("task", ["cola", "stsb"])
@pytest.mark.parametrize("which", ["predictions", "labels"])
def test_a_correlation_with_a_constant_is_zero(task, which):
    predictions, labels = some(task, 20, 1, np.random.default_rng(1))
    if which == "predictions":
        predictions = np.full_like(predictions, 1)
    else:
        labels = np.full_like(labels, 1)
    assert weighted(task, predictions, labels, np.ones(20)).tolist() == expected(task, predictions, labels) == [0.0]


def test_counts_stay_exact_in_single_precision():
    generator = np.random.default_rng(0)
    labels = np.ones(40_430, int)
    parts = sums_of("accuracy", np.ones((1, 40_430), int), labels).reshape(-1, 1)
    weights = generator.multinomial(40_430, np.full(40_430, 1 / 40_430)).astype(np.float32)
    assert parts.dtype == np.float32
    assert (weights @ parts).item() == 40_430


def test_a_metric_that_no_table_shows_first_is_refused():
    with pytest.raises(ValueError, match="f1"):
        sums_of("f1", np.zeros((1, 2)), np.zeros(2))
