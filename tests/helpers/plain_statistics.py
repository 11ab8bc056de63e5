"""The contrast of two arms once more, by loops over runs and examples: nothing here is taken from the package.

It follows docs/explanation/what-a-verdict-means.md, and leaves examples out one by one, where the package works with
sums.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float(np.mean(predictions == labels))


def correlation(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Pearson's, which is the Matthews correlation of classes 0 and 1."""
    return 100 * float(np.corrcoef(predictions, labels)[0, 1])


def loss(sums: np.ndarray, counts: np.ndarray) -> float:
    """Nats for each token, from the sums and counts of documents."""
    return float(np.sum(sums) / np.sum(counts))


def share(hits: np.ndarray, trials: np.ndarray) -> float:
    return 100 * float(np.sum(hits) / np.sum(trials))


@dataclass(frozen=True)
class PlainRun:
    """One run of a column: whose it is, its two seeds, and what it predicted."""

    arm: str
    pretraining: int
    seed: int
    predictions: np.ndarray


@dataclass(frozen=True)
class PlainColumn:
    """The runs of a column, with the metric that scores them and the lowest and highest value of that."""

    task: str
    metric: Callable[[np.ndarray, np.ndarray], float]
    limits: tuple[float, float]
    labels: np.ndarray
    runs: list[PlainRun]


@dataclass(frozen=True)
class PlainSpread:
    """Of each arm the variance of its mean over seeds, whether it is its own, and its degrees of freedom."""

    variance: dict[str, float]
    is_own: dict[str, bool]
    freedom: dict[str, float]
    pooled: float
    pooled_freedom: float


