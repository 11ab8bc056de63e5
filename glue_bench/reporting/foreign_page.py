"""What a table of anyone's runs shows, as a page: contrasts, then how much the runs vary and what they can show."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.errors import UserError
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.grid import Grid, Page, PageSection
from glue_bench.reporting.statistics_page import p_text
from glue_bench.stats.verdicts import equivalence
from glue_bench.tables.foreign import Judged, judge_runs
from glue_bench.tables.numbers import MISSING, csv_text, json_text, number, plain_rows

DIGITS = 3
"""Significant digits of the smallest difference; what else is shown of its task and metric has as many decimals."""
ALL_DIGITS = 12
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


def render_foreign(judged: Judged, name: str, format: str = "markdown") -> str:
    """What the runs of a file of this `name` show; CSV has the contrasts alone. Raises UserError: no such format."""
    page = foreign_page(judged, name)
    if format == "csv":
        return csv_text(judged.contrasts, float_format="%.6g")
    if format == "json":
        frames = {"contrasts": judged.contrasts, "power": judged.power}
        head = {"title": page.title, "notes": list(page.notes)}
        return json_text(head | {key: plain_rows(frame, ALL_DIGITS) for key, frame in frames.items()})
    return render_page(page, format)


def foreign_page(judged: Judged, name: str) -> Page:
    """Two tables and what their columns mean."""
    contrasts, power = judged.contrasts, judged.power
    reference, tested = contrasts["reference"].iloc[0], contrasts["why"] == ""
    decimals = {(row["task"], row["metric"]): _decimals(row["smallest"]) for row in power.to_dict("records")}
    notes = [CONTRASTS, *(COVERS[kind] for kind in contrasts["seeds"][tested].unique()), POWER]
    notes += [OF_AVERAGE] if "" in set(power["metric"]) else [NO_AVERAGE] if power["task"].nunique() > 1 else []
    notes += [EQUIVALENT] if "p_equivalent" in contrasts else []
    return Page(
        title=f"Statistics: {name}",
        sections=(
            PageSection(title=f"Differences from {reference}", grid=_contrasts(contrasts, decimals)),
            PageSection(title="What the runs can show", grid=_power(power, decimals)),
        ),
        notes=tuple(notes),
    )


def _decimals(smallest: float) -> int:
    return max(0, DIGITS - 1 - math.floor(math.log10(smallest))) if smallest > 0 else DIGITS


def _contrasts(contrasts: pd.DataFrame, decimals: Mapping[tuple[str, str], int]) -> Grid:
    tested = ["p (equivalent)"] if "p_equivalent" in contrasts else []
    header = ["Task", "Metric", "Difference of", "Difference", "95% interval", "Runs", "p", "p (adjusted)", *tested]

    def texts(row: Mapping[Any, Any]) -> list[str]:
        shown = decimals[row["task"], row["metric"]]
        n = (row["n_system"], row["n_reference"])
        return [
            *(row["task"], row["metric"], f"{row['system']} - {row['reference']}"),
            number(row["difference"], shown) or MISSING,
            MISSING if row["why"] else f"{number(row['low'], shown)} to {number(row['high'], shown)}",
            f"{n[0]}" if n[0] == n[1] else f"{n[0]}, {n[1]}",
            *(p_text(row[name]) for name in ("p", "p_adjusted", "p_equivalent") if name in row),
            row["verdict"] or ("equivalent" if row.get("equivalent") else row["why"]),
        ]

    last = len(header)
    return Grid.of([*header, "Verdict"], map(texts, contrasts.to_dict("records")), texts=(0, 1, 2, last))


def _power(power: pd.DataFrame, decimals: Mapping[tuple[str, str], int]) -> Grid:
    titles = {"block_deviation": "Between blocks", "seed_deviation": "Between seeds", "smallest": "Smallest"}
    shown = [name for name in titles if name != "block_deviation" or power[name].notna().any()]

    def texts(row: Mapping[Any, Any]) -> list[str]:
        exact, blocks, seeds = decimals[row["task"], row["metric"]], row["blocks_needed"], row["seeds_needed"]
        needed = f"{seeds} seeds" if blocks == 1 else f"{blocks} blocks" + f" of {seeds} seeds" * bool(seeds > 1)
        numbers = [number(row[name], exact) or MISSING for name in shown]
        return [row["task"], row["metric"], row["best"], *numbers, row["why"] or needed]

    header = ["Task", "Metric", "Best", *(titles[name] for name in shown), "80% power"]
    return Grid.of(header, map(texts, power.to_dict("records")), texts=(0, 1, 2, len(header) - 1))
