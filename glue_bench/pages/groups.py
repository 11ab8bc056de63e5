"""Which groups of arms have a table, and the line of fixed fields above a table."""

import re
from collections.abc import Iterable

from pandas import DataFrame

from glue_bench.board.board import BLOCK_COLUMNS, Board
from glue_bench.board.compare import CONVERSION, Comparison
from glue_bench.board.leaderboard import Standing
from glue_bench.data.measures import AVERAGE
from glue_bench.pages.numbers import format_number
from glue_bench.stats.verdicts import Group

CONVERSION_HEADING = "Converted from {source}: what the conversion costs, no ranking"
COMPARISON_TEXT = (
    "{column} against `{reference}`: "
    "{better} better, {worse} worse, {alike} not told apart, {untested} untested"
)
NO_COMPARISON_TEXT = "{column} against `{reference}`: nothing is compared ({why})"
PLANNED_TEXT = "planned contrasts: {differ} of {planned} differ"
FLOOR_TEXT = "{average}: best arm {best}, {baseline} {floor}"
OUTDATED_TEXT = (
    "{count} finished runs left out, which started from weights that were made again since"
)


def groups_shown(comparison: Comparison) -> dict[str, Group]:
    """Give the groups that have a table, by the heading of the table.

    A block that is a part of a group of conversions has no table: the group shows it. A block is
    called by its origin, and by its shape too where an origin has several; the heading of a single
    table is empty.
    """
    largest_groups = comparison.largest_groups
    if len(largest_groups) == 1 and largest_groups[0].kind != CONVERSION:
        return {"": largest_groups[0]}
    blocks = comparison.board.table.set_index("arm")[BLOCK_COLUMNS]
    origins = []
    for group in largest_groups:
        if group.kind != CONVERSION:
            origins.append(blocks["origin"][group.reference])
    groups = {}
    for group in largest_groups:
        if group.kind == CONVERSION:
            heading = CONVERSION_HEADING.format(source=group.reference)
        else:
            origin, shape = blocks.loc[group.reference]
            name = f"{origin}, {shape}" if origins.count(origin) > 1 else str(origin)
            heading = name[:1].upper() + name[1:]
        groups[heading] = group
    return groups


def rows_of_group(contrasts: DataFrame, group: Group) -> DataFrame:
    """Give the contrasts within a group."""
    is_of_group = (contrasts["kind"] == group.kind) & (contrasts["reference"] == group.reference)
    return contrasts[is_of_group]


def summary_line(comparison: Comparison, groups: Iterable[Group], floor: str = "") -> str:
    """Write the line above a table: what differs in the column by which arms are judged.

    Args:
        comparison: The contrasts.
        groups: The groups that the table shows; each has a field.
        floor: The field about the baselines; none if it is empty.

    Returns:
        The fields with semicolons between them; empty if there is none.
    """
    contrasts = comparison.contrasts
    of_primary = contrasts[contrasts["column"] == comparison.primary]
    fields = []
    for group in groups:
        fields.append(group_text(comparison, group, rows_of_group(of_primary, group)))
    fields.append(planned_text(comparison))
    fields.append(floor)
    fields.append(outdated_text(comparison))
    line = "; ".join(filter(None, fields))
    return f"{line}." if line else ""


def group_text(comparison: Comparison, group: Group, contrasts: DataFrame) -> str:
    """Count how many of a group's contrasts differ, or say why there is none; empty without any."""
    if contrasts.empty:
        return ""
    title = comparison.board.titles[comparison.primary]
    tested = contrasts[contrasts["why"] == ""]
    if tested.empty:
        first_reason = contrasts["why"].iloc[0].split("; ")[0]
        return NO_COMPARISON_TEXT.format(
            column=title,
            reference=group.reference,
            why=re.sub(r" \([^)]*\)$", "", first_reason),
        )
    verdicts = tested["verdict"]
    return COMPARISON_TEXT.format(
        column=title,
        reference=group.reference,
        better=(verdicts == "better").sum(),
        worse=(verdicts == "worse").sum(),
        alike=(verdicts == "").sum(),
        untested=len(contrasts) - len(tested),
    )


def planned_text(comparison: Comparison) -> str:
    """Count how many planned contrasts differ in the primary column; empty if none was planned."""
    planned = comparison.contrasts_of("declared")
    if planned.empty:
        return ""
    verdicts = planned.loc[planned["column"] == comparison.primary, "verdict"]
    return PLANNED_TEXT.format(differ=(verdicts != "").sum(), planned=planned["family"].iloc[0])


def outdated_text(comparison: Comparison) -> str:
    """Count the runs that started from weights that are no longer there; empty if there is none."""
    outdated = comparison.board.results.finished.outdated
    return OUTDATED_TEXT.format(count=len(outdated)) if outdated else ""


def floor_text(board: Board, standing: Standing) -> str:
    """Write the score of the best arm and the score of the best baseline with an average."""
    column = AVERAGE
    if len(board.average.parts) == 1:
        column = next(iter(board.average.parts))
    arms = standing.arms
    rows = standing.rows
    baselines = rows[rows["origin"] == "baseline"].dropna(subset=AVERAGE)
    if baselines.empty or arms[column].isna().all():
        return ""
    best_baseline = baselines.sort_values(AVERAGE, kind="stable").iloc[-1]
    return FLOOR_TEXT.format(
        average=board.titles[column],
        best=format_number(arms[column].max()),
        baseline=best_baseline["arm"],
        floor=format_number(best_baseline[AVERAGE]),
    )
