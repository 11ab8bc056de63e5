"""The page of a published table: the rows as printed, our arms below them, and what differs."""

from itertools import chain
from pathlib import Path

import pandas as pd
from pandas import DataFrame

from glue_bench.board.board import Board
from glue_bench.board.results import Results, read_results
from glue_bench.data.measures import AVERAGE, MEASURES
from glue_bench.data.tasks import COLUMNS, TASKS, titles
from glue_bench.errors import unknown
from glue_bench.pages.counterparts import (
    PAIR_TITLES,
    BoardKey,
    find_counterparts,
    pairs_frame,
    printed_frame,
)
from glue_bench.pages.marks import PARTIAL
from glue_bench.pages.numbers import MISSING, format_difference, format_number
from glue_bench.pages.page import Column, Page, Table, facts_table, with_legend
from glue_bench.pages.published import NOT_PRINTED, PAPERS, Published, scores_of

PAPER_LEGEND = {
    "scores": "Scores, times 100: Matthews correlation for CoLA, Pearson correlation for STS-B, "
    "accuracy elsewhere, unless the column names another metric.",
    "bold": "**Bold**: the best value that the paper prints in a column.",
    "ours": "ours: an arm of the experiment, on the validation set, by the metrics, the average "
    "and the statistic over seeds of the paper; in brackets ours less theirs, which is not tested.",
    PARTIAL: "† a part of the official rows, so that ours and theirs are not of the same data.",
    "differences": "† stands also over columns of tasks whose rows are not the official ones.",
    MISSING: "– no score of ours.",  # noqa: RUF001
    NOT_PRINTED: "`-`: no score of theirs.",
}
PAIRS_LEGEND = ("Theirs / ours; ? is not stated.",)
METRIC_SUFFIXES = {"f1": " F1", "spearmanr": " Spearman", "mean": " mean"}
"""What follows the title of a task if the column is not the task's main metric."""
LIST_COLUMNS = {
    "table": Column("Table"),
    "title": Column("What it is"),
    "split": Column("Set"),
    "rows": Column("Rows", 0),
    "source": Column("Source"),
}


def named_page(name: str, path: str | Path | None = None) -> Page:
    """Make the page of a published table by its name, beside the experiment in a folder if given.

    Raises UserError if one of them does not exist.
    """
    if name not in PAPERS:
        raise unknown("table", name, PAPERS)
    results = None if path is None else read_results(path)
    return paper_page(PAPERS[name], results)


def paper_page(
    published: Published,
    results: Results | None = None,
    board_cache: dict[BoardKey, Board] | None = None,
) -> Page:
    """Make the page of a published table.

    Args:
        published: The table.
        results: The experiment; our arms stand below the printed rows that they correspond to.
        board_cache: Keeps boards for the page of another table.

    Returns:
        The page. Its data have each printed value with each arm of ours beside it, or with none.
    """
    cache = {} if board_cache is None else board_cache
    counterparts = find_counterparts(published, results, cache)
    cells = printed_frame(counterparts)
    tables = [scores_table(published, results, cells)]

    facts = []
    if AVERAGE in published.columns:
        facts.append(("Average", published.average.rule))

    if results:
        reported = f"{published.statistic} over seeds; {published.epoch} epoch; validation"
        data = "; ".join([results.data_source, *altered_tasks_text(results)])
        facts.append(("Experiment", results.experiment))
        facts.append(("Reported", reported))
        facts.append(("Data", data))
        tables.append(pairs_table(pairs_frame(published, counterparts)))

    if facts:
        tables.append(facts_table(facts))

    return Page(
        title=published.title,
        banner=results.banner if results else "",
        tables=tuple(tables),
        data=cells,
    )


def altered_tasks_text(results: Results) -> list[str]:
    """Say which tasks have not exactly the official rows."""
    altered = results.altered_tasks
    reduced = tuple(task for task in results.partial_tasks if task not in altered)
    texts = []
    if reduced:
        texts.append(f"a part of {titles(reduced)}")
    if altered:
        texts.append(f"other rows than the official ones of {titles(altered)}")
    return texts