def mean_of_runs(values: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    """The mean over pretraining seeds of the means over their fine-tuning seeds; keys are both seeds."""
    by_pretraining: dict[int, list[np.ndarray]] = {}
    for (pretraining, _), value in values.items():
        by_pretraining.setdefault(pretraining, []).append(value)
    return np.mean([np.mean(each, axis=0) for each in by_pretraining.values()], axis=0)


def pseudo_values(column: PlainColumn, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What each example contributes, by leaving it out."""
    rows, whole = len(labels), column.metric(predictions, labels)
    without = [
        column.metric(np.delete(predictions, row), np.delete(labels, row)) for row in range(rows)
    ]
    return rows * whole - (rows - 1) * np.array(without)


def with_two_more(column: PlainColumn, predictions: np.ndarray, is_ahead: bool) -> np.ndarray:
    """Contributions with two examples more, on the first of which the run is as right, or as wrong, as it can be."""
    if column.metric is share:
        added, gold = [int(is_ahead), int(not is_ahead)], [1, 1]
    elif column.metric is correlation and len(np.unique(column.labels)) > 2:
        ends = [predictions.max(), predictions.min()]
        added, gold = ends if is_ahead else ends[::-1], [column.labels.max()] * 2
    else:
        added, gold = [int(is_ahead)] * 2, [1, 0]
    return pseudo_values(column, np.append(predictions, added), np.append(column.labels, gold))


def of_examples(column: PlainColumn, arm: str, reference: str) -> float:
    """V_ex of a column."""
    plain, ahead, behind = ({}, {}), ({}, {}), ({}, {})
    for run in column.runs:
        if run.arm in (arm, reference):
            side, key = int(run.arm == reference), (run.pretraining, run.seed)
            plain[side][key] = pseudo_values(column, run.predictions, column.labels)
            ahead[side][key] = with_two_more(column, run.predictions, True)
            behind[side][key] = with_two_more(column, run.predictions, False)
    rows = len(column.labels)
    variance = float(np.var(mean_of_runs(plain[0]) - mean_of_runs(plain[1]), ddof=1)) / rows
    if column.metric is loss:
        return variance
    first = np.var(mean_of_runs(ahead[0]) - mean_of_runs(behind[1])) / (rows + 2)
    second = np.var(mean_of_runs(ahead[1]) - mean_of_runs(behind[0])) / (rows + 2)
    return float(max(variance, first, second))


def of_both(column: PlainColumn, arm: str, reference: str) -> float:
    """What of V_ex the spread over seeds has, too."""
    contributions: dict[str, dict[tuple[int, int], np.ndarray]] = {arm: {}, reference: {}}
    for run in column.runs:
        if run.arm in contributions:
            key = (run.pretraining, run.seed)
            contributions[run.arm][key] = pseudo_values(column, run.predictions, column.labels)
    if len({run.pretraining for run in column.runs}) == 1:
        return sum(of_sum(np.stack(list(each.values()))) for each in contributions.values())
    differences = []
    for pretraining in sorted({run.pretraining for run in column.runs}):
        means = []
        for each in contributions.values():
            means.append(
                np.mean([value for key, value in each.items() if key[0] == pretraining], axis=0)
            )
        differences.append(means[0] - means[1])
    return of_sum(np.stack(differences))


def of_sum(values: np.ndarray) -> float:
    """The variance over seeds of what an example contributes, of the mean over these (seeds, examples)."""
    seeds, rows = values.shape
    by_example = [np.var(values[:, row] - values.mean(axis=1), ddof=1) for row in range(rows)]
    return float(np.sum(by_example) / (seeds * rows * (rows - 1)))


def larger(
    own: dict[str, float], pooled: float, seeds: dict[str, int], pooled_freedom: float
) -> PlainSpread:
    is_own = {arm: variance > pooled for arm, variance in own.items()}
    freedom = {
        arm: seeds[arm] - 1 if is_own[arm] and seeds[arm] > 2 else pooled_freedom for arm in own
    }
    variance = {arm: max(value, pooled) / seeds[arm] for arm, value in own.items()}
    return PlainSpread(variance, is_own, freedom, pooled, pooled_freedom)


def spreads_of(
    scores: dict[str, dict[tuple[str, int, int], float]], arms: tuple[str, ...]
) -> list[PlainSpread]:
    """From the scores of each task's runs: one spread for each task, or one over the blocks."""
    pretrainings = sorted({pretraining for runs in scores.values() for _, pretraining, _ in runs})
    if len(pretrainings) > 1:
        table = np.zeros((len(arms), len(pretrainings)))
        for runs in scores.values():
            for place in np.ndindex(table.shape):
                wanted = (arms[place[0]], pretrainings[place[1]])
                table[place] += np.mean([value for key, value in runs.items() if key[:2] == wanted])
        return [of_table(table, arms)]
    spreads = []
    for runs in scores.values():
        values = {arm: [value for key, value in runs.items() if key[0] == arm] for arm in arms}
        seeds = {arm: len(each) for arm, each in values.items()}
        freedom = sum(seeds.values()) - len(arms)
        squares = {
            arm: sum((value - np.mean(each)) ** 2 for value in each) for arm, each in values.items()
        }
        own = {arm: squares[arm] / (seeds[arm] - 1) for arm in arms}
        spreads.append(larger(own, sum(squares.values()) / freedom, seeds, freedom))
    return spreads


def of_table(table: np.ndarray, arms: tuple[str, ...]) -> PlainSpread:
    """The spread over blocks of means (arms, blocks)."""
    number, blocks = table.shape
    residuals = np.zeros_like(table)
    for arm, block in np.ndindex(table.shape):
        residuals[arm, block] = (
            table[arm, block] - table[arm].mean() - table[:, block].mean() + table.mean()
        )
    freedom = (number - 1) * (blocks - 1)
    pooled = float(np.sum(residuals**2) / freedom)
    own = dict.fromkeys(arms, pooled)
    if number > 2:
        for place, arm in enumerate(arms):
            mean_square = float(np.sum(residuals[place] ** 2)) / (blocks - 1)
            own[arm] = (mean_square - pooled / number) / (1 - 2 / number)
    return larger(own, pooled, dict.fromkeys(arms, blocks), freedom)


def contrast(
    columns: list[PlainColumn], arm: str, reference: str, arms: tuple[str, ...], family: int
) -> dict[str, float]:
    """The difference in a column, or in the mean of several, with its interval and p-values by Bonferroni's method."""
    number = len(columns)
    scores: dict[str, dict[tuple[str, int, int], float]] = {}
    for column in columns:
        of_task = scores.setdefault(column.task, {})
        for run in column.runs:
            key = (run.arm, run.pretraining, run.seed)
            of_task[key] = (
                of_task.get(key, 0.0) + column.metric(run.predictions, column.labels) / number
            )
    means = {}
    for name in (arm, reference):
        of_tasks = []
        for runs in scores.values():
            of_tasks.append(
                mean_of_runs({key[1:]: value for key, value in runs.items() if key[0] == name})
            )
        means[name] = float(np.sum(of_tasks))
    spreads = spreads_of(scores, arms)
    examples = sum(of_examples(column, arm, reference) for column in columns) / number**2
    both = sum(of_both(column, arm, reference) for column in columns) / number**2
    total = sum(spread.variance[name] for spread in spreads for name in (arm, reference))
    variance = examples + max(0.0, total - both)
    squares = 0.0
    for spread in spreads:
        together, alone = 0.0, 0.0
        for name in (arm, reference):
            if spread.is_own[name]:
                alone += spread.variance[name] ** 2 / spread.freedom[name]
            else:
                together += spread.variance[name]
        parts = together**2 / spread.pooled_freedom + alone
        squares += max(
            parts, (spread.variance[arm] + spread.variance[reference]) ** 2 / spread.pooled_freedom
        )
    pooled_freedom = sum(spread.pooled_freedom for spread in spreads)
    weight = (t.ppf(0.975, pooled_freedom) / norm.ppf(0.975)) ** 2 if pooled_freedom <= 4 else 1.0
    squares *= weight**2
    if (
        columns[0].metric is loss
    ):  # few documents are few degrees of freedom: as many as of equal size, less one
        counts = columns[0].labels
        squares += examples**2 / (np.sum(counts) ** 2 / np.sum(counts**2) - 1)
    freedom = (examples + max(0.0, weight * total - both)) ** 2 / squares
    difference, error = means[arm] - means[reference], math.sqrt(variance)
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
