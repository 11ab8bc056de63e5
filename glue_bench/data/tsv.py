"""The classic TSV layout of GLUE: one folder per task, no quoting, and every file a little different."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.data.task_data import UNLABELLED, Source, TaskData
from glue_bench.data.tasks import TASKS, Task, find_task
from glue_bench.errors import QUOTED, UserError, quoted, shortened
from glue_bench.files import read_file

BOM = b"\xef\xbb\xbf"
COLA_COLUMNS = ("source", "label", "star", "sentence")
GOLD_COLUMN, NO_GOLD = "gold_label", "-"
SCORES = (0.0, 5.0)
SCORE = r"[0-4](\.\d+)?|5(\.0+)?"  # how files spell them
LARGEST = 2**30  # bytes of a file; the largest official one, MNLI's train.tsv, has 230 MB
LONGEST_LINE = 1_000_000  # characters: tokenizers would take minutes and gigabytes for a word of that many
DOWNLOADED = "diagnostic"  # where the download script that is copied most puts AX, in place of its own folder


class FolderSource(Source):
    """A folder with files of GLUE's tasks, in which tasks and splits may be missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def pattern(self, task: Task, split: str) -> str:
        """What the files of a split are called below the folder."""

    def files(self, task: Task) -> dict[str, list[Path]]:
        """The files of each split that is there; none if no split with labels is (of AX: no split)."""
        paths = {split: some for split in task.splits if (some := sorted(self.folder.glob(self.pattern(task, split))))}
        return paths if paths.keys() - set(task.test_splits) or task.name == "ax" else {}

    def tasks(self) -> list[str]:
        return [name for name, task in TASKS.items() if self.files(task)]

    def found(self, name: str) -> tuple[Task, dict[str, list[Path]]]:
        """A task and its `files`. UserError if there are none."""
        task = find_task(name)
        if not (files := self.files(task)):
            first = self.pattern(task, next(iter(task.splits)))
            raise UserError(f"no {task.title} data in {self.folder}; looked for {first} and its other splits")
        return task, files


class TsvSource(FolderSource):
    """A folder in the classic layout, `CoLA/train.tsv` and so on."""

    kind = "tsv"

    def pattern(self, task: Task, split: str) -> str:
        elsewhere = task.name == "ax" and not (self.folder / task.title).is_dir()
        return f"{DOWNLOADED if elsewhere else task.title}/{task.splits[split].file}"

    def load(self, task: str) -> TaskData:
        row, files = self.found(task)
        read = {split: read_split(path, row, split) for split, (path,) in files.items()}
        skipped = {split: count for split, (_, count) in read.items()}
        return TaskData(row.name, self.kind, {split: frame for split, (frame, _) in read.items()}, skipped)


def read_split(path: Path, task: Task, split: str) -> tuple[pd.DataFrame, int]:
    """Read one file into a frame of `TaskData.splits`, and count the rows left out.

    Left out are QQP's rows with a wrong number of fields and MNLI's rows without a gold label, and only where
    labels are public: a test split keeps all of its rows, because the site reads predictions by their line. Any
    other irregularity raises UserError with the file and the line. Texts are kept as they are.
    """
    labelled, texts = split not in task.test_splits, task.tsv_texts or task.texts
    wanted = [*texts, *([task.tsv_label] if labelled else [])]
    columns = () if task.splits[split].header else COLA_COLUMNS
    table, left_out = read_table(path, wanted, columns, skips=labelled and task.skips_malformed_rows)
    if labelled and task.tsv_label == GOLD_COLUMN:
        judged = table[table[GOLD_COLUMN] != NO_GOLD]
        table, left_out = judged, len(table) - len(judged)
    if not len(table):
        raise UserError(f"{path}: no usable row; expected rows with {', '.join(wanted)}")
    data: dict[str, object] = {name: list(table[text]) for name, text in zip(("text_a", "text_b"), texts, strict=False)}
    data["label"] = to_labels(path, task, table[task.tsv_label]) if labelled else unlabelled(task, len(table))
    return pd.DataFrame(data), left_out


def unlabelled(task: Task, rows: int) -> np.ndarray:
    """Labels (rows,) of a split whose labels are not public."""
    return np.full(rows, UNLABELLED, dtype=np.float64 if task.is_regression else np.int64)


def to_labels(path: Path, task: Task, written: pd.Series) -> np.ndarray:
    """Class ids in the order of `Task.labels`, or scores, of texts by line; UserError at the first bad one."""
    bad = ~(written.str.fullmatch(SCORE) if task.is_regression else written.isin(task.written))
    if bad.any():
        permitted = f"a number from 0 to {SCORES[1]:g}" if task.is_regression else " or ".join(task.written)
        where = f"{path}, line {bad.idxmax()}"
        raise UserError(f"{where}: bad label {quoted(written[bad].iloc[0])}; expected {permitted}")
    if task.is_regression:
        return np.array([float(text) for text in written])
    return written.map({text: number for number, text in enumerate(task.written)}).to_numpy(np.int64)


def read_table(
    path: Path, wanted: Sequence[str], columns: Sequence[str] = (), *, skips: bool = False
) -> tuple[pd.DataFrame, int]:
    """The wanted columns of a file as text, indexed by line, and how many rows were left out.

    `columns` are those of a file without a header. With `skips` rows with a wrong number of fields are left out.
    UserError for what is not UTF-8, a column that is missing or there twice, or such a row, with the file and the line.
    """
    lines, start = read_lines(path), int(not columns)
    columns = columns or lines[0].split("\t")
    for name in wanted:
        if columns.count(name) != 1:
            has = shortened(", ".join(map(repr, columns)), 4 * QUOTED)
            what = f"{columns.count(name)} columns are called {name!r}, expected 1"
            raise UserError(f"{path}, line 1: {what}; found {has}")
    numbered = [(number, line.split("\t")) for number, line in enumerate(lines[start:], start + 1)]
    rows = {number: fields for number, fields in numbered if len(fields) == len(columns)}
    if len(rows) < len(numbered) and not skips:
        number, fields = next(row for row in numbered if row[0] not in rows)
        raise UserError(f"{path}, line {number}: {len(fields)} fields; expected {len(columns)}; copy the file again")
    places = {name: columns.index(name) for name in wanted}
    data = {name: [fields[place] for fields in rows.values()] for name, place in places.items()}
    return pd.DataFrame(data, index=list(rows)), len(numbered) - len(rows)


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file without its byte-order mark and trailing blank lines; UserError otherwise.

    Lines end at a line feed only: str.splitlines would also cut texts at U+2028 or U+0085.
    """
    try:
        raw = read_file(path, LARGEST).removeprefix(BOM)
        lines = [line.removesuffix("\r") for line in raw.decode("utf-8").split("\n")]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: {error.reason}; expected UTF-8") from error
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path}: the file is empty, line 1 is missing; expected tab-separated text")
    if number := next((number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE), 0):
        raise UserError(f"{path}, line {number}: more than {LONGEST_LINE:,} characters; expected a row of a task")
    return lines
