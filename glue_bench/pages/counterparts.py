"""Which arms of an experiment stand beside the rows of a published table, and with which scores."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Any, NamedTuple

import pandas as pd
from pandas import DataFrame

from glue_bench.board.aggregation import RUN_KEYS, aggregate, aggregate_over_seeds, best_rates
from glue_bench.board.averages import average, part_values
from glue_bench.board.board import Board, make_board
from glue_bench.board.results import Results
from glue_bench.config import NATIVE, SCRATCH, Protocol
from glue_bench.data.measures import AVERAGE
from glue_bench.pages.numbers import abbreviate_number
from glue_bench.pages.published import NOT_PRINTED, PrintedRow, Published

PRINTED_COLUMNS = [
    "model",
    "arm",
    "variant",
    "origin",
    "steps",
    "column",
    "published",
    "ours",
    "seeds",
    "difference",
]
PAIR_TITLES = {
    "model": "Model",
    "arm": "Ours",
    "parameters": "Parameters",
    "steps": "Steps",
    "tokens": "Tokens",
    "seeds": "Seeds",
    "rates": "Rates",
    "start": "Ours start from",
    "note": "Why there is none",
}
"""The columns in which a printed row and an arm may differ, and their titles on a page."""
BoardKey = tuple[str, int | None]


class OurScore(NamedTuple):
    """A score of an arm by a paper's conventions, 0 to 100, and the number of its seeds."""

    score: float
    seeds: int


NO_SCORE = OurScore(math.nan, 0)
NO_ARM = {"arm": "", "variant": "", "origin": ""}


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """A printed row and the arms that stand beside it.

    Attributes:
        row: The printed row.
        arms: The facts of each arm; none if the row has no counterpart.
        why_none: Why there is none.
        board: The board after the row's share of the steps, if there are arms.
        scores: The scores of all arms by arm and column, if there are arms.
    """

    row: PrintedRow
    arms: tuple[Mapping[Any, Any], ...] = ()
    why_none: str = ""
    board: Board | None = None
    scores: Mapping[tuple[str, str], OurScore]


def find_counterparts(
    published: Published, results: Results | None, board_cache: dict[BoardKey, Board]
) -> list[Counterpart]:
    """Find the arms that stand beside each row of a published table.

    Args:
        published: The table.
        results: The experiment; without one no row has a counterpart.
        board_cache: Boards that were made for another table; new ones are added.

    Returns:
        One entry per row of the table.
    """
    boards = boards_by_share(published, results, board_cache) if results else {}
    arms = arms_with_runs(boards[1.0]) if boards else []
    scores_by_share = {share: our_values(published, board) for share, board in boards.items()}

    counterparts = []
    for row in published.rows:
        fitting = [arm for arm in arms if stands_beside(arm, row, published)]
        why_none = ""
        if not fitting:
            names = filter(None, (row.variant, row.checkpoint))
            name = " or ".join(names)
            why_none = f"no run of {name}" if name else "no variant of ours"
        elif row.share not in boards:
            why_none = f"no fine-tuned checkpoint after {row.share:.0%} of the steps"

        if why_none:
            counterpart = Counterpart(row=row, why_none=why_none, scores={})
        else:
            counterpart = Counterpart(
                row=row,
                arms=tuple(fitting),
                board=boards[row.share],
                scores=scores_by_share[row.share],
            )
        counterparts.append(counterpart)
    return counterparts


def boards_by_share(
    published: Published, results: Results, board_cache: dict[BoardKey, Board]
) -> dict[float, Board]:
    """Make the boards after the shares of all steps at which printed rows were fine-tuned.

    A share after which the experiment has no cells is left out; all of the steps (1.0) never is.
    """
    last_step = max(results.all_steps, default=None)
    boards: dict[float, Board] = {}
    for share in {1.0, *(row.share for row in published.rows)}:
        steps = last_step
        if share != 1:
            steps = round(share * (last_step or 0))
            if steps not in results.all_steps:
                continue
        key = (published.epoch, steps)
        if key not in board_cache:
            board_cache[key] = make_board(results, Protocol(epoch=published.epoch), steps)
        boards[share] = board_cache[key]
    return boards


def arms_with_runs(board: Board) -> list[dict[Any, Any]]:
    """Return the facts of the arms with a finished run, or of all arms if none has run yet."""
    cells = board.cells
    if cells["finished"].any():
        cells = cells[cells["finished"]]
    return board.results.arms.loc[cells["arm"].unique()].to_dict("records")


def stands_beside(arm: Mapping[Any, Any], row: PrintedRow, published: Published) -> bool:
    """Say whether an arm stands beside a row.

    A native arm stands beside every row of its checkpoint, any other beside the nearest in size.
    """
    if arm["variant"] == NATIVE:
        return row.takes(NATIVE, {}, arm["checkpoint"])
    return nearest_row(arm, row, published) is row


def nearest_row(arm: Mapping[Any, Any], row: PrintedRow, published: Published) -> PrintedRow | None:
    """Find the row that is nearest in size to an arm, among those that the arm could stand beside.

    Only rows with the same share of the steps as `row` count. If the size of the arm is not known,
    the first of these rows is the nearest. The result is None if the arm is another model than
    every row.
    """
    size = 0 if pd.isna(arm["parameters"]) else arm["parameters"]
    nearest = None
    least_distance = math.inf
    for candidate in published.rows:
        is_of_share = candidate.share == row.share
        if not (is_of_share and candidate.takes(arm["variant"], arm["options"])):
            continue
        distance = abs(math.log(size / candidate.parameters)) if size else 0.0
        if nearest is None or distance < least_distance:
            nearest = candidate
            least_distance = distance
    return nearest


