"""Which arms of an experiment can be told apart: stored predictions are read and resampled once, for every table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.benchmark.metrics import decide
from glue_bench.benchmark.tasks import COLUMNS
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.reporting.numbers import number
from glue_bench.results.board import RANKED_BY, Board, make_board
from glue_bench.results.encoders import blocks_of
from glue_bench.results.protocol import SEEDS, at_rates, main_scores
from glue_bench.stats.measures import AVERAGE
from glue_bench.stats.outcomes import Outcomes
from glue_bench.stats.pairs import AssessedBlock, assess, compare
from glue_bench.stats.resampling import RESAMPLES
from glue_bench.stats.ties import ranks_frame, tied_best

Leaders = Mapping[str, AbstractSet[str]]
HIGHEST = "Bold is the best of a column within its block"
KEY = ["arm", "task", "learning_rate", *SEEDS]
NO_LABELS = (
    "there are no gold labels beside the predictions: the same `glue-bench run` again adds them and runs no cell twice"
)
TESTED = (
    "Bold is the best of a column within its block and whatever cannot be told apart from it (`glue-bench "
    "statistics` has the tests); where nothing could be tested, the highest"
)


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """All that is known of an experiment's pairs and ranks."""

    board: Board
    blocks: Sequence[AssessedBlock]
    pairs: pd.DataFrame
    ranks: pd.DataFrame
    resamples: int


def assess_experiment(store: Store, board: Board | None = None, resamples: int = RESAMPLES) -> Assessment:
    """Resample once, for the frames and the page; `board` is the store's own unless given."""
    board = board or make_board(store)
    blocks = assess(read_outcomes(store, board), resamples)
    pairs = compare(blocks)
    ranks = ranks_frame(blocks, pairs)
    return Assessment(board=board, blocks=blocks, pairs=pairs, ranks=ranks, resamples=resamples)


def leaders_of(assessment: Assessment) -> Leaders:
    """The arms that lead each tested column, or cannot be told apart from the one that does: what tables set in bold.

    The average leads `average_nine_columns`, where the experiment has all of them.
    """
    pairs, ranks = assessment.pairs, assessment.ranks
    columns = dict.fromkeys(ranks.dropna(subset="rank")["column"])
    keys = [block.key for block in assessment.blocks]
    tested = {name: frozenset().union(*(tied_best(ranks, pairs, key, name) for key in keys)) for name in columns}
    average = tested.pop(AVERAGE, frozenset())
    return tested | ({RANKED_BY: average} if average and RANKED_BY in assessment.board.averages else {})


def highest(table: pd.DataFrame, columns: Iterable[str]) -> dict[str, frozenset[str]]:
    """Column -> the arms with the best mean of their block as shown, so that a tie to two decimals is a tie.

    `table` has BLOCK, `arm` and the columns, one row per arm. An arm without a rival in its block leads nothing.
    """
    leaders: dict[str, frozenset[str]] = dict.fromkeys(columns, frozenset())
    for _, block in blocks_of(table):
        for name in leaders:
            means = block.set_index("arm")[name].dropna()
            if len(means) > 1:
                best = means.map(number) == number(means.max())
                leaders[name] |= frozenset(means.index[best])
    return leaders


def read_outcomes(store: Store, board: Board) -> Iterator[Outcomes]:
    """The outcomes of every column, block by block, in the board's order; predictions are read as they are needed."""
    digests = {record.cell_id: record.data.digest for record in store.scan_records()[0]}
    scores = main_scores(at_rates(board.results.scores, board.rates))
    for key, block in blocks_of(board.table):
        arms = tuple(block["arm"])
        for column in board.columns:
            task, split = COLUMNS[column]
            mine = scores[(scores["task"] == task) & (scores["split"] == split) & scores["arm"].isin(arms)]
            runs = mine.merge(board.results.cells[[*KEY, "cell_id"]], on=KEY)
            runs = runs.assign(owner=runs["arm"].map(arms.index)).sort_values(["owner", *SEEDS])
            if runs.empty:
                continue
            outcomes = Outcomes(
                block=key,
                column=column,
                arms=arms,
                owners=runs["owner"].to_numpy(),
                seeds=runs["seed"].to_numpy(),
                scores=runs["value"].to_numpy(),
            )
            yield _with_predictions(outcomes, runs, store, digests)


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
