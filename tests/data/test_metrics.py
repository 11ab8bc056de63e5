"""Metrics against hand values and the libraries, and what happens where they are undefined."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from glue_bench.data.metrics import decide, is_collapsed, score, score_logits
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_binary_tasks_by_hand() -> None:
    references, predictions = [1, 1, 1, 0, 0], [1, 1, 0, 1, 0]  # tp 2, fp 1, fn 1, tn 1
    assert score("sst2", predictions, references) == {"accuracy": pytest.approx(0.6)}
    assert score("mrpc", predictions, references) == {
        "accuracy": pytest.approx(0.6),
        "f1": pytest.approx(2 / 3),
    }
    matthews = (2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2)
    assert score("cola", predictions, references) == {"matthews_correlation": pytest.approx(matthews)}


def test_stsb_by_hand() -> None:
    result = score("stsb", [1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
    assert list(result) == ["pearson", "spearmanr"]
    assert result["pearson"] == pytest.approx(np.corrcoef([1, 2, 4], [1, 2, 3])[0, 1])
    assert result["spearmanr"] == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=40))
def test_classes_equal_sklearn(pairs: list[tuple[int, int]]) -> None:
    predictions, references = map(list, zip(*pairs, strict=True))
    assert score("mrpc", predictions, references)["f1"] == f1_score(references, predictions, zero_division=0)
    value = score("cola", predictions, references)["matthews_correlation"]
    varied = len(set(predictions)) > 1 and len(set(references)) > 1
    assert value == (pytest.approx(matthews_corrcoef(references, predictions)) if varied else 0.0)


def test_correlations_equal_scipy() -> None:
    random = np.random.default_rng(0)
    references = random.uniform(0, 5, 200)
    predictions = references + random.normal(size=200)
    result = score("stsb", predictions.astype(np.float32), references)
    assert result["pearson"] == pytest.approx(pearsonr(references, predictions).statistic, abs=1e-6)
    assert result["spearmanr"] == pytest.approx(spearmanr(references, predictions).statistic)


@given(FINITE, st.lists(st.floats(0, 5), min_size=1, max_size=20), st.booleans())
def test_constant_scores_correlate_zero(constant: float, others: list[float], swapped: bool) -> None:
    flat = [constant] * len(others)
    pair = (others, flat) if swapped and constant != -1 else (flat, others)
    assert score("stsb", *pair) == {"pearson": 0.0, "spearmanr": 0.0}


@given(st.lists(st.tuples(FINITE, st.floats(0, 5)), min_size=1, max_size=20))
def test_correlations_are_never_nan(pairs: list[tuple[float, float]]) -> None:
    predictions, references = zip(*pairs, strict=True)
    values = list(score("stsb", predictions, references).values())
    assert np.isfinite(values).all()
    assert max(np.abs(values)) <= 1 + 1e-9


def test_scores_as_large_as_floats_go() -> None:
    assert score("stsb", [1.7e308, -1.7e308, 1.7e308], [1.0, 2.0, 4.0])["pearson"] == pytest.approx(
        np.corrcoef([1, -1, 1], [1, 2, 4])[0, 1]
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="predictions are not finite, first at row 1"):
        score("stsb", [1.0, bad], [1.0, 2.0])
    with pytest.raises(ValueError, match="logits are not finite"):
        score_logits("sst2", np.array([[0.0, bad]]), [0])
    with pytest.raises(ValueError, match="logits are not finite"):
        is_collapsed("sst2", np.array([[0.0, bad], [0.0, 1.0]]))


def test_impossible_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 predictions for 1 references"):
        score("sst2", [0, 1], [0])
    with pytest.raises(ValueError, match=r"shape \(0,\)"):
        score("sst2", [], [])
    with pytest.raises(ValueError, match=r"predictions hold 2 at row 1; expected class ids from 0 to 1"):
        score("sst2", [0, 2], [0, 1])
    with pytest.raises(ValueError, match="not public"):
        score("stsb", [0.5, 1.0], [-1.0, -1.0])
    with pytest.raises(ValueError, match=r"shape \(2, 2\); expected \(n, 3\)"):
        score_logits("mnli", np.zeros((2, 2)), [0, 1])
    with pytest.raises(UserError, match="did you mean 'cola'"):
        score("colla", [0], [0])


def test_logits_become_predictions() -> None:
    logits = np.array([[0.1, 0.3, -1.0], [2.0, 0.0, 1.0]])
    assert decide("mnli", logits).tolist() == [1, 0]
    assert score_logits("mnli", logits, [1, 2]) == {"accuracy": 0.5}
    column = np.array([[1.0], [2.5]], dtype=np.float32)
    assert decide("stsb", column).tolist() == decide("stsb", column[:, 0]).tolist() == [1.0, 2.5]
    assert score_logits("stsb", column, [0.0, 5.0])["pearson"] == pytest.approx(1.0)


def test_collapse() -> None:
    assert is_collapsed("sst2", np.array([[0.0, 1.0], [0.2, 0.3]]))
    assert not is_collapsed("sst2", np.array([[0.0, 1.0], [0.4, 0.3]]))
    assert is_collapsed("stsb", np.array([[2.5], [2.500001]], dtype=np.float32))
    assert is_collapsed("stsb", np.array([[20000.0], [20000.01]]))
    assert not is_collapsed("stsb", np.array([[2.5], [2.51]]))
    assert not is_collapsed("sst2", np.array([[0.0, 1.0]]))
    assert not is_collapsed("stsb", np.zeros((0, 1)))


@pytest.mark.parametrize("task", TASKS)
def test_metric_equals_score(task: str, tmp_path: Path) -> None:
    from glue_bench.data.glue_metric import GlueMetric

    random = np.random.default_rng(1)
    if TASKS[task].is_regression:
        pair = random.uniform(0, 5, (2, 30)).astype(np.float32)
    else:
        pair = random.integers(0, TASKS[task].num_labels, (2, 30))
    metric = GlueMetric(task, cache_dir=str(tmp_path))
    result = metric.compute(predictions=pair[0], references=pair[1])
    assert result == pytest.approx(score(task, pair[0], pair[1]))
    metric.add_batch(predictions=pair[0][:10], references=pair[1][:10])
    metric.add_batch(predictions=pair[0][10:], references=pair[1][10:])
    assert metric.compute() == result
