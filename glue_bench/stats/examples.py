"""The variance over examples of a difference of two arms, and its overlap with the seeds' variance.

An arm's contribution of example i is the mean over its runs of h_i (`sums.contributions`). With
d_i, the difference of two arms' contributions of example i, the variance of the difference of their
scores over N examples is var(d) / N.

The runs of an arm do not agree on every example. This disagreement is a part of the variance over
examples, and also of the variance over seeds. It is computed here, so that it can be subtracted
once.
"""

import numpy as np

from glue_bench.stats.runs import ColumnRuns, mean_weights
from glue_bench.stats.sums import cluster_values, contributions


def example_variance(
    column_runs: ColumnRuns, weights: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return V_ex, the variance over examples of the difference of each pair of arms.

    The variance is computed a second time, with two more examples on which the arms differ as much
    as possible, one in favour of each arm (Bonett and Price 2012). The larger variance counts.
    Without these examples, two arms that agree on all examples would have an interval of no width.
    A loss needs none.

    Args:
        column_runs: The runs of a column.
        weights: The weights (arms, runs) by which the mean of each arm is a sum over runs.
        values: The contributions (runs, examples), or (runs, clusters) if the column has clusters.

    Returns:
        Variances (arms, arms); on the diagonal the variance of an arm's own mean.
    """
    examples = values.shape[1]
    covariance = np.cov(weights @ values) / examples
    variance = _variance_of_differences(np.atleast_2d(covariance))
    if column_runs.metric == "loss":
        return variance
    right_values = _contributions_with_two_more(column_runs, better=True)
    wrong_values = _contributions_with_two_more(column_runs, better=False)
    ahead = _centred(weights @ right_values)
    behind = _centred(weights @ wrong_values)
    # |a - b|^2 = |a|^2 + |b|^2 - 2 a b, where the added examples favour the arm of the row (a) over
    # the arm of the column (b).
    ahead_squares = np.sum(ahead**2, axis=1)
    behind_squares = np.sum(behind**2, axis=1)
    sums = ahead_squares[:, None] + behind_squares
    squares = sums - 2 * ahead @ behind.T
    larger = np.maximum(squares, squares.T)
    count = ahead.shape[1]
    return np.maximum(variance, larger / count**2)


def _centred(values: np.ndarray) -> np.ndarray:
    """Subtract the mean of each row of (n, examples)."""
    means = values.mean(axis=1, keepdims=True)
    return values - means


def shared_variance(values: np.ndarray, owners: np.ndarray, blocked: bool) -> np.ndarray:
    """Return the part of V_ex that the variance over seeds contains as well.

    It is the variance over seeds of the contribution of an example. With blocks, the differences of
    arms within a block are taken, because an effect that all arms of a block share does not change
    their differences.

    Args:
        values: Contributions (runs, examples) of single runs, or of an arm's mean in each block.
        owners: The index of the arm of each row of `values`, (runs,).
        blocked: Whether the rows of an arm are blocks, in the same order for every arm.

    Returns:
        Variances (arms, arms); on the diagonal the variance of an arm's own mean.
    """
    counts = np.bincount(owners)
    rows = values.shape[1]
    means = mean_weights(owners) @ values
    residuals = _centred(values - means[owners])
    if blocked:
        by_arm = residuals.reshape(len(counts), -1)
        blocks = counts[0]
        covariance = _variance_of_differences(by_arm @ by_arm.T)
        divisor = blocks * (blocks - 1) * rows * (rows - 1)
        return covariance / divisor
    squares_of_runs = np.sum(residuals**2, axis=1)
    squares = np.bincount(owners, squares_of_runs)
    # The residuals of an arm with one run are 0. Its variance becomes 0 / 1 here.
    freedom = np.maximum(counts - 1, 1)
    divisors = counts * freedom * rows * (rows - 1)
    variances = np.diag(squares / divisors)
    return _variance_of_differences(variances)


def finetuning_variance(values: np.ndarray, cells: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return the part of the `shared_variance` over blocks that fine-tuning seeds cause.

    The variance of one run is pooled over the cells of an arm, some of which may have one seed.

    Args:
        values: Contributions (runs, examples).
        cells: The number of the pair of arm and block of each run, (runs,).
        owners: The index of the arm of each cell, (cells,).

    Returns:
        Variances (arms, arms); 0 for an arm that has no block with two fine-tuning seeds.
    """
    counts = np.bincount(cells)
    # If a run has the variance c, the mean of a cell's n runs has the variance c / n, which is
    # known with n - 1 degrees of freedom.
    of_means = np.diag(shared_variance(values, cells, blocked=False))
    freedom = np.bincount(owners, counts - 1)
    weighted = of_means * counts * (counts - 1)
    sums = np.bincount(owners, weighted)
    of_one_run = sums / np.maximum(freedom, 1)
    blocks = np.bincount(owners)
    shares = np.bincount(owners, 1 / counts)
    of_arm_means = of_one_run * shares / blocks**2
    return _variance_of_differences(np.diag(of_arm_means))


def _contributions_with_two_more(column_runs: ColumnRuns, *, better: bool) -> np.ndarray:
    """Return contributions (runs, examples + 2) after two extreme examples were added.

    If `better`, every run is as right as it can be on the first and as wrong on the second, else
    the other way round.
    """
    predictions = column_runs.predictions
    labels = column_runs.labels
    runs = len(predictions)

    if column_runs.metric == "share":
        # One trial each: a hit and a miss.
        added = np.tile([float(better), float(not better)], (runs, 1))
        gold = np.ones(2)
    elif column_runs.metric == "pearson":
        # Both have the largest label; the largest prediction is right, the smallest wrong.
        largest = predictions.max(axis=1)
        smallest = predictions.min(axis=1)
        best_first = np.stack([largest, smallest], axis=1)
        added = best_first if better else best_first[:, ::-1]
        gold = np.full(2, labels.max())
    else:
        # One label of each class, and one answer to both.
        added = np.full((runs, 2), int(better))
        gold = np.array([1, 0])

    all_predictions = np.hstack([predictions, added])
    all_labels = np.concatenate([labels, gold])
    values = contributions(column_runs.measure, all_predictions, all_labels)
    if column_runs.clusters is None:
        return values

    largest_cluster = int(column_runs.clusters.max())
    own_clusters = [largest_cluster + 1, largest_cluster + 2]
    clusters = np.concatenate([column_runs.clusters, own_clusters])
    return cluster_values(values, clusters)


def _variance_of_differences(covariance: np.ndarray) -> np.ndarray:
    """Turn a covariance (arms, arms) into the variance of the difference of each pair.

    The diagonal keeps the variances themselves.
    """
    variances = np.diag(covariance)
    sums = variances[:, None] + variances
    differences = sums - 2 * covariance
    # Rounding may leave the difference of equal arms a little below 0.
    differences = np.maximum(differences, 0.0)
    np.fill_diagonal(differences, variances)
    return differences
