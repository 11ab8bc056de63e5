"""The leaderboard's page: what it says and in which order, for whatever format it is written in."""

from typing import Any

import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.reporting.assessment import HIGHEST, Leaders, highest
from glue_bench.reporting.document import Grid, GridCell, Page, PageSection
from glue_bench.reporting.notes import (
    BANNER,
    COLLAPSED,
    FROM_MNLI,
    PARTIAL,
    column_title,
    is_demo,
    leaderboard_notes,
    marked_tasks,
    uniform_plan,
)
from glue_bench.reporting.numbers import MISSING, number, short
from glue_bench.results.averages import available, averages_frame
from glue_bench.results.board import Board
from glue_bench.results.encoders import named_blocks, title
from glue_bench.results.protocol import AVERAGES

ORIGIN_MEANS = {
    "pretrained": "The weights were trained with this way of combining embeddings.",
    "adapted": "The weights come from another variant's checkpoint, then pretrained further with this one.",
    "grafted": "The weights come from another variant's checkpoint and were only converted.",
    "scratch": "No pretraining: fine-tuned from random weights.",
}
STEPS_MEAN = "Each fine-tuned checkpoint of the pretraining; the tables above are of the last."
OTHERS = ("average_eight_columns", "average_eight_tasks")
MEANING = "The same scores, averaged as others do: " + "; ".join(
    f"{AVERAGES[name].short.lower()}: {AVERAGES[name].rule}" for name in OTHERS
)
METRIC_TITLES = {
    "matthews_correlation": "Matthews",
    "accuracy": "accuracy",
    "f1": "F1",
    "pearson": "Pearson",
    "spearmanr": "Spearman",
}


def leaderboard_page(
    board: Board, steps: pd.DataFrame | None = None, *, leaders: Leaders | None = None, bold_means: str = HIGHEST
) -> Page:
    """The leaderboard: one section per block, the averages side by side, GLUE against `steps`, and the notes.

    `steps` is a `steps_frame`. `leaders` gives the arms in bold by column of `board.table` or name of AVERAGES, and
    `bold_means` says why they are; a column without leaders there has the highest of each block in bold.
    """
    conventions = averages_frame(board)
    marked = highest(board.table, [*board.columns, *board.averages]) | dict(leaders or {})
    sections = [
        PageSection(title=title(name), text=_block_means(block), grid=_block_grid(board, block, marked))
        for name, block in named_blocks(board.table)
    ]
    if len(conventions):
        sections.append(_averages_section(board, conventions, leaders))
    if steps is not None and len(steps):
        grid = _steps_grid(board, steps)
        sections.append(PageSection(title="Against steps of pretraining", text=STEPS_MEAN, grid=grid))
    return Page(
        title=f"Leaderboard: {board.results.experiment}",
        banner=BANNER if is_demo(board.results) else "",
        sections=tuple(sections),
        notes=tuple(leaderboard_notes(board, bold_means)),
    )


def _block_means(block: pd.DataFrame) -> str:
    """What the arms of a block have in common, and what they started from."""
    arms = {str(start): ", ".join(mine["arm"]) for start, mine in block.groupby("start", sort=False)}
    starts = "; ".join(arms if len(arms) == 1 else (f"{start} ({who})" for start, who in arms.items()))
    return f"{ORIGIN_MEANS[block['origin'].iloc[0]]} Encoder: {block['shape'].iloc[0]}. Started from: {starts}."


def _block_grid(board: Board, block: pd.DataFrame, leaders: Leaders) -> Grid:
    """The arm, its variant unless every arm is called by it, its parameters, and then the scores."""
    names = {"Arm": block["arm"].tolist()}
    if (block["arm"] != block["variant"]).any():
        names["Variant"] = block["variant"].tolist()
    names["Parameters"] = [MISSING if pd.isna(count) else short(count) for count in block["parameters"]]
    values = [*board.columns, *board.averages]
    rows = [
        (*map(GridCell, texts), *(_cell(board, row, name, bold=row["arm"] in leaders[name]) for name in values))
        for *texts, row in zip(*names.values(), block.to_dict("records"), strict=True)
    ]
    header = (*names, *(_header(board, name) for name in values))
    return Grid(header=header, rows=tuple(rows), texts=frozenset(range(len(names) - 1)))


def _averages_section(board: Board, frame: pd.DataFrame, leaders: Leaders | None) -> PageSection:
    names = available(board)
    marked = highest(frame, names) | dict(leaders or {})
    rows = [
        (
            GridCell(row["arm"]),
            GridCell(block),
            *(GridCell(number(row[name]) or MISSING, bold=row["arm"] in marked[name]) for name in names),
        )
        for block, mine in named_blocks(frame)
        for row in mine.to_dict("records")
    ]
    header = ("Arm", "Origin", *(AVERAGES[name].short for name in names))
    grid = Grid(header=header, rows=tuple(rows), texts=frozenset({0, 1}))
    return PageSection(title="Averages side by side", text=MEANING, grid=grid)


def _steps_grid(board: Board, steps: pd.DataFrame) -> Grid:
    values = [*board.columns, *board.averages]
    rows = [
        (
            GridCell(row["arm"]),
            GridCell(f"{row['steps']:,}"),
            *(GridCell(number(row[name]) or MISSING) for name in values),
        )
        for row in steps.sort_values(["arm", "steps"], kind="stable").to_dict("records")
    ]
    return Grid(header=("Arm", "Steps", *(_header(board, name) for name in values)), rows=tuple(rows))


def _cell(board: Board, row: dict[Any, Any], name: str, *, bold: bool) -> GridCell:
    """Mean and sample deviation; of a column also the number of seeds where it is not the same for all."""
    mean, deviation = number(row[name]) or MISSING, number(row[f"{name}_std"])
    text, marks = f"{mean} ± {deviation}" if deviation else mean, ""
    if name not in AVERAGES and mean != MISSING:
        n, planned = row[f"{name}_n"], board.planned[row["arm"]][name]
        marks = f" ({n} of {planned})" if n < planned else "" if uniform_plan(board) else f" ({n})"
        marks += f" {COLLAPSED}" if board.collapsed[row["arm"]][name] else ""
    return GridCell(text, bold=bold, marks=marks)


def _header(board: Board, name: str) -> str:
    """The title of a column or an average, with the marks of the tasks that it needs."""
    if name in AVERAGES:
        title, tasks = AVERAGES[name].title, AVERAGES[name].tasks
    else:
        task = TASKS[COLUMNS[name][0]]
        title, tasks = f"{column_title(name)} ({METRIC_TITLES[task.metrics[0]]})", (task.name,)
    marked = {PARTIAL: marked_tasks(board), FROM_MNLI: board.results.from_mnli}
    return " ".join([title, *(mark for mark, those in marked.items() if set(tasks) & set(those))])
