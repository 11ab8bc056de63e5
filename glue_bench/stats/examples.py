"""How a difference of two arms varies over examples, and what of that the spread over seeds has, too.

What example i contributes to a run's score is its jackknife pseudo-value (Efron and Tibshirani 1993, chapter 11),
h_i = N y - (N - 1) y without i; of an accuracy 100 where the example is right, and 0 where it is wrong. The variance of
a difference over examples is that of d_i, the difference of the arms' mean contributions, over N.
"""

import numpy as np

from glue_bench.stats.runs import ColumnRuns, means_over
from glue_bench.stats.sums import contributions


def example_variance(outcomes: ColumnRuns, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """V_ex of each pair of arms, (arms, arms).

    `weights` (arms, runs) make the arms' means of the runs, whose contributions are `values`. Two examples are added
    on which the arms differ as much as they can, one for each arm (Bonett and Price 2012), and the larger variance
    counts: without them, arms that agree on all examples would have an interval of no width. A loss needs none.
    """
    spread = np.cov(weights @ values) / values.shape[1]
    variance = _of_differences(np.atleast_2d(spread))
    if outcomes.metric == "loss":
        return variance
    means = [weights @ _with_two(outcomes, better=better) for better in (True, False)]
    ahead, behind = (mean - mean.mean(axis=1, keepdims=True) for mean in means)
    floor = (ahead**2).sum(axis=1)[:, None] + (behind**2).sum(axis=1) - 2 * ahead @ behind.T
    return np.maximum(variance, np.maximum(floor, floor.T) / ahead.shape[1] ** 2)


def shared_variance(values: np.ndarray, owners: np.ndarray, blocked: bool) -> np.ndarray:
    """What of V_ex the spread over seeds has too, (arms, arms); on the diagonal that of an arm's own mean.

    `values` (runs, examples) are contributions of single runs, or of an arm's mean in each block; `owners` (runs,)
    says whose. It is the variance over seeds of what an example contributes: of differences within a block where there
    are blocks, because what a block's arms have in common takes no part in their difference.
    """
    runs, rows = np.bincount(owners), values.shape[1]
    rest = values - (means_over(owners) @ values)[owners]
    rest -= rest.mean(axis=1, keepdims=True)
    if blocked:
        flat = rest.reshape(len(runs), -1)
        return _of_differences(flat @ flat.T) / (runs[0] * (runs[0] - 1) * rows * (rows - 1))
    squares = np.bincount(owners, (rest**2).sum(axis=1))
    return _of_differences(np.diag(squares / (runs * np.maximum(runs - 1, 1) * rows * (rows - 1))))


def finetuning_variance(values: np.ndarray, cells: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """What of `shared_variance` over blocks is of fine-tuning seeds, (arms, arms); 0 where no block has two of them.

    `values` (runs, examples) are contributions; `cells` (runs,) says of which arm and block, `owners` (cells,) whose a
    cell is. The variance of one run is pooled over an arm's cells, of which some may have a single seed.
    """
    runs = np.bincount(cells)
    # Of a cell's mean of n seeds it is c / n, with n - 1 degrees of freedom.
    of_means = np.diag(shared_variance(values, cells, blocked=False))
    freedom = np.bincount(owners, runs - 1)
    of_one = np.bincount(owners, of_means * runs * (runs - 1)) / np.maximum(freedom, 1)
    return _of_differences(
        np.diag(of_one * np.bincount(owners, 1 / runs) / np.bincount(owners) ** 2)
    )


def _with_two(outcomes: ColumnRuns, *, better: bool) -> np.ndarray:
    """Contributions with two examples more, on the first of which the arm is right, or wrong, as far as it can."""
    predictions, labels = outcomes.predictions, outcomes.labels
    if outcomes.metric == "share":  # of one trial each
        added = np.tile([float(better), float(not better)], (len(predictions), 1))
        gold = np.ones(2)
    elif outcomes.metric == "pearson":
        ends = np.stack([predictions.max(axis=1), predictions.min(axis=1)], axis=1)
        added, gold = ends if better else ends[:, ::-1], np.full(2, labels.max())
    else:
        added, gold = np.full((len(predictions), 2), int(better)), np.array([1, 0])
    return contributions(
        outcomes.measure, np.hstack([predictions, added]), np.concatenate([labels, gold])
    )


def _of_differences(covariance: np.ndarray) -> np.ndarray:
    """The variance of each pair's difference from a covariance; on the diagonal the variances themselves."""
    own = np.diag(covariance)
    variance = np.maximum(
        own[:, None] + own - 2 * covariance, 0.0
    )  # rounding leaves equal arms a little below
    np.fill_diagonal(variance, own)
    return variance
