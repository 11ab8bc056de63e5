"""The runs of each column with their predictions, as the arrays that statistics compare."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.board.aggregation import main_scores
from glue_bench.board.board import Board
from glue_bench.data.measures import MEASURES, PRETRAINING_MEASURES
from glue_bench.data.metrics import decide
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.errors import UserError
from glue_bench.stats.runs import ColumnRuns, Runs

DIVERGED = "a run has diverged, or predicted another number of rows"
OTHER_PIECES = "it was measured on other pieces of text"
OTHER_EPOCH = "a run is reported after an earlier epoch than the last, of which its predictions are"
NO_LABELS = (
    "there are no gold labels beside the predictions: "
    "the same `glue-bench run` again adds them and runs no cell twice"
)


def read_outcomes(board: Board) -> Iterator[ColumnRuns]:
    """The runs of every column that has any, in the board's order; predictions are read as they are needed.

    Predictions of an arm that cannot be compared are zeros.
    """
    scores, results = main_scores(board.runs), board.results
    for column in board.columns:
        task, split = COLUMNS[column]
        runs = scores[(scores["task"] == task) & (scores["split"] == split)]
        if runs.empty:
            continue
        why: dict[str, str] = dict.fromkeys(runs.loc[~runs["last"], "arm"], OTHER_EPOCH)
        try:
            gold, problem = results.gold(task).get(split), NO_LABELS
        except UserError as error:
            gold, problem = None, str(error)
        if gold is None:
            why, gold = dict.fromkeys(runs["arm"], problem), np.empty(0)
        predictions = np.zeros(
            (len(runs), len(gold)), np.float64 if TASKS[task].is_regression else np.int64
        )
        for row, (arm, cell) in (
            enumerate(zip(runs["arm"], runs["cell_id"], strict=True)) if len(gold) else ()
        ):
            try:
                logits = results.logits(cell).get(split, np.empty((0, 1)))
            except UserError as error:
                why[arm] = str(error)
                continue
            if len(logits) == len(gold) and np.isfinite(logits).all():
                predictions[row] = decide(task, logits)
            else:
                why[arm] = DIVERGED
        yield _outcomes(board, column, runs, predictions=predictions, labels=gold, problems=why)


def read_measures(board: Board) -> Iterator[ColumnRuns]:
    """What the board's arms have learnt in pretraining, measured without a task: a run for each pretraining.

    Arms are compared on the same pieces of text.
    """
    done = board.results.pretrainings
    done = done[done["finished"] & ~done["is_search"] & done["arm"].isin(board.arms)]
    done = done.assign(pretraining_seed=done["seed"], seed=0)
    sums, damaged = list[dict[str, np.ndarray]](), dict[str, str]()
    for arm, name in zip(done["arm"], done["pretraining_id"], strict=True):
        try:
            sums.append(board.results.sums(name))
        except UserError as error:
            sums.append({})
            damaged[arm] = str(error)
    for measure in PRETRAINING_MEASURES:
        pieces = [each[measure] for each in sums if measure in each]
        if pieces:
            runs, counts = done[[measure in each for each in sums]], pieces[0][1]
            runs = runs.assign(
                value=[MEASURES[measure].factor * hits.sum() / own.sum() for hits, own in pieces]
            )
            same = np.array([np.array_equal(counts, own) for _, own in pieces])
            why = damaged | dict.fromkeys(runs.loc[~same, "arm"], OTHER_PIECES)
            hits = np.stack(
                [
                    hits if alike else 0.0 * counts
                    for (hits, _), alike in zip(pieces, same, strict=True)
                ]
            )
            yield _outcomes(board, measure, runs, predictions=hits, labels=counts, problems=why)


def _outcomes(board: Board, column: str, runs: pd.DataFrame, **facts: Any) -> ColumnRuns:
    """The runs of a column, with their arm, seeds and `value`; columns of one task share them."""
    arms = tuple(board.table["arm"])
    seeds = runs["pretraining_seed"].fillna(0).to_numpy(int)
    owners = runs["arm"].map(arms.index).to_numpy()
    return ColumnRuns(
        measure=MEASURES[column],
        task=COLUMNS[column][0] if column in COLUMNS else column,
        arms=arms,
        runs=Runs(owners, seeds, runs["seed"].to_numpy(), runs["value"].to_numpy()),
        averaged=column in board.average.parts,
        **facts,
    )
