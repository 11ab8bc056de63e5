"""All that is known of which arms of an experiment can be told apart, made once for every table that says it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from glue_bench.records.store import Store
from glue_bench.reporting.leaders import Leaders
from glue_bench.results.board import RANKED_BY, Board, make_board
from glue_bench.stats.measures import AVERAGE
from glue_bench.stats.pairs import Block, assess, compare, read_outcomes
from glue_bench.stats.resampling import RESAMPLES
from glue_bench.stats.ties import ranks_frame, tied_best

TESTED = (
    "Bold is the best of a column within its block and whatever cannot be told apart from it (`glue-bench "
    "statistics` has the tests); where nothing could be tested, the highest"
)


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """All that is known of an experiment's pairs and ranks."""

    board: Board
    blocks: Sequence[Block]
    pairs: pd.DataFrame
    ranks: pd.DataFrame
    resamples: int


def statistics_of(store: Store, board: Board | None = None, resamples: int = RESAMPLES) -> Statistics:
    """Resample once, for the frames and the page; `board` is the store's own unless given."""
    board = board or make_board(store)
    blocks = assess(read_outcomes(store, board), resamples)
    pairs = compare(blocks)
    ranks = ranks_frame(blocks, pairs)
    return Statistics(board=board, blocks=blocks, pairs=pairs, ranks=ranks, resamples=resamples)


def leaders_of(statistics: Statistics) -> Leaders:
    """The arms that lead each tested column, or cannot be told apart from the one that does: what tables set in bold.

    The average leads `average_nine_columns`, where the experiment has all of them.
    """
    ranks = statistics.ranks.dropna(subset="rank")
    tested = {column: _best(statistics, column) for column in dict.fromkeys(ranks["column"])}
    average = tested.pop(AVERAGE, frozenset())
    return tested | ({RANKED_BY: average} if average and RANKED_BY in statistics.board.averages else {})


def _best(statistics: Statistics, column: str) -> frozenset[str]:
    best = (tied_best(statistics.ranks, statistics.pairs, block.key, column) for block in statistics.blocks)
    return frozenset().union(*best)
