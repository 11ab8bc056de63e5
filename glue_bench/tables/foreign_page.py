"""What a table of anyone's runs shows, as a page: contrasts, then how much the runs vary and what they can show."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pandas import DataFrame

from glue_bench.errors import UserError
from glue_bench.stats.verdicts import equivalence
from glue_bench.tables.contrasts import p_text
from glue_bench.tables.foreign import Judged, judge_runs
from glue_bench.tables.numbers import MISSING, number
from glue_bench.tables.table import Column, Page, Table

DIGITS = 3
"""Significant digits of the smallest difference; what else is shown of its task and metric has as many decimals."""
DECIMALS = 9
CONTRAST = {
    "task": Column("Task"),
    "metric": Column("Metric"),
    "contrast": Column("Contrast"),
    "difference": Column("Difference", show=str),
    "interval": Column("95% interval", show=str),
    "runs": Column("Runs", show=str),
    "p_adjusted": Column("p (adjusted)", show=str),
    "p_equivalent": Column("p (equivalent)", show=str),
    "verdict": Column("Verdict"),
}
SPREADS = {"block_deviation": "Between blocks", "seed_deviation": "Between seeds", "smallest": "Smallest"}
COVERS = {
    "seed": "Intervals cover other seeds, not other examples: scores do not say how each example was answered.",
    "block": "Intervals cover other blocks and seeds, not other examples: scores do not say how each one was answered.",
}
CONTRASTS = (
    "Difference: the mean of the first system less that of the second, in the unit of the metric. The 95% intervals of "
    "a task and metric hold for all systems together, and p (adjusted) is p times their number: an interval excludes 0 "
    "exactly where p (adjusted) is below 0.05, and only then is a system called better or worse. No verdict does not "
    "mean equal."
)
POWER = (
    "Smallest: a measured difference as large as this has a verdict. If the true difference is as large, only about "
    "half of such experiments find it; 80% power: with how many seeds or blocks of each system four out of five do."
)
OF_AVERAGE = "Average: the mean of the tasks in each seed."
NO_AVERAGE = "No average: a task has several metrics, or the lowest is best on some tasks only."
EQUIVALENT = "Equivalent: p (equivalent), the larger p of two one-sided tests, is below 0.05 after the same correction."


def is_table(path: str | Path, reference: str | None, lower: Collection[str], pairs: bool) -> bool:
    """Whether a path is a table of runs, FILE.csv, and not the folder of an experiment.

    Raises:
        UserError: an option that goes with the other one.
    """
    found = Path(path).suffix.lower() == ".csv" and not Path(path).is_dir()
    if found and pairs:
        raise UserError(f"--pairs: systems in a table such as '{path}' are compared with one reference; leave it out")
    if not found and (reference is not None or lower):
        raise UserError(
            f"--reference and --lower go with a table of runs (FILE.csv), not with '{path}'; an experiment's own "
            "reference is protocol.reference in its file"
        )
    return found


def judge_file(
    path: str | Path, reference: str | None, lower: Collection[str] = (), equivalent: float | None = None
) -> Judged:
    """As `judge_runs`; with a margin `equivalent` its contrasts have the columns of `stats.verdicts.equivalence`.

    Raises:
        UserError: as `judge_runs`, or the margin is not above 0.
    """
    if equivalent is not None and not equivalent > 0:
        raise UserError(f"--equivalent {equivalent:g}: give a difference above 0, such as 0.5")
    judged = judge_runs(path, reference, lower)
    if equivalent is None:
        return judged
    return Judged(contrasts=equivalence(judged.contrasts, equivalent), power=judged.power)


def foreign_page(judged: Judged, name: str) -> Page:
    """The contrasts of a file of this `name`, and what its runs can show; CSV and JSON have the contrasts."""
    contrasts, power = judged.contrasts, judged.power
    reference, tested = contrasts["reference"].iloc[0], contrasts["why"] == ""
    decimals = {(row["task"], row["metric"]): _decimals(row["smallest"]) for row in power.to_dict("records")}
    legend = [CONTRASTS, *(COVERS[kind] for kind in contrasts["seeds"][tested].unique())]
    legend += [EQUIVALENT] if "p_equivalent" in contrasts else []
    average = [OF_AVERAGE] if "" in set(power["metric"]) else [NO_AVERAGE] if power["task"].nunique() > 1 else []
    rows = [_contrast(row, decimals[row["task"], row["metric"]]) for row in contrasts.to_dict("records")]
    shown = DataFrame(rows, columns=list(CONTRAST))
    columns = {key: column for key, column in CONTRAST.items() if key != "p_equivalent" or key in contrasts}
    title = f"Differences from {reference}"
    return Page(
        title=f"Statistics: {name}",
        tables=(
            Table(title=title, frame=shown, columns=columns, legend=tuple(legend)),
            _power(power, decimals, (POWER, *average)),
        ),
        data=contrasts,
        decimals=DECIMALS,
    )


def _decimals(smallest: float) -> int:
    return max(0, DIGITS - 1 - math.floor(math.log10(smallest))) if smallest > 0 else DIGITS


def _contrast(row: Mapping[Any, Any], decimals: int) -> dict[str, str]:
    n, known = (row["n_system"], row["n_reference"]), row["why"] == ""
    return {
        **{name: row[name] for name in ("task", "metric")},
        "contrast": f"{row['system']} - {row['reference']}",
        "difference": MISSING if pd.isna(row["difference"]) else f"{row['difference']:+z.{decimals}f}",
        "interval": f"{row['low']:+z.{decimals}f} to {row['high']:+z.{decimals}f}" if known else MISSING,
        "runs": f"{n[0]}" if n[0] == n[1] else f"{n[0]}, {n[1]}",
        "p_adjusted": p_text(row["p_adjusted"]),
        "p_equivalent": p_text(row.get("p_equivalent", math.nan)),
        "verdict": row["verdict"] or ("equivalent" if row.get("equivalent") else row["why"]),
    }


def _power(power: DataFrame, decimals: Mapping[tuple[str, str], int], legend: tuple[str, ...]) -> Table:
    def texts(row: Mapping[Any, Any]) -> dict[str, str]:
        exact, blocks, seeds = decimals[row["task"], row["metric"]], row["blocks_needed"], row["seeds_needed"]
        needed = f"{seeds} seeds" if blocks == 1 else f"{blocks} blocks" + (f" of {seeds} seeds" if seeds > 1 else "")
        numbers = {name: number(row[name], exact) or MISSING for name in SPREADS}
        return {name: row[name] for name in ("task", "metric", "best")} | numbers | {"needed": row["why"] or needed}

    columns = {name: Column(name.capitalize()) for name in ("task", "metric", "best")}
    columns |= {name: Column(text, show=str) for name, text in SPREADS.items()
                if name != "block_deviation" or power[name].notna().any()}  # fmt: skip
    frame = DataFrame(map(texts, power.to_dict("records")))
    return Table(
        title="What the runs can show", frame=frame, columns=columns | {"needed": Column("80% power")}, legend=legend
    )
