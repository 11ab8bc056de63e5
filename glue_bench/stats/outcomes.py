"""The runs of one column: whose they are, their scores, and how a difference of two arms spreads over examples.

Metrics are functions of sums over examples, so that all runs are scored at once, also without one of the examples:
accuracy is a mean, the Matthews correlation a function of the counts of a two-by-two table, Pearson's correlation one
of first and second moments, and a loss the summed loss over the number of tokens.

What example i contributes to a run's score is its jackknife pseudo-value (Efron and Tibshirani 1993, chapter 11),
h_i = N y - (N - 1) y without i; of an accuracy 100 where the example is right, and 0 where it is wrong. The variance of
a difference over examples is that of d_i, the difference of the arms' mean contributions, over N.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from glue_bench.data.measures import Measure
from glue_bench.data.metrics import CONSTANT

RATIOS = frozenset({"loss", "share"})
"""What is measured of an encoder without a fine-tuning: a ratio of sums, predictions over labels."""
NEGLIGIBLE = 1e-12
"""A variance that is less than this share of its mean square is rounding."""


class Runs(NamedTuple):
    """Runs, (runs,) each: the index of the arm, both seeds, and the score in points, or in nats of a loss.

    Without pretraining of ours all `pretraining_seeds` are equal.
    """

    arms: np.ndarray
    pretraining_seeds: np.ndarray
    seeds: np.ndarray
    values: np.ndarray

    def of(self, arms: Sequence[int]) -> "Runs":
        """The runs of some of the arms, in the order of these."""
        chosen = [np.flatnonzero(self.arms == arm) for arm in arms] or [np.zeros(0, int)]
        index = np.repeat(np.arange(len(chosen)), [len(runs) for runs in chosen])
        return Runs(index, *(part[np.concatenate(chosen)] for part in self[1:]))

    @property
    def cells(self) -> np.ndarray:
        """A number for each arm and pretraining seed that has a run, (runs,), in the order of both."""
        return np.unique(
            np.stack([self.arms, self.pretraining_seeds]), axis=1, return_inverse=True
        )[1].ravel()

    def by_block(self) -> np.ndarray:
        """Means over fine-tuning seeds, (arms, pretraining seeds); every arm has every pretraining seed."""
        return (means_over(self.cells) @ self.values).reshape(self.arms.max() + 1, -1)

    def variances(self) -> tuple[np.ndarray, np.ndarray]:
        """The sample variance over each arm's runs, and their number, (arms,) each."""
        squares, number = _squares(self.arms, self.values)
        return squares / (number - 1), number

    @property
    def finetuning_seeds(self) -> float:
        """Fine-tuning seeds for each arm and pretraining seed: the harmonic mean, by which they divide a variance."""
        return float(1 / np.mean(1 / np.bincount(self.cells)))

    @property
    def finetuning_variance(self) -> float:
        """The variance of a run over fine-tuning seeds, pooled within arms and pretraining seeds; NaN of one seed."""
        squares, number = _squares(self.cells, self.values)
        freedom = (number - 1).sum()
        return float(squares.sum() / freedom) if freedom else np.nan


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The runs of one column, of all arms of an experiment, at the rates chosen; columns of one `task` share runs.

    `predictions` (runs, examples) and `labels` (examples,) are what the metric takes; of a ratio of two sums its
    numerators and denominators, by document or piece of text: summed loss and tokens of a "loss", hits and trials of a
    "share". `why` has the arms whose runs cannot be compared, and the reason; where it has all of them, both may be
    empty. `averaged` says whether the column counts in the average.
    """

    measure: Measure
    task: str
    arms: tuple[str, ...]
    runs: Runs
    predictions: np.ndarray
    labels: np.ndarray
    why: Mapping[str, str] = field(default_factory=dict)
    averaged: bool = True

    @property
    def column(self) -> str:
        """The name of the measure."""
        return self.measure.name

    @property
    def metric(self) -> str:
        """The metric of the measure."""
        return self.measure.metric

    def of(self, chosen: np.ndarray) -> "Outcomes":
        """Some of the runs: indices."""
        return replace(
            self,
            runs=Runs(*(part[chosen] for part in self.runs)),
            predictions=self.predictions[chosen],
        )


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


def example_variance(outcomes: Outcomes, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
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


def means_over(groups: np.ndarray) -> np.ndarray:
    """Weights (groups, runs) that make of values (runs, ...) the mean of each group, which has a run at least."""
    members = (np.arange(groups.max() + 1)[:, None] == groups).astype(float)
    return members / members.sum(axis=1, keepdims=True)


def effective_number(sizes: np.ndarray) -> float:
    """How many examples of equal size tell as much as these: (sum t)^2 / sum t^2 (Kish 1965)."""
    return float(np.square(sizes.sum(dtype=float)) / np.square(sizes, dtype=float).sum())


def _with_two(outcomes: Outcomes, *, better: bool) -> np.ndarray:
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


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    return np.divide(over, under, out=np.zeros_like(over), where=under > 0)


def _centred(values: np.ndarray) -> np.ndarray:
    """Rows (n, rows) around their mean, for sums that lose no digits; exactly 0 where metrics calls them constant."""
    scaled = values / np.maximum(1.0, np.abs(values).max(axis=1, keepdims=True))
    constant = np.ptp(scaled, axis=1, keepdims=True) <= CONSTANT
    return np.where(constant, 0.0, scaled - scaled.mean(axis=1, keepdims=True))


def _squares(groups: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of squares around the mean, and the number, of each group; all have a value."""
    number = np.bincount(groups)
    centres = np.bincount(groups, values) / number
    return np.bincount(groups, (values - centres[groups]) ** 2), number