def pairs_table(pairs: DataFrame) -> Table:
    """Make the table of the settings of theirs and ours, without columns that are empty."""
    columns = {}
    for name, title in PAIR_TITLES.items():
        if (pairs[name] != "").any():
            columns[name] = Column(title)
    return Table(frame=pairs, columns=columns, title="Theirs and ours", legend=PAIRS_LEGEND)


def scores_table(published: Published, results: Results | None, cells: DataFrame) -> Table:
    """Make the table of scores: the printed rows, and ours below them.

    Args:
        published: The table.
        results: The experiment; if it has an arm of the table, rows without one are left out.
        cells: The data of the page.

    Returns:
        The table with its legend.
    """
    has_arms = bool((cells["arm"] != "").any())
    rows = score_rows(published, cells, show_all=not has_arms)
    frame = DataFrame(rows, columns=["model", *published.columns])
    partial = partial_columns(published, results.partial_tasks if results else ())

    columns = {"model": Column("Model")}
    for name in published.columns:
        mark = PARTIAL if name in partial else ""
        columns[name] = Column(column_title(name) + mark, show=str)

    table = Table(
        frame=frame,
        columns=columns,
        caption=f"{published.source}; the {published.split} set; {published.protocol}.",
        bold=frame.eq(pd.Series(best_printed(published))),
    )

    legend = PAPER_LEGEND | {note: note for note in published.notes}
    notes = {"scores", *published.notes}
    if has_arms:
        notes.add("ours")
    if partial:
        notes.add(PARTIAL)
    if results and partial_columns(published, results.altered_tasks):
        notes.add("differences")

    for sign in (MISSING, NOT_PRINTED):
        if (frame == sign).to_numpy().any():
            notes.add(sign)

    return with_legend([table], legend, notes)[0]


def score_rows(published: Published, cells: DataFrame, *, show_all: bool) -> list[dict[str, str]]:
    """Write each printed row, and below it the scores of the arms that stand beside it.

    Unless `show_all`, a printed row without an arm is left out.
    """
    rows = []
    for printed_row in published.rows:
        is_of_row = (cells["model"] == printed_row.label) & (cells["arm"] != "")
        cells_of_row = cells[is_of_row]
        if show_all or len(cells_of_row):
            rows.append({"model": printed_row.label, **printed_row.printed})
        for arm, cells_of_arm in cells_of_row.groupby("arm", sort=False):
            row = {"model": f"ours: {arm}"}
            for cell in cells_of_arm.to_dict("records"):
                row[cell["column"]] = MISSING
                if not pd.isna(cell["ours"]):
                    difference = format_difference(cell["difference"])
                    row[cell["column"]] = f"{format_number(cell['ours'])} ({difference})"
            rows.append(row)
    return rows


def best_printed(published: Published) -> dict[str, str]:
    """Give the best value that is printed in each column, as it is printed."""
    best = {"model": ""}
    for name in published.columns:
        printed = [row.printed[name] for row in published.rows]
        best[name] = max((score for score in printed if score != NOT_PRINTED), key=float)
    return best


def partial_columns(published: Published, tasks: tuple[str, ...]) -> list[str]:
    """Give the columns in which one of the tasks counts."""
    names = []
    for name in published.columns:
        scores = published.singly.parts.get(name, ())
        if name == AVERAGE:
            scores = tuple(chain(*published.average.parts.values()))
        if any(task in tasks for task, _, _ in scores):
            names.append(name)
    return names


def column_title(column: str) -> str:
    """Give the title that the leaderboard has, with another metric behind it.

    A column that is no task of GLUE keeps the paper's name.
    """
    if column == AVERAGE:
        return "Avg."
    if column in COLUMNS:
        return MEASURES[column].title
    if not scores_of(column):
        return column
    task, _, metric = column.partition("_")
    return TASKS[task].title + METRIC_SUFFIXES[metric]


def list_page() -> Page:
    """Make the page that lists the published tables by name."""
    rows = []
    for name, published in PAPERS.items():
        row = {
            "table": name,
            "title": published.title,
            "split": published.split,
            "rows": len(published.rows),
            "source": published.source,
        }
        rows.append(row)
    table = Table(frame=DataFrame(rows), columns=LIST_COLUMNS)
    return Page(title="Published tables", tables=(table,))
