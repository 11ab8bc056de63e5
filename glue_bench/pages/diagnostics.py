"""What models of MNLI know: R3 on the labelled diagnostic set, as a whole, by category and by phenomenon.

R3 is the Matthews correlation for three classes (Gorodkin 2004), x100 as Wang et al. 2019, "GLUE", report it.
"""

from itertools import product

import numpy as np
import pandas as pd

from glue_bench.board.board import BOTH_SEEDS, Board
from glue_bench.board.chosen import PREDICT_TEST_ADVICE, aggregate_independent
from glue_bench.data.diagnostic import Diagnostic, check_same_sentences
from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import AX_SPLIT
from glue_bench.errors import UserError
from glue_bench.pages.numbers import MISSING, number
from glue_bench.pages.page import Column, Page, Table, facts_table
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION

PLACE, SIZES = ["arm", "category", "phenomenon"], ["examples", "labels"]
ONE_LABEL = "°"
R3 = (
    "R3: the Matthews correlation for three classes, times 100: mean ± sample standard deviation over seeds (of fewer "
    "than three none), at the rate reported for MNLI, after the last epoch. A pair counts in each phenomenon that it "
    "shows."
)
ONE_LABEL_MEANS = "° all pairs have one label, so that R3 is undefined and counts as 0."
OTHER_AX = "{count} finished runs of MNLI that predicted another AX than the data have now, or none"
UNVERIFIED = "labels and predictions are known to agree in their number only"


def diagnostics_page(board: Board, diagnostic: Diagnostic) -> Page:
    """A row for each category and each of its phenomena, one column per arm; every run counts that has predicted AX.

    Its rows are R3 x100 of an arm on a phenomenon (empty for a category, both for everything): PLACE, mean, std, n, of
    seeds or of several pretrainings, and SIZES: pairs, and the labels among them; of one label R3 is 0. Raises
    UserError where no run predicted AX, runs predicted different ones, or labels are of other sentences.
    """
    finished = board.reported[board.reported["task"] == "mnli"]
    results = board.results
    keys = PLACE[1:]
    asked = results.plan.tasks.get("mnli")
    cells = finished
    if asked and asked.diagnostic:  # of the data as they are now
        cells = finished[finished["diagnostic"] == asked.diagnostic]
    predicted = _predictions(board, cells, diagnostic)
    runs = cells[cells["cell_id"].isin(predicted)]
    first, *others = (
        runs.sort_values("cell_id")
        .drop_duplicates("diagnostic")[["cell_id", "diagnostic"]]
        .to_numpy()
    )
    for later in others:
        raise UserError(
            f"'{first[0]}' and '{later[0]}' predicted different AX data; run the older one again"
        )
    frame = _r3(runs, predicted, diagnostic)
    verified = check_same_sentences(diagnostic, first[1])
    several = (frame["n"] >= LEAST_FOR_DEVIATION) & frame["std"].notna()
    deviations = (" ± " + frame["std"].map(number)).where(several, "")
    shown = frame.assign(text=frame["mean"].map(number).replace("", MISSING) + deviations)
    # An arm may be called `category`: no other column can have the label of its column.
    columns_of_arms = {arm: f"arm: {arm}" for arm in frame["arm"].unique()}
    texts = shown.assign(column=shown["arm"].map(columns_of_arms)).pivot(
        index=keys, columns="column", values="text"
    )
    wide = frame.drop_duplicates(keys)[[*keys, *SIZES]].merge(texts.reset_index(), on=keys)
    columns = {
        "category": Column("Category"),
        "phenomenon": Column("Phenomenon"),
        "examples": Column("Pairs", 0),
    }
    columns |= {name: Column(arm, show=str) for arm, name in columns_of_arms.items()}
    is_undefined = (wide["labels"] == 1).map({True: ONE_LABEL, False: ""})
    marks = pd.DataFrame(dict.fromkeys(columns_of_arms.values(), is_undefined))
    without = len(cells) - len(runs)
    other = len(finished) - len(cells)
    data = ""
    if "mnli" in results.altered_tasks:
        data = "MNLI with other rows than the official ones: no published score compares"
    elif "mnli" in results.partial_tasks:
        data = "MNLI in part: no published score compares"
    facts = (
        (
            "Seeds",
            ", ".join(
                f"{arm} {n}" for arm, n in frame.groupby("arm", sort=False)["n"].first().items()
            ),
        ),
        ("Left out", f"{without} finished runs of MNLI that predicted no AX" if without else ""),
        ("Left out", OTHER_AX.format(count=other) if other else ""),
        ("Data", data),
        ("Order", "" if verified else UNVERIFIED),
    )
    legend = (R3, *([ONE_LABEL_MEANS] if marks.any(axis=None) else []))
    wide = wide.assign(category=wide["category"].replace("", "All"))
    tables = Table(frame=wide, columns=columns, marks=marks, legend=legend), facts_table(facts)
    return Page(
        title=f"Diagnostic set: {results.experiment}",
        banner=results.banner,
        tables=tables,
        data=frame,
    )


def _predictions(
    board: Board, cells: pd.DataFrame, diagnostic: Diagnostic
) -> dict[str, np.ndarray]:
    """The classes that runs of MNLI predicted, by cell."""
    predicted, pairs = dict[str, np.ndarray](), len(diagnostic.pairs)
    for cell_id in cells["cell_id"]:
        if (logits := board.results.logits(cell_id, test=True).get(AX_SPLIT)) is None:
            continue
        if len(logits) != pairs:
            raise UserError(
                f"{diagnostic.path} has {pairs} rows, but '{cell_id}' predicted {len(logits)}; expected the labels of "
                "the sentences that were predicted"
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


def _r3(
    runs: pd.DataFrame, predicted: dict[str, np.ndarray], diagnostic: Diagnostic
) -> pd.DataFrame:
    labels, rows = diagnostic.pairs["label"].to_numpy(), []
    for run, (place, chosen) in product(runs.to_dict("records"), diagnostic.phenomena.items()):
        (value,) = score("ax", predicted[run["cell_id"]][chosen], labels[chosen]).values()
        counts = int(chosen.sum()), len(np.unique(labels[chosen]))
        rows.append(
            (run["arm"], *place, run["pretraining_seed"], run["seed"], 100 * value, *counts)
        )
    values = pd.DataFrame(rows, columns=[*PLACE, *BOTH_SEEDS, "value", *SIZES])
    sizes = values.drop_duplicates(PLACE)[[*PLACE, *SIZES]]
    return aggregate_independent(values, PLACE).reset_index().merge(sizes, on=PLACE)
