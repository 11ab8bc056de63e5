"""Metrics as functions of sums over examples.

All runs are scored at once in this way, also without one of the examples. Accuracy is a mean, the Matthews correlation
is a function of the counts of a two-by-two table, Pearson's correlation is a function of first and second moments, and
a loss is the summed loss over the number of tokens.
"""

import numpy as np

from glue_bench.data.measures import Measure
from glue_bench.data.metrics import CONSTANT

RATIOS = frozenset({"loss", "share"})
"""What is measured of an encoder without a fine-tuning: a ratio of sums, predictions over labels."""
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
        return (
            np.stack([predictions * positive, predictions, positive], axis=-1)
            .transpose(1, 0, 2)
            .astype(np.float32)
        )
    x = _centred(predictions)
    y = np.broadcast_to(_centred(labels[None]), predictions.shape)
    return np.stack([x, y, x * x, y * y, x * y], axis=-1).transpose(1, 0, 2)


def score_sums(metric: str, sums: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    """Scores (..., runs), at most 1, from sums (..., runs, k) of what `sums_of` gave; `total` weight broadcasts.

    Correlations with a constant are 0.0, as in `data.metrics`.
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
    variances = [np.where(v - m**2 > NEGLIGIBLE * v, v - m**2, 0.0) for m, v in ((x, xx), (y, yy))]
    return _ratio(xy - x * y, np.sqrt(variances[0] * variances[1]))


def contributions(measure: Measure, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What each example contributes to the score of each run, (runs, examples), in the unit of the measure."""
    metric = measure.metric
    rows = len(labels)
    parts = sums_of(metric, predictions, labels)
    total = parts.sum(axis=0, dtype=np.float64)
    without = score_sums(metric, total - parts, rows - 1)
    return (rows * score_sums(metric, total, rows) - (rows - 1) * without).T * measure.factor


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    return np.divide(over, under, out=np.zeros_like(over), where=under > 0)


def _centred(values: np.ndarray) -> np.ndarray:
    """Rows (n, rows) around their mean, for sums that lose no digits; exactly 0 where metrics calls them constant."""
    scaled = values / np.maximum(1.0, np.abs(values).max(axis=1, keepdims=True))
    constant = np.ptp(scaled, axis=1, keepdims=True) <= CONSTANT
    return np.where(constant, 0.0, scaled - scaled.mean(axis=1, keepdims=True))
