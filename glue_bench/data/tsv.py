"""The classic TSV layout of GLUE: one folder per task, no quoting, and every file a little different."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.data.task_data import UNLABELLED, TaskData
from glue_bench.data.tasks import TASKS, Task, find_task
from glue_bench.errors import QUOTED, UserError, quoted, shortened
from glue_bench.files import read_file

BOM = b"\xef\xbb\xbf"
COLA_COLUMNS = ("source", "label", "star", "sentence")
GOLD_COLUMN, NO_GOLD = "gold_label", "-"
SCORES = (0.0, 5.0)
Row = tuple[int, list[str]]  # the number of a line, and its fields
LARGEST = 2**30  # bytes of a file; the largest official one, MNLI's train.tsv, has 230 MB
LONGEST_LINE = 1_000_000  # characters: tokenizers would take minutes and gigabytes for a word of that many
DOWNLOADED = "diagnostic"  # where the download script that is copied most puts AX, in place of its own folder


class TsvSource:
    """A folder in the classic layout, `CoLA/train.tsv` and so on. Tasks and splits may be missing."""

    kind = "tsv"
    revision: str | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tasks(self) -> list[str]:
        return [name for name, task in TASKS.items() if self._is_present(task)]

    def load(self, task: str) -> TaskData:
        row = find_task(task)
        if not self._is_present(row):
            files = ", ".join(split.file for split in row.splits.values())
            raise UserError(f"no {row.title} data in {self.folder / row.title}; looked for {files}")
        present = [name for name in row.splits if self._path(row, name).is_file()]
        read = {name: read_split(self._path(row, name), row, name) for name in present}
        splits = {name: frame for name, (frame, _) in read.items()}
        return TaskData(row.name, self.kind, splits, {name: skipped for name, (_, skipped) in read.items()})

    def _path(self, task: Task, split: str) -> Path:
        path = self.folder / task.title / task.splits[split].file
        return self.folder / DOWNLOADED / path.name if task.name == "ax" and not path.is_file() else path

    def _is_present(self, task: Task) -> bool:
        return any(self._path(task, split).is_file() for split in needed_splits(task))


def needed_splits(task: Task) -> tuple[str, ...]:
    """Splits of which at least one must be there for the task to count as present."""
    return tuple(name for name in task.splits if not name.startswith("test")) or tuple(task.splits)


def read_split(path: Path, task: Task, split: str) -> tuple[pd.DataFrame, int]:
    """Read one file into a frame of `TaskData.splits`, and count the rows left out.

    Left out are QQP's rows with a wrong number of fields and MNLI's rows without a gold label, and only where
    labels are public: a test split keeps all of its rows, because the site reads predictions by their line. Any
    other irregularity raises UserError with the file and the line. Texts are kept as they are.
    """
    lines = read_lines(path)
    start = int(task.splits[split].header)
    columns = lines[0].split("\t") if start else list(COLA_COLUMNS)
    labelled = split not in task.test_splits
    wanted = [*(task.tsv_texts or task.texts), *([task.tsv_label] if labelled else [])]
    places = places_of(path, columns, wanted)
    rows, skipped = _rows(path, lines, len(columns), start, labelled and task.skips_malformed_rows)
    if labelled and task.tsv_label == GOLD_COLUMN:
        gold = [(line, row) for line, row in rows if row[places[-1]] != NO_GOLD]
        rows, skipped = gold, skipped + len(rows) - len(gold)
    if not rows:
        raise UserError(f"{path}, line {start + 1}: no usable row; expected rows with {', '.join(wanted)}")
    texts = [[row[place] for _, row in rows] for place in places[: len(task.texts)]]
    data: dict[str, object] = dict(zip(("text_a", "text_b"), texts, strict=False))
    data["label"] = _labels(path, task, rows, places[-1]) if labelled else unlabelled(task, len(rows))
    return pd.DataFrame(data), skipped


def unlabelled(task: Task, rows: int) -> np.ndarray:
    """Labels (rows,) of a split whose labels are not public."""
    return np.full(rows, UNLABELLED, dtype=np.float64 if task.is_regression else np.int64)


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file without its byte-order mark and trailing blank lines; UserError otherwise.

    Lines end at a line feed only: str.splitlines would also cut texts at U+2028 or U+0085.
    """
    try:
        raw = read_file(path, LARGEST)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    raw = raw.removeprefix(BOM)
    try:
        lines = [line.removesuffix("\r") for line in raw.decode("utf-8").split("\n")]
    except UnicodeDecodeError as error:
        line, place = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        found = f"byte {place} of the line (0x{raw[error.start]:02x}) is not UTF-8"
        raise UserError(f"{path}, line {line}: {found}; expected UTF-8") from error
    while lines and not lines[-1]:
        lines.pop()
    if max(map(len, lines), default=0) > LONGEST_LINE:
        number = next(number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE)
        raise UserError(f"{path}, line {number}: more than {LONGEST_LINE:,} characters; expected a row of a task")
    if not lines:
        raise UserError(f"{path}: the file is empty, line 1 is missing; expected tab-separated text")
    return lines


def places_of(path: Path, columns: Sequence[str], wanted: Sequence[str], instead: str = "") -> list[int]:
    """Where the wanted columns are in a header; `instead` says what was expected where one is missing.

    Raises:
        UserError: one is missing, or is there twice, so that nothing says which one is meant.
    """
    if missing := [name for name in wanted if name not in columns]:
        found = instead or f"found {shortened(', '.join(map(repr, columns)), 4 * QUOTED)}"
        raise UserError(f"{path}, line 1: no column {', '.join(map(repr, missing))}; {found}")
    for name in wanted:
        if columns.count(name) > 1:
            raise UserError(f"{path}, line 1: {columns.count(name)} columns are called {name!r}; expected one")
    return [columns.index(name) for name in wanted]


def _rows(path: Path, lines: list[str], width: int, start: int, skip_malformed: bool) -> tuple[list[Row], int]:
    """The rows with `width` fields, and how many others there were."""
    numbered = [(number, line.split("\t")) for number, line in enumerate(lines[start:], start + 1)]
    good = [row for row in numbered if len(row[1]) == width]
    if len(good) < len(numbered) and not skip_malformed:
        number, fields = next(row for row in numbered if len(row[1]) != width)
        size = "short" if len(fields) < width else "long"
        raise UserError(f"{path}, line {number}: row too {size}: {len(fields)} fields; expected {width}")
    return good, len(numbered) - len(good)


def _labels(path: Path, task: Task, rows: list[Row], place: int) -> np.ndarray:
    """Class ids in the order of `Task.labels`, or scores; UserError at the first bad label."""
    ids = {written: number for number, written in enumerate(task.written)}
    labels = [_score(row[place]) if task.is_regression else ids.get(row[place]) for _, row in rows]
    if None in labels:
        line, row = rows[labels.index(None)]
        permitted = f"a number from 0 to {SCORES[1]:g}" if task.is_regression else " or ".join(task.written)
        raise UserError(f"{path}, line {line}: bad label {quoted(row[place])}; expected {permitted}")
    return np.array(labels, dtype=np.float64 if task.is_regression else np.int64)


def _score(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if SCORES[0] <= value <= SCORES[1] else None
