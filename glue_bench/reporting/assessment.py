"""Which arms of an experiment differ: stored predictions are read once, for every table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.metrics import decide
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.results.board import Board, make_board
from glue_bench.results.budgets import newest
from glue_bench.results.encoders import UNKNOWN_START, blocks_of
from glue_bench.results.epochs import is_last
from glue_bench.results.protocol import AVERAGE, NOT_AVERAGED, SEEDS, at_rates, main_scores, reference_arm
from glue_bench.stats.outcomes import Outcomes, effective_number, unit_of
from glue_bench.stats.verdicts import Assessed, Group, arms_frame, assess, columns_frame, declared, verdicts

KEY = ["arm", "task", "learning_rate", *SEEDS]
MEASURES = {"validation_loss": "loss", "swap_1": "share"}
"""Measures of a pretrained encoder that are compared as columns, and their metrics."""
LEAST_DOCUMENTS = 5
"""Of fewer documents (as many of equal size) a variance is hardly known; pieces of at most 512 tokens count then."""
OTHER_PIECES = "it was measured on other pieces of text"
OTHER_EPOCH = "a run is reported after an earlier epoch than the last, of which its predictions are"
NO_LABELS = (
    "there are no gold labels beside the predictions: the same `glue-bench run` again adds them and runs no cell twice"
)


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """All that is known of which arms differ.

    `blocks` are the board's, in its order, and `costs` the groups of a pretrained arm with the arms that were grafted
    or adapted from its checkpoint; both are for what is made on request. `verdicts` and `contrasts` (those that the
    protocol names) are frames of VERDICT_COLUMNS of the blocks, and `conversions` of `costs`: what a conversion costs,
    which ranks nothing; its `origin` and `shape` are those of the converted arm. `arms` and `columns` are the frames
    of `stats.summaries`. `primary` is the column by which arms are judged, the first one of each group.
    """

    board: Board
    primary: str
    blocks: Sequence[Assessed]
    costs: Sequence[Assessed]
    verdicts: pd.DataFrame
    contrasts: pd.DataFrame
    conversions: pd.DataFrame
    arms: pd.DataFrame
    columns: pd.DataFrame


def assess_experiment(store: Store, board: Board | None = None) -> Assessment:
    """Read every prediction once; `board` is the store's own unless given."""
    board = board or make_board(store)
    outcomes = chain(read_outcomes(store, board), read_measures(store, board))
    primary: str = board.results.protocol.primary
    parts = board.average.parts
    if primary == AVERAGE and len(parts) == 1:  # the average of a single column is that column
        primary = next(iter(parts))
    return _assess(board, outcomes, block_groups(board), conversion_groups(board), primary)


def not_assessed(board: Board) -> Assessment:
    """Of several experiments together: none of their arms are compared, and all frames are empty."""
    return _assess(board, (), (), (), AVERAGE)


def _assess(
    board: Board, outcomes: Iterable[Outcomes], groups: Sequence[Group], costs: Sequence[Group], primary: str
) -> Assessment:
    assessed = assess(outcomes, [*groups, *costs], primary)
    blocks, costs_assessed = assessed[: len(groups)], assessed[len(groups) :]
    found, conversions = verdicts(blocks), verdicts(costs_assessed)
    of_arm = board.table.set_index("arm")
    conversions = conversions.assign(**{name: conversions["arm"].map(of_arm[name]) for name in ("origin", "shape")})
    # A converted arm is compared with the arm that its checkpoint came from, and with no other one.
    found = found[~found["arm"].isin(conversions["arm"])]
    return Assessment(
        board=board,
        primary=primary,
        blocks=blocks,
        costs=costs_assessed,
        verdicts=found,
        contrasts=declared(blocks, [(a, b) for a, b in board.results.protocol.contrasts]),
        conversions=conversions,
        arms=arms_frame(blocks),
        columns=columns_frame([_judged(one, costs_assessed) for one in blocks], pd.concat([found, conversions])),
    )


def _judged(block: Assessed, costs: Sequence[Assessed]) -> Assessed:
    """A block with the estimates by which its arms are judged: converted ones, together with the arm they came from."""
    for cost in costs:
        if block.group.reference != cost.group.reference and set(block.group.arms) <= set(cost.group.arms):
            group = replace(block.group, reference=cost.group.reference)
            return Assessed(group=group, estimates=cost.estimates)
    return block


def block_groups(board: Board) -> list[Group]:
    """The board's blocks: arms of one origin and shape, and their reference."""
    return [
        Group(
            origin=origin,
            shape=shape,
            arms=tuple(block["arm"]),
            reference=reference_arm(_variants(board, block), board.results.protocol.reference),
        )
        for (origin, shape), block in blocks_of(board.table)
    ]


def conversion_groups(board: Board) -> list[Group]:
    """A pretrained arm, the reference, and the arms that were grafted or adapted from the checkpoint that it has."""
    groups = []
    known = board.table[board.table["start"] != UNKNOWN_START]
    for _, started in known.groupby("start", sort=False):
        sources = _variants(board, started[started["origin"] == "pretrained"])
        converted = tuple(started.loc[started["origin"].isin(["grafted", "adapted"]), "arm"])
        if sources and converted:
            source = reference_arm(sources, board.results.protocol.reference)
            groups.append(Group(origin="conversion", shape=source, arms=(source, *converted), reference=source))
    return groups


