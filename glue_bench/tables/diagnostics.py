"""What models of MNLI know: R3 on the labelled diagnostic set, as a whole, by category and by phenomenon.

R3 is the Matthews correlation for three classes (Gorodkin 2004), x100 as Wang et al. 2019, "GLUE", report it.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from glue_bench.data.diagnostic import Diagnostic, check_order
from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import AX_SPLIT
from glue_bench.errors import UserError
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION
from glue_bench.tables.board import Board, aggregate
from glue_bench.tables.numbers import MISSING, banner, number
from glue_bench.tables.submission import HOW
from glue_bench.tables.table import Column, Page, Table, facts_table

FRAME_COLUMNS = ("arm", "category", "phenomenon", "mean", "std", "n", "examples", "labels")
ONE_LABEL = "°"
R3 = (
    "R3: the Matthews correlation for three classes, times 100: mean ± sample standard deviation over seeds (of fewer "
    "than three none), at the rate reported for MNLI, after the last epoch. A pair counts in each phenomenon that it "
    "shows."
)
ONE_LABEL_MEANS = "° all pairs have one label, so that R3 is undefined and counts as 0."
UNVERIFIED = "labels and predictions are known to agree in their number only"


def diagnostics_page(board: Board, diagnostic: Diagnostic) -> Page:
    """A row for each category and each of its phenomena, one column per arm; every run counts that has predicted AX.

    Its data are R3 x100 of every arm on each phenomenon: FRAME_COLUMNS, one row per arm and phenomenon. `category` and
    `phenomenon` are empty for everything, `phenomenon` for a category. `n` counts seeds, of several pretrainings these,
    `examples` pairs, `labels` the different labels among them: with one of them R3 is 0, whatever is predicted.

    Raises:
        UserError: no run predicted AX, runs that predicted different ones, or labels that are not those of the
            predicted sentences.
    """
    cells, results, keys = board.reported[board.reported["task"] == "mnli"], board.results, ["category", "phenomenon"]
    predicted = _predictions(board, cells, diagnostic)
    runs = cells[cells["cell_id"].isin(predicted)]
    verified = check_order(diagnostic, _digest(runs))
    frame, without = _r3(pd.DataFrame(_values(runs, predicted, diagnostic))), len(cells) - len(runs)
    rows = frame.drop_duplicates(keys)[[*keys, "examples", "labels"]].reset_index(drop=True)
    several = (frame["n"] >= LEAST_FOR_DEVIATION) & frame["std"].notna()
    deviations = (" ± " + frame["std"].map(number)).where(several, "")
    shown = frame.assign(text=frame["mean"].map(number).replace("", MISSING) + deviations)
    wide = rows.merge(shown.pivot(index=keys, columns="arm", values="text").reset_index(), on=keys)
    wide = wide.assign(category=wide["category"].replace("", "All"))
    arms = list(dict.fromkeys(frame["arm"]))
    seeds = frame.groupby("arm", sort=False)["n"].first()
    facts = (
        ("Seeds", ", ".join(f"{arm} {count}" for arm, count in seeds.items())),
        ("Left out", f"{without} finished runs of MNLI that predicted no AX" if without else ""),
        ("Data", "MNLI in part: no published score compares" if "mnli" in results.partial_tasks else ""),
        ("Order", "" if verified else UNVERIFIED),
    )
    columns = {"category": Column("Category"), "phenomenon": Column("Phenomenon"), "examples": Column("Pairs", 0)}
    columns |= {arm: Column(arm, show=str) for arm in arms}
    one_label = wide["labels"] == 1
    marks = pd.DataFrame({arm: one_label.map({True: ONE_LABEL, False: ""}) for arm in arms})
    legend = (R3, *([ONE_LABEL_MEANS] if one_label.any() else []))
    return Page(
        title=f"Diagnostic set: {results.experiment}",
        banner=banner(results.data_source),
        tables=(
            Table(frame=wide, columns=columns, marks=marks, legend=legend),
            facts_table(facts),
        ),
        data=frame,
    )


def _predictions(board: Board, cells: pd.DataFrame, diagnostic: Diagnostic) -> dict[str, np.ndarray]:
    """The classes that runs of MNLI predicted, by cell."""
    predicted = {}
    for cell_id in cells["cell_id"]:
        if (logits := board.results.arrays.tests(cell_id).get(AX_SPLIT)) is not None:
            try:
                predicted[cell_id] = decide("ax", logits)
            except ValueError as error:
                raise UserError(f"predictions of '{cell_id}', split '{AX_SPLIT}': {error}") from error
            if len(logits) != len(diagnostic.pairs):
                raise UserError(
                    f"{diagnostic.path} has {len(diagnostic.pairs)} rows, but '{cell_id}' predicted {len(logits)}; "
                    "expected the labels of the sentences that were predicted"
                )
    if not predicted:
        raise UserError(f"no run of '{board.results.folder}' has predicted AX; {HOW}")
    return predicted


def _digest(runs: pd.DataFrame) -> str:
    """The digest of the AX that all of the runs predicted."""
    first, *others = runs.sort_values("cell_id").drop_duplicates("diagnostic")[["cell_id", "diagnostic"]].to_numpy()
    for other in others:
        raise UserError(f"'{first[0]}' and '{other[0]}' predicted different AX data; run the older one again")
    return first[1]


def _values(
    runs: pd.DataFrame, predicted: dict[str, np.ndarray], diagnostic: Diagnostic
) -> Iterator[dict[str, object]]:
    labels = diagnostic.pairs["label"].to_numpy()
    keys = ["cell_id", "arm", "pretraining_seed", "seed"]
    for cell_id, arm, pretraining_seed, seed in runs[keys].itertuples(index=False):
        for (category, phenomenon), rows in diagnostic.phenomena.items():
            (value,) = score("ax", predicted[cell_id][rows], labels[rows]).values()
            size = {"examples": int(rows.sum()), "labels": len(np.unique(labels[rows]))}
            place = {"arm": arm, "category": category, "phenomenon": phenomenon}
            yield {**place, "pretraining_seed": pretraining_seed, "seed": seed, "value": 100 * value, **size}


def _r3(values: pd.DataFrame) -> pd.DataFrame:
    """FRAME_COLUMNS of single runs' values: of several pretrainings means of those that start from the same one."""
    by = ["arm", "category", "phenomenon"]
    several = values.groupby("arm")["pretraining_seed"].transform("nunique") > 1
    units = values.assign(unit=values["seed"].where(~several, values["pretraining_seed"]))
    means = aggregate(units, [*by, "unit"])["mean"].rename("value").reset_index()
    sizes = values.drop_duplicates(by)[[*by, "examples", "labels"]]
    return aggregate(means, by).reset_index().merge(sizes, on=by)[list(FRAME_COLUMNS)]
