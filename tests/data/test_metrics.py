"""Metrics against scikit-learn and SciPy, and what happens where they are undefined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from glue_bench.data.metrics import METRICS, decide, is_collapsed, score, score_logits
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_each_task_has_its_metrics():
    references = [1, 1, 1, 0, 0]
    predictions = [1, 1, 0, 1, 0]  # tp 2, fp 1, fn 1, tn 1
    assert score("mrpc", predictions, references) == {
        "accuracy": pytest.approx(0.6),
        "f1": pytest.approx(2 / 3),
    }
    assert score("cola", predictions, references) == {"matthews_correlation": pytest.approx(1 / 6)}
    assert score("mrpc", [0, 0], [0, 0]) == {"accuracy": 1, "f1": 0}
    assert score("cola", [1, 1], [0, 1]) == {"matthews_correlation": 0}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
def test_metrics_of_classes_are_those_of_scikit_learn(classes, share):
    random = np.random.default_rng(classes)
    expected, guessed = random.integers(0, classes, (2, 300))
    predicted = np.where(random.random(300) < share, expected, guessed)
    accuracy = METRICS["accuracy"]
    matthews = METRICS["matthews_correlation"]
    assert accuracy(expected, predicted) == accuracy_score(expected, predicted)
    assert matthews(expected, predicted) == matthews_corrcoef(expected, predicted)
    if classes == 2:
        f1 = METRICS["f1"]
        assert f1(expected, predicted) == f1_score(expected, predicted)


def test_correlations_equal_scipy():
    random = np.random.default_rng(0)
    references = random.uniform(0, 5, 200)
    predictions = (references + random.normal(size=200)).astype(np.float32)
    result = score("stsb", predictions, references)
    assert result["pearson"] == pytest.approx(pearsonr(references, predictions).statistic, abs=1e-6)
    assert result["spearmanr"] == pytest.approx(spearmanr(references, predictions).statistic)
    huge = score("stsb", [1.7e308, -1.7e308, 1.7e308], [1.0, 2.0, 4.0])["pearson"]
    assert huge == pytest.approx(np.corrcoef([1, -1, 1], [1, 2, 4])[0, 1])


@given(st.lists(st.tuples(FINITE, st.floats(0, 5)), min_size=1, max_size=20), FINITE)
def test_correlations_are_never_nan_and_those_with_a_constant_are_zero(pairs, constant):
    predictions, references = zip(*pairs, strict=True)
    values = list(score("stsb", predictions, references).values())
    assert max(np.abs(values)) <= 1 + 1e-9
    zeros = {"pearson": 0.0, "spearmanr": 0.0}
    flat = [constant] * len(pairs)
    assert score("stsb", flat, references) == zeros
    if constant != -1:  # which stands for a label that is not public
        assert score("stsb", predictions, flat) == zeros


@pytest.mark.parametrize(
    ("task", "predictions", "references", "error"),
    [
        ("sst2", [0, 1], [0], "2 predictions for 1 references"),
        ("sst2", [], [], r"shape \(0,\)"),
        ("sst2", [0, 2], [0, 1], r"predictions hold 2 at row 1; expected class ids from 0 to 1"),
        ("stsb", [0.5, 1.0], [-1.0, -1.0], "not public"),
        ("stsb", [1.0, np.nan], [1.0, 2.0], "predictions are not finite, first at row 1"),
        ("stsb", [1.0, np.inf], [1.0, 2.0], "predictions are not finite, first at row 1"),
        ("mnli", np.zeros((2, 2)), [0, 1], r"shape \(2, 2\); expected \(n, 3\)"),
        ("sst2", np.array([[0.0, -np.inf]]), [0], "logits are not finite"),
    ],
)
def test_impossible_inputs_are_refused(task, predictions, references, error):
    compute = score if np.ndim(predictions) == 1 else score_logits
    with pytest.raises(ValueError, match=error):
        compute(task, predictions, references)


def test_scores_of_an_unknown_task_are_refused():
    with pytest.raises(UserError, match="did you mean 'cola'"):
        score("colla", [0], [0])


def test_logits_become_predictions():
    logits = np.array([[0.1, 0.3, -1.0], [2.0, 0.0, 1.0]])
    assert decide("mnli", logits).tolist() == [1, 0]
    assert score_logits("mnli", logits, [1, 2]) == {"accuracy": 0.5}
    column = np.array([[1.0], [2.5]], dtype=np.float32)
    assert decide("stsb", column).tolist() == decide("stsb", column[:, 0]).tolist() == [1.0, 2.5]


@pytest.mark.parametrize(
    ("task", "logits", "expected"),
    [
        ("sst2", [[0, 1], [0.2, 0.3]], True),
        ("sst2", [[0, 1], [0.4, 0.3]], False),
        ("sst2", [[0, 1]], False),
        ("stsb", [[2.5], [2.500001]], True),
        ("stsb", [[20000.0], [20000.01]], True),
        ("stsb", [[2.5], [2.51]], False),
        ("stsb", np.zeros((0, 1)), False),
    ],
)
def test_a_run_has_collapsed_where_every_row_gets_one_prediction(task, logits, expected):
    assert is_collapsed(task, np.array(logits)) == expected


@pytest.mark.parametrize("task", ["mrpc", "stsb", "ax"])
def test_metric_equals_score(task, tmp_path):
    from glue_bench.data.glue_metric import GlueMetric

    random = np.random.default_rng(1)
    if TASKS[task].is_regression:
        predictions, references = random.uniform(0, 5, (2, 30)).astype(np.float32)
    else:
        predictions, references = random.integers(0, TASKS[task].num_labels, (2, 30))
    metric = GlueMetric(task, cache_dir=str(tmp_path))
    metric.add_batch(predictions=predictions[:10], references=references[:10])
    metric.add_batch(predictions=predictions[10:], references=references[10:])
    assert metric.compute() == pytest.approx(score(task, predictions, references))


@pytest.mark.parametrize("absent", [0, 1, 2])
@pytest.mark.parametrize("side", ["references", "predictions", "both"])
def test_metrics_of_three_classes_of_which_one_is_absent_are_those_of_scikit_learn(absent, side):
    random = np.random.default_rng(absent)
    expected, predicted = random.integers(0, 3, (2, 40))
    next_class = (absent + 1) % 3
    if side != "predictions":
        expected = np.where(expected == absent, next_class, expected)
    if side != "references":
        predicted = np.where(predicted == absent, next_class, predicted)
    correlation = score("ax", predicted, expected)["matthews_correlation"]
    assert correlation == matthews_corrcoef(expected, predicted)
    assert score("mnli", predicted, expected)["accuracy"] == accuracy_score(expected, predicted)


@pytest.mark.parametrize("absent", [0, 1])
def test_metrics_of_two_classes_of_which_one_is_absent_are_those_of_scikit_learn(absent):
    constant = np.full(9, 1 - absent)
    mixed = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
    for expected, predicted in ((constant, mixed), (mixed, constant), (constant, constant)):
        values = score("mrpc", predicted, expected)
        assert values["accuracy"] == accuracy_score(expected, predicted)
        assert values["f1"] == f1_score(expected, predicted, zero_division=0.0)


def test_ties_have_the_mean_of_their_ranks_as_in_scipy():
    random = np.random.default_rng(3)
    references, predictions = random.integers(0, 6, (2, 60)).astype(float)
    assert score("stsb", predictions, references)["spearmanr"] == pytest.approx(
        spearmanr(references, predictions).statistic
    )


def test_of_equal_logits_the_first_class_is_decided():
    logits = np.array([[0.5, 0.5, 0.1], [0.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    assert decide("mnli", logits).tolist() == [0, 1, 0]


def test_a_run_that_differs_in_its_last_row_alone_has_not_collapsed():
    logits = np.tile([[0.0, 1.0]], (5, 1))
    assert is_collapsed("rte", logits)
    logits[-1] = [1.0, 0.0]
    assert not is_collapsed("rte", logits)


@pytest.mark.parametrize(
    ("references", "message"),
    [([0, -1, 1], "references hold -1 at row 1"), ([-1, -1, -1], "not public")],
    ids=["one is not public", "none is public"],
)
def test_references_that_are_not_public_are_no_classes(references, message):
    with pytest.raises(ValueError, match=message):
        score("rte", [0, 1, 1], references)
