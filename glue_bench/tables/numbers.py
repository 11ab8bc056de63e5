"""Numbers and names as text, and DataFrames as CSV and JSON: fixed decimals, and nothing for what is missing."""

import json
import math
import re
from typing import Any

import pandas as pd

from glue_bench.data.task_data import LIMITED
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.errors import UNSHOWN

_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
MISSING = "–"  # noqa: RUF001 (an en dash is what a table shows for nothing)

BANNER = "Made from the embedded demo data: not a benchmark."
MEASURES = {"validation_loss": "Val. loss", "train_loss": "Train. loss", "swap_1": "Swap test"}
"""Titles of columns that are no tasks."""


def title_of(column: str) -> str:
    """MNLI-m, MNLI-mm; elsewhere the task's own title; of a measure its name in words."""
    if column not in COLUMNS:
        return MEASURES.get(column) or column.replace("_", " ").capitalize()
    task = TASKS[COLUMNS[column][0]]
    return task.title + column.removeprefix(task.name).replace("_", "-")


def banner(data_source: str) -> str:
    """What stands above every table whose numbers are not to be compared with others; else nothing."""
    if "demo" in data_source:
        return BANNER
    return f"Made from a part of each split ({data_source}): not a benchmark." if LIMITED in data_source else ""


def decimals_of(column: str, decimals: int = 2) -> int:
    """How many decimals a column has: points have two, losses in nats, which differ by less, three at least."""
    return max(decimals, 3) if "loss" in column else decimals


def number(value: float, decimals: int = 2) -> str:
    """Fixed decimals, no negative zero; empty for a missing value."""
    return "" if math.isnan(value) else f"{value:z.{decimals}f}"


def short(count: float, digits: int = 3) -> str:
    """A large number to so many digits: 4.39M, 131B, 16.5T; B is a billion (1e9), T a trillion (1e12)."""
    for unit, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.{digits}g}{unit}"
    return f"{count:g}"


def frame_csv(frame: pd.DataFrame, decimals: int = 2) -> str:
    """A table as CSV."""
    floats = {str(name): decimals_of(str(name), decimals) for name in frame.select_dtypes("float")}
    shown = {name: [number(value, exact) for value in frame[name]] for name, exact in floats.items()}
    return csv_text(frame.assign(**shown))


def csv_text(frame: pd.DataFrame, **options: Any) -> str:
    """A table as CSV, with the options of `DataFrame.to_csv`.

    A text that a spreadsheet would take for a formula begins with an apostrophe, which keeps it a text.
    """

    def text(value: Any) -> Any:
        is_formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
        return f"'{value}" if is_formula else value

    texts = {str(name): frame[name].map(text) for name in frame if frame[name].dtype.kind == "O"}
    return frame.assign(**texts).to_csv(index=False, lineterminator="\n", **options)


def json_text(document: Any) -> str:
    """A document as JSON, without characters that would control a terminal."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return UNSHOWN.sub(lambda found: json.dumps(found[0])[1:-1], text)
