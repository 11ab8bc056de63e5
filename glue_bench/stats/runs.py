"""The runs of one column: which arm each belongs to, its seeds, its score and its predictions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from glue_bench.data.measures import Measure


class Runs(NamedTuple):
    """The scores of runs, as arrays of the shape (runs,).

    Attributes:
        arms: The index of the arm that a run belongs to.
        pretraining_seeds: The pretraining seed. All are equal if none of our pretrainings is used.
        seeds: The fine-tuning seed.
        values: The score in points (0 to 100), or in nats if the column is a loss.
    """

    arms: np.ndarray
    pretraining_seeds: np.ndarray
    seeds: np.ndarray
    values: np.ndarray

    def for_arms(self, arms: Sequence[int]) -> "Runs":
        """Return the runs of these arms, which get the indices 0, 1, ... in the order given."""
        rows_by_arm = [np.flatnonzero(self.arms == arm) for arm in arms]
        counts = np.array([len(rows) for rows in rows_by_arm], dtype=int)
        # With the empty array the result is an array of indices even if there is no arm.
        rows = np.concatenate([*rows_by_arm, np.zeros(0, int)])
        return Runs(
            arms=np.repeat(np.arange(len(arms)), counts),
            pretraining_seeds=self.pretraining_seeds[rows],
            seeds=self.seeds[rows],
            values=self.values[rows],
        )

    @property
    def cells(self) -> np.ndarray:
        """Return the number of each run's pair of arm and pretraining seed, (runs,).

        Only pairs with a run have a number. The numbers rise by arm, and within an arm by
        pretraining seed.
        """
        pairs = np.stack([self.arms, self.pretraining_seeds])
        _, numbers = np.unique(pairs, axis=1, return_inverse=True)
        return numbers.ravel()

    def by_block(self) -> np.ndarray:
        """Return the means over fine-tuning seeds, (arms, pretraining seeds).

        Every arm must have a run of every pretraining seed.
        """
        weights = mean_weights(self.cells)
        means = weights @ self.values
        arms = self.arms.max() + 1
        return means.reshape(arms, -1)

    def variances(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sample variance over each arm's runs, and their number, both (arms,)."""
        squares, counts = squares_within(self.arms, self.values)
        return squares / (counts - 1), counts

    @property
    def finetuning_seeds(self) -> float:
        """Return the harmonic mean of the fine-tuning seeds of each arm and pretraining seed.

        The variance of a mean of n runs is the variance of one run divided by n. So the values 1 /
        n are averaged.
        """
        seeds = np.bincount(self.cells)
        mean_inverse = np.mean(1 / seeds)
        return float(1 / mean_inverse)

    @property
    def finetuning_variance(self) -> float:
        """Return the variance of a run over fine-tuning seeds; NaN if no cell has two of them.

        It is pooled over pairs of arm and pretraining seed: the sum of squares within them, divided
        by the sum of their degrees of freedom.
        """
        squares, counts = squares_within(self.cells, self.values)
        freedom = (counts - 1).sum()
        return float(squares.sum() / freedom) if freedom else np.nan


@dataclass(frozen=True, kw_only=True)
class ColumnRuns:
    """The runs of one column, for all arms of an experiment, at the chosen learning rates.

    Attributes:
        measure: What the column measures.
        task: The task; columns of one task share their runs.
        arms: The names of the arms.
        runs: The scores.
        predictions: The input of the metric, (runs, examples). For a ratio of two sums it is the
            numerators by document or piece of text: the summed loss of a "loss", the hits of a
            "share".
        labels: Gold labels, (examples,). For a ratio they are the denominators: the tokens of a
            "loss", the trials of a "share".
        problems: The reason, by arm, why the runs of the arm cannot be compared. If all arms have
            one, `predictions` and `labels` may be empty.
        averaged: Whether the column counts in the average.
        clusters: The number of each example's cluster, (examples,), where some examples share a
            text. Every number up to the largest occurs.
        single_runs: Whether each arm has one run, whose interval covers other examples alone.
        finished_arms: The arms whose model is finished: no seed decides its score. A group in which
            all arms are finished is compared as single runs are.
    """

    measure: Measure
    task: str
    arms: tuple[str, ...]
    runs: Runs
    predictions: np.ndarray
    labels: np.ndarray
    problems: Mapping[str, str] = field(default_factory=dict)
    averaged: bool = True
    clusters: np.ndarray | None = None
    single_runs: bool = False
    finished_arms: frozenset[str] = frozenset()

    @property
    def column(self) -> str:
        """Return the name of the measure."""
        return self.measure.name

    @property
    def metric(self) -> str:
        """Return the metric of the measure."""
        return self.measure.metric

    @property
    def independent_examples(self) -> int:
        """Return the number of examples, or of their clusters."""
        if self.clusters is None:
            return len(self.labels)
        return len(np.unique(self.clusters))

    def has_single_runs(self, arms: Collection[str]) -> bool:
        """Return whether these arms are compared by their examples alone."""
        return self.single_runs or self.finished_arms.issuperset(arms)

    def subset(self, rows: np.ndarray) -> "ColumnRuns":
        """Return the runs with these indices."""
        values = [column[rows] for column in self.runs]
        predictions = self.predictions[rows]
        return replace(self, runs=Runs(*values), predictions=predictions)


def mean_weights(groups: np.ndarray) -> np.ndarray:
    """Return the weights (groups, runs) that turn values (runs, ...) into the mean of each group.

    `groups` (runs,) has the number of each run's group. Every number up to the largest must occur.
    """
    numbers = np.arange(groups.max() + 1)
    is_member = numbers[:, None] == groups
    members = is_member.astype(float)
    sizes = members.sum(axis=1, keepdims=True)
    return members / sizes


def squares_within(groups: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each group's sum of squares around its mean, and its size, both (groups,).

    `groups` (runs,) has the number of each run's group. Every number up to the largest must occur.
    """
    counts = np.bincount(groups)
    means = np.bincount(groups, values) / counts
    residuals = values - means[groups]
    squares = residuals**2
    return np.bincount(groups, squares), counts


def effective_number(sizes: np.ndarray) -> float:
    """Return the number of equally large examples that tell as much as examples of these sizes.

    It is (sum t)^2 / sum t^2 (Kish 1965), where t are the `sizes` (examples,).
    """
    total = sizes.sum(dtype=float)
    squares = np.square(sizes, dtype=float)
    number = np.square(total) / squares.sum()
    return float(number)
