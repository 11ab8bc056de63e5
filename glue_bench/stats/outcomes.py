"""What the runs of one column are: whose they are, their scores, and what they made of each example."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

LIMITS = {
    "accuracy": (0.0, 100.0),
    "matthews_correlation": (-100.0, 100.0),
    "pearson": (-100.0, 100.0),
    "share": (0.0, 100.0),
    "loss": (-np.inf, np.inf),
}
"""The lowest and the highest value of each metric, in its unit: points, or nats of a loss (which is below no limit)."""
LOWEST_IS_BEST = frozenset({"loss"})
AVERAGE = "average"
"""The column of the mean over the leaderboard columns that are there, without WNLI: `averaged` says which count."""


def unit_of(metric: str) -> float:
    """By what a metric's value is multiplied in tables: they show points of all but losses, which are in nats."""
    return 1.0 if metric == "loss" else 100.0


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The runs of one column, of all arms of an experiment, at the rates chosen.

    `scores` (runs,) are in points (0 to 100), or in nats where the metric is a loss. `owners` (runs,) says whose each
    run is, an index into `arms`; `pretraining_seeds` and `seeds` (runs,) say which run it is. Without pretraining of
    ours all pretraining seeds are equal. Runs of columns of one `task` are the same runs.

    `predictions` (runs, examples) and `labels` (examples,) are what the metric takes. For a metric that is a ratio of
    two sums, they are its numerator and its denominator, by the document or piece of text: of a "loss" the summed loss
    and the number of tokens, of a "share" the hits and the trials. Both are empty where nothing is known of single
    examples, and the intervals then cover seeds alone. `why` has the arms whose runs cannot be compared, and the
    reason. `averaged` says whether the column counts in the average.
    """

    column: str
    task: str
    metric: str
    arms: tuple[str, ...]
    owners: np.ndarray
    pretraining_seeds: np.ndarray
    seeds: np.ndarray
    scores: np.ndarray
    predictions: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    labels: np.ndarray = field(default_factory=lambda: np.empty(0))
    why: Mapping[str, str] = field(default_factory=dict)
    averaged: bool = True

    def of(self, chosen: np.ndarray) -> "Outcomes":
        """Some of the runs: indices."""
        parts = {
            name: getattr(self, name)[chosen]
            for name in ("owners", "pretraining_seeds", "seeds", "scores", "predictions")
            if len(getattr(self, name))
        }
        return replace(self, **parts)
