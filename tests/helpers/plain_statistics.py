"""The contrast of two arms once more, by loops over runs and examples: nothing here is taken from
the package.

It follows docs/explanation/what-a-verdict-means.md, and leaves examples out one by one, where the
package works with sums.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float(np.mean(predictions == labels))


def correlation(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Pearson's correlation, which is the Matthews correlation of classes 0 and 1."""
    return 100 * float(np.corrcoef(predictions, labels)[0, 1])


def loss(sums: np.ndarray, counts: np.ndarray) -> float:
    """Return nats for each token, from the sums and counts of documents."""
    return float(np.sum(sums) / np.sum(counts))


def share(hits: np.ndarray, trials: np.ndarray) -> float:
    return 100 * float(np.sum(hits) / np.sum(trials))


@dataclass(frozen=True)
class PlainRun:
    """One run of a column: its arm, its two seeds, and its predictions."""

    arm: str
    pretraining: int
    seed: int
    predictions: np.ndarray


@dataclass(frozen=True)
class PlainColumn:
    """The runs of a column, the metric that scores them, and the metric's lowest and highest
    value.
    """

    task: str
    metric: Callable[[np.ndarray, np.ndarray], float]
    limits: tuple[float, float]
    labels: np.ndarray
    runs: list[PlainRun]


@dataclass(frozen=True)
class PlainSpread:
    """The variance of each arm's mean over seeds, whether it is its own, and its degrees of
    freedom.
    """

    variance: dict[str, float]
    is_own: dict[str, bool]
    freedom: dict[str, float]
    pooled: float
    pooled_freedom: float


