"""What models of MNLI know: R3 on the labelled diagnostic set, as a whole, by category and by phenomenon.

R3 is the Matthews correlation for three classes (Gorodkin 2004), x100 as Wang et al. 2019, "GLUE", report it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from glue_bench.benchmark.diagnostic import Diagnostic, check_order
from glue_bench.benchmark.metrics import decide, score
from glue_bench.benchmark.tasks import AX_SPLIT
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.reporting.document import Cell, Grid, Page, Section
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.markdown import MISSING, number
from glue_bench.reporting.plain import frame_csv, json_text, plain_rows
from glue_bench.results.board import Board, make_board
from glue_bench.results.protocol import aggregate, at_rates
from glue_bench.results.submission import predictions

FRAME_COLUMNS = ("arm", "category", "phenomenon", "mean", "std", "n", "examples", "labels")
EVERYTHING = "All"
ONE_LABEL = "°"
NOTES = (
    "R3, the Matthews correlation for three classes, x100: mean ± sample standard deviation over seeds at the rate "
    "reported for MNLI, after the last epoch. One seed has no deviation.",
    "A pair may show several phenomena, and counts in each of them.",
)


@dataclass(frozen=True)
class Scored:
    """The scores of an experiment and what has to be said about them. `frame` is as `diagnostics_frame` returns it.

    `without` are finished runs that predicted no AX; `verified` is whether labels and predictions are known to be of
    the same sentences in the same order.
    """

    board: Board
    frame: pd.DataFrame
    without: tuple[str, ...]
    verified: bool


def diagnostics_frame(store: Store, diagnostic: Diagnostic) -> pd.DataFrame:
    """R3 x100 of every arm on each phenomenon: FRAME_COLUMNS, a row an arm and phenomenon.

    `category` and `phenomenon` are empty for everything, `phenomenon` for a category. `n` counts seeds, `examples`
    pairs, `labels` the different labels among them: with one of them R3 is 0, whatever is predicted.

    Raises:
        UserError: no run predicted AX, runs that predicted different ones, or labels that are not those of the
            predicted sentences.
    """
    return score_diagnostic(store, diagnostic).frame


def score_diagnostic(store: Store, diagnostic: Diagnostic) -> Scored:
    """As `diagnostics_frame`, with what its page needs to say."""
    board = make_board(store)
    cells = at_rates(board.results.cells, board.rates)
    cells = cells[(cells["task"] == "mnli") & cells["finished"]]
    logits = {cell_id: predictions(store, cell_id).get(AX_SPLIT) for cell_id in cells["cell_id"]}
    predicted = {cell_id: _classes(cell_id, values) for cell_id, values in logits.items() if values is not None}
    if not predicted:
        raise UserError(f"no run of '{store.folder}' predicted AX; run MNLI on data that has AX/diagnostic.tsv")
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
    return Scored(board, _aggregated(values), without, verified)


def _classes(cell_id: str, logits: np.ndarray) -> np.ndarray:
    try:
        return decide("ax", logits)
    except ValueError as error:
        raise UserError(f"predictions of '{cell_id}', split '{AX_SPLIT}': {error}") from error


def _digest(store: Store, cell_ids: dict[str, np.ndarray]) -> str | None:
    """The digest of the AX that all of the runs predicted."""
    records = [record for record in store.scan_records()[0] if record["cell_id"] in cell_ids]
    digests = {record["cell_id"]: record.get("diagnostic", {}).get("digest") for record in records}
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


def _aggregated(values: pd.DataFrame) -> pd.DataFrame:
    by = ["arm", "category", "phenomenon"]
    sizes = values.drop_duplicates(by)[[*by, "examples", "labels"]]
    return aggregate(values, by).reset_index().merge(sizes, on=by)[list(FRAME_COLUMNS)]


def render(scored: Scored, format: str) -> str:
    """The page of `diagnostics_page` in one of FORMATS; as CSV or JSON the frame alone."""
    if format == "csv":
        return frame_csv(scored.frame)
    if format == "json":
        return json_text({"notes": [*NOTES, *_notes(scored)], "rows": plain_rows(scored.frame)})
    return render_page(diagnostics_page(scored), format)


def diagnostics_page(scored: Scored) -> Page:
    """A section for the categories, and one a category for its phenomena; a column an arm."""
    frame = scored.frame
    whole = frame[frame["phenomenon"] == ""]
    sections = [Section(title="Categories", grid=_grid(whole, "category"))]
    for category in (name for name in whole["category"].unique() if name):
        mine = frame[(frame["category"] == category) & (frame["phenomenon"] != "")]
        sections.append(Section(title=category, grid=_grid(mine, "phenomenon")))
    return Page(
        title=f"Diagnostic set: {scored.board.results.experiment}",
        sections=tuple(sections),
        banner="Made-up data: scores mean nothing." if "demo" in scored.board.results.data_source else "",
        notes=(*NOTES, *_notes(scored)),
    )


def _grid(frame: pd.DataFrame, name: str) -> Grid:
    arms = tuple(frame["arm"].unique())
    rows = []
    for place, group in frame.groupby(name, sort=False):
        by_arm = {row["arm"]: row for row in group.to_dict("records")}
        marks = ONE_LABEL if (group["labels"] == 1).any() else ""
        examples = Cell(str(group["examples"].iloc[0]))
        rows.append((Cell(str(place) or EVERYTHING), examples, *(_cell(by_arm[arm], marks) for arm in arms)))
    return Grid(header=(name.capitalize(), "Pairs", *arms), rows=tuple(rows))


def _cell(row: dict, marks: str) -> Cell:
    deviation = number(row["std"])
    return Cell((number(row["mean"]) or MISSING) + (f" ± {deviation}" if deviation else ""), marks=marks)


def _notes(scored: Scored) -> Iterator[str]:
    seeds = scored.frame.groupby("arm", sort=False)["n"].first()
    yield "Seeds: " + ", ".join(f"{arm} {count}" for arm, count in seeds.items()) + "."
    if (scored.frame["labels"] == 1).any():
        yield f"{ONE_LABEL} All pairs have one label, so that R3 is undefined and counts as 0."
    if scored.without:
        yield f"{len(scored.without)} finished runs of MNLI predicted no AX and are left out."
    if "mnli" in scored.board.results.partial_tasks:
        yield "Models were trained on a part of MNLI: figures do not compare with published ones."
    if not scored.verified:
        yield (
            "Labels and predictions agree in their number only: the sentences are not, letter for letter, those that "
            "were predicted, and no diagnostic.tsv beside the labels vouches for their order."
        )
