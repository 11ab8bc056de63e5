"""The page of what models of RTE-SG know: AX-b and AX-g, the diagnostic sets of SuperGLUE.

Wang et al. 2019, "SuperGLUE" (https://arxiv.org/abs/1905.00537), section 3.3: AX-b by the Matthews
correlation; AX-g by accuracy and by the gender parity score, the share of its pairs of sentences
that differ in the gender of a pronoun alone and get the same prediction. The two rows of a pair
follow each other, an even row first. `compute_parity_scores` in lm_eval/api/metric.py of
BigScience's fork of lm-evaluation-harness pairs them in the same way.
"""

from pathlib import Path

import numpy as np
from pandas import DataFrame

from glue_bench.board.aggregation import BOTH_SEEDS
from glue_bench.board.board import Board
from glue_bench.board.chosen import METRIC_NAMES, PREDICT_TEST_ADVICE, aggregate_independent
from glue_bench.data.metrics import decide, score
from glue_bench.data.own import HUB, read_diagnostic_labels
from glue_bench.data.tasks import DIAGNOSTICS, find_task
from glue_bench.errors import UserError
from glue_bench.pages.numbers import MISSING, format_number
from glue_bench.pages.page import Column, Page, Table
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION

ENTAILMENT_TASK = "rtesg"
PARITY_TITLE = "Gender parity"
PLACE_COLUMNS = ["set", "metric", "arm"]
ENTAILMENT_NOTE = (
    "Scores of models of RTE-SG, times 100: mean ± sample standard deviation over seeds (of fewer "
    "than three none), at the reported rate, after the last epoch. Gender parity: the share of "
    "pairs of AX-g, which differ in the gender of a pronoun, that get the same prediction."
)


def is_of_entailment(place: Path) -> bool:
    """Whether a place has AX-b or AX-g: the hub, or a folder with one of their folders."""
    return str(place) == HUB or any((place / name).is_dir() for name in ("AX-b", "AX-g"))


def entailment_page(board: Board, data: str) -> Page:
    """Make the page of AX-b and AX-g. Every run of RTE-SG that has predicted them counts.

    Args:
        board: The leaderboard. Its runs at the reported rate are used.
        data: Where the labels are: the hub, or the folder of SuperGLUE.

    Returns:
        A page with a row for each set and metric, and a column for each arm.

    Raises:
        UserError: no run predicted a set, or the labels are not there.
    """
    frame = entailment_frame(board, data)
    return Page(
        title=f"Diagnostic sets: {board.results.experiment}",
        banner=board.results.banner,
        tables=(_scores_table(frame),),
        data=frame,
    )


def entailment_frame(board: Board, data: str) -> DataFrame:
    """Return mean, std and n over seeds of each arm by PLACE_COLUMNS; see `entailment_page`."""
    asked = board.results.plan.tasks.get(ENTAILMENT_TASK)
    cells = board.reported[board.reported["task"] == ENTAILMENT_TASK]
    if asked is not None:
        cells = cells[cells["diagnostic"] == asked.diagnostic]

    rows: list[dict[str, object]] = []
    for split, name in DIAGNOSTICS[ENTAILMENT_TASK].items():
        logits_by_cell = _read_logits(board, cells, split)
        if not logits_by_cell:
            continue
        labels = read_diagnostic_labels(find_task(name), data)
        for cell in cells.to_dict("records"):
            logits = logits_by_cell.get(cell["cell_id"])
            if logits is None:
                continue
            for metric, value in _values(name, logits, labels).items():
                row = {key: cell[key] for key in ("arm", *BOTH_SEEDS)}
                row |= {"set": find_task(name).title, "metric": metric, "value": 100 * value}
                rows.append(row)

    if not rows:
        fault = f"no run of '{board.results.folder}' has predicted AX-b or AX-g, as models of"
        raise UserError(f"{fault} RTE-SG do; {PREDICT_TEST_ADVICE}")
    values = DataFrame(rows, columns=[*PLACE_COLUMNS, *BOTH_SEEDS, "value"])
    return aggregate_independent(values, PLACE_COLUMNS).reset_index()


def _read_logits(board: Board, cells: DataFrame, split: str) -> dict[str, np.ndarray]:
    """Return the logits that runs have predicted for a set, by cell."""
    logits_by_cell: dict[str, np.ndarray] = {}
    for cell_id in cells["cell_id"]:
        logits = board.results.logits(cell_id, test=True).get(split)
        if logits is not None:
            logits_by_cell[cell_id] = logits
    return logits_by_cell


def _values(task: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the scores of a set's metrics by their names in words.

    Raises UserError if the labels belong to other rows.
    """
    if len(logits) != len(labels):
        fault = f"{len(labels)} rows have labels, but {len(logits)} were predicted"
        raise UserError(f"{find_task(task).title}: {fault}; give the data of the runs")
    predicted = decide(task, logits)
    values: dict[str, float] = {}
    for metric, value in score(task, predicted, labels).items():
        values[METRIC_NAMES[metric]] = value
    if task == "axg":
        values[PARITY_TITLE] = gender_parity(predicted)
    return values


def gender_parity(predicted: np.ndarray) -> float:
    """Return the share of pairs of consecutive rows that got the same prediction.

    Raises UserError for an odd number of rows.
    """
    if len(predicted) % 2:
        raise UserError(f"AX-g has {len(predicted)} rows; expected pairs, an even number")
    return float((predicted[::2] == predicted[1::2]).mean())


def _scores_table(frame: DataFrame) -> Table:
    """Make the table of an `entailment_frame`, with a column for each arm."""
    texts = frame["mean"].map(format_number).replace("", MISSING)
    has_deviation = (frame["n"] >= LEAST_FOR_DEVIATION) & frame["std"].notna()
    deviations = " ± " + frame["std"].map(format_number)
    long = frame.assign(text=texts + deviations.where(has_deviation, ""))
    # An arm may be called `set`: no other column can have the label of its column.
    labels_of_arms = {arm: f"arm: {arm}" for arm in frame["arm"].unique()}
    long["column"] = long["arm"].map(labels_of_arms)
    places = PLACE_COLUMNS[:2]
    wide = long.pivot(index=places, columns="column", values="text").reset_index()
    columns = {"set": Column("Set"), "metric": Column("Metric")}
    for arm, label in labels_of_arms.items():
        columns[label] = Column(arm, show=str)
    return Table(frame=wide, columns=columns, legend=(ENTAILMENT_NOTE,))
