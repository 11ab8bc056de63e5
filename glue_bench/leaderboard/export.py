"""A leaderboard as Markdown, CSV and JSON: the same numbers, to two decimals, in all three."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS, TASKS
from glue_bench.errors import unknown
from glue_bench.files import write_atomically
from glue_bench.leaderboard import averages, budget
from glue_bench.leaderboard.frame import ORIGINS, SCORE_COLUMNS
from glue_bench.leaderboard.markdown import MISSING, aligned, number
from glue_bench.leaderboard.protocol import AVERAGES, LEADING
from glue_bench.leaderboard.rules import FROM_MNLI, protocol_notes
from glue_bench.leaderboard.table import Board, make_board, steps_frame
from glue_bench.store import open_store

FORMATS = ("markdown", "csv", "json")
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


def render(path: str | Path, format: str = "markdown") -> str:
    """The leaderboard of the experiment in the folder `path`, as "markdown", "csv" or "json".

    Raises:
        UserError: the format is unknown, there is no experiment in `path`, or a record cannot be read.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    store = open_store(path)
    board = make_board(store)
    if format == "csv":
        return to_csv(board)
    notes = make_notes(board)
    return to_json(board, notes) if format == "json" else to_markdown(board, notes, steps_frame(store))


def write_tables(path: str | Path) -> list[Path]:
    """Write leaderboard.md, leaderboard.csv and scores.csv into the experiment's folder; the paths written.

    The bytes depend only on the plan and the records' scores, so that a rerun changes no file. Where arms are
    pretrained also budget.md, budget.csv and losses.csv, which hold measured speeds; where several checkpoints of
    the pretraining are fine-tuned also steps.csv; where the tasks allow an average also averages.csv.

    Raises:
        UserError: there is no experiment in `path`, or one of its records cannot be read.
    """
    store = open_store(path)
    board = make_board(store)
    steps = steps_frame(store)
    contents = {
        "leaderboard.md": to_markdown(board, make_notes(board), steps),
        "leaderboard.csv": to_csv(board),
        "scores.csv": scores_csv(board.results.scores),
    }
    for name, frame in (("averages.csv", averages.averages_frame(board)), ("steps.csv", steps)):
        if len(frame):
            contents[name] = frame_csv(frame)
    budgets = budget.budget_frame(store)
    if budgets["stream"].notna().any():
        contents |= {
            "budget.md": budget.to_markdown(budgets, board.results.experiment),
            "budget.csv": budget.to_csv(budgets),
            "losses.csv": budget.losses_csv(budget.losses_frame(store)),
        }
    for name, text in contents.items():
        write_atomically(store.folder / name, text.encode())
    return [store.folder / name for name in contents]


def scores_csv(scores: pd.DataFrame) -> str:
    """Tidy scores as CSV: SCORE_COLUMNS, values to four decimals."""
    text = scores[list(SCORE_COLUMNS)].assign(value=scores["value"].map(lambda value: number(value, 4)))
    return text.to_csv(index=False, lineterminator="\n")


def to_csv(board: Board) -> str:
    """The leaderboard's table as CSV, with `data_source` and `partial_tasks` (separated by `;`) added."""
    partial = ";".join(board.results.partial_tasks)
    return frame_csv(board.table.assign(data_source=board.results.data_source, partial_tasks=partial))


def frame_csv(frame: pd.DataFrame) -> str:
    """A table as CSV, numbers to two decimals."""
    shown = {str(name): frame[name].map(number) for name in frame.select_dtypes("float")}
    return frame.assign(**shown).to_csv(index=False, lineterminator="\n")


