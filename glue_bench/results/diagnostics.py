"""What models of MNLI know: R3 on the labelled diagnostic set, as a whole, by category and by phenomenon.

R3 is the Matthews correlation for three classes (Gorodkin 2004), x100 as Wang et al. 2019, "GLUE", report it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from glue_bench.data.diagnostic import Diagnostic, check_order
from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import AX_SPLIT
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.results.board import Board, make_board
from glue_bench.results.protocol import aggregate, at_rates
from glue_bench.results.submission import HOW, diagnostic_digest, median_runs, predictions

FRAME_COLUMNS = ("arm", "category", "phenomenon", "mean", "std", "n", "examples", "labels")


@dataclass(frozen=True)
class Scored:
    """The scores of an experiment and what has to be said about them.

    `frame` is R3 x100 of every arm on each phenomenon: FRAME_COLUMNS, one row per arm and phenomenon. `category` and
    `phenomenon` are empty for everything, `phenomenon` for a category. `n` counts seeds, `examples` pairs, `labels` the
    different labels among them: with one of them R3 is 0, whatever is predicted. `without` are finished runs that
    predicted no AX; `verified` is whether labels and predictions are known to be of the same sentences in the same
    order.
    """

    board: Board
    frame: pd.DataFrame
    without: tuple[str, ...]
    verified: bool


def score_diagnostic(store: Store, diagnostic: Diagnostic) -> Scored:
    """Score every run that has predicted AX.

    Raises:
        UserError: no run predicted AX, runs that predicted different ones, or labels that are not those of the
            predicted sentences.
    """
    board = make_board(store)
    cells = at_rates(board.results.cells, board.rates)
    cells = cells[(cells["task"] == "mnli") & cells["finished"]]
    logits = {cell_id: predictions(store, cell_id).get(AX_SPLIT) for cell_id in cells["cell_id"]}
    predicted = {}
    for cell_id, output in logits.items():
        if output is not None:
            try:
                predicted[cell_id] = decide("ax", output)
            except ValueError as error:
                raise UserError(f"predictions of '{cell_id}', split '{AX_SPLIT}': {error}") from error
    if not predicted:
        raise UserError(f"no run of '{store.folder}' has predicted AX; {HOW}")
    verified = check_order(diagnostic, _digest(store, predicted))
    for cell_id, classes in predicted.items():
        if len(classes) != len(diagnostic.pairs):
            raise UserError(
                f"{diagnostic.path} has {len(diagnostic.pairs)} rows, but '{cell_id}' predicted {len(classes)}; "
                "expected the labels of the sentences that were predicted"
            )
    runs = cells[cells["cell_id"].isin(predicted)]
    values = pd.DataFrame(_values(runs, predicted, diagnostic))
    without = tuple(cell_id for cell_id, values in logits.items() if values is None)
    by = ["arm", "category", "phenomenon"]
    sizes = values.drop_duplicates(by)[[*by, "examples", "labels"]]
    frame = aggregate(values, by).reset_index().merge(sizes, on=by)[list(FRAME_COLUMNS)]
    return Scored(board, frame, without, verified)


def without_diagnostic(store: Store) -> list[str]:
    """Of each arm with finished runs of MNLI of which none has predicted AX, the median run."""
    board = make_board(store)
    cells = at_rates(board.results.cells, board.rates)
    cells = cells[(cells["task"] == "mnli") & cells["finished"]]
    has = cells["cell_id"].map(lambda cell_id: AX_SPLIT in predictions(store, cell_id)).astype(bool)
    return [
        median_runs(board, str(arm))["mnli"].cell_id
        for arm in dict.fromkeys(cells["arm"])
        if not has[cells["arm"] == arm].any()
    ]


def _digest(store: Store, cell_ids: dict[str, np.ndarray]) -> str | None:
    """The digest of the AX that all of the runs predicted."""
    records = [record for record in store.scan_records()[0] if record.cell_id in cell_ids]
    digests = {record.cell_id: diagnostic_digest(store, record) for record in records}
    if len(set(digests.values())) > 1:
        first, other = list({digest: cell_id for cell_id, digest in digests.items()}.values())[:2]
        raise UserError(f"'{first}' and '{other}' predicted different AX data; run the older one again")
    return next(iter(digests.values()))


def _values(
    runs: pd.DataFrame, predicted: dict[str, np.ndarray], diagnostic: Diagnostic
) -> Iterator[dict[str, object]]:
    labels = diagnostic.pairs["label"].to_numpy()
    for cell_id, arm, seed in zip(runs["cell_id"], runs["arm"], runs["seed"], strict=True):
        for (category, phenomenon), rows in diagnostic.phenomena.items():
            (value,) = score("ax", predicted[cell_id][rows], labels[rows]).values()
            size = {"examples": int(rows.sum()), "labels": len(np.unique(labels[rows]))}
            place = {"arm": arm, "category": category, "phenomenon": phenomenon}
            yield {**place, "seed": seed, "value": 100 * value, **size}
