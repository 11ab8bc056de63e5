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

    def tasks(self) -> list[str]:
        return [name for name, task in TASKS.items() if any(self._files(task, split) for split in _needed(task))]

    def found(self, name: str) -> tuple[Task, dict[str, list[Path]]]:
        """A task and the files of each split that is there. UserError if there is none with labels (of AX: at all)."""
        task = find_task(name)
        files = {split: paths for split in task.splits if (paths := self._files(task, split))}
        if files.keys().isdisjoint(_needed(task)):
            looked = ", ".join(self.pattern(task, split) for split in _needed(task))
            raise UserError(f"no {task.title} data in {self.folder}; looked for {looked}")
        return task, files

    def _files(self, task: Task, split: str) -> list[Path]:
        return sorted(self.folder.glob(self.pattern(task, split)))


def _needed(task: Task) -> tuple[str, ...]:
    """Splits of which at least one must be there for the task to count as present."""
    return tuple(name for name in task.splits if not name.startswith("test")) or tuple(task.splits)


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
    lines = read_lines(path)
    start, labelled = int(task.splits[split].header), split not in task.test_splits
    columns = lines[0].split("\t") if start else list(COLA_COLUMNS)
    wanted = [*(task.tsv_texts or task.texts), *([task.tsv_label] if labelled else [])]
    places = places_of(path, columns, wanted)
    numbered = [(number, line.split("\t")) for number, line in enumerate(lines[start:], start + 1)]
    rows = [row for row in numbered if len(row[1]) == len(columns)]
    if len(rows) < len(numbered) and not (labelled and task.skips_malformed_rows):
        number, fields = next(row for row in numbered if len(row[1]) != len(columns))
        size = "short" if len(fields) < len(columns) else "long"
        raise UserError(f"{path}, line {number}: row too {size}: {len(fields)} fields; expected {len(columns)}")
    if labelled and task.tsv_label == GOLD_COLUMN:
        rows = [row for row in rows if row[1][places[-1]] != NO_GOLD]
    if not rows:
        raise UserError(f"{path}, line {start + 1}: no usable row; expected rows with {', '.join(wanted)}")
    texts = [[row[place] for _, row in rows] for place in places[: len(task.texts)]]
    data: dict[str, object] = dict(zip(("text_a", "text_b"), texts, strict=False))
    if labelled:
        data["label"] = _labels(path, task, [(number, row[places[-1]]) for number, row in rows])
    else:
        data["label"] = unlabelled(task, len(rows))
    return pd.DataFrame(data), len(numbered) - len(rows)


def unlabelled(task: Task, rows: int) -> np.ndarray:
    """Labels (rows,) of a split whose labels are not public."""
    return np.full(rows, UNLABELLED, dtype=np.float64 if task.is_regression else np.int64)


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
        line, place = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        found = f"byte {place} of the line (0x{raw[error.start]:02x}) is not UTF-8"
        raise UserError(f"{path}, line {line}: {found}; expected UTF-8") from error
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path}: the file is empty, line 1 is missing; expected tab-separated text")
    if number := next((number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE), 0):
        raise UserError(f"{path}, line {number}: more than {LONGEST_LINE:,} characters; expected a row of a task")
    return lines


def places_of(path: Path, columns: Sequence[str], wanted: Sequence[str], instead: str = "") -> list[int]:
    """Where the wanted columns are in a header; UserError where one is missing (`instead` says what else to give) or
    is there twice, so that nothing says which one is meant.
    """
    if missing := [name for name in wanted if name not in columns]:
        found = instead or f"found {shortened(', '.join(map(repr, columns)), 4 * QUOTED)}"
        raise UserError(f"{path}, line 1: no column {', '.join(map(repr, missing))}; {found}")
    for name in wanted:
        if columns.count(name) > 1:
            raise UserError(f"{path}, line 1: {columns.count(name)} columns are called {name!r}; expected one")
    return [columns.index(name) for name in wanted]


def _labels(path: Path, task: Task, written: list[tuple[int, str]]) -> np.ndarray:
    """Class ids in the order of `Task.labels`, or scores, of texts with their lines; UserError at the first bad one."""
    ids, labels = {text: number for number, text in enumerate(task.written)}, list[float]()
    for line, text in written:
        try:
            label = float(text) if task.is_regression else ids[text]
            if task.is_regression and not SCORES[0] <= label <= SCORES[1]:
                raise ValueError
        except (ValueError, KeyError) as error:
            permitted = f"a number from 0 to {SCORES[1]:g}" if task.is_regression else " or ".join(task.written)
            raise UserError(f"{path}, line {line}: bad label {quoted(text)}; expected {permitted}") from error
        labels.append(label)
    return np.array(labels, dtype=np.float64 if task.is_regression else np.int64)
