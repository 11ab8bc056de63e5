"""GLUE's metrics as pure functions. All values are raw, at most 1.

Metrics of each task: Wang et al. 2019, "GLUE", table 1. AX: the three-class Matthews correlation
(R3). They give the bits of scikit-learn and SciPy, for whose loading every table would wait a
second.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from pandas import Series

from glue_bench.data.task import Task
from glue_bench.data.task_data import UNLABELLED
from glue_bench.data.tasks import find_task

CONSTANT_SPREAD = 1e-6
"""Scores closer together than this, times the largest where that exceeds 1, are one score."""


def score(task: str, predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """Compute the metrics of a task. Correlations with a constant are 0.0 and never NaN.

    Args:
        task: The name of the task.
        predictions: Class ids or scores (n,).
        references: The gold labels (n,).

    Returns:
        The values by `Task.metrics`, in order.

    Raises:
        ValueError: inputs are unequal or empty, values are not finite or not class ids, or
            references are not public.
    """
    row = find_task(task)
    predicted = _checked(row, "predictions", predictions)
    expected = _checked(row, "references", references)
    if len(predicted) != len(expected):
        raise ValueError(f"{task}: {len(predicted)} predictions for {len(expected)} references")
    if row.is_regression:
        if _is_constant(expected) or _is_constant(predicted):  # a correlation has no number there
            return dict.fromkeys(row.metrics, 0.0)
        expected = _scaled(expected)
        predicted = _scaled(predicted)
    values: dict[str, float] = {}
    for name in row.metrics:
        metric = METRICS[name]
        values[name] = metric(expected, predicted)
    return values


def score_logits(task: str, logits: np.ndarray, references: ArrayLike) -> dict[str, float]:
    """Compute the metrics of a task over the head's outputs (n, labels); raises like `score`."""
    return score(task, decide(task, logits), references)


def decide(task: str, logits: np.ndarray) -> np.ndarray:
    """Return predictions (n,) from logits (n, labels): the likeliest class, or the score itself."""
    row = find_task(task)
    logits = np.asarray(logits)
    if row.is_regression and logits.ndim == 1:
        logits = logits[:, None]
    if logits.ndim != 2 or logits.shape[1] != row.num_labels:
        raise ValueError(f"{task}: logits of shape {logits.shape}; expected (n, {row.num_labels})")
    if not np.isfinite(logits).all():
        raise ValueError(f"{task}: logits are not finite; the run has diverged")
    if row.is_regression:
        return logits[:, 0]
    return logits.argmax(axis=1)


def is_collapsed(task: str, logits: np.ndarray) -> bool:
    """Whether every row gets the same prediction; never for fewer than two rows."""
    predicted = decide(task, logits)
    return len(predicted) >= 2 and _is_constant(predicted)


def _checked(task: Task, name: str, values: ArrayLike) -> np.ndarray:
    """Return the values as an array (n,) of the task's type. Raises ValueError for bad ones."""
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        shape = array.shape
        raise ValueError(f"{task.name}: {name} of shape {shape}; expected (n,) with n > 0")

    is_finite = np.isfinite(array)
    if not is_finite.all():
        first = (~is_finite).argmax()
        raise ValueError(f"{task.name}: {name} are not finite, first at row {first}")

    if name == "references" and (array == UNLABELLED).all():
        fault = "the labels of this split are not public"
        raise ValueError(f"{task.name}: {fault}, so it cannot be scored")

    if task.is_regression:
        return array.astype(np.float64)

    is_wrong = ~np.isin(array, range(task.num_labels))
    if is_wrong.any():
        first = is_wrong.argmax()
        fault = f"{name} hold {array[first]} at row {first}"
        highest = task.num_labels - 1
        raise ValueError(f"{task.name}: {fault}; expected class ids from 0 to {highest}")
    return array.astype(np.int64)


def _is_constant(values: np.ndarray) -> bool:
    spread = np.ptp(_scaled(values))
    return bool(spread <= CONSTANT_SPREAD)


def _scaled(values: np.ndarray) -> np.ndarray:
    """Scale values into [-1, 1]: correlations stay, and squares of huge scores do not overflow."""
    largest = np.abs(values).max()
    return values / max(1.0, largest)


def _accuracy(expected: np.ndarray, predicted: np.ndarray) -> float:
    return float((expected == predicted).mean())


def _f1(expected: np.ndarray, predicted: np.ndarray) -> float:
    """Compute F1 of class 1: 2 tp / (2 tp + fp + fn), or 0 where no row is of it."""
    positives = np.count_nonzero(expected) + np.count_nonzero(predicted)
    if not positives:
        return 0.0
    true_positives = np.count_nonzero(expected & predicted)
    return float(2 * true_positives / positives)


def _macro_f1(expected: np.ndarray, predicted: np.ndarray) -> float:
    """Average F1 over the classes in labels or predictions (scikit-learn's macro)."""
    values: list[float] = []
    for label in np.union1d(expected, predicted):
        values.append(_f1((expected == label).astype(int), (predicted == label).astype(int)))
    return float(np.mean(values))


def _matthews(expected: np.ndarray, predicted: np.ndarray) -> float:
    """Compute Gorodkin 2004, equation 8, for any number of classes."""
    rows = float(len(expected))
    right = float(np.count_nonzero(expected == predicted))
    expected_counts = np.bincount(expected, minlength=3).astype(float)
    predicted_counts = np.bincount(predicted, minlength=3).astype(float)
    predicted_spread = rows**2 - predicted_counts @ predicted_counts
    expected_spread = rows**2 - expected_counts @ expected_counts
    spread = predicted_spread * expected_spread
    if not spread:
        return 0.0
    covariance = right * rows - expected_counts @ predicted_counts
    return float(covariance / np.sqrt(spread))


def _pearson(expected: np.ndarray, predicted: np.ndarray) -> float:
    """Compute Pearson's correlation, scaled as SciPy does, so that no square overflows."""
    product = _unit(expected) @ _unit(predicted)
    return float(np.clip(product, -1, 1))


def _unit(values: np.ndarray) -> np.ndarray:
    """Centre values (n,) and scale them to length 1."""
    centred = values - values.mean()
    largest = np.abs(centred).max()
    length = largest * np.linalg.norm(centred / largest, axis=-1)
    return centred / length


def _spearman(expected: np.ndarray, predicted: np.ndarray) -> float:
    """Compute Pearson's correlation of ranks; ties have the mean of their ranks."""
    ranks = [Series(values).rank() for values in (expected, predicted)]
    return float(np.corrcoef(ranks)[1, 0])


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "macro_f1": _macro_f1,
    "matthews_correlation": _matthews,
    "pearson": _pearson,
    "spearmanr": _spearman,
}
"""By name, functions of (expected, predicted). For correlations they vary and are `_scaled`."""
OF_SCORES = ("pearson", "spearmanr")
"""The metrics of a regression; all others are of classes."""
OF_TWO_CLASSES = ("f1",)
"""The metrics of the second of two classes."""
WITH_STATISTICS = ("accuracy", "f1", "matthews_correlation", "pearson")
"""The metrics that intervals are computed of (`stats.sums`); the main metric is one of them.

There a Matthews correlation has two classes.
"""
