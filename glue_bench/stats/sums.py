"""Metrics as functions of sums over examples.

So all runs are scored at once, and each run can be scored again without one of its examples.
Accuracy is a mean, the Matthews correlation is a function of the counts of a two-by-two table,
Pearson's correlation is a function of first and second moments, and a loss is the summed loss over
the number of tokens.
"""

import numpy as np

from glue_bench.data.measures import Measure
from glue_bench.data.metrics import CONSTANT_SPREAD

RATIOS = frozenset({"loss", "share"})
"""The metrics of a pretrained encoder: the sum of predictions over the sum of labels."""
NEGLIGIBLE = 1e-12
"""A variance below this share of the mean square is a rounding error."""


def example_terms(metric: str, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return what each example adds to the sums that `score_from_sums` takes.

    Args:
        metric: The name of the metric.
        predictions: (runs, rows).
        labels: (rows,).

    Returns:
        Terms (rows, runs, k). They are float32 where the sums are counts, which float32 holds
        exactly up to 2**24, and float64 where the sums are moments.
    """
    if metric == "accuracy":
        hits = predictions == labels
        terms = hits.T[:, :, None]
        return terms.astype(np.float32)
    if metric in RATIOS:
        trials = np.broadcast_to(labels, predictions.shape)
        terms = np.stack([predictions, trials], axis=-1, dtype=np.float64)
        return terms.transpose(1, 0, 2)
    if metric in ("matthews_correlation", "f1"):
        positive = np.broadcast_to(labels, predictions.shape)
        hits = predictions * positive
        terms = np.stack([hits, predictions, positive], axis=-1)
        return terms.transpose(1, 0, 2).astype(np.float32)
    x = _centre(predictions)
    centred_labels = _centre(labels[None])
    y = np.broadcast_to(centred_labels, predictions.shape)
    terms = np.stack([x, y, x * x, y * y, x * y], axis=-1)
    return terms.transpose(1, 0, 2)


def score_from_sums(metric: str, sums: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    """Return the scores of runs, at most 1, from sums over examples.

    With n = `total`, E the mean over examples, and the counts TP of true positives, P of predicted
    positives and Q of positive labels:

        accuracy    hits / n
        a ratio     sum of predictions / sum of labels
        Matthews    (n TP - P Q) / sqrt(P (n - P) Q (n - Q))                      (Matthews 1975)
        F1          2 TP / (P + Q)                                         (van Rijsbergen 1979)
        Pearson     (E[xy] - E[x] E[y]) / sqrt((E[x^2] - E[x]^2) (E[y^2] - E[y]^2))

    A correlation with a constant is 0.0, as in `data.metrics`.

    Args:
        metric: The name of the metric.
        sums: Sums (..., runs, k) of the terms of `example_terms`; weighted sums are allowed.
        total: The number of examples, or their total weight; it broadcasts to (..., runs).

    Returns:
        Scores (..., runs).
    """
    double_sums = np.asarray(sums, np.float64)
    parts = np.moveaxis(double_sums, -1, 0)

    if metric == "accuracy":
        return parts[0] / total
    if metric in RATIOS:
        return _ratio(parts[0], parts[1])
    if metric == "f1":
        hits, predicted, positive = parts
        return _ratio(2 * hits, predicted + positive)

    if metric == "matthews_correlation":
        hits, predicted, positive = parts
        covariance = hits * total - predicted * positive
        square = predicted * (total - predicted) * positive * (total - positive)
        # Weights that are no whole numbers may leave a square a little below 0.
        deviations = np.sqrt(np.maximum(square, 0))
        return _ratio(covariance, deviations)

    x, y, xx, yy, xy = parts / total
    covariance = xy - x * y
    variances = _variance(x, xx) * _variance(y, yy)
    return _ratio(covariance, np.sqrt(variances))


def contributions(measure: Measure, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return what each example contributes to the score of each run.

    It is the jackknife pseudo-value (Efron and Tibshirani 1993, chapter 11),

        h_i = N y - (N - 1) y_without_i

    where y is the score on all N examples. N must be at least 2. For an accuracy h_i is 100 if the
    example is right, and 0 if it is wrong.

    Args:
        measure: The measure, for its metric and its unit.
        predictions: (runs, examples).
        labels: (examples,).

    Returns:
        Pseudo-values (runs, examples), in the unit of the measure.
    """
    rows = len(labels)
    terms = example_terms(measure.metric, predictions, labels)
    total = terms.sum(axis=0, dtype=np.float64)
    score = score_from_sums(measure.metric, total, rows)
    without_one = total - terms
    score_without = score_from_sums(measure.metric, without_one, rows - 1)
    pseudo_values = rows * score - (rows - 1) * score_without
    return pseudo_values.T * measure.factor


def cluster_values(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the values of clusters in place of the contributions of their examples.

    A cluster's value is the run's mean plus C / N times the sum of its examples' deviations from
    the mean, for C clusters of N examples. Then the mean over clusters is the run's mean, and the
    variance over clusters, divided by C, is the cluster-robust variance of the mean,

        C / (C - 1) sum_c (sum_{i in c} (h_i - y))^2 / N^2            (Liang and Zeger 1986)

    Args:
        values: Contributions (runs, examples).
        clusters: The number of each example's cluster, (examples,).

    Returns:
        Values (runs, clusters).
    """
    mean = values.mean(axis=1, keepdims=True)
    sums = np.stack([np.bincount(clusters, deviations) for deviations in values - mean])
    examples = values.shape[1]
    ratio = sums.shape[1] / examples
    return mean + sums * ratio


def _ratio(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Divide, with 0 where the denominator is 0."""
    zeros = np.zeros_like(numerators)
    return np.divide(numerators, denominators, out=zeros, where=denominators > 0)


def _variance(mean: np.ndarray, mean_square: np.ndarray) -> np.ndarray:
    """Return E[x^2] - E[x]^2, with exactly 0 where only rounding is left."""
    variance = mean_square - mean**2
    return np.where(variance > NEGLIGIBLE * mean_square, variance, 0.0)


def _centre(values: np.ndarray) -> np.ndarray:
    """Subtract the mean of each row of (n, rows), so that sums lose no digits.

    Rows are scaled to at most 1. A row that `data.metrics` calls constant becomes exactly 0.
    """
    sizes = np.abs(values)
    largest = sizes.max(axis=1, keepdims=True)
    scaled = values / np.maximum(1.0, largest)
    centred = scaled - scaled.mean(axis=1, keepdims=True)
    ranges = np.ptp(scaled, axis=1, keepdims=True)
    is_constant = ranges <= CONSTANT_SPREAD
    return np.where(is_constant, 0.0, centred)
