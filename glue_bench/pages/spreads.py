"""The tables of how far scores spread, over seeds and over examples."""

import math
from dataclasses import replace

from pandas import DataFrame

from glue_bench.board.compare import Comparison
from glue_bench.data.measures import MEASURES
from glue_bench.data.tasks import find_task, scored_columns
from glue_bench.pages.headings import heading_of
from glue_bench.pages.numbers import MISSING, format_number
from glue_bench.pages.page import Column, Table, with_legend
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.verdicts import LEAST_FOR_DEVIATION, Group

SPREAD_COLUMNS = {
    "column": Column("Column"),
    "pretraining": Column("Between pretrainings", show=str),
    "finetuning": Column("Between fine-tunings", show=str),
    "examples": Column("Over examples", show=str),
    "smallest": Column("Smallest difference", show=str),
}
NOISE_COLUMNS = {
    "column": Column("Column"),
    "pretraining": Column("Pretraining", show=str),
    "finetuning": Column("Fine-tuning", show=str),
    "examples": Column("Examples", show=str),
}
NOISE_LEGEND = {
    "noise": "Shares of the variance of a difference from the reference. Only a larger validation "
    "set reduces that of examples. With one fine-tuning seed for each pretraining, the share of "
    "pretraining includes it.",
}
SPREAD_LEGEND = {
    "smallest": "Standard deviations, in the unit of the column. Between pretrainings: of an arm "
    "beyond what the seed does to all arms; with one fine-tuning seed for each pretraining it "
    "includes fine-tuning. Over examples: of a difference, over other validation sets (for Val. "
    "loss documents) of this size; no number of seeds reduces it.",
    "clusters": "Rows that share a text (MNLI's premise, QNLI's question) are one cluster.",
    "no clusters": "These results were stored without clusters: examples that share a text (MNLI's "
    "premise, QNLI's question) count as independent. The same `glue-bench run` stores them.",
    "dash": "A dash is not known, or not told from 0; as a smallest difference it is more than "
    "scores can differ.",
    "few runs": "Of two seeds p rests on the spread of all arms together, and is too small where "
    "one arm varies more than the others: take three.",
}
"""The legend lines by the column or row of the tables that they explain."""


def spread_tables(comparison: Comparison, contrasts: DataFrame) -> list[Table]:
    """Make a table for each group of arms, the last one with a legend.

    Args:
        comparison: The estimates of the groups.
        contrasts: The contrasts that the page shows. The legend warns if a contrast has few seeds.

    Returns:
        The tables of the groups in which anything was tested.
    """
    tables = []
    for group in comparison.largest_groups:
        table = spread_table(comparison, group)
        heading = heading_of(group, comparison)
        if len(table.frame):
            tables.append(replace(table, title=f"Spread: {heading}"))
    if len(tables) == 1:
        tables = [replace(tables[0], title="Spread")]
    seeds = contrasts.loc[contrasts["why"] == "", ["n_arm", "n_reference"]].to_numpy(int)
    is_few = (seeds < LEAST_FOR_DEVIATION).any()
    return with_legend(tables, SPREAD_LEGEND, ["few runs"] if is_few else [])


def noise_tables(comparison: Comparison) -> list[Table]:
    """Make a table of each group's shares of noise, the last one with a legend."""
    tables: list[Table] = []
    for group in comparison.largest_groups:
        rows = []
        for estimate in group.estimates:
            shares = share_texts(estimate, group.reference)
            if set(shares.values()) != {MISSING}:
                title = comparison.board.titles[estimate.column]
                rows.append({"column": title, **shares})
        if rows:
            heading = heading_of(group, comparison)
            title = f"Where the noise is: {heading}" if heading else "Where the noise is"
            frame = DataFrame(rows, columns=list(NOISE_COLUMNS))
            tables.append(
                Table(title=title, frame=frame, columns=NOISE_COLUMNS, notes=frozenset(["noise"]))
            )
    return with_legend(tables, NOISE_LEGEND)


def share_texts(estimate: ColumnEstimate, reference: str) -> dict[str, str]:
    """Write the shares of each source of noise as percentages; an unknown one is a dash."""
    texts: dict[str, str] = {}
    for source, share in estimate.variance_shares(reference).items():
        texts[source] = MISSING if math.isnan(share) else f"{share:.0%}"
    return texts


def spread_table(comparison: Comparison, group: Group) -> Table:
    """Make the table of a group: a row for each column in which anything was tested."""
    contrasts = group.rows_of(comparison.contrasts)
    smallest_by_column = contrasts.groupby("column")["smallest"].median()

    rows = []
    notes = set()
    for estimate in group.estimates:
        smallest = smallest_by_column.get(estimate.column, math.nan)
        if math.isnan(smallest):
            continue
        low, high = estimate.limits
        notes.add(cluster_note(estimate))

        if smallest > high - low:  # two scores cannot differ by so much
            smallest = math.nan
        row = {"column": comparison.board.titles[estimate.column]}
        values = deviations(estimate, group.reference) | {"smallest": smallest}
        for name, value in values.items():
            row[name] = format_number(value, MEASURES[estimate.column].decimals) or MISSING
        if MISSING in row.values():
            notes.add("dash")
        rows.append(row)

    return Table(
        frame=DataFrame(rows, columns=list(SPREAD_COLUMNS)),
        columns=SPREAD_COLUMNS,
        notes=frozenset(notes),
    )


def cluster_note(estimate: ColumnEstimate) -> str:
    """Give the key of the line in SPREAD_LEGEND about a column's clusters, or ""."""
    task, _ = scored_columns().get(estimate.column, ("", ""))
    if not task or not find_task(task).cluster:
        return ""
    return "clusters" if estimate.clustered else "no clusters"


def deviations(estimate: ColumnEstimate, reference: str) -> dict[str, float]:
    """Give the standard deviations of a column by source; NaN where one is not told from 0."""
    finetuning_variance = sum(runs.finetuning_variance for runs in estimate.tasks.values())
    variances = {
        "pretraining": estimate.pretraining_variance,
        "finetuning": finetuning_variance,
        "examples": estimate.example_variance(reference),
    }
    roots = {}
    for source, variance in variances.items():
        roots[source] = math.sqrt(variance) if variance > 0 else math.nan
    return roots
