"""Scores from weighted sums, and contributions of examples, against other implementations."""

import numpy as np
import pytest
from helpers.simulated import outcomes_of
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import TASKS
from glue_bench.stats.sums import contributions, example_terms, score_from_sums

MAIN_METRICS = {
    "sst2": "accuracy",
    "mnli": "accuracy",
    "cola": "matthews_correlation",
    "stsb": "pearson",
}


@pytest.mark.parametrize("task", MAIN_METRICS)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(2, 30),
    constant=st.sampled_from(["", "predictions", "labels"]),
)
def test_whole_weights_repeat_rows_also_of_a_constant(task, seed, rows, constant):
    metric = MAIN_METRICS[task]
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(2, rows, TASKS[task].num_labels))
    predictions = np.stack([decide(task, run) for run in logits])

    if task == "stsb":
        labels = generator.uniform(0, 5, rows)
    else:
        labels = generator.integers(TASKS[task].num_labels, size=rows)

    if constant == "predictions":
        predictions[:] = 1
    if constant == "labels":
        labels[:] = 1

    weights = generator.integers(4, size=rows)
    weights[0] += 1
    terms = example_terms(metric, predictions, labels).astype(float)
    sums = np.einsum("r,rsk->sk", weights, terms)

    repeated_labels = np.repeat(labels, weights)
    expected = []
    for run in np.repeat(predictions, weights, axis=1):
        expected.append(score(task, run, repeated_labels)[metric])

    scores = score_from_sums(metric, sums, weights.sum())
    np.testing.assert_allclose(scores, expected, atol=1e-9)
    if constant and task in ("cola", "stsb"):
        assert scores.tolist() == [0.0, 0.0]


def test_a_loss_is_the_summed_loss_over_all_tokens():
    counts = np.array([10.0, 400.0, 100.0])
    losses = np.array([[20.0, 1000.0, 230.0]])
    terms = example_terms("loss", losses, counts)
    scores = score_from_sums("loss", terms.sum(axis=0), 3)
    assert scores.tolist() == [1250 / 510]


def test_the_contribution_of_a_piece_of_text_is_its_pseudo_value_by_hand():
    counts = np.array([10.0, 400.0, 100.0])
    losses = np.array([[20.0, 1000.0, 230.0]])
    runs = outcomes_of("sst2", {"a": losses}, counts, metric="loss", scale=1.0)
    values = contributions(runs.measure, losses, counts)
    expected = 3 * 1250 / 510 - 2 * 250 / 110
    assert values[0, 1] == pytest.approx(expected)
