"""The line above a table: what differs in the column by which arms are judged.

The line has fixed fields. To add one, write a function that returns its text, and let
`summary_line` append it.
"""

import re
from collections.abc import Iterable

from glue_bench.board.board import Board
from glue_bench.board.compare import Comparison
from glue_bench.board.standings import Standing
from glue_bench.data.measures import AVERAGE
from glue_bench.pages.numbers import format_number
from glue_bench.stats.verdicts import Group

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


def summary_line(comparison: Comparison, groups: Iterable[Group], floor: str = "") -> str:
    """Write the line above a table: what differs in the column by which arms are judged.

    Args:
        comparison: The contrasts.
        groups: The groups that the table shows; each has a field.
        floor: The field about the baselines; none if it is empty.

    Returns:
        The fields with semicolons between them; empty if there is none.
    """
    fields = []
    for group in groups:
        fields.append(group_text(comparison, group))
    fields.append(planned_text(comparison))
    fields.append(floor)
    outdated = comparison.board.results.finished.outdated
    if outdated:
        fields.append(OUTDATED_TEXT.format(count=len(outdated)))
    line = "; ".join(filter(None, fields))
    return f"{line}." if line else ""


def group_text(comparison: Comparison, group: Group) -> str:
    """Count how many of a group's contrasts differ, or say why there is none; empty without any."""
    contrasts = group.rows_of(comparison.contrasts)
    contrasts = contrasts[contrasts["column"] == comparison.primary]
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
