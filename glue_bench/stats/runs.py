"""The runs of one column: which arm each belongs to, its seeds, its score and its predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from glue_bench.data.measures import Measure


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
class ColumnRuns:
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

    def of(self, chosen: np.ndarray) -> "ColumnRuns":
        """Some of the runs: indices."""
        return replace(
            self,
            runs=Runs(*(part[chosen] for part in self.runs)),
            predictions=self.predictions[chosen],
        )


def means_over(groups: np.ndarray) -> np.ndarray:
    """Weights (groups, runs) that make of values (runs, ...) the mean of each group, which has a run at least."""
    members = (np.arange(groups.max() + 1)[:, None] == groups).astype(float)
    return members / members.sum(axis=1, keepdims=True)


def effective_number(sizes: np.ndarray) -> float:
    """How many examples of equal size tell as much as these: (sum t)^2 / sum t^2 (Kish 1965)."""
    return float(np.square(sizes.sum(dtype=float)) / np.square(sizes, dtype=float).sum())


def _squares(groups: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of squares around the mean, and the number, of each group; all have a value."""
    number = np.bincount(groups)
    centres = np.bincount(groups, values) / number
    return np.bincount(groups, (values - centres[groups]) ** 2), number
