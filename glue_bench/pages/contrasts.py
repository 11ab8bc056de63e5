"""The page of contrasts: which arms differ, by how much, and how far scores spread."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from glue_bench.board.compare import Comparison
from glue_bench.data.measures import MEASURES
from glue_bench.errors import UserError
from glue_bench.pages.lags import lag_tables
from glue_bench.pages.numbers import MISSING, format_difference, format_p
from glue_bench.pages.page import Column, Page, Table, with_legend
from glue_bench.pages.seeds_needed import difference_page
from glue_bench.pages.spreads import noise_tables, spread_tables
from glue_bench.pages.summary import summary_line
from glue_bench.stats.verdicts import equivalence

CSV_DECIMALS = 6
DEFAULT_POWER = 0.8
KIND_TITLES = {"declared": "planned", "conversion": "conversion", "reference": "from reference"}
"""How the table calls the kinds of contrasts, in its order."""
CONTRAST_LEGEND = {
    "difference": "Difference: the first arm less the second, in points; of Val. loss in nats, "
    "where below 0 is better. Seeds agreeing: how many of the seeds have its sign.",
    "declared": "planned: named before the runs, p corrected by Holm for their number; cite those "
    "of the column that the first line names.",
    "reference": "from reference: every other arm less the reference, p times the number of arms; "
    "exploratory beside planned contrasts.",
    "conversion": "conversion: a converted arm less the arm whose checkpoint it was made from, "
    "p times the number of converted arms. It ranks nothing.",
    "interval": "95% interval: holds for all contrasts of its family and column together "
    "(Bonferroni). Holm may find a difference whose interval includes 0. No verdict: not shown to "
    "differ; the interval says which differences remain possible. `statistics.csv` has all "
    "contrasts, also those of other columns that have no verdict.",
    "p_paired": "p (paired t): Student's paired t test on the seeds, from six seeds on, corrected "
    "as p (adjusted) is. It pools no variance over arms and leaves out the examples. It is a "
    "sensitivity analysis: the registered rule decides.",
    "p_equivalent": "Equivalent: the whole interval lies within the margin. p (equivalent): two "
    "one-sided tests, each at half of 5%, corrected as the interval is.",
}
"""The legend lines by the column or the kind of contrasts that they explain."""
NOTHING_COMPARED = (
    "Nothing is compared: no table of the leaderboard has two arms. "
    "`glue-bench compare DIR/A DIR/B` compares arms of several experiments."
)
STATISTICS_COLUMNS = {
    "family": Column("Family"),
    "column": Column("Column"),
    "contrast": Column("Contrast"),
    "difference": Column("Difference", show=str),
    "interval": Column("95% interval", show=str),
    "agreeing": Column("Seeds agreeing", show=str),
    "p_adjusted": Column("p (adjusted)", show=str),
    "p_paired": Column("p (paired t)", show=str),
    "p_equivalent": Column("p (equivalent)", show=str),
    "verdict": Column("Verdict"),
}


def page_of_options(
    comparison: Comparison, equivalent: float | None, difference: float | None, power: float | None
) -> Page:
    """Make the page that the options of `statistics` ask for.

    Args:
        comparison: The contrasts.
        equivalent: A margin within which arms count as equivalent; for a `statistics_page`.
        difference: A true difference; with it the page is a `difference_page`.
        power: The probability with which the difference is found.

    Returns:
        One of the two pages.

    Raises:
        UserError: options of both pages are given.
    """
    if difference is None:
        if power is not None:
            raise UserError("--power is the probability of seeing a --difference: give both")
        return statistics_page(comparison, equivalent)
    if equivalent is not None:
        raise UserError("--difference stands alone, without --equivalent")
    return difference_page(comparison, difference, DEFAULT_POWER if power is None else power)


def statistics_page(comparison: Comparison, equivalent: float | None = None) -> Page:
    """Make the page of contrasts and spreads; as CSV and JSON it has all contrasts.

    With a margin `equivalent` each contrast has the test of `equivalence`, which may raise
    UserError.
    """
    contrasts = comparison.contrasts
    if equivalent is not None:
        contrasts = equivalence(contrasts, equivalent)
    results = comparison.board.results
    table = contrasts_table(comparison, contrasts)
    return Page(
        title=f"Statistics: {results.experiment}",
        banner=results.banner,
        tables=(
            table,
            *spread_tables(comparison, contrasts),
            *noise_tables(comparison),
            *lag_tables(comparison),
        ),
        data=contrasts,
        decimals=CSV_DECIMALS,
    )


def contrasts_table(comparison: Comparison, contrasts: DataFrame) -> Table:
    """Make the table of contrasts, planned ones first, with its legend.

    Args:
        comparison: What the contrasts belong to.
        contrasts: The frame of `stats.verdicts`, perhaps with tests of equivalence.

    Returns:
        All contrasts on the primary column; on other columns those with a verdict.
    """
    chosen = chosen_contrasts(comparison, contrasts)
    columns = dict(STATISTICS_COLUMNS)
    if "p_equivalent" not in contrasts:
        del columns["p_equivalent"]
    if chosen["p_paired"].isna().all():
        del columns["p_paired"]
    rows = [contrast_texts(comparison, contrast) for contrast in chosen.to_dict("records")]
    table = Table(
        frame=DataFrame(rows, columns=list(columns)),
        columns=columns,
        caption=summary_line(comparison, comparison.largest_groups),
    )
    if contrasts.empty:
        return replace(table, caption=NOTHING_COMPARED)
    return with_legend([table], CONTRAST_LEGEND, chosen["kind"].unique())[0]


def chosen_contrasts(comparison: Comparison, contrasts: DataFrame) -> DataFrame:
    """Choose the contrasts that a page shows, in its order; in a column the best one is first."""
    is_primary = contrasts["column"] == comparison.primary
    is_shown = is_primary | (contrasts["verdict"] != "")
    declared_pairs = {frozenset(pair) for pair in comparison.board.protocol.contrasts}
    pairs = zip(contrasts["arm"], contrasts["reference"], strict=True)
    is_declared = np.array([frozenset(pair) in declared_pairs for pair in pairs], dtype=bool)
    # A planned contrast with the reference is shown once in the primary column, as a planned one.
    # In other columns it is shown twice, because the two tests are corrected for different numbers
    # of contrasts. If both numbers are 1, they are the same test.
    is_same_test = (contrasts["family"] == 1) & (len(declared_pairs) == 1)
    is_of_reference = contrasts["kind"] == "reference"
    is_repeated = is_of_reference & is_declared & (is_primary | is_same_test)
    chosen = contrasts[is_shown & ~is_repeated]
    parts = [chosen[chosen["kind"] == kind] for kind in KIND_TITLES if kind != "reference"]
    from_reference = chosen[chosen["kind"] == "reference"]
    for column, of_column in from_reference.groupby("column", sort=False):
        lowest_first = MEASURES[str(column)].lowest_is_best
        parts.append(of_column.sort_values("difference", ascending=lowest_first, kind="stable"))
    return pd.concat(parts)


def contrast_texts(comparison: Comparison, contrast: dict[Any, Any]) -> dict[str, str]:
    """Write a contrast as a row of the table; what is not known is a dash.

    `family` is the number of contrasts for which its p is corrected, and `why` is the reason why it
    has no test.
    """
    texts = {
        "family": f"{KIND_TITLES[contrast['kind']]} ({contrast['family']})",
        "column": comparison.board.titles[contrast["column"]],
        "agreeing": MISSING,
        **verdict_texts(contrast, MEASURES[contrast["column"]].decimals),
    }
    # Of single runs no seeds were drawn, but examples alone.
    if contrast["why"] == "" and contrast["seeds"] != "examples":
        texts["agreeing"] = f"{contrast['agree']} of {contrast['paired']}"
    return texts


def verdict_texts(contrast: Mapping[Any, Any], decimals: int) -> dict[str, str]:
    """Write what a contrast shows, by the columns of a table; what is not known is a dash."""
    texts = {
        "contrast": f"{contrast['arm']} - {contrast['reference']}",
        "difference": format_difference(contrast["difference"], decimals) or MISSING,
        "interval": MISSING,
        "verdict": contrast["verdict"],
    }

    if contrast["why"] == "":
        low = format_difference(contrast["low"], decimals)
        high = format_difference(contrast["high"], decimals)
        texts["interval"] = f"{low} to {high}"

    if not contrast["verdict"]:
        texts["verdict"] = "equivalent" if contrast.get("equivalent") else contrast["why"]

    for name in ("p_adjusted", "p_paired", "p_equivalent"):
        if name in contrast:
            texts[name] = format_p(contrast[name])
    return texts
