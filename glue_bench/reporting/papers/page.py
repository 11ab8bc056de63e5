"""A published table's page: the paper's own layout, our rows under its rows, and the notes."""

import math
from collections.abc import Iterator

import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.reporting.document import Grid, GridCell, Page, PageSection
from glue_bench.reporting.notes import (
    BANNER,
    PARTIAL,
    is_demo,
    mixed_notes,
    problem_notes,
    protocol_notes,
)
from glue_bench.reporting.numbers import MISSING, number, short
from glue_bench.reporting.papers.arms import tasks_of
from glue_bench.reporting.papers.compare import Comparison
from glue_bench.reporting.papers.published import AVERAGE, Published
from glue_bench.results.frame import Results
from glue_bench.stats.verdicts import LEVEL

METRIC_INITIALS = {
    "matthews_correlation": "mcc",
    "accuracy": "acc",
    "f1": "F1",
    "pearson": "r",
    "spearmanr": "rho",
}
TEXT_COLUMNS = ("Model", "Row")
UNLIKE = "Not like for like"
RATE = "Our rates compete by the metrics of this table."
BOLD_MEANS = "Bold is the best printed value of a column"
_NAMES = {place: column for column, place in COLUMNS.items()}


def paper_page(comparison: Comparison) -> Page:
    """The table, and what has to be known before comparing."""
    demo = comparison.results is not None and is_demo(comparison.results)
    return Page(
        title=comparison.published.title,
        banner=BANNER if demo else "",
        sections=(PageSection(title="", grid=paper_grid(comparison)),),
        notes=tuple(make_notes(comparison)),
    )


def paper_grid(comparison: Comparison) -> Grid:
    """TEXT_COLUMNS, the printed columns, and UNLIKE beside an experiment; only printed values are in bold."""
    published = comparison.published
    best = best_printed(published)
    header = [*TEXT_COLUMNS, *(_header(comparison, column) for column in published.rows[0].printed)]
    rows: list[tuple[GridCell, ...]] = []
    for row in published.rows:
        steps = "" if row.steps is None else f", {short(row.steps)} steps"
        values = (GridCell(text, bold=float(text) == best.get(column)) for column, text in row.printed.items())
        rows.append((GridCell(row.label), GridCell(f"paper{steps}"), *values, GridCell("")))
        if comparison.results:
            block = comparison.cells[comparison.cells["model"] == row.label]
            lines = (line for _, cells in block.groupby("arm", sort=False) for line in _our_lines(cells))
            rows += ((GridCell(""), *map(GridCell, line)) for line in lines)
    texts = frozenset(range(len(TEXT_COLUMNS)))
    if comparison.results:
        return Grid(header=(*header, UNLIKE), rows=tuple(rows), texts=texts | {len(header)})
    return Grid(header=tuple(header), rows=tuple(row[:-1] for row in rows), texts=texts)


def best_printed(published: Published) -> dict[str, float]:
    """The highest printed value of each column; none where there is one row."""
    if len(published.rows) < 2:
        return {}
    return {column: max(float(row.printed[column]) for row in published.rows) for column in published.rows[0].printed}


def make_notes(comparison: Comparison) -> list[str]:
    """Where the table is from, by which conventions it is made, and what of ours is beside it."""
    published, results = comparison.published, comparison.results
    notes = [f"Source: {published.source}.", f"Published: {published.split} set; {published.protocol}."]
    if published.has_average:
        notes.append(f"Average, theirs and ours: {published.average.rule}.")
    if len(published.rows) > 1:
        notes.append(f"{BOLD_MEANS}.")
    return [*notes, *published.notes, *(_our_notes(comparison, results) if results else [])]


def _our_notes(comparison: Comparison, results: Results) -> list[str]:
    cells = comparison.cells
    notes = [
        f"Ours: experiment `{results.experiment}`, validation set; the difference is ours minus theirs.",
        *protocol_notes(results),
        *([RATE] if results.cells["learning_rate"].nunique() > 1 else []),
        f"Interval: {LEVEL:.0%}, Student's t of the mean over seeds of fine-tuning; one seed has none, nor has an "
        "average whose parts differ in their seeds. It says nothing of other seeds of pretraining.",
    ]
    if comparison.without_row:
        notes.append(f"Arms of ours that this table has no row for: {', '.join(comparison.without_row)}.")
    if any(PARTIAL in _header(comparison, column) for column in cells["column"].unique()):
        notes.append(f"{PARTIAL} ours is on partial data.")
    return [*notes, *mixed_notes(results), *problem_notes(results)]


def _our_lines(cells: pd.DataFrame) -> Iterator[list[str]]:
    """The lines of one arm under a published row: ours, its interval, the difference, whether theirs lies inside."""
    first = cells.iloc[0]
    if not first["arm"]:
        yield ["missing", *[MISSING] * len(cells), first["unlike"]]
        return
    yield [_who(first, cells["seeds"]), *(number(value) or MISSING for value in cells["ours"]), first["unlike"]]
    if cells["low"].notna().any():
        ends = zip(cells["low"].map(number), cells["high"].map(number), strict=True)
        yield [f"{LEVEL:.0%} interval", *(f"{low} to {high}" if low else MISSING for low, high in ends), ""]
    if cells["difference"].notna().any():
        signed = (MISSING if math.isnan(value) else f"{value:+z.2f}" for value in cells["difference"])
        yield ["difference", *signed, ""]
    if cells["inside"].any():
        yield ["theirs inside", *(inside or MISSING for inside in cells["inside"]), ""]


def _who(cell: pd.Series, seeds: pd.Series) -> str:
    """The arm, its variant where the name does not say it, its steps and seeds."""
    name = cell["arm"] if cell["arm"] == cell["variant"] else f"{cell['arm']} ({cell['variant']})"
    counts = sorted({int(count) for count in seeds if count})
    steps = [] if pd.isna(cell["steps"]) else [f"{short(cell['steps'])} steps"]
    if counts:
        many = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        steps.append(f"{many} seed{'' if many == '1' else 's'}")
    return ", ".join([f"ours: {name}", *steps])


def _header(comparison: Comparison, column: str) -> str:
    published, results = comparison.published, comparison.results
    score = published.columns.get(column)
    tasks = published.average.tasks if column == AVERAGE else [score[0]] if score else []
    partial = tasks_of(published, results.partial_tasks) if results and not is_demo(results) else []
    return _title(column, published) + (f" {PARTIAL}" if set(tasks) & set(partial) else "")


def _title(column: str, published: Published) -> str:
    """The task as the leaderboard writes it, and its metric; a column that is no GLUE task by its own name."""
    score = published.columns.get(column)
    if score is None:
        return "Avg." if column == AVERAGE else column
    task, split, metric = score
    suffix = _NAMES.get((task, split), task).removeprefix(task).replace("_", "-")
    return f"{TASKS[task].title}{suffix} ({METRIC_INITIALS[metric]})"
