"""What each run of a leaderboard column got right: scores, predictions and gold labels, as arrays."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.values import BlockKey


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The runs of one column within one block (an origin and a shape), at the rates chosen.

    `scores` are of the main metric, in points (0 to 100): (runs,); `owners` says whose each run is, an index into
    `arms`, and `seeds` which: both (runs,), ordered by arm, then seed. `predictions` (runs, rows) and `labels`
    (rows,) are empty where something is missing, and `why` says what.
    """

    block: BlockKey
    column: str
    arms: tuple[str, ...]
    owners: np.ndarray
    seeds: np.ndarray
    scores: np.ndarray
    predictions: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    labels: np.ndarray = field(default_factory=lambda: np.empty(0))
    why: str = ""

    @property
    def task(self) -> str:
        """The column's task; the two columns of MNLI share one, and its runs."""
        return COLUMNS[self.column][0]

    @property
    def metric(self) -> str:
        """The main metric."""
        return TASKS[self.task].metrics[0]

    @property
    def rows(self) -> int:
        """How many examples there are; 0 where predictions or labels are missing."""
        return len(self.labels)

    @cached_property
    def runs(self) -> dict[str, np.ndarray]:
        """Which runs are each arm's: indices."""
        return {arm: np.flatnonzero(self.owners == index) for index, arm in enumerate(self.arms)}

    def without_examples(self) -> "Outcomes":
        """The same runs, without what takes memory."""
        return replace(self, predictions=np.empty((0, 0)), labels=np.empty(0))

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The seeds of an arm's finished runs; none of an arm that this block has not."""
        return tuple(int(seed) for seed in self.seeds[self.runs[arm]]) if arm in self.runs else ()
