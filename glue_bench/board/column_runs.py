"""The runs of each column with their predictions, as the arrays that statistics compare."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.board.aggregation import main_scores
from glue_bench.board.board import Board
from glue_bench.config import FINISHED
from glue_bench.data.measures import MEASURES, PRETRAINING_MEASURES
from glue_bench.data.metrics import decide
from glue_bench.data.tasks import find_task, scored_columns
from glue_bench.errors import UserError
from glue_bench.stats.runs import ColumnRuns, Runs

DIVERGED = "a run has diverged, or predicted another number of rows"
OTHER_PIECES = "it was measured on other pieces of text"
OTHER_EPOCH = (
    "a run is reported after an earlier epoch, but its predictions are from the last epoch"
)
NO_LABELS = (
    "there are no gold labels beside the predictions: "
    "the same `glue-bench run` again adds them and runs no cell twice"
)


def read_outcomes(board: Board) -> Iterator[ColumnRuns]:
    """Yield the runs of each task's column, in the order of the board.

    A column without runs is left out. Predictions are read when the iterator reaches their column.
    An arm that cannot be compared has zeros as predictions.
    """
    scores = main_scores(board.runs)
    columns = scored_columns()
    for column in board.columns:
        task, split = columns[column]
        is_task = scores["task"] == task
        is_split = scores["split"] == split
        is_of_column = is_task & is_split
        runs = scores[is_of_column]
        if len(runs):
            yield _read_task(board, column, runs)


def _read_task(board: Board, column: str, runs: pd.DataFrame) -> ColumnRuns:
    """Return the runs of a task's column with their predictions."""
    task, split = scored_columns()[column]
    try:
        gold_by_split = board.results.gold(task)
        gold = gold_by_split.get(split)
        problem = NO_LABELS
    except UserError as error:
        gold = None
        problem = str(error)

    number_type = np.float64 if find_task(task).is_regression else np.int64
    if gold is None:
        nothing = np.zeros((len(runs), 0), number_type)
        problems = dict.fromkeys(runs["arm"], problem)
        return _column_runs(
            board, column, runs, predictions=nothing, labels=np.empty(0), problems=problems
        )

    earlier_runs = runs[~runs["last"]]
    problems = dict.fromkeys(earlier_runs["arm"], OTHER_EPOCH)
    predictions = np.zeros((len(runs), len(gold)), number_type)

    for row, (arm, cell_id) in enumerate(zip(runs["arm"], runs["cell_id"], strict=True)):
        try:
            logits = board.results.logits(cell_id).get(split, np.empty((0, 1)))
        except UserError as error:
            problems[arm] = str(error)
            continue
        if len(logits) == len(gold) and np.isfinite(logits).all():
            predictions[row] = decide(task, logits)
        else:
            problems[arm] = DIVERGED

    return _column_runs(
        board,
        column,
        runs,
        predictions=predictions,
        labels=gold,
        problems=problems,
        clusters=board.results.clusters(task).get(split),
    )


def read_measure_runs(board: Board) -> Iterator[ColumnRuns]:
    """Yield the runs of each measure of pretraining: a run is a finished pretraining.

    Arms are compared on the same pieces of text, the pieces of the first pretraining.
    """
    pretrainings = board.results.pretrainings
    is_counted = pretrainings["finished"] & ~pretrainings["is_search"]
    is_shown = pretrainings["arm"].isin(board.arms)
    is_compared = is_counted & is_shown
    pretrainings = pretrainings[is_compared]
    pretrainings = pretrainings.assign(pretraining_seed=pretrainings["seed"], seed=0)

    sums_by_run: list[dict[str, np.ndarray]] = []
    damaged: dict[str, str] = {}
    for arm, name in zip(pretrainings["arm"], pretrainings["pretraining_id"], strict=True):
        try:
            sums_of_run = board.results.sums(name)
            sums_by_run.append(sums_of_run)
        except UserError as error:
            sums_by_run.append({})
            damaged[arm] = str(error)

    for measure in PRETRAINING_MEASURES:
        is_measured = [measure in sums for sums in sums_by_run]
        if any(is_measured):
            sums_of_measure = [sums[measure] for sums in sums_by_run if measure in sums]
            runs = pretrainings[is_measured]
            yield _read_measure(board, measure, runs, sums_of_measure, damaged)


def _read_measure(
    board: Board,
    measure: str,
    runs: pd.DataFrame,
    sums: list[np.ndarray],
    damaged: dict[str, str],
) -> ColumnRuns:
    """Return the runs of a measure. `sums` has the numerators and denominators of each run.

    Each of them is an array of the shape (2, pieces).
    """
    counts = sums[0][1]
    problems = dict(damaged)
    factor = MEASURES[measure].factor

    values: list[float] = []
    predictions: list[np.ndarray] = []
    for arm, (numerators, denominators) in zip(runs["arm"], sums, strict=True):
        total = factor * numerators.sum()
        value = total / denominators.sum()
        values.append(value)
        if np.array_equal(counts, denominators):
            predictions.append(numerators)
        else:
            predictions.append(0.0 * counts)
            problems[arm] = OTHER_PIECES

    return _column_runs(
        board,
        measure,
        runs.assign(value=values),
        predictions=np.stack(predictions),
        labels=counts,
        problems=problems,
    )


def _column_runs(board: Board, column: str, runs: pd.DataFrame, **facts: Any) -> ColumnRuns:
    """Turn a frame of runs, with their arm, seeds and `value`, into arrays.

    `facts` are the other fields of ColumnRuns. The columns of one task share their runs.
    """
    arms = tuple(board.table["arm"])
    task, _ = scored_columns().get(column, (column, ""))
    is_finished = board.table["origin"] == FINISHED
    finished_arms = board.table.loc[is_finished, "arm"]
    places = runs["arm"].map(arms.index)
    pretraining_seeds = runs["pretraining_seed"].fillna(0)

    arrays = Runs(
        arms=places.to_numpy(),
        pretraining_seeds=pretraining_seeds.to_numpy(int),
        seeds=runs["seed"].to_numpy(),
        values=runs["value"].to_numpy(),
    )
    return ColumnRuns(
        measure=MEASURES[column],
        task=task,
        arms=arms,
        runs=arrays,
        averaged=column in board.average.parts,
        finished_arms=frozenset(finished_arms),
        **facts,
    )