def to_json(board: Board, notes: Sequence[str]) -> str:
    """The leaderboard as JSON: experiment, data_source, partial_tasks, notes, rows, averages; null where missing."""
    document = {
        "experiment": board.results.experiment,
        "data_source": board.results.data_source,
        "partial_tasks": list(board.results.partial_tasks),
        "notes": list(notes),
        "rows": _plain_rows(board.table),
        "averages": _plain_rows(averages.averages_frame(board)),
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_markdown(board: Board, notes: Sequence[str], steps: pd.DataFrame) -> str:
    """The leaderboard as Markdown with aligned columns: a block an origin, `steps` if there are any, the notes."""
    parts = [f"# Leaderboard: {board.results.experiment}"]
    if is_demo(board):
        parts.append(f"**{BANNER}**")
    for origin in ORIGINS:
        block = board.table[board.table["origin"] == origin]
        if len(block):
            parts += [f"## {origin.capitalize()}", ORIGIN_MEANS[origin], _markdown_table(board, block)]
    conventions = averages.averages_frame(board)
    if len(conventions):
        parts += ["## Averages side by side", averages.MEANING, averages.to_markdown(board, conventions)]
    if len(steps):
        parts += ["## Against steps of pretraining", STEPS_MEAN, _steps_table(board, steps)]
    parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def _steps_table(board: Board, steps: pd.DataFrame) -> str:
    values = [*board.columns, *board.averages]
    lines = [["Arm", "Steps", *(_header(board, name) for name in values)]]
    for row in steps.sort_values(["arm", "steps"], kind="stable").to_dict("records"):
        lines.append([row["arm"], f"{row['steps']:,}", *(number(row[name]) or MISSING for name in values)])
    return aligned(lines, text_columns=1)


def make_notes(board: Board) -> list[str]:
    """What a reader has to know before comparing the numbers."""
    return [
        f"A cell is {board.results.protocol.seeds} ± sample standard deviation over {_seeds(board)}, x100, on the "
        "validation split. One seed has no deviation, nor has an average whose parts differ in their seeds. Bold "
        "is the best of a column within its block; blocks are not comparable with each other.",
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
        f"Records outside the plan (settings changed since), left out: {results.left_out}.": results.left_out,
    }
    return [note for note, applies in notes.items() if applies]


def _marked_tasks(board: Board) -> tuple[str, ...]:
    """Tasks run on a part of their rows; of demo tables the banner has said all there is to say."""
    return () if is_demo(board) else board.results.partial_tasks


def is_demo(board: Board) -> bool:
    """Whether any of the data is made up."""
    return "demo" in board.results.data_source


def _collapsed_counts(board: Board) -> str:
    return ", ".join(
        f"{row['arm']} {_title(column)} {count} of {row[f'{column}_n']}"
        for row in board.table.to_dict("records")
        for column, count in board.collapsed[row["arm"]].items()
        if count
    )


def _markdown_table(board: Board, block: pd.DataFrame) -> str:
    values = [*board.columns, *board.averages]
    keys = arm_columns(block)
    lines = [[*(key.capitalize() for key in keys), *(_header(board, name) for name in values)]]
    tops = {name: best(block[name]) for name in values}
    for row in block.to_dict("records"):
        lines.append([*(row[key] for key in keys), *(_cell(board, row, name, tops[name]) for name in values)])
    return aligned(lines, text_columns=len(keys))


def arm_columns(block: pd.DataFrame) -> list[str]:
    """What names a row: the arm, and its variant unless every arm is called by it."""
    return ["arm"] if (block["arm"] == block["variant"]).all() else ["arm", "variant"]


def _header(board: Board, name: str) -> str:
    if name in AVERAGES:
        title, tasks = AVERAGES[name].title, AVERAGES[name].tasks
    else:
        task = TASKS[COLUMNS[name][0]]
        title, tasks = f"{_title(name)} ({METRIC_TITLES[task.metrics[0]]})", (task.name,)
    return " ".join([title, *_marks(board, tasks)])


def short_header(board: Board, column: str) -> str:
    """The column's title over its metric, for narrow tables."""
    task = TASKS[COLUMNS[column][0]]
    return f"{' '.join([_title(column), *_marks(board, (task.name,))])}\n{METRIC_INITIALS[task.metrics[0]]}"


def _marks(board: Board, tasks: tuple[str, ...]) -> list[str]:
    """The marks of a column that needs these tasks."""
    marked = {PARTIAL: _marked_tasks(board), FROM_MNLI: board.results.from_mnli}
    return [mark for mark, those in marked.items() if set(tasks) & set(those)]


def _title(column: str) -> str:
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


def _cell(board: Board, row: dict[Any, Any], name: str, best: str) -> str:
    mean, deviation, marks = parts(board, row, name)
    text = f"{mean} ± {deviation}" if deviation else mean
    return (f"**{text}**" if best and mean == best else text) + marks


def best(means: pd.Series) -> str:
    """The highest mean as shown, so that a tie to two decimals is a tie; none where there is no contest."""
    shown = means.dropna()
    return number(shown.max()) if len(shown) > 1 else ""


def _plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(number(value))