def mean_of_runs(values: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    """Return the mean over pretraining seeds of the means over their fine-tuning seeds.

    The keys are both seeds.
    """
    by_pretraining: dict[int, list[np.ndarray]] = {}
    for (pretraining, _), value in values.items():
        by_pretraining.setdefault(pretraining, []).append(value)
    return np.mean([np.mean(runs, axis=0) for runs in by_pretraining.values()], axis=0)


def pseudo_values(column: PlainColumn, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return what each example contributes, by leaving it out."""
    rows = len(labels)
    without = np.zeros(rows)
    for row in range(rows):
        without[row] = column.metric(np.delete(predictions, row), np.delete(labels, row))
    return rows * column.metric(predictions, labels) - (rows - 1) * without


def with_two_more(column: PlainColumn, predictions: np.ndarray, *, is_ahead: bool) -> np.ndarray:
    """Return contributions with two examples more.

    On the first of them the run is as right, or as wrong, as it can be.
    """
    if column.metric is share:
        added = [int(is_ahead), int(not is_ahead)]
        gold = [1, 1]
    elif column.metric is correlation and len(np.unique(column.labels)) > 2:
        ends = [predictions.max(), predictions.min()]
        added = ends if is_ahead else ends[::-1]
        gold = [column.labels.max()] * 2
    else:
        added = [int(is_ahead)] * 2
        gold = [1, 0]
    return pseudo_values(column, np.append(predictions, added), np.append(column.labels, gold))


def of_examples(column: PlainColumn, arm: str, reference: str) -> float:
    """Return V_ex of a column."""
    plain = ({}, {})
    ahead = ({}, {})
    behind = ({}, {})
    for run in column.runs:
        if run.arm in (arm, reference):
            side = int(run.arm == reference)
            key = (run.pretraining, run.seed)
            plain[side][key] = pseudo_values(column, run.predictions, column.labels)
            ahead[side][key] = with_two_more(column, run.predictions, is_ahead=True)
            behind[side][key] = with_two_more(column, run.predictions, is_ahead=False)
    rows = len(column.labels)
    variance = float(np.var(mean_of_runs(plain[0]) - mean_of_runs(plain[1]), ddof=1)) / rows
    if column.metric is loss:
        return variance
    first = np.var(mean_of_runs(ahead[0]) - mean_of_runs(behind[1])) / (rows + 2)
    second = np.var(mean_of_runs(ahead[1]) - mean_of_runs(behind[0])) / (rows + 2)
    return float(max(variance, first, second))


def of_both(column: PlainColumn, arm: str, reference: str) -> float:
    """Return the part of V_ex that the spread over seeds has, too."""
    contributions: dict[str, dict[tuple[int, int], np.ndarray]] = {arm: {}, reference: {}}
    for run in column.runs:
        if run.arm in contributions:
            key = (run.pretraining, run.seed)
            contributions[run.arm][key] = pseudo_values(column, run.predictions, column.labels)
    if len({run.pretraining for run in column.runs}) == 1:
        return sum(of_sum(np.stack(list(pieces.values()))) for pieces in contributions.values())
    differences: list[np.ndarray] = []
    for pretraining in sorted({run.pretraining for run in column.runs}):
        means: list[np.ndarray] = []
        for pieces in contributions.values():
            values = [value for key, value in pieces.items() if key[0] == pretraining]
            means.append(np.mean(values, axis=0))
        differences.append(means[0] - means[1])
    return of_sum(np.stack(differences))


def of_sum(values: np.ndarray) -> float:
    """Return the variance over seeds of an example's contribution to the mean over these (seeds,
    examples).
    """
    seeds, rows = values.shape
    by_example = [np.var(values[:, row] - values.mean(axis=1), ddof=1) for row in range(rows)]
    return float(np.sum(by_example) / (seeds * rows * (rows - 1)))


def larger(
    own_variances: dict[str, float], pooled: float, seeds: dict[str, int], pooled_freedom: float
) -> PlainSpread:
    """Return the spread in which each arm has the larger of its own variance and the pooled one."""
    is_own = {arm: variance > pooled for arm, variance in own_variances.items()}
    variance: dict[str, float] = {}
    freedom: dict[str, float] = {}
    for arm, own_variance in own_variances.items():
        variance[arm] = max(own_variance, pooled) / seeds[arm]
        has_own_freedom = is_own[arm] and seeds[arm] > 2
        freedom[arm] = seeds[arm] - 1 if has_own_freedom else pooled_freedom
    return PlainSpread(variance, is_own, freedom, pooled, pooled_freedom)


Scores = dict[tuple[str, int, int], float]
"""The scores of a task's runs, by arm, pretraining seed and seed."""


def spreads_of(scores: dict[str, Scores], arms: tuple[str, ...]) -> list[PlainSpread]:
    """Return one spread for each task, or one over the blocks of several pretrainings."""
    pretrainings = sorted({pretraining for runs in scores.values() for _, pretraining, _ in runs})
    if len(pretrainings) > 1:
        table = np.zeros((len(arms), len(pretrainings)))
        for runs in scores.values():
            for place in np.ndindex(table.shape):
                pair = (arms[place[0]], pretrainings[place[1]])
                table[place] += np.mean([value for key, value in runs.items() if key[:2] == pair])
        return [of_table(table, arms)]
    return [of_task(runs, arms) for runs in scores.values()]


def of_task(runs: Scores, arms: tuple[str, ...]) -> PlainSpread:
    """Return the spread over the seeds of one task."""
    seeds: dict[str, int] = {}
    squares: dict[str, float] = {}
    for arm in arms:
        values = np.array([value for key, value in runs.items() if key[0] == arm])
        seeds[arm] = len(values)
        squares[arm] = float(np.sum((values - values.mean()) ** 2))
    freedom = sum(seeds.values()) - len(arms)
    own_variances = {arm: squares[arm] / (seeds[arm] - 1) for arm in arms}
    return larger(own_variances, sum(squares.values()) / freedom, seeds, freedom)


def of_table(table: np.ndarray, arms: tuple[str, ...]) -> PlainSpread:
    """Return the spread over blocks of means (arms, blocks)."""
    number, blocks = table.shape
    residuals = np.zeros_like(table)
    for arm, block in np.ndindex(table.shape):
        expected = table[arm].mean() + table[:, block].mean() - table.mean()
        residuals[arm, block] = table[arm, block] - expected
    freedom = (number - 1) * (blocks - 1)
    pooled = float(np.sum(residuals**2) / freedom)
    spreads = dict.fromkeys(arms, pooled)
    if number > 2:
        for place, arm in enumerate(arms):
            mean_square = float(np.sum(residuals[place] ** 2)) / (blocks - 1)
            spreads[arm] = (mean_square - pooled / number) / (1 - 2 / number)
    return larger(spreads, pooled, dict.fromkeys(arms, blocks), freedom)


def scores_of(columns: list[PlainColumn]) -> dict[str, Scores]:
    """Return by task the scores of its runs, divided by the number of columns."""
    scores: dict[str, Scores] = {}
    for column in columns:
        runs = scores.setdefault(column.task, {})
        for run in column.runs:
            key = (run.arm, run.pretraining, run.seed)
            score = column.metric(run.predictions, column.labels) / len(columns)
            runs[key] = runs.get(key, 0.0) + score
    return scores


def mean_of_arm(scores: dict[str, Scores], arm: str) -> float:
    """Return the sum over tasks of an arm's mean scores."""
    means: list[np.ndarray] = []
    for runs in scores.values():
        own_runs = {key[1:]: value for key, value in runs.items() if key[0] == arm}
        means.append(mean_of_runs(own_runs))
    return float(np.sum(means))


def squares_of(spread: PlainSpread, arm: str, reference: str) -> float:
    """Return the squared variance of a difference over its degrees of freedom."""
    pooled = 0.0
    parts = 0.0
    for name in (arm, reference):
        if spread.is_own[name]:
            parts += spread.variance[name] ** 2 / spread.freedom[name]
        else:
            pooled += spread.variance[name]
    parts += pooled**2 / spread.pooled_freedom
    total = spread.variance[arm] + spread.variance[reference]
    return max(parts, total**2 / spread.pooled_freedom)


def contrast(
    columns: list[PlainColumn], arm: str, reference: str, arms: tuple[str, ...], family: int
) -> dict[str, float]:
    """Return the difference in a column, or in the mean of several, with its interval and p-values.

    The p-values are adjusted by Bonferroni's method.
    """
    number = len(columns)
    scores = scores_of(columns)

    spreads = spreads_of(scores, arms)
    examples = sum(of_examples(column, arm, reference) for column in columns) / number**2
    shared = sum(of_both(column, arm, reference) for column in columns) / number**2
    total = sum(spread.variance[arm] + spread.variance[reference] for spread in spreads)

    weight = weight_of_few(sum(spread.pooled_freedom for spread in spreads))
    squares = weight**2 * sum(squares_of(spread, arm, reference) for spread in spreads)
    squares += squares_of_documents(columns[0], examples)
    freedom = (examples + max(0.0, weight * total - shared)) ** 2 / squares

    difference = mean_of_arm(scores, arm) - mean_of_arm(scores, reference)
    error = math.sqrt(examples + max(0.0, total - shared))
    half = float(t.ppf(1 - 0.025 / family, freedom)) * error
    widest = float(np.mean([column.limits[1] - column.limits[0] for column in columns]))

    p = 2 * float(t.sf(abs(difference) / error, freedom))

    return {
        "difference": difference,
        "error": error,
        "freedom": freedom,
        "low": max(difference - half, -widest),
        "high": min(difference + half, widest),
        "smallest": half,
        "p": p,
        "p_adjusted": min(1.0, family * p),
    }


def weight_of_few(freedom: float) -> float:
    """Return the factor of a variance over seeds that has at most four degrees of freedom."""
    if freedom > 4:
        return 1.0
    return float(t.ppf(0.975, freedom) / norm.ppf(0.975)) ** 2


def squares_of_documents(column: PlainColumn, examples: float) -> float:
    """Return the squared variance of a loss over documents, over their degrees of freedom.

    Few documents are few degrees of freedom: as many as of equal size, less one.
    """
    if column.metric is not loss:
        return 0.0
    counts = column.labels
    return float(examples**2 / (np.sum(counts) ** 2 / np.sum(counts**2) - 1))
