"""A published table's page: the paper's rows, ours under those that have an arm of ours, and the notes."""

import math
from collections.abc import Iterable, Iterator, Mapping

from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.reporting.alike import mixed_notes
from glue_bench.reporting.grid import Grid, GridCell, Page, PageSection
from glue_bench.reporting.notes import (
    PARTIAL,
    banner,
    is_demo,
    metric_note,
    problem_notes,
    protocol_notes,
)
from glue_bench.reporting.papers.arms import SIZES, tasks_of
from glue_bench.reporting.papers.compare import Beside
from glue_bench.reporting.papers.published import AVERAGE
from glue_bench.tables.board import Board
from glue_bench.tables.numbers import MISSING, code, number

SECOND_METRICS = {"f1": "F1", "spearmanr": "Spearman"}
MEDIANS = "The differences were not tested, because theirs are medians over seeds, and our intervals are of means"
_NAMES = {place: column for column, place in COLUMNS.items()}


def paper_page(beside: Beside) -> Page:
    """The table, and what has to be known before comparing."""
    below = (beside.cells["arm"] != "").any()
    return Page(
        title=beside.published.title + "; ours below" * bool(below),
        banner=banner(beside.board.results) if beside.board else "",
        sections=(PageSection(title="", grid=paper_grid(beside)),),
        notes=tuple(make_notes(beside)),
    )


def paper_grid(beside: Beside) -> Grid:
    """The printed rows, the best of a column in bold; beside an experiment those with an arm of ours, and its row."""
    published, cells = beside.published, beside.cells
    printed: Iterable[str] = (
        published.rows[0].printed if len(published.rows) > 1 else ()
    )  # of a single row nothing is the best
    best = {column: max(float(row.printed[column]) for row in published.rows) for column in printed}
    rows: list[tuple[GridCell | str, ...]] = []
    for row in published.rows:
        ours = cells[(cells["model"] == row.label) & (cells["arm"] != "")]
        if beside.board is None or len(ours):
            values = (GridCell(text, bold=float(text) == best.get(column)) for column, text in row.printed.items())
            rows.append((row.label, *values))
        for arm, mine in ours.groupby("arm", sort=False):
            rows.append((f"ours: {arm}", *map(_our_cell, mine.to_dict("records"))))
    header = ("Model", *(_header(beside, column) for column in published.rows[0].printed))
    return Grid.of(header, rows)


def make_notes(beside: Beside) -> list[str]:
    """Where the table is from, by which conventions it is made, and what of ours is beside it."""
    published, board = beside.published, beside.board
    notes = [f"Source: {published.source}. The {published.split} set; {published.protocol}."]
    average = f" Average: {published.average.rule}." if published.has_average else ""
    hidden = " in any of its rows, those without an arm of ours included" if board else ""
    bold = f" Bold is the best value that the paper prints{hidden}." if len(published.rows) > 1 else ""
    notes.append(f"Scores: {metric_note(published.columns.values())}.{average}{bold}")
    return [*notes, *published.notes, *(_our_notes(beside, board) if board else [])]


def _our_notes(beside: Beside, board: Board) -> Iterator[str]:
    cells = beside.cells
    ours = cells[cells["arm"] != ""]
    yield " ".join(_what_ours_are(beside, board))
    unlike = {str(arm): mine["unlike"].iloc[0].split("; ") for arm, mine in ours.groupby("arm", sort=False)}
    alike = ours.loc[ours["unlike"] == "", "arm"].unique()
    if beside.published.statistic == "median" and len(alike):
        yield f"{MEDIANS} ({', '.join(map(code, alike))})."
    said = [
        phrase if len(arms) == len(unlike) else f"{phrase} ({', '.join(arms)})"
        for phrase, arms in _by_phrase(_sizes_together(unlike))
    ]
    if said:
        never = "; and theirs are medians, which are never tested" * (beside.published.statistic == "median")
        yield f"The differences were not tested, because ours is not like theirs: {'; '.join(said)}{never}."
    without = cells[cells["arm"] == ""].drop_duplicates("model").to_dict("records")
    missing = [
        f"{', '.join(rows)} ({why})" for why, rows in _by_phrase({row["model"]: [row["unlike"]] for row in without})
    ]
    if missing:
        yield f"Rows of the paper without an arm of ours: {'; '.join(missing)}."
    if beside.without_row:
        yield f"Arms of ours that this table has no row for: {', '.join(map(code, beside.without_row))}."
    yield from (*mixed_notes(board.cells), *problem_notes(board.results))


def _what_ours_are(beside: Beside, board: Board) -> Iterator[str]:
    """Where our rows are from, and what the signs in them mean."""
    yield f"Ours: experiment `{board.results.experiment}`, validation set, and beside it ours minus theirs."
    yield from protocol_notes(board)
    if beside.published.statistic == "median":
        yield "Medians, as the paper has them: a leaderboard has means, unless its experiment asks for medians."
    if _partial(beside):
        yield f"{PARTIAL}: only a part of the task's data was there."
    if beside.cells.loc[beside.cells["arm"] != "", "ours"].isna().any():
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
    """Ours, and the difference beside it."""
    if math.isnan(cell["ours"]):
        return GridCell(MISSING)
    return GridCell(number(cell["ours"]), aside=f"{cell['difference']:+z.2f}")


def _header(beside: Beside, column: str) -> str:
    """The task as the leaderboard writes it, with its metric where it has two; what is no GLUE task by its own name."""
    published = beside.published
    score = published.columns.get(column)
    if score is None:
        title, tasks = "Avg." if column == AVERAGE else column, published.average.tasks if column == AVERAGE else ()
    else:
        task, split, metric = score
        suffix = _NAMES.get((task, split), task).removeprefix(task).replace("_", "-")
        title, tasks = f"{TASKS[task].title}{suffix}", (task,)
        title += f" {SECOND_METRICS[metric]}" if metric in SECOND_METRICS else ""
    return title + PARTIAL * bool(set(tasks) & set(_partial(beside)))


def _partial(beside: Beside) -> list[str]:
    """The paper's tasks of whose data ours had only a part."""
    results = beside.board.results if beside.board else None
    return tasks_of(beside.published, results.partial_tasks) if results and not is_demo(results) else []
