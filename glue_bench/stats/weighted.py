"""Metrics as functions of sums over examples, so that all runs are scored at once, also without one of the examples.

Accuracy is a mean; the Matthews correlation a function of the counts of a two-by-two table; Pearson's correlation one
of first and second moments; a loss the summed loss over the number of tokens.
"""

import numpy as np

from glue_bench.data.metrics import CONSTANT

RATIOS = frozenset({"loss", "share"})
"""Metrics that are a ratio of two sums, which predictions (the numerators) and labels (the denominators) have."""
NEGLIGIBLE = 1e-12
"""A variance that is less than this share of its mean square is rounding."""


def sums_of(metric: str, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What `score_sums` needs of each example, (rows, runs, k), from predictions (runs, rows) and labels (rows,).

    float32 where the sums are counts, which it holds exactly up to 2**24; float64 for moments.
    """
    if metric == "accuracy":
        return (predictions == labels).T[:, :, None].astype(np.float32)
    if metric in RATIOS:
        trials = np.broadcast_to(labels, predictions.shape)
        return np.stack([predictions, trials], axis=-1, dtype=np.float64).transpose(1, 0, 2)
    if metric == "matthews_correlation":
        positive = np.broadcast_to(labels, predictions.shape)
        return np.stack([predictions * positive, predictions, positive], axis=-1).transpose(1, 0, 2).astype(np.float32)
    if metric == "pearson":
        x, y = _centred(predictions), np.broadcast_to(_centred(labels[None]), predictions.shape)
        return np.stack([x, y, x * x, y * y, x * y], axis=-1).transpose(1, 0, 2)
    raise ValueError(f"{metric} is no task's main metric")


def score_sums(metric: str, sums: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    """Scores (..., runs), at most 1, from sums (..., runs, k) of what `sums_of` gave; `total` weight broadcasts.

    Correlations with a constant are 0.0, as in `benchmark.metrics`.
    """
    parts = np.moveaxis(np.asarray(sums, np.float64), -1, 0)
    if metric == "accuracy":
        return parts[0] / total
    if metric in RATIOS:
        return _ratio(parts[0], parts[1])
    if metric == "matthews_correlation":
        hits, predicted, positive = parts
        square = predicted * (total - predicted) * positive * (total - positive)
        return _ratio(hits * total - predicted * positive, np.sqrt(np.maximum(square, 0)))
    x, y, xx, yy, xy = parts / total
    return _ratio(xy - x * y, np.sqrt(_variance(x, xx) * _variance(y, yy)))


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    return np.divide(over, under, out=np.zeros_like(over), where=under > 0)


def _variance(mean: np.ndarray, square: np.ndarray) -> np.ndarray:
    variance = square - mean**2
    return np.where(variance > NEGLIGIBLE * square, variance, 0.0)


def _centred(values: np.ndarray) -> np.ndarray:
    """Rows (n, rows) around their mean, for sums that lose no digits; exactly 0 where metrics calls them constant."""
    scaled = values / np.maximum(1.0, np.abs(values).max(axis=1, keepdims=True))
    constant = np.ptp(scaled, axis=1, keepdims=True) <= CONSTANT
    return np.where(constant, 0.0, scaled - scaled.mean(axis=1, keepdims=True))