def read_outcomes(store: Store, board: Board) -> Iterator[Outcomes]:
    """The runs of every column that has any, in the board's order; predictions are read as they are needed."""
    records, protocol = store.scan_records()[0], board.results.protocol
    digests = {record.cell_id: record.data.digest for record in records}
    earlier = [record.cell_id for record in records if not is_last(record, protocol)]
    scores = main_scores(at_rates(board.results.scores, board.rates))
    cells, arms = board.results.cells[[*KEY, "cell_id"]], tuple(board.table["arm"])
    for column in board.columns:
        task, split = COLUMNS[column]
        runs = scores[(scores["task"] == task) & (scores["split"] == split)].merge(cells, on=KEY)
        if len(runs):
            why, predictions, labels = _predictions(column, runs, store, digests)
            yield Outcomes(
                column=column,
                task=task,
                metric=TASKS[task].metrics[0],
                arms=arms,
                owners=runs["arm"].map(arms.index).to_numpy(),
                pretraining_seeds=runs["pretraining_seed"].fillna(0).to_numpy(int),
                seeds=runs["seed"].to_numpy(),
                scores=runs["value"].to_numpy(),
                predictions=predictions,
                labels=labels,
                why=dict.fromkeys(runs.loc[runs["cell_id"].isin(earlier), "arm"], OTHER_EPOCH) | why,
                averaged=column != NOT_AVERAGED or board.columns == (NOT_AVERAGED,),
            )


def read_measures(store: Store, board: Board) -> Iterator[Outcomes]:
    """What the board's arms have learnt in pretraining, measured without a task: a run for each pretraining.

    Arms are compared on the same pieces of text.
    """
    arms = tuple(board.table["arm"])
    measured = [each for each in newest(store) if each.arm in arms]
    sums = {each.pretraining_id: _sums(store, each.pretraining_id) for each in measured}
    for measure, metric in MEASURES.items():
        runs = [(each, sums[each.pretraining_id][measure]) for each in measured if measure in sums[each.pretraining_id]]
        if runs:
            counts = runs[0][1][1]
            same = [np.array_equal(counts, mine) for _, (_, mine) in runs]
            yield Outcomes(
                column=measure,
                task=measure,
                metric=metric,
                arms=arms,
                owners=np.array([arms.index(each.arm) for each, _ in runs]),
                pretraining_seeds=np.array([each.seed for each, _ in runs]),
                seeds=np.zeros(len(runs), int),
                scores=np.array([unit_of(metric) * hits.sum() / mine.sum() for _, (hits, mine) in runs]),
                predictions=np.stack(
                    [hits if alike else 0.0 * counts for (_, (hits, _)), alike in zip(runs, same, strict=True)]
                ),
                labels=counts,
                why={each.arm: OTHER_PIECES for (each, _), alike in zip(runs, same, strict=True) if not alike},
                averaged=False,
                finetuned=False,
            )


def _sums(store: Store, pretraining_id: str) -> dict[str, np.ndarray]:
    """By measure the numerators and denominators of pieces of text, (2, pieces), of a pretraining that has some.

    Pieces of one document are alike, so that documents take their place in a loss, where enough of them count.
    """
    sums = store.intrinsic.read_sums(pretraining_id) if store.intrinsic.has(pretraining_id) else {}
    losses = store.read_validation(pretraining_id)
    if losses:  # of all validation text, of which the other measures take a part
        places = np.unique(losses["document"], return_inverse=True)[1]
        if effective_number(np.bincount(places, losses["count"])) < LEAST_DOCUMENTS:
            places = np.arange(len(places))
        sums["validation_loss"] = np.stack([np.bincount(places, losses[name]) for name in ("loss_sum", "count")])
    return sums


def _predictions(
    column: str, runs: pd.DataFrame, store: Store, digests: Mapping[str, Any]
) -> tuple[dict[str, str], np.ndarray, np.ndarray]:
    """Why some arms' runs cannot be compared, predictions (runs, examples; of theirs zeros) and labels (examples,)."""
    (task, split), nothing = COLUMNS[column], (np.empty((0, 0)), np.empty(0))
    data = {digests[cell] for cell in runs["cell_id"]}
    if len(data) > 1:
        return dict.fromkeys(runs["arm"], "its runs were made on different data"), *nothing
    try:
        labels = store.read_labels(task, data.pop()).get(split)
    except UserError as error:
        return dict.fromkeys(runs["arm"], str(error)), *nothing
    if labels is None:
        return dict.fromkeys(runs["arm"], NO_LABELS), *nothing
    why: dict[str, str] = {}
    predictions = np.zeros((len(runs), len(labels)), np.float64 if task == "stsb" else np.int64)
    for row, (arm, cell) in enumerate(zip(runs["arm"], runs["cell_id"], strict=True)):
        logits = _logits(store, cell, split)
        if isinstance(logits, str):
            why[arm] = logits
        elif len(logits) != len(labels) or not np.isfinite(logits).all():
            why[arm] = "a run has diverged, or predicted another number of rows"
        else:
            predictions[row] = decide(task, logits)
    return why, predictions, labels


def _logits(store: Store, cell_id: str, split: str) -> np.ndarray | str:
    if not store.has_predictions(cell_id):
        return "the predictions of a run are missing"
    try:
        return store.read_predictions(cell_id).get(split, np.empty((0, 1)))
    except UserError as error:
        return str(error)


def _variants(board: Board, block: pd.DataFrame) -> dict[str, str]:
    """Arm -> variant of a block's arms, in the experiment's order."""
    variants = dict(zip(block["arm"], block["variant"], strict=True))
    return {arm: variants[arm] for arm in dict.fromkeys(board.results.cells["arm"]) if arm in variants}
