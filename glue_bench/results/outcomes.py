"""What each run of a leaderboard column got right: scores, stored predictions and gold labels, a column at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.benchmark.metrics import decide
from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.results.board import Board
from glue_bench.results.encoders import BlockKey, blocks_of
from glue_bench.results.protocol import at_rates, main_scores

NO_LABELS = (
    "there are no gold labels beside the predictions: the same `glue-bench run` again adds them and runs no cell twice"
)
KEY = ["arm", "task", "learning_rate", "seed"]


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


def read_outcomes(store: Store, board: Board) -> Iterator[Outcomes]:
    """The outcomes of every column, block by block, in the board's order; predictions are read as they are needed."""
    digests = {record["cell_id"]: record["data"]["digest"] for record in store.scan_records()[0]}
    scores = main_scores(at_rates(board.results.scores, board.rates))
    for key, block in blocks_of(board.table):
        arms = tuple(block["arm"])
        for column in board.columns:
            task, split = COLUMNS[column]
            mine = scores[(scores["task"] == task) & (scores["split"] == split) & scores["arm"].isin(arms)]
            runs = mine.merge(board.results.cells[[*KEY, "cell_id"]], on=KEY)
            runs = runs.assign(owner=runs["arm"].map(arms.index)).sort_values(["owner", "seed"])
            if len(runs):
                yield _with_predictions(_scored(key, column, arms, runs), runs, store, digests)


def _scored(block: BlockKey, column: str, arms: tuple[str, ...], runs: pd.DataFrame) -> Outcomes:
    return Outcomes(
        block=block,
        column=column,
        arms=arms,
        owners=runs["owner"].to_numpy(),
        seeds=runs["seed"].to_numpy(),
        scores=runs["value"].to_numpy(),
    )


def _with_predictions(outcomes: Outcomes, runs: pd.DataFrame, store: Store, digests: Mapping[str, Any]) -> Outcomes:
    split = COLUMNS[outcomes.column][1]
    data = {digests[cell] for cell in runs["cell_id"]}
    if len(data) > 1:
        return replace(outcomes, why="its runs were made on different data")
    if not all(store.has_predictions(cell) for cell in runs["cell_id"]):
        return replace(outcomes, why="the predictions of a run are missing")
    try:
        labels = store.read_labels(outcomes.task, data.pop()).get(split)
        logits = [store.read_predictions(cell).get(split, np.empty((0, 1))) for cell in runs["cell_id"]]
    except UserError as error:
        return replace(outcomes, why=str(error))
    if labels is None:
        return replace(outcomes, why=NO_LABELS)
    if any(len(rows) != len(labels) or not np.isfinite(rows).all() for rows in logits):
        return replace(outcomes, why="a run has diverged, or predicted another number of rows")
    return replace(outcomes, predictions=np.stack([decide(outcomes.task, rows) for rows in logits]), labels=labels)
