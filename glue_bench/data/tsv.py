"""The classic TSV layout of GLUE: a folder per task, no quoting, every file a little different."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.data.folder import FolderSource
from glue_bench.data.task import Task
from glue_bench.data.task_data import TEXT_COLUMNS, UNLABELLED, TaskData
from glue_bench.errors import MAX_QUOTED, UserError, quoted, shortened
from glue_bench.files import read_file

BOM = b"\xef\xbb\xbf"
COLA_COLUMNS = ("source", "label", "star", "sentence")
GOLD_COLUMN = "gold_label"
NO_GOLD = "-"
SCORES = (0.0, 5.0)
SCORE = r"[0-4](\.\d+)?|5(\.0+)?"
"""How files spell a score of STS-B."""
MAX_TSV_BYTES = 2**30
"""The largest official file, MNLI's train.tsv, has 230 MB."""
MAX_LENGTH = 1_000_000
"""The most characters of a line or a text.

Tokenizers would take minutes and gigabytes for a word of that length.
"""
MRPC_TRAIN = "msr_paraphrase_train.txt"
MRPC_TEST = "msr_paraphrase_test.txt"
MRPC_DEV_IDS = "dev_ids.tsv"
"""The files of MRPC. The last has the ids of the rows of the first that are validation."""
MRPC_IDS = ("#1 ID", "#2 ID")


class TsvSource(FolderSource):
    """A folder in the classic layout, `CoLA/train.tsv` and so on."""

    kind = "tsv"
    example = "the classic TSV layout (such as CoLA/train.tsv)"

    def expected(self, task: Task, split: str) -> str:
        usual = f"{task.title}/{task.splits[split].file}"
        if task.name == "mrpc":
            return f"{usual} (or {MRPC_TRAIN} with {MRPC_DEV_IDS})"
        return usual

    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        path = place / task.splits[split].file
        if path.exists():
            return [path]
        dev_ids = place / MRPC_DEV_IDS
        if task.name != "mrpc" or not dev_ids.exists():
            return []
        paths = [place / MRPC_TEST] if split == "test" else [place / MRPC_TRAIN, dev_ids]
        return paths if paths[0].exists() else []

    def load(self, task: str) -> TaskData:
        row, files = self.task_and_files(task)
        frames: dict[str, pd.DataFrame] = {}
        skipped: dict[str, int] = {}
        for split, paths in files.items():
            frames[split], skipped[split] = read_split(paths[0], row, split, *paths[1:])
        return TaskData(row.name, self.kind, frames, skipped)


def read_split(
    path: Path, task: Task, split: str, dev_ids: Path | None = None
) -> tuple[pd.DataFrame, int]:
    """Read one file into a frame of `TaskData.splits`, and count the rows that are left out.

    QQP's rows with a wrong number of fields and MNLI's rows without a gold label are left out, and
    only where labels are public. A test split keeps all of its rows, because the site reads
    predictions by their line. Texts are kept as they are.

    Args:
        path: The file.
        task: The task that it belongs to.
        split: The name of the split to read.
        dev_ids: For a file that holds train and validation of MRPC together: the file with the ids
            of the validation rows.

    Returns:
        The frame, and the number of rows that are left out.

    Raises:
        UserError: any other irregularity, with the file and the line.
    """
    is_labelled = split not in task.test_splits
    texts = task.tsv_texts or task.texts
    wanted_columns = list(texts)
    if is_labelled:
        wanted_columns.append(task.tsv_label)
    if dev_ids:
        wanted_columns.extend(MRPC_IDS)

    columns = () if task.splits[split].header else COLA_COLUMNS
    skips = is_labelled and task.skips_malformed_rows
    table, left_out = read_table(path, wanted_columns, columns, skips=skips)

    if is_labelled and task.tsv_label == GOLD_COLUMN:
        judged = table[table[GOLD_COLUMN] != NO_GOLD]
        left_out = len(table) - len(judged)
        table = judged

    if dev_ids:
        is_validation = _has_ids(table, dev_ids)
        table = table[is_validation == (split == "validation")]

    if not len(table):
        expected = ", ".join(wanted_columns)
        raise UserError(f"{path}: no usable row; expected rows with {expected}")

    data: dict[str, object] = {}
    for name, text in zip(TEXT_COLUMNS, texts, strict=False):
        data[name] = list(table[text])
    if is_labelled:
        data["label"] = to_labels(path, task, table[task.tsv_label])
    else:
        data["label"] = unlabelled(task, len(table))
    return pd.DataFrame(data), left_out


def _has_ids(table: pd.DataFrame, dev_ids: Path) -> np.ndarray:
    """Whether the pair of ids of each row is in the file `dev_ids`: bool (rows,)."""
    pairs = {tuple(line.split("\t")) for line in read_lines(dev_ids)}
    first_ids, second_ids = (table[name] for name in MRPC_IDS)
    is_in = [pair in pairs for pair in zip(first_ids, second_ids, strict=True)]
    return np.array(is_in, dtype=bool)


