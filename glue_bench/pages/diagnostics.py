"""The page of what models of MNLI know: R3 on the labelled diagnostic set, by phenomenon.

R3 is the Matthews correlation for three classes (Gorodkin 2004), x100 as Wang et al. 2019, "GLUE",
report it.
"""

import numpy as np
from pandas import DataFrame

from glue_bench.board.aggregation import BOTH_SEEDS
from glue_bench.board.board import Board
from glue_bench.board.chosen import PREDICT_TEST_ADVICE, aggregate_independent
from glue_bench.data.diagnostic import Diagnostic, check_same_sentences
from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import AX_SPLIT
from glue_bench.errors import UserError
from glue_bench.pages.numbers import MISSING, format_number
from glue_bench.pages.page import Column, Page, Table, facts_table
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION

PHENOMENON_COLUMNS = ["category", "phenomenon"]
ARM_PHENOMENON_COLUMNS = ["arm", *PHENOMENON_COLUMNS]
SIZE_COLUMNS = ["examples", "labels"]
"""The number of pairs that show a phenomenon, and the number of different labels of these pairs."""
ONE_LABEL = "°"
R3_NOTE = (
    "R3: the Matthews correlation for three classes, times 100: mean ± sample standard deviation "
    "over seeds (of fewer than three none), at the rate reported for MNLI, after the last epoch. "
    "A pair counts in each phenomenon that it shows."
)
ONE_LABEL_NOTE = "° all pairs have one label, so that R3 is undefined and counts as 0."
NO_AX_TEXT = "{count} finished runs of MNLI that predicted no AX"
OTHER_AX_TEXT = (
    "{count} finished runs of MNLI that predicted another AX than the data have now, or none"
)
UNVERIFIED_TEXT = "labels and predictions are known to agree in their number only"


def diagnostics_page(board: Board, diagnostic: Diagnostic) -> Page:
    """Make the page of the diagnostic set. Every run that has predicted AX counts.

    Args:
        board: The leaderboard. Its runs of MNLI at the reported rate are used.
        diagnostic: The labelled pairs and their phenomena.

    Returns:
        A page with a row for each category and each of its phenomena, and a column for each arm.
        As CSV and JSON it has a `phenomena_frame`.

    Raises:
        UserError: no run predicted AX, runs predicted different ones, or the labels are of other
            sentences.
    """
    results = board.results
    finished = board.reported[board.reported["task"] == "mnli"]
    planned = results.plan.tasks.get("mnli")
    current = finished
    if planned and planned.diagnostic:  # the digest of AX in the data as they are now
        current = finished[finished["diagnostic"] == planned.diagnostic]

    predicted = predicted_classes(board, current, diagnostic)
    runs = current[current["cell_id"].isin(predicted)]
    is_verified = check_same_sentences(diagnostic, shared_digest(runs))
    phenomena = phenomena_frame(runs, predicted, diagnostic)

    runs_without = len(current) - len(runs)
    runs_of_other = len(finished) - len(current)
    facts = [
        ("Seeds", seeds_by_arm_text(phenomena)),
        ("Left out", NO_AX_TEXT.format(count=runs_without) if runs_without else ""),
        ("Left out", OTHER_AX_TEXT.format(count=runs_of_other) if runs_of_other else ""),
        ("Data", data_warning(board)),
        ("Order", "" if is_verified else UNVERIFIED_TEXT),
    ]

    return Page(
        title=f"Diagnostic set: {results.experiment}",
        banner=results.banner,
        tables=(phenomena_table(phenomena), facts_table(facts)),
        data=phenomena,
    )


def predicted_classes(
    board: Board, cells: DataFrame, diagnostic: Diagnostic
) -> dict[str, np.ndarray]:
    """Read the classes that runs of MNLI predicted for AX.

    Args:
        board: The board whose results have the predictions.
        cells: The runs.
        diagnostic: The pairs that should have been predicted.

    Returns:
        An array of classes (pairs,) for each cell that predicted AX, by its id.

    Raises:
        UserError: a run predicted another number of pairs, its predictions are damaged, or no run
            predicted any.
    """
    pairs = len(diagnostic.pairs)
    predicted = {}
    for cell_id in cells["cell_id"]:
        logits = board.results.logits(cell_id, test=True).get(AX_SPLIT)
        if logits is None:
            continue
        if len(logits) != pairs:
            raise UserError(
                f"{diagnostic.path} has {pairs} rows, but '{cell_id}' predicted {len(logits)}; "
                "expected the labels of the sentences that were predicted"
            )
        try:
            predicted[cell_id] = decide("ax", logits)
        except ValueError as error:
            raise UserError(f"predictions of '{cell_id}', split '{AX_SPLIT}': {error}") from error

    if not predicted:
        raise UserError(
            f"no run of '{board.results.folder}' has predicted AX; {PREDICT_TEST_ADVICE}"
        )
    return predicted


