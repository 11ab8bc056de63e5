"""A published table's page: the paper's rows, ours under those that have an arm of ours, and the notes."""

import math
from collections.abc import Iterable, Iterator, Mapping

from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.reporting.alike import mixed_notes
from glue_bench.reporting.document import Grid, GridCell, Page, PageSection
from glue_bench.reporting.notes import (
    PARTIAL,
    banner,
    is_demo,
    metric_note,
    problem_notes,
    protocol_notes,
)
from glue_bench.reporting.numbers import MISSING, code, number
from glue_bench.reporting.papers.arms import SIZES, tasks_of
from glue_bench.reporting.papers.compare import Comparison
from glue_bench.reporting.papers.published import AVERAGE
from glue_bench.results.frame import Results

ABOVE, BELOW = "▲", "▼"
SECOND_METRICS = {"f1": "F1", "spearmanr": "Spearman"}
MEDIANS = "The differences were not tested, because theirs are medians over seeds, and our intervals are of means"
_NAMES = {place: column for column, place in COLUMNS.items()}


def paper_page(comparison: Comparison) -> Page:
    """The table, and what has to be known before comparing."""
    below = (comparison.cells["arm"] != "").any()
    return Page(
        title=comparison.published.title + "; ours below" * bool(below),
        banner=banner(comparison.results) if comparison.results else "",
        sections=(PageSection(title="", grid=paper_grid(comparison)),),
        notes=tuple(make_notes(comparison)),
    )


def paper_grid(comparison: Comparison) -> Grid:
    """The printed rows, the best of a column in bold; beside an experiment those with an arm of ours, and its row."""
    published, cells = comparison.published, comparison.cells
    printed: Iterable[str] = (
        published.rows[0].printed if len(published.rows) > 1 else ()
    )  # of a single row nothing is the best
    best = {column: max(float(row.printed[column]) for row in published.rows) for column in printed}
    rows: list[tuple[GridCell | str, ...]] = []
    for row in published.rows:
        ours = cells[(cells["model"] == row.label) & (cells["arm"] != "")]
        if comparison.results is None or len(ours):
            values = (GridCell(text, bold=float(text) == best.get(column)) for column, text in row.printed.items())
            rows.append((row.label, *values))
        for arm, mine in ours.groupby("arm", sort=False):
            rows.append((f"ours: {arm}", *map(_our_cell, mine.to_dict("records"))))
    header = ("Model", *(_header(comparison, column) for column in published.rows[0].printed))
    return Grid.of(header, rows)


def make_notes(comparison: Comparison) -> list[str]:
    """Where the table is from, by which conventions it is made, and what of ours is beside it."""
    published, results = comparison.published, comparison.results
    notes = [f"Source: {published.source}. The {published.split} set; {published.protocol}."]
    average = f" Average: {published.average.rule}." if published.has_average else ""
    hidden = " in any of its rows, those without an arm of ours included" if results else ""
    bold = f" Bold is the best value that the paper prints{hidden}." if len(published.rows) > 1 else ""
    notes.append(f"Scores: {metric_note(published.columns.values())}.{average}{bold}")
    return [*notes, *published.notes, *(_our_notes(comparison, results) if results else [])]


