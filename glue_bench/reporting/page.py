"""The leaderboard's page: what it says and in which order, for whatever format it is written in."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.reporting import averages
from glue_bench.reporting.document import Cell, Grid, Page, Section
from glue_bench.reporting.leaders import HIGHEST, Leaders, highest
from glue_bench.reporting.markdown import MISSING, number, short
from glue_bench.reporting.rules import FROM_MNLI, block_notes, problem_notes, protocol_notes
from glue_bench.results.board import Board
from glue_bench.results.encoders import named_blocks, title
from glue_bench.results.protocol import AVERAGES, LEADING

BANNER = "Made from the embedded demo data: not a benchmark."
PARTIAL, COLLAPSED = "†", "‡"
ORIGIN_MEANS = {
    "pretrained": "The weights were trained with this way of combining embeddings.",
    "adapted": "The weights come from another variant's checkpoint, then pretrained further with this one.",
    "grafted": "The weights come from another variant's checkpoint and were only converted.",
    "scratch": "No pretraining: fine-tuned from random weights.",
}
STEPS_MEAN = "Each fine-tuned checkpoint of the pretraining; the tables above are of the last."
METRIC_INITIALS = {
    "matthews_correlation": "mcc",
    "accuracy": "acc",
    "f1": "F1",
    "pearson": "r",
    "spearmanr": "rho",
}
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
    """The leaderboard: a section a block, the averages side by side, GLUE against `steps`, and the notes.

    `steps` is a `steps_frame`. `leaders` gives the arms in bold by column of `board.table` or name of AVERAGES, and
    `bold_means` says why they are; a column without leaders there has the highest of each block in bold.
    """
    conventions = averages.averages_frame(board)
    marked = highest(board.table, [*board.columns, *board.averages]) | dict(leaders or {})
    sections = [
        Section(title=title(name), text=block_means(block), grid=_block_grid(board, block, marked))
        for name, block in named_blocks(board.table)
    ]
    if len(conventions):
        sections.append(averages.averages_section(board, conventions, leaders))
    if steps is not None and len(steps):
        grid = _steps_grid(board, steps)
        sections.append(Section(title="Against steps of pretraining", text=STEPS_MEAN, grid=grid))
    return Page(
        title=f"Leaderboard: {board.results.experiment}",
        banner=BANNER if is_demo(board) else "",
        sections=tuple(sections),
        notes=tuple(make_notes(board, bold_means)),
    )


def block_means(block: pd.DataFrame) -> str:
    """What the arms of a block have in common, and what they started from."""
    arms = {str(start): ", ".join(mine["arm"]) for start, mine in block.groupby("start", sort=False)}
    starts = "; ".join(arms if len(arms) == 1 else (f"{start} ({who})" for start, who in arms.items()))
    return f"{ORIGIN_MEANS[block['origin'].iloc[0]]} Encoder: {block['shape'].iloc[0]}. Started from: {starts}."


def arm_columns(block: pd.DataFrame) -> dict[str, list[str]]:
    """What names the rows, header -> texts: the arm, its variant unless every arm is called by it, its parameters."""
    columns = {"Arm": block["arm"].tolist()}
    if (block["arm"] != block["variant"]).any():
        columns["Variant"] = block["variant"].tolist()
    return columns | {"Parameters": [MISSING if pd.isna(count) else short(count) for count in block["parameters"]]}


def _block_grid(board: Board, block: pd.DataFrame, leaders: Leaders) -> Grid:
    names, values = arm_columns(block), [*board.columns, *board.averages]
    rows = [
        (*map(Cell, texts), *(_cell(board, row, name, leaders) for name in values))
        for *texts, row in zip(*names.values(), block.to_dict("records"), strict=True)
    ]
    return Grid(header=(*names, *_headers(board, values)), rows=tuple(rows), texts=frozenset(range(len(names) - 1)))


def _steps_grid(board: Board, steps: pd.DataFrame) -> Grid:
    values = [*board.columns, *board.averages]
    rows = [
        (Cell(row["arm"]), Cell(f"{row['steps']:,}"), *(Cell(number(row[name]) or MISSING) for name in values))
        for row in steps.sort_values(["arm", "steps"], kind="stable").to_dict("records")
    ]
    return Grid(header=("Arm", "Steps", *_headers(board, values)), rows=tuple(rows))


def _cell(board: Board, row: dict[Any, Any], name: str, leaders: Leaders) -> Cell:
    mean, deviation, marks = parts(board, row, name)
    text = f"{mean} ± {deviation}" if deviation else mean
    return Cell(text, bold=row["arm"] in leaders[name], marks=marks)


def make_notes(board: Board, bold_means: str = HIGHEST) -> list[str]:
    """What a reader has to know before comparing the numbers."""
    return [
        f"A cell is {board.results.protocol.seeds} ± sample standard deviation over {_seeds(board)}, x100, on the "
        "validation split. One seed has no deviation, nor has an average whose parts differ in their seeds. "
        f"{bold_means}; blocks are not comparable with each other.",
        *protocol_notes(board.results),
        *_average_notes(board),
        *averages.winner_notes(board, averages.averages_frame(board)),
        *_run_notes(board),
    ]


def _seeds(board: Board) -> str:
    """n, where all cells were planned alike; else every cell says its own."""
    planned = _uniform_plan(board)
    if not planned:
        return "(n) seeds"
    return f"n = {planned} seed{'s' if planned > 1 else ''}"


def _uniform_plan(board: Board) -> int | None:
    counts = {count for by_column in board.planned.values() for count in by_column.values()}
    return counts.pop() if len(counts) == 1 else None


def _average_notes(board: Board) -> list[str]:
    tasks = set(board.results.cells["task"])
    notes = []
    for convention in (AVERAGES[name] for name in LEADING):
        absent = ", ".join(TASKS[task].title for task in convention.tasks if task not in tasks)
        why = f"not shown, the experiment has no {absent}" if absent else convention.rule
        notes.append(f"{convention.title}: {why}.")
    return notes


def _run_notes(board: Board) -> list[str]:
    results = board.results
    missing, undefined = len(results.missing), int(results.scores["value"].isna().sum())
    collapsed = _collapsed_counts(board)
    notes = {
        f"{PARTIAL} partial data: not comparable with published scores.": _marked_tasks(board),
        f"{COLLAPSED} collapsed runs, which predict one class or a constant and count in the mean: "
        f"{collapsed}.": collapsed,
        "Undefined scores of finished runs (constant predictions), which make their mean missing: "
        f"{undefined}.": undefined,
        f"{missing} of {len(results.cells)} planned cells are missing: {MISSING} is a missing value, "
        "(2 of 3) counts finished and planned seeds.": missing,
        f"Records outside the plan (settings or recipe changed since), left out: {results.left_out}.": results.left_out,
    }
    return [
        *(note for note, applies in notes.items() if applies),
        *results.differences,
        *block_notes(results),
        *problem_notes(results),
    ]


def _marked_tasks(board: Board) -> tuple[str, ...]:
    """Tasks run on a part of their rows; of demo tables the banner has said all there is to say."""
    return () if is_demo(board) else board.results.partial_tasks


def is_demo(board: Board) -> bool:
    """Whether any of the data is made up."""
    return "demo" in board.results.data_source


def _collapsed_counts(board: Board) -> str:
    return ", ".join(
        f"{row['arm']} {column_title(column)} {count} of {row[f'{column}_n']}"
        for row in board.table.to_dict("records")
        for column, count in board.collapsed[row["arm"]].items()
        if count
    )


def _headers(board: Board, names: Sequence[str]) -> list[str]:
    return [_header(board, name) for name in names]


def _header(board: Board, name: str) -> str:
    if name in AVERAGES:
        title, tasks = AVERAGES[name].title, AVERAGES[name].tasks
    else:
        task = TASKS[COLUMNS[name][0]]
        title, tasks = f"{column_title(name)} ({METRIC_TITLES[task.metrics[0]]})", (task.name,)
    return " ".join([title, *_marks(board, tasks)])


def short_header(board: Board, column: str) -> str:
    """The column's title over its metric, for narrow tables."""
    task = TASKS[COLUMNS[column][0]]
    return f"{' '.join([column_title(column), *_marks(board, (task.name,))])}\n{METRIC_INITIALS[task.metrics[0]]}"


def _marks(board: Board, tasks: tuple[str, ...]) -> list[str]:
    """The marks of a column that needs these tasks."""
    marked = {PARTIAL: _marked_tasks(board), FROM_MNLI: board.results.from_mnli}
    return [mark for mark, those in marked.items() if set(tasks) & set(those)]


def column_title(column: str) -> str:
    """MNLI-m, MNLI-mm; elsewhere the task's own title."""
    task = TASKS[COLUMNS[column][0]]
    return task.title + column.removeprefix(task.name).replace("_", "-")


def parts(board: Board, row: dict[Any, Any], name: str) -> tuple[str, str, str]:
    """Mean, standard deviation (empty if undefined) and marks of one value of one arm."""
    mean, deviation = number(row[name]) or MISSING, number(row[f"{name}_std"])
    if name in AVERAGES or mean == MISSING:
        return mean, deviation, ""
    n, planned = row[f"{name}_n"], board.planned[row["arm"]][name]
    count = f" ({n} of {planned})" if n < planned else "" if _uniform_plan(board) else f" ({n})"
    return mean, deviation, count + (f" {COLLAPSED}" if board.collapsed[row["arm"]][name] else "")
