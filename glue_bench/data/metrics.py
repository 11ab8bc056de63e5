"""GLUE's metrics as pure functions. All values are raw, at most 1.

Metrics of each task: Wang et al. 2019, "GLUE", table 1. AX: the three-class Matthews correlation (R3). They give
the bits of scikit-learn and SciPy, for whose loading every table would wait a second.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from pandas import Series

from glue_bench.data.task_data import UNLABELLED
from glue_bench.data.tasks import Task, find_task

CONSTANT = 1e-6  # scores closer together than this, times the largest of them where that exceeds 1, are one score


def score(task: str, predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """The metrics of `task` over class ids or scores, both (n,); keys are `Task.metrics`, in order.

    Correlations with a constant are 0.0 and never NaN. Raises ValueError for unequal or empty inputs,
    for values that are not finite or not class ids, and for references that are not public.
    """
    row = find_task(task)
    predicted, expected = (
        _checked(row, "predictions", predictions),
        _checked(row, "references", references),
    )
    if len(predicted) != len(expected):
        raise ValueError(f"{task}: {len(predicted)} predictions for {len(expected)} references")
    if row.is_regression:
        if _is_constant(expected) or _is_constant(predicted):  # a correlation has no number there
            return dict.fromkeys(row.metrics, 0.0)
        expected, predicted = _scaled(expected), _scaled(predicted)
    return {name: METRICS[name](expected, predicted) for name in row.metrics}


def score_logits(task: str, logits: np.ndarray, references: ArrayLike) -> dict[str, float]:
    """The metrics of `task` over the head's outputs (n, labels); raises like `score`."""
    return score(task, decide(task, logits), references)


def decide(task: str, logits: np.ndarray) -> np.ndarray:
    """Predictions (n,) from logits (n, labels): the likeliest class, or the score itself."""
    row, logits = find_task(task), np.asarray(logits)
    if row.is_regression and logits.ndim == 1:
        logits = logits[:, None]
    if logits.ndim != 2 or logits.shape[1] != row.num_labels:
        raise ValueError(f"{task}: logits of shape {logits.shape}; expected (n, {row.num_labels})")
    if not np.isfinite(logits).all():
        raise ValueError(f"{task}: logits are not finite; the run has diverged")
    return logits[:, 0] if row.is_regression else logits.argmax(axis=1)


def is_collapsed(task: str, logits: np.ndarray) -> bool:
    """Whether every row gets the same prediction; never for fewer than two rows."""
    predicted = decide(task, logits)
    return len(predicted) >= 2 and _is_constant(predicted)


def _checked(task: Task, name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{task.name}: {name} of shape {array.shape}; expected (n,) with n > 0")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{task.name}: {name} are not finite, first at row {(~np.isfinite(array)).argmax()}"
        )
    if name == "references" and (array == UNLABELLED).all():
        raise ValueError(
            f"{task.name}: the labels of this split are not public, so it cannot be scored"
        )
    if task.is_regression:
        return array.astype(np.float64)
    if (bad := ~np.isin(array, range(task.num_labels))).any():
        wrong = f"{name} hold {array[bad.argmax()]} at row {bad.argmax()}"
        raise ValueError(
            f"{task.name}: {wrong}; expected class ids from 0 to {task.num_labels - 1}"
        )
    return array.astype(np.int64)


def _is_constant(values: np.ndarray) -> bool:
    return bool(np.ptp(_scaled(values)) <= CONSTANT)


def _scaled(values: np.ndarray) -> np.ndarray:
    """Values within [-1, 1]: correlations stay as they are, and squares of huge scores do not overflow."""
    return values / max(1.0, np.abs(values).max())


def _f1(expected: np.ndarray, predicted: np.ndarray) -> float:
    both = np.count_nonzero(expected) + np.count_nonzero(predicted)
    return float(2 * np.count_nonzero(expected & predicted) / both) if both else 0.0


def _matthews(expected: np.ndarray, predicted: np.ndarray) -> float:
    """Gorodkin 2004, equation 8, of any number of classes."""
    t_sum, p_sum = (np.bincount(each, minlength=3).astype(float) for each in (expected, predicted))
    n, right = float(len(expected)), float(np.count_nonzero(expected == predicted))
    spread = (n**2 - p_sum @ p_sum) * (n**2 - t_sum @ t_sum)
    return float((right * n - t_sum @ p_sum) / np.sqrt(spread)) if spread else 0.0


def _pearson(*sides: np.ndarray) -> float:
    """Of sides as SciPy scales them, so that no square overflows."""
    away = [side - side.mean() for side in sides]
    largest = [np.abs(each).max() for each in away]
    norms = [
        size * np.linalg.norm(each / size, axis=-1)
        for each, size in zip(away, largest, strict=True)
    ]
    return float(np.clip((away[0] / norms[0]) @ (away[1] / norms[1]), -1, 1))


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda expected, predicted: float((expected == predicted).mean()),
    "f1": _f1,
    "matthews_correlation": _matthews,
    "pearson": _pearson,
    "spearmanr": lambda *sides: float(np.corrcoef([Series(side).rank() for side in sides])[1, 0]),
}
"""Metric name -> function of (expected, predicted); for correlations they vary and are `_scaled`."""