def our_values(published: Published, board: Board) -> dict[tuple[str, str], OurScore]:
    """Return our scores by arm and column, by the table's metrics, average and statistic.

    The rate is the one with the best statistic over seeds of the table's own metrics of a task.
    """
    printed_scores = chain(*published.singly.parts.values())
    places = DataFrame(printed_scores, columns=["task", "split", "metric"]).drop_duplicates()
    scores = board.scores.merge(places, on=["task", "split", "metric"])
    runs = aggregate(scores, RUN_KEYS)["mean"].rename("value").reset_index()
    scores = scores.merge(best_rates(runs, published.statistic))
    parts = part_values(scores, published.singly)
    by_column = aggregate_over_seeds(parts, ["arm", "part"], published.statistic)
    rows: dict[Any, Any] = by_column.to_dict("index")
    if AVERAGE in published.columns:
        averages = average(scores, published.average, published.statistic)
        for arm, row in averages.to_dict("index").items():
            rows[arm, AVERAGE] = row
    our_scores = {}
    for key, row in rows.items():
        our_scores[key] = OurScore(row[published.statistic], int(row["n"]))
    return our_scores


def printed_frame(counterparts: list[Counterpart]) -> DataFrame:
    """Make the data of a page: each printed value with each arm beside it, or with none.

    `ours` is 0 to 100, NaN where missing; `difference` is ours less theirs.
    """
    rows = []
    for counterpart in counterparts:
        board = counterpart.board
        for arm in counterpart.arms or (NO_ARM,):
            for column, published in counterpart.row.printed.items():
                our_score = counterpart.scores.get((arm["arm"], column), NO_SCORE)
                row = {
                    "model": counterpart.row.label,
                    "arm": arm["arm"],
                    "variant": arm["variant"],
                    "origin": arm["origin"],
                    "steps": board.steps if board else None,
                    "column": column,
                    "published": published,
                    "ours": our_score.score,
                    "seeds": our_score.seeds,
                }
                rows.append(row)

    cells = DataFrame(rows, columns=PRINTED_COLUMNS).astype({"seeds": "int64", "steps": "Int64"})
    published_scores = pd.to_numeric(cells["published"].replace(NOT_PRINTED, None))
    return cells.assign(difference=cells["ours"] - published_scores)


def pairs_frame(published: Published, counterparts: list[Counterpart]) -> DataFrame:
    """Make the table of what differs: PAIR_TITLES as texts, a row for each arm beside a row.

    A printed row without an arm has a row that says why.
    """
    rows = []
    for counterpart in counterparts:
        if not counterpart.arms:
            row = dict.fromkeys(PAIR_TITLES, "")
            row["model"] = counterpart.row.label
            row["note"] = counterpart.why_none
            rows.append(row)
        for arm in counterpart.arms:
            rows.append(pair_texts(published, counterpart, arm))
    return DataFrame(rows)


def pair_texts(
    published: Published, counterpart: Counterpart, arm: Mapping[Any, Any]
) -> dict[str, str]:
    """Write each of PAIR_TITLES for a printed row and an arm: theirs / ours, ? if not known."""
    row = counterpart.row
    board = counterpart.board
    assert board  # a counterpart with arms has one

    cells = board.cells[board.cells["arm"] == arm["arm"]]
    seeds = 0
    for column in row.printed:
        our_score = counterpart.scores.get((arm["arm"], column), NO_SCORE)
        seeds = max(seeds, our_score.seeds)
    seeds_text = theirs_and_ours(published.seeds, seeds)

    pretrainings = cells["pretraining_seed"].nunique()
    if pretrainings > 1:
        seeds_text += f", of {pretrainings} pretrainings"

    pretraining = board.results.plan.experiment.pretraining
    their_tokens = token_count(row.steps, published.tokens)
    our_tokens = token_count(board.steps, pretraining.batch_tokens if pretraining else None)
    rates = cells.groupby("task")["learning_rate"].nunique().max()

    return {
        "model": row.label,
        "arm": arm["arm"],
        "parameters": theirs_and_ours(row.parameters, arm["parameters"], abbreviate_number),
        "steps": theirs_and_ours(row.steps, board.steps, "{:,}".format),
        "tokens": theirs_and_ours(their_tokens, our_tokens, abbreviate_number),
        "seeds": seeds_text,
        "rates": theirs_and_ours(published.rates, rates),
        "start": start_text(board, arm),
        "note": "",
    }


def theirs_and_ours(their_value: Any, our_value: Any, show: Callable[[Any], str] = str) -> str:
    """Write two values with a slash between them, `?` for one that is not known."""
    texts = ["?" if pd.isna(value) else show(value) for value in (their_value, our_value)]
    return " / ".join(texts)


def token_count(steps: int | None, batch_tokens: int | None) -> int | None:
    """Give the tokens that a pretraining saw; None if steps or the size of a step are not known."""
    if not steps or not batch_tokens:
        return None
    return steps * batch_tokens


def start_text(board: Board, arm: Mapping[Any, Any]) -> str:
    """Say what an arm started from: fresh weights or a checkpoint, and its origin if converted."""
    pretraining = board.results.plan.experiment.pretraining
    text = PurePath(arm["checkpoint"]).name
    if arm["checkpoint"] == SCRATCH or (pretraining and pretraining.start == SCRATCH):
        text = "fresh weights"
    if arm["origin"] not in ("pretrained", "scratch"):
        text += f", {arm['origin']}"
    return text
