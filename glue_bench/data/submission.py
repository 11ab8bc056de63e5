"""The eleven files that the GLUE site takes, and the zip around them: how to write and check them.

Names, header and row counts: the site's FAQ and sample submission
(https://gluebenchmark.com/faq).
"""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from glue_bench.data.metrics import decide
from glue_bench.data.official import LabelOrder
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.data.tsv import SCORES
from glue_bench.errors import MAX_QUOTED, UserError, quoted, shortened
from glue_bench.files import ENCRYPTED, UNREADABLE, zip_entry

HEADER = "index\tprediction"
MAX_WRONG_ROWS = 3
"""How many wrong rows of a file are named."""
MAX_ENTRIES = 1000
MAX_ENTRY_BYTES = 2**23
"""How many bytes of an entry are unpacked; the largest file of a good submission has 3.5 MB."""
MAX_ZIP_BYTES = 2**24
"""A good submission that is not compressed has 4 MB."""

MAJORITY_LABELS = {
    "cola": "1",
    "sst2": "1",
    "mrpc": "1",
    "stsb": "2.701",
    "qqp": "0",
    "mnli": "entailment",
    "qnli": "entailment",
    "rte": "entailment",
    "wnli": "0",
    "ax": "entailment",
}
"""The most frequent training label of each task as files spell it; of STS-B the mean.

Counted on the official training files: CoLA 6023 of 8551, SST-2 37569 of 67349, MRPC 2474 of 3668,
STS-B the mean of 5749 scores, RTE 1249 of 2490, WNLI 323 of 635. Counted on a part of them, because
the whole was not at hand: QQP 22006 of 34998, MNLI 4533 of 13393, QNLI 6092 of 12096; the last two
are so even that the whole may say otherwise. AX takes MNLI's.
"""


@dataclass(frozen=True)
class File:
    """One file of a submission: `rows` labels of `task`.

    The model of the task `model` predicts them on its `split`.
    """

    name: str
    task: str
    model: str
    split: str
    rows: int

    @property
    def labels(self) -> tuple[str, ...]:
        """The permitted predictions; empty where it is a number from 0 to 5."""
        return TASKS[self.task].written


_ENDINGS = {"test": "", "test_matched": "-m", "test_mismatched": "-mm"}


def _files() -> Iterator[File]:
    """Yield the eleven files in the order of TASKS."""
    for task in TASKS.values():
        if task.name == "ax":
            continue
        for split in task.test_splits:
            name = f"{task.title}{_ENDINGS[split]}.tsv"
            yield File(name, task.name, task.name, split, task.splits[split].rows)
    yield File("AX.tsv", "ax", "mnli", AX_SPLIT, TASKS["ax"].splits["test"].rows)


FILES: dict[str, File] = {file.name: file for file in _files()}
"""The eleven files by name, in the order of TASKS."""


def write_file(file: File, logits: np.ndarray, order: LabelOrder | None = None) -> bytes:
    """Write a model's outputs as a file: one line a row, in order.

    Classes are written by their names, scores clipped to 0 to 5 with three decimals.

    Args:
        file: The file to write.
        logits: The outputs (rows, labels), columns in the order of `Task.labels`.
        order: The official label id of each column, where the columns have another order.

    Returns:
        The content of the file.

    Raises:
        ValueError: outputs are of another shape, or not finite.
    """
    predicted = decide(file.task, logits)
    if file.labels:
        labels = [file.labels[number] for number in order] if order else file.labels
        return _content([labels[column] for column in predicted])
    scores = np.clip(predicted.astype(np.float64), *SCORES)
    return _content([f"{score:.3f}" for score in scores])


def fill_file(file: File) -> bytes:
    """Write a file with the same prediction on every official row.

    It is the majority class of training, or the mean score.
    """
    return _content([MAJORITY_LABELS[file.task]] * file.rows)


def _content(predictions: list[str]) -> bytes:
    rows = [f"{index}\t{prediction}" for index, prediction in enumerate(predictions)]
    text = "\n".join([HEADER, *rows]) + "\n"
    return text.encode()