def unlabelled(task: Task, rows: int) -> np.ndarray:
    """Return the labels (rows,) of a split whose labels are not public."""
    kind = np.float64 if task.is_regression else np.int64
    return np.full(rows, UNLABELLED, dtype=kind)


def to_labels(path: Path, task: Task, written: pd.Series) -> np.ndarray:
    """Turn the labels of a file, indexed by line, into class ids or scores (rows,).

    Ids have the order of `Task.labels`. Raises UserError at the first label that is none.
    """
    if task.is_regression:
        fits = written.str.fullmatch(SCORE)
        permitted = f"a number from 0 to {SCORES[1]:g}"
    else:
        fits = written.isin(task.written)
        permitted = " or ".join(task.written)
    if not fits.all():
        wrong = written[~fits]
        line = wrong.index[0]
        label = quoted(wrong.iloc[0])
        raise UserError(f"{path}, line {line}: bad label {label}; expected {permitted}")
    if task.is_regression:
        return np.array(list(map(float, written)))
    numbers = {text: number for number, text in enumerate(task.written)}
    return written.map(numbers).to_numpy(np.int64)


def read_table(
    path: Path, wanted_columns: Sequence[str], columns: Sequence[str] = (), *, skips: bool = False
) -> tuple[pd.DataFrame, int]:
    """Read columns of a file as text.

    Args:
        path: The file.
        wanted_columns: The columns to read.
        columns: All columns of a file without a header.
        skips: Leave out rows with a wrong number of fields.

    Returns:
        A frame that is indexed by line, and the number of rows that are left out.

    Raises:
        UserError: the file is not UTF-8, a column is missing or there twice, or a row has a wrong
            number of fields; with the file and the line.
    """
    lines = read_lines(path)
    header_lines = 0
    if not columns:
        columns = lines[0].split("\t")
        header_lines = 1

    for name in wanted_columns:
        _check_column(path, name, columns)

    rows: dict[int, list[str]] = {}
    left_out = 0
    for number, line in enumerate(lines[header_lines:], header_lines + 1):
        check_length(line, f"{path}, line {number}")
        fields = line.split("\t")
        if len(fields) == len(columns):
            rows[number] = fields
        elif skips:
            left_out += 1
        else:
            fault = f"{len(fields)} fields; expected {len(columns)}"
            raise UserError(f"{path}, line {number}: {fault}; copy the file again")

    data: dict[str, list[str]] = {}
    for name in wanted_columns:
        place = columns.index(name)
        data[name] = [fields[place] for fields in rows.values()]
    return pd.DataFrame(data, index=list(rows)), left_out


def _check_column(path: Path, name: str, columns: Sequence[str]) -> None:
    """Refuse a file that does not have the column exactly once."""
    count = columns.count(name)
    if count == 1:
        return
    listed_columns = shortened(", ".join(map(repr, columns)), 4 * MAX_QUOTED)
    fault = f"{count} columns are called {name!r}, expected 1"
    advice = ""
    if f'"{name}"' in columns:
        advice = "; save it without CSV quotes, as GLUE's files are"
    raise UserError(f"{path}, line 1: {fault}; found {listed_columns}{advice}")


def read_lines(
    path: Path, expected: str = "tab-separated text", max_lines: int | None = None
) -> list[str]:
    """Read the lines of a UTF-8 file, without its byte-order mark and trailing blank lines.

    Lines end at a line feed only: str.splitlines would also cut texts at U+2028 or U+0085.

    Args:
        path: The file.
        expected: What messages say that the file should hold.
        max_lines: The most lines of a file.

    Raises:
        UserError: the file cannot be read, is empty or no such text, or has too many lines.
    """
    try:
        raw = read_file(path, MAX_TSV_BYTES).removeprefix(BOM)
        count = raw.count(b"\n")
        if max_lines is not None and count > max_lines:
            raise UserError(f"{path}: {count:,} lines; give {max_lines:,} at most")
        if b"\n" not in raw:
            raw = raw.replace(b"\r", b"\n")  # the line ends of old spreadsheets
        text = raw.decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line_number = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line_number}: {error.reason}; expected UTF-8") from error

    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()

    if not lines:
        fault = "the file is empty, line 1 is missing"
        raise UserError(f"{path}: {fault}; expected {expected}")
    return lines


def check_length(text: str, place: str) -> None:
    """Raise UserError for more than MAX_LENGTH characters; `place` says where they are."""
    if len(text) > MAX_LENGTH:
        fault = f"more than {MAX_LENGTH:,} characters"
        raise UserError(f"{place}: {fault}; expected a row of a task")