def shared_digest(runs: DataFrame) -> str:
    """Give the digest of the AX that all runs predicted; UserError if runs predicted several."""
    by_digest = runs.sort_values("cell_id").drop_duplicates("diagnostic")
    if len(by_digest) > 1:
        first, second = by_digest["cell_id"].iloc[:2]
        raise UserError(
            f"'{first}' and '{second}' predicted different AX data; run the older one again"
        )
    digest: str = by_digest["diagnostic"].iloc[0]
    return digest


def phenomena_frame(
    runs: DataFrame, predicted: dict[str, np.ndarray], diagnostic: Diagnostic
) -> DataFrame:
    """Compute R3 x100 of each arm on each phenomenon.

    Args:
        runs: The runs that count.
        predicted: The classes that these runs predicted, by cell.
        diagnostic: The labels and the phenomena.

    Returns:
        A frame with ARM_PHENOMENON_COLUMNS; mean, std and n; and SIZE_COLUMNS. The phenomenon is
        empty in the row of a whole category, and both are empty in the row of all pairs. mean, std
        and n are taken over fine-tuning seeds, or over pretrainings if there are several. If all
        pairs have one label, R3 counts as 0.
    """
    labels = diagnostic.pairs["label"].to_numpy()

    rows = []
    for run in runs.to_dict("records"):
        for (category, phenomenon), is_shown in diagnostic.phenomena.items():
            classes = predicted[run["cell_id"]][is_shown]
            (r3,) = score("ax", classes, labels[is_shown]).values()
            row = {
                "arm": run["arm"],
                "category": category,
                "phenomenon": phenomenon,
                "pretraining_seed": run["pretraining_seed"],
                "seed": run["seed"],
                "value": 100 * r3,
                "examples": int(is_shown.sum()),
                "labels": len(np.unique(labels[is_shown])),
            }
            rows.append(row)

    values = DataFrame(rows, columns=[*ARM_PHENOMENON_COLUMNS, *BOTH_SEEDS, "value", *SIZE_COLUMNS])
    sizes = values.drop_duplicates(ARM_PHENOMENON_COLUMNS)[[*ARM_PHENOMENON_COLUMNS, *SIZE_COLUMNS]]
    return (
        aggregate_independent(values, ARM_PHENOMENON_COLUMNS)
        .reset_index()
        .merge(sizes, on=ARM_PHENOMENON_COLUMNS)
    )


def phenomena_table(phenomena: DataFrame) -> Table:
    """Make the table of a `phenomena_frame`, with a column for each arm."""
    texts = phenomena["mean"].map(format_number).replace("", MISSING)
    has_deviation = (phenomena["n"] >= LEAST_FOR_DEVIATION) & phenomena["std"].notna()
    deviations = " ± " + phenomena["std"].map(format_number)
    texts += deviations.where(has_deviation, "")

    # An arm may be called `category`: no other column can have the label of its column.
    labels_of_arms = {arm: f"arm: {arm}" for arm in phenomena["arm"].unique()}
    labels = phenomena["arm"].map(labels_of_arms)
    long = phenomena.assign(text=texts, column=labels)
    wide = long.pivot(index=PHENOMENON_COLUMNS, columns="column", values="text").reset_index()
    sizes = phenomena.drop_duplicates(PHENOMENON_COLUMNS)[[*PHENOMENON_COLUMNS, *SIZE_COLUMNS]]

    frame = sizes.merge(wide, on=PHENOMENON_COLUMNS)
    frame["category"] = frame["category"].replace("", "All")

    columns = {
        "category": Column("Category"),
        "phenomenon": Column("Phenomenon"),
        "examples": Column("Pairs", 0),
    }
    for arm, label in labels_of_arms.items():
        columns[label] = Column(arm, show=str)

    has_one_label = frame["labels"] == 1
    mark = has_one_label.map({True: ONE_LABEL, False: ""})
    legend = [R3_NOTE]
    if has_one_label.any():
        legend.append(ONE_LABEL_NOTE)
    return Table(
        frame=frame,
        columns=columns,
        marks=DataFrame(dict.fromkeys(labels_of_arms.values(), mark)),
        legend=tuple(legend),
    )


def seeds_by_arm_text(phenomena: DataFrame) -> str:
    """Write how many seeds each arm has."""
    seeds = phenomena.groupby("arm", sort=False)["n"].first()
    return ", ".join(f"{arm} {count}" for arm, count in seeds.items())


def data_warning(board: Board) -> str:
    """Warn if MNLI was run on other rows than the official ones."""
    if "mnli" in board.results.altered_tasks:
        return "MNLI with other rows than the official ones: no published score compares"
    if "mnli" in board.results.partial_tasks:
        return "MNLI in part: no published score compares"
    return ""