def make_zip(files: Mapping[str, bytes]) -> bytes:
    """Pack files by name: the same content gives the same bytes, whenever and wherever."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zip_entry(name), files[name])
    return buffer.getvalue()


# The linter: what the site would refuse, or score wrongly in silence


def lint(content: bytes, zip_name: str = "the file") -> list[str]:
    """Find what is wrong in the bytes of a zip.

    Lines end at a line feed alone: whether the site strips a carriage return from a label is not
    documented.

    Args:
        content: The bytes.
        zip_name: What to call the zip in messages.

    Returns:
        A line for each finding: where, and what was expected. Of the rows of a file the first
        MAX_WRONG_ROWS are named.

    Raises:
        UserError: the bytes are no zip, or a very large one.
    """
    try:
        if len(content) > MAX_ZIP_BYTES:
            fault = f"it has {len(content)} bytes, at most {MAX_ZIP_BYTES} are read"
            raise ValueError(fault)
        archive = zipfile.ZipFile(io.BytesIO(content))
    except UNREADABLE as error:
        reason = str(error).lower()
        fault = f"{zip_name} is not a zip ({reason})"
        raise UserError(f"{fault}; expected a zip of eleven files") from error

    counts = Counter(archive.namelist())
    if counts.total() > MAX_ENTRIES:
        return [_finding(zip_name, f"{counts.total()} entries", "the eleven files")]

    findings: list[str] = []
    for name, count in counts.items():
        if count > 1:  # readers take the last
            findings.append(_finding(name, f"{count} times in the zip", "once"))
        if name not in FILES:
            findings.append(_unknown_file(name))

    for name, file in FILES.items():
        if name in counts:
            findings.extend(_lint_entry(file, archive, archive.getinfo(name)))
        else:
            findings.append(_finding(name, "missing", f"{file.rows} predictions"))
    return findings


def _finding(place: str, problem: str, expected: str) -> str:
    place = shortened(place, MAX_QUOTED)
    expected = shortened(expected, MAX_QUOTED)
    return f"{place}: {problem}; expected {expected}"


def _unknown_file(name: str) -> str:
    """Say which file was probably meant. Some programs on Windows divide folders by a backslash."""
    last_part = re.split(r"[/\\]", name)[-1]
    near = get_close_matches(last_part, FILES, n=1)
    meant = near[0] if near else "only the eleven files"
    return _finding(name, "unknown file", f"{meant} at the top of the zip")


def _lint_entry(file: File, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[str]:
    """Check an entry, which may be anything: at most MAX_ENTRY_BYTES are unpacked."""
    if entry.flag_bits & ENCRYPTED:
        yield _finding(file.name, "encrypted", "a zip without a password")
        return

    # LZMA takes the memory that it says.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        problem = f"compressed by method {entry.compress_type}"
        yield _finding(file.name, problem, "8 (deflated), or none")
        return

    try:
        # `archive.read` would unpack all, whatever the head says of its size.
        with archive.open(entry) as opened:
            content = opened.read(MAX_ENTRY_BYTES + 1)
    except UNREADABLE as error:
        yield _finding(file.name, f"cannot be unpacked ({error})", "a zip that is whole")
        return

    if len(content) > MAX_ENTRY_BYTES:
        problem = f"more than {MAX_ENTRY_BYTES} bytes when unpacked"
        yield _finding(file.name, problem, "3.5 MB at most")
        return

    text = content.decode(errors="backslashreplace").removesuffix("\n")
    yield from _lint_lines(file, text.split("\n"))


def _lint_lines(file: File, lines: list[str]) -> Iterator[str]:
    """Check the header, the number of rows, and that each row is its index, a tab, a prediction."""
    header, *rows = lines
    if header != HEADER:
        yield _finding(f"{file.name}, line 1", quoted(header), f"the header {HEADER!r}")
    if len(rows) != file.rows:
        yield _finding(file.name, f"{len(rows)} rows", f"{file.rows}")
    low, high = SCORES
    permitted = " or ".join(file.labels) or f"a number from {low:g} to {high:g}"
    wrong_rows: list[int] = []
    for index, row in enumerate(rows[: file.rows]):
        if not _is_good(file, index, row):
            wrong_rows.append(index)
    for index in wrong_rows[:MAX_WRONG_ROWS]:
        place = f"{file.name}, line {index + 2}"
        yield _finding(place, quoted(rows[index]), f"{index}, a tab, and {permitted}")
    remaining = len(wrong_rows) - MAX_WRONG_ROWS
    if remaining > 0:
        yield f"{file.name}: {remaining} more rows like these"


def _is_good(file: File, index: int, row: str) -> bool:
    """Whether a row is its index, a tab and a permitted prediction."""
    number, _, text = row.partition("\t")
    if number != str(index):
        return False
    if file.labels:
        return text in file.labels
    # Python also reads blanks around a number, other digits, and underscores.
    is_plain = text.isascii() and "_" not in text and text.strip() == text
    if not is_plain or len(text) > MAX_QUOTED:
        return False
    low, high = SCORES
    try:
        return low <= float(text) <= high
    except ValueError:
        return False
