"""The classic TSV layout of GLUE: one folder per task, no quoting, and every file a little different."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.data.folder import FolderSource
from glue_bench.data.task_data import UNLABELLED, TaskData
from glue_bench.data.tasks import Task
from glue_bench.errors import QUOTED, UserError, quoted, shortened
from glue_bench.files import read_file

BOM = b"\xef\xbb\xbf"
COLA_COLUMNS = ("source", "label", "star", "sentence")
GOLD_COLUMN, NO_GOLD = "gold_label", "-"
SCORES = (0.0, 5.0)
SCORE = r"[0-4](\.\d+)?|5(\.0+)?"  # how files spell them
LARGEST = 2**30  # bytes of a file; the largest official one, MNLI's train.tsv, has 230 MB
LONGEST_LINE = (
    1_000_000  # characters: tokenizers would take minutes and gigabytes for a word of that many
)
MRPC_TRAIN, MRPC_TEST, MRPC_DEV_IDS = (
    "msr_paraphrase_train.txt",
    "msr_paraphrase_test.txt",
    "dev_ids.tsv",
)
"""The files that MRPC is made of: the rows of the first whose ids are in the last are its validation split."""
MRPC_IDS = ("#1 ID", "#2 ID")


class TsvSource(FolderSource):
    """A folder in the classic layout, `CoLA/train.tsv` and so on."""

    kind = "tsv"
    example = "the classic TSV layout (such as CoLA/train.tsv)"

    def expected(self, task: Task, split: str) -> str:
        instead = f" (or {MRPC_TRAIN} with {MRPC_DEV_IDS})" if task.name == "mrpc" else ""
        return f"{task.title}/{task.splits[split].file}{instead}"

    def split_files(self, place: Path, task: Task, split: str) -> list[Path]:
        path = place / task.splits[split].file
        if path.exists():
            return [path]
        if task.name != "mrpc" or not (place / MRPC_DEV_IDS).exists():
            return []
        paths = (
            [place / MRPC_TEST] if split == "test" else [place / MRPC_TRAIN, place / MRPC_DEV_IDS]
        )
        return paths if paths[0].exists() else []

    def load(self, task: str) -> TaskData:
        row, files = self.task_and_files(task)
        read = {
            split: read_split(paths[0], row, split, *paths[1:]) for split, paths in files.items()
        }
        skipped = {split: count for split, (_, count) in read.items()}
        return TaskData(
            row.name, self.kind, {split: frame for split, (frame, _) in read.items()}, skipped
        )


def read_split(
    path: Path, task: Task, split: str, dev_ids: Path | None = None
) -> tuple[pd.DataFrame, int]:
    """Read one file into a frame of `TaskData.splits`, and count the rows left out.

    Left out are QQP's rows with a wrong number of fields and MNLI's rows without a gold label, and only where
    labels are public: a test split keeps all of its rows, because the site reads predictions by their line. Any
    other irregularity raises UserError with the file and the line. Texts are kept as they are. Of a file that holds
    train and validation of MRPC together, `dev_ids` names the rows of validation.
    """
    labelled, texts = split not in task.test_splits, task.tsv_texts or task.texts
    wanted = [*texts, *([task.tsv_label] if labelled else []), *(MRPC_IDS if dev_ids else ())]
    columns = () if task.splits[split].header else COLA_COLUMNS
    table, left_out = read_table(
        path, wanted, columns, skips=labelled and task.skips_malformed_rows
    )
    if labelled and task.tsv_label == GOLD_COLUMN:
        judged = table[table[GOLD_COLUMN] != NO_GOLD]
        table, left_out = judged, len(table) - len(judged)
    if dev_ids:
        of_validation = set(map(tuple, (line.split("\t") for line in read_lines(dev_ids))))
        is_validation = [
            pair in of_validation for pair in zip(*(table[name] for name in MRPC_IDS), strict=True)
        ]
        table = table[np.equal(is_validation, split == "validation")]
    if not len(table):
        raise UserError(f"{path}: no usable row; expected rows with {', '.join(wanted)}")
    data: dict[str, object] = {
        name: list(table[text]) for name, text in zip(("text_a", "text_b"), texts, strict=False)
    }
    data["label"] = (
        to_labels(path, task, table[task.tsv_label]) if labelled else unlabelled(task, len(table))
    )
    return pd.DataFrame(data), left_out


def unlabelled(task: Task, rows: int) -> np.ndarray:
    """Labels (rows,) of a split whose labels are not public."""
    return np.full(rows, UNLABELLED, dtype=np.float64 if task.is_regression else np.int64)


def to_labels(path: Path, task: Task, written: pd.Series) -> np.ndarray:
    """Class ids in the order of `Task.labels`, or scores, of texts by line; UserError at the first bad one."""
    bad = ~(written.str.fullmatch(SCORE) if task.is_regression else written.isin(task.written))
    if bad.any():
        permitted = (
            f"a number from 0 to {SCORES[1]:g}" if task.is_regression else " or ".join(task.written)
        )
        where = f"{path}, line {bad.idxmax()}"
        raise UserError(f"{where}: bad label {quoted(written[bad].iloc[0])}; expected {permitted}")
    if task.is_regression:
        return np.array([float(text) for text in written])
    return written.map({text: number for number, text in enumerate(task.written)}).to_numpy(
        np.int64
    )


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
            has_quotes = f'"{name}"' in columns
            advice = "; save it without CSV quotes, as GLUE's files are" if has_quotes else ""
            raise UserError(f"{path}, line 1: {what}; found {has}{advice}")
    numbered = [(number, line.split("\t")) for number, line in enumerate(lines[start:], start + 1)]
    rows = {number: fields for number, fields in numbered if len(fields) == len(columns)}
    if len(rows) < len(numbered) and not skips:
        number, fields = next(row for row in numbered if row[0] not in rows)
        raise UserError(
            f"{path}, line {number}: {len(fields)} fields; expected {len(columns)}; copy the file again"
        )
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
        raise UserError(
            f"{path}: the file is empty, line 1 is missing; expected tab-separated text"
        )
    if number := next(
        (number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE), 0
    ):
        raise UserError(
            f"{path}, line {number}: more than {LONGEST_LINE:,} characters; expected a row of a task"
        )
    return lines
