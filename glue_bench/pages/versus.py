"""The comparison of anyone's systems as a page: means, differences, and where the noise is."""

import math
from dataclasses import replace

from pandas import DataFrame
from scipy.special import ndtri

from glue_bench.board.versus import Versus
from glue_bench.data.measures import AVERAGE
from glue_bench.pages.contrasts import verdict_texts
from glue_bench.pages.numbers import MISSING, format_number
from glue_bench.pages.page import Column, Page, Table
from glue_bench.pages.spreads import share_texts
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.power import Costs, power_frame
from glue_bench.stats.verdicts import ALPHA, equivalence

POWER = 0.8
DECIMALS = 6
SIGNIFICANT_DIGITS = 3
POINT_DECIMALS = 2
COVERS = {
    "examples": (
        "One run of each system. **Intervals cover other examples of this kind alone.** They do "
        "not cover other seeds: how much a system varies from run to run is not known."
    ),
    "seeds": (
        "Scores of runs, without examples. **Intervals cover other seeds alone.** They do not "
        "cover other examples."
    ),
    "seeds and examples": "Intervals cover other seeds and other examples.",
}
"""The first line of the page, by the kind of the data."""
LEGEND = {
    "difference": (
        "Difference: the first system less the second, in the unit of the metric; points "
        "(0 to 100) for answers that are right or wrong."
    ),
    "named": (
        "p (adjusted): corrected by Holm for the systems that are compared with the reference. The "
        "95% intervals of a task hold for all of them together (Bonferroni)."
    ),
    "best": (
        "The reference is the system with the best mean, which the data chose. So p (adjusted) "
        "and the 95% intervals are corrected for all pairs of systems (Bonferroni)."
    ),
    "verdict": (
        "No verdict: the data do not tell the two systems apart. It does not mean that they are "
        "equal; the interval says which differences remain possible."
    ),
    "equivalent": (
        "Equivalent: the whole interval lies within the margin. p (equivalent): two one-sided "
        "tests, corrected as the interval is."
    ),
    "noise": (
        "Where the noise is: shares of the variance of a difference; a dash is not known. With one "
        "seed in each block, the share of blocks includes seeds. Smallest: half the width of an "
        "interval, the median over systems; a measured difference as large as this has a verdict. "
        "80% power: what it takes to find a true difference of that size four times out of five."
    ),
}


def versus_page(versus: Versus, equivalent: float | None = None) -> Page:
    """Return the page of a comparison; its data are the contrasts.

    Args:
        versus: The comparison.
        equivalent: A margin, to test which systems differ by less.

    Raises:
        UserError: the margin is not above 0.
    """
    contrasts = versus.contrasts
    if equivalent is not None:
        contrasts = equivalence(contrasts, equivalent)
    title = f"Differences from {versus.group.reference}"
    return Page(
        title=title,
        tables=(
            means_table(versus),
            differences_table(versus, contrasts),
            noise_table(versus),
        ),
        data=contrasts,
        decimals=DECIMALS,
    )


def means_table(versus: Versus) -> Table:
    """Return each system's mean in each column, and whether the data tell it from the best."""
    titles = column_titles(versus)
    first = versus.group.estimates[0]
    columns = {"system": Column("System")}
    frame = DataFrame({"system": list(versus.group.arms)})
    for estimate in versus.group.estimates:
        decimals = column_decimals(versus, estimate)
        columns[estimate.column] = Column(titles[estimate.column], decimals)
        frame[estimate.column] = frame["system"].map(estimate.means)
    frame = frame.sort_values(first.column, ascending=first.lowest_is_best, kind="stable")
    if versus.is_best:
        frame["standing"] = [_standing(versus, first, system) for system in frame["system"]]
        columns["standing"] = Column(f"By {titles[first.column]}")
    caption = COVERS[versus.covers]
    if versus.dropped:
        caption += f" {versus.dropped:,} examples that a system lacks are left out."
    return Table(title="Systems", frame=frame, columns=columns, caption=caption)


def _standing(versus: Versus, estimate: ColumnEstimate, system: str) -> str:
    """Say of a system whether it is the best, not told from it, or worse."""
    if system == versus.group.reference:
        return "best"
    rows = versus.contrasts
    row = rows[(rows["arm"] == system) & (rows["column"] == estimate.column)].iloc[0]
    if row["why"]:
        return str(row["why"])
    return str(row["verdict"]) or "not told from the best"