def _our_notes(comparison: Comparison, results: Results) -> Iterator[str]:
    cells = comparison.cells
    beside = cells[cells["arm"] != ""]
    yield " ".join(_what_ours_are(comparison, results))
    unlike = {str(arm): mine["unlike"].iloc[0].split("; ") for arm, mine in beside.groupby("arm", sort=False)}
    if (beside["inside"] != "").any():
        yield (
            f"{ABOVE} and {BELOW}: ours is above or below, and theirs outside of its 95% interval, which covers other "
            "seeds and other examples; the CSV has the intervals."
        )
    alike = beside.loc[(beside["unlike"] == "") & beside["low"].notna(), "arm"].unique()
    if comparison.published.statistic == "median" and len(alike):
        yield f"{MEDIANS} ({', '.join(map(code, alike))})."
    said = [
        phrase if len(arms) == len(unlike) else f"{phrase} ({', '.join(arms)})"
        for phrase, arms in _by_phrase(_sizes_together(unlike))
    ]
    if said:
        never = "; and theirs are medians, which are never tested" * (comparison.published.statistic == "median")
        yield f"The differences were not tested, because ours is not like theirs: {'; '.join(said)}{never}."
    without = cells[cells["arm"] == ""].drop_duplicates("model").to_dict("records")
    missing = [
        f"{', '.join(rows)} ({why})" for why, rows in _by_phrase({row["model"]: [row["unlike"]] for row in without})
    ]
    if missing:
        yield f"Rows of the paper without an arm of ours: {'; '.join(missing)}."
    if comparison.without_row:
        yield f"Arms of ours that this table has no row for: {', '.join(map(code, comparison.without_row))}."
    yield from (*mixed_notes(results), *problem_notes(results))


def _what_ours_are(comparison: Comparison, results: Results) -> Iterator[str]:
    """Where our rows are from, and what the signs in them mean."""
    yield f"Ours: experiment `{results.experiment}`, validation set, and beside it ours minus theirs."
    yield from protocol_notes(results)
    if comparison.published.statistic == "median":
        yield "Medians, as the paper has them: a leaderboard has means, unless its experiment asks for medians."
    if _partial(comparison):
        yield f"{PARTIAL}: only a part of the task's data was there."
    if comparison.cells.loc[comparison.cells["arm"] != "", "ours"].isna().any():
        yield f"{MISSING}: no score, because nothing was run or it is undefined, or an average that lacks a column."


def _by_phrase(phrases: Mapping[str, Iterable[str]]) -> Iterable[tuple[str, list[str]]]:
    """Each phrase once, with the names that it is said of."""
    names: dict[str, list[str]] = {}
    for name, said in phrases.items():
        for phrase in filter(None, said):
            names.setdefault(phrase, []).append(name)
    return names.items()


def _sizes_together(unlike: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The phrases by arm, with a single one about parameters for all arms that stand beside models of one size."""
    sizes: dict[str, dict[str, str]] = {}
    for phrase, arms in _by_phrase(unlike):
        ours, is_size, theirs = phrase.partition(SIZES)
        if is_size:
            sizes.setdefault(theirs, {})[phrase] = f"{ours} ({', '.join(arms)})"
    whole = {
        phrase: f"{' or '.join(found.values())}{SIZES}{theirs}"
        for theirs, found in sizes.items()
        for phrase in found
        if len(found) > 1
    }
    return {arm: [whole.get(phrase, phrase) for phrase in phrases] for arm, phrases in unlike.items()}


def _our_cell(cell: dict) -> GridCell:
    """Ours, the difference beside it, and where theirs lies outside of our interval on which side ours is."""
    if math.isnan(cell["ours"]):
        return GridCell(MISSING)
    marks = (ABOVE if cell["difference"] > 0 else BELOW) if cell["inside"] == "no" else ""
    return GridCell(number(cell["ours"]), marks=marks, aside=f"{cell['difference']:+z.2f}")


def _header(comparison: Comparison, column: str) -> str:
    """The task as the leaderboard writes it, with its metric where it has two; what is no GLUE task by its own name."""
    published = comparison.published
    score = published.columns.get(column)
    if score is None:
        title, tasks = "Avg." if column == AVERAGE else column, published.average.tasks if column == AVERAGE else ()
    else:
        task, split, metric = score
        suffix = _NAMES.get((task, split), task).removeprefix(task).replace("_", "-")
        title, tasks = f"{TASKS[task].title}{suffix}", (task,)
        title += f" {SECOND_METRICS[metric]}" if metric in SECOND_METRICS else ""
    return title + PARTIAL * bool(set(tasks) & set(_partial(comparison)))


def _partial(comparison: Comparison) -> list[str]:
    """The paper's tasks of whose data ours had only a part."""
    results = comparison.results
    return tasks_of(comparison.published, results.partial_tasks) if results and not is_demo(results) else []