def differences_table(versus: Versus, contrasts: DataFrame) -> Table:
    """Return the contrasts of every column as texts, with a legend."""
    titles = column_titles(versus)
    decimals: dict[str, int] = {}
    for estimate in versus.group.estimates:
        decimals[estimate.column] = column_decimals(versus, estimate)

    rows: list[dict[str, str]] = []
    for contrast in contrasts.to_dict("records"):
        column = contrast["column"]
        rows.append({"task": titles[column], **verdict_texts(contrast, decimals[column])})

    columns = {
        "task": Column("Task"),
        "contrast": Column("Contrast"),
        "difference": Column("Difference", show=str),
        "interval": Column("95% interval", show=str),
        "p_adjusted": Column("p (adjusted)", show=str),
    }

    legend = [LEGEND["difference"], LEGEND["best" if versus.is_best else "named"]]
    legend.append(LEGEND["verdict"])
    if "p_equivalent" in contrasts:
        columns["p_equivalent"] = Column("p (equivalent)", show=str)
        legend.append(LEGEND["equivalent"])

    columns["verdict"] = Column("Verdict")
    frame = DataFrame(rows, columns=list(columns))
    return Table(title="Differences", frame=frame, columns=columns, legend=tuple(legend))


def noise_table(versus: Versus) -> Table:
    """Return for each column the sources of a difference's variance, and what reduces it."""
    titles = column_titles(versus)
    rows: list[dict[str, str]] = []
    for estimate in versus.group.estimates:
        low, high = estimate.limits
        smallest = _smallest(versus, estimate.column)
        if smallest > high - low:  # two scores cannot differ by so much
            smallest = math.nan
        row = {
            "task": titles[estimate.column],
            **share_texts(estimate, versus.group.reference),
            "smallest": format_number(smallest, column_decimals(versus, estimate)) or MISSING,
            "needed": "",
        }
        if smallest > 0:
            row["needed"] = needed_for_power(versus, estimate, smallest)
        rows.append(row)

    columns = {
        "task": Column("Task"),
        "pretraining": Column("Blocks", show=str),
        "finetuning": Column("Seeds", show=str),
        "examples": Column("Examples", show=str),
        "smallest": Column("Smallest", show=str),
        "needed": Column("80% power"),
    }

    frame = DataFrame(rows, columns=list(columns))
    legend = LEGEND["noise"]
    if (frame["pretraining"] == MISSING).all():
        del columns["pretraining"]
    return Table(title="Where the noise is", frame=frame, columns=columns, legend=(legend,))


def needed_for_power(versus: Versus, estimate: ColumnEstimate, difference: float) -> str:
    """Say how many examples, clusters or seeds find a difference of this size with 80% power."""
    family = int(versus.contrasts["family"].max())
    if estimate.single_runs:
        quantiles = -ndtri(ALPHA / 2 / family) + ndtri(POWER)
        rows = versus.contrasts
        error = rows.loc[rows["column"] == estimate.column, "error"].median()
        factor = (quantiles * error / difference) ** 2
        if estimate.column == AVERAGE:
            return f"{factor:.1f} times the examples"
        unit = "clusters" if estimate.clustered else "examples"
        count = estimate.examples_freedom + 1
        return f"{math.ceil(count * factor):,} {unit}"

    group = replace(versus.group, estimates=(estimate,))
    design = power_frame([group], difference, POWER, Costs(1.0, 1.0)).iloc[-1]

    if design["why"]:
        limit = "the examples are the limit"
        return limit if "dev set" in design["why"] else str(design["why"])
    if design["finetuning_seeds"] == 1:
        return f"{design['pretraining_seeds']} blocks"
    if design["pretraining_seeds"] > 1:
        return f"{design['pretraining_seeds']} blocks of {design['finetuning_seeds']} seeds"
    return f"{design['finetuning_seeds']} seeds"


def column_titles(versus: Versus) -> dict[str, str]:
    """Return the title of each column: the task, with the metric where a task has several."""
    pairs = versus.contrasts[["column", "task", "metric"]].drop_duplicates()
    is_repeated = pairs["task"].duplicated(keep=False)
    titles: dict[str, str] = {}
    for row, repeated in zip(pairs.to_dict("records"), is_repeated, strict=True):
        title = f"{row['task']} ({row['metric']})" if repeated else str(row["task"])
        titles[row["column"]] = "Average" if row["column"] == AVERAGE else title
    return titles


def _smallest(versus: Versus, column: str) -> float:
    """Return the median of the smallest differences with a verdict; NaN without a test."""
    rows = versus.contrasts
    return float(rows.loc[rows["column"] == column, "smallest"].median())


def column_decimals(versus: Versus, estimate: ColumnEstimate) -> int:
    """Return how many decimals a column has: 2 of points, else three digits of `smallest`."""
    if math.isfinite(estimate.limits[1]):
        return POINT_DECIMALS
    smallest = _smallest(versus, estimate.column)
    if not smallest > 0:
        return SIGNIFICANT_DIGITS
    return max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(smallest)))
