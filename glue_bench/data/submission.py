"""The eleven files that the GLUE site takes, and the zip around them: how they are written, and what is wrong in one.

Names, header and row counts: the site's FAQ and sample submission (https://gluebenchmark.com/faq).
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
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.data.tsv import SCORES
from glue_bench.errors import QUOTED, UserError, quoted, shortened
from glue_bench.files import ENCRYPTED, UNREADABLE, plain_entry

HEADER = "index\tprediction"
SHOWN = 3  # wrong rows of a file
MOST_ENTRIES = 1000
LARGEST_ENTRY = 2**23  # bytes that are unpacked; the largest file of a good submission has 3.5 MB
LARGEST_ZIP = (
    2**24
)  # bytes of a zip that is read; a good submission that is not compressed has 4 MB

MAJORITY = {"cola": "1", "sst2": "1", "mrpc": "1", "stsb": "2.701", "qqp": "0", "wnli": "0"}
MAJORITY |= dict.fromkeys(("mnli", "qnli", "rte", "ax"), "entailment")
"""The most frequent training label of each task as files spell it; of STS-B the mean.

Counted on the official training files: CoLA 6023 of 8551, SST-2 37569 of 67349, MRPC 2474 of 3668, STS-B the mean of
5749 scores, RTE 1249 of 2490, WNLI 323 of 635. On a part of them, for want of the whole: QQP 22006 of 34998, MNLI
4533 of 13393, QNLI 6092 of 12096; the last two are so even that the whole may say otherwise. AX takes MNLI's.
"""


@dataclass(frozen=True)
class File:
    """One file of a submission: the labels and rows of `task`, predicted by the model of `model` on its `split`."""

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
_FILES = [
    File(f"{task.title}{_ENDINGS[split]}.tsv", task.name, task.name, split, task.splits[split].rows)
    for task in TASKS.values()
    if task.name != "ax"
    for split in task.test_splits
]
_FILES.append(File("AX.tsv", "ax", "mnli", AX_SPLIT, TASKS["ax"].splits["test"].rows))
FILES: dict[str, File] = {file.name: file for file in _FILES}
"""The eleven files by name, in the order of TASKS."""


def write_file(file: File, logits: np.ndarray) -> bytes:
    """The file of a model's outputs (rows, labels), columns in the order of `Task.labels`: one line a row, in order.

    Classes are written by their names, scores clipped to 0 to 5 with three decimals. Raises ValueError for outputs of
    another shape, or that are not finite.
    """
    predicted = decide(file.task, logits)
    if file.labels:
        return _lines([file.labels[label] for label in predicted])
    return _lines([f"{score:.3f}" for score in np.clip(predicted.astype(np.float64), *SCORES)])


def fill_file(file: File) -> bytes:
    """The file with the same prediction on every official row: the majority class of training, or the mean score."""
    return _lines([MAJORITY[file.task]] * file.rows)


def _lines(predictions: list[str]) -> bytes:
    rows = [f"{index}\t{prediction}" for index, prediction in enumerate(predictions)]
    return ("\n".join([HEADER, *rows]) + "\n").encode()


def make_zip(files: Mapping[str, bytes]) -> bytes:
    """A zip of files by name: the same bytes for the same content, whenever and wherever it is made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(plain_entry(name), files[name])
    return buffer.getvalue()


# The linter: what the site would refuse, or score wrongly in silence


def lint(content: bytes, where: str = "the file") -> list[str]:
    """What is wrong in the bytes of a zip, a line each: where, and what was expected; of a file's rows the first three.

    Lines end at a line feed alone: whether the site strips a carriage return from a label is not documented. Raises
    UserError for what is no zip, or a very large one.
    """
    try:
        if len(content) > LARGEST_ZIP:
            raise ValueError(f"it has {len(content)} bytes, at most {LARGEST_ZIP} are read")
        archive = zipfile.ZipFile(io.BytesIO(content))
    except UNREADABLE as error:
        raise UserError(
            f"{where} is not a zip ({str(error).lower()}); expected a zip of eleven files"
        ) from error
    findings, counts = list[str](), Counter(archive.namelist())
    if counts.total() > MOST_ENTRIES:
        return [_finding(where, f"{counts.total()} entries", "the eleven files")]
    for name, count in counts.items():
        if count > 1:  # readers take the last
            findings.append(_finding(name, f"{count} times in the zip", "once"))
        if name not in FILES:  # some programs on Windows divide folders by a backslash
            near = get_close_matches(re.split(r"[/\\]", name)[-1], FILES, n=1) or [
                "only the eleven files"
            ]
            findings.append(_finding(name, "unknown file", f"{near[0]} at the top of the zip"))
    for name, file in FILES.items():
        if name in counts:
            findings += _lint_entry(file, archive, archive.getinfo(name))
        else:
            findings.append(_finding(name, "missing", f"{file.rows} predictions"))
    return findings


def _finding(place: str, problem: str, expected: str) -> str:
    return f"{shortened(place, QUOTED)}: {problem}; expected {shortened(expected, QUOTED)}"


def _lint_entry(file: File, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[str]:
    """An entry that may be anything: of what is packed at most LARGEST_ENTRY bytes are unpacked."""
    if entry.flag_bits & ENCRYPTED:
        yield _finding(file.name, "encrypted", "a zip without a password")
    elif entry.compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    ):  # LZMA takes the memory that it says
        yield _finding(
            file.name, f"compressed by method {entry.compress_type}", "8 (deflated), or none"
        )
    else:
        try:
            with archive.open(
                entry
            ) as opened:  # `archive.read` would unpack all, whatever the head says of its size
                content = opened.read(LARGEST_ENTRY + 1)
        except UNREADABLE as error:
            yield _finding(file.name, f"cannot be unpacked ({error})", "a zip that is whole")
            return
        if len(content) > LARGEST_ENTRY:
            yield _finding(
                file.name, f"more than {LARGEST_ENTRY} bytes when unpacked", "3.5 MB at most"
            )
        else:
            yield from _lint_lines(
                file, content.decode(errors="backslashreplace").removesuffix("\n").split("\n")
            )


def _lint_lines(file: File, lines: list[str]) -> Iterator[str]:
    """The header, the number of rows, and each row that is not its index, a tab and a prediction."""
    header, *rows = lines
    if header != HEADER:
        yield _finding(f"{file.name}, line 1", quoted(header), f"the header {HEADER!r}")
    if len(rows) != file.rows:
        yield _finding(file.name, f"{len(rows)} rows", f"{file.rows}")
    permitted = " or ".join(file.labels) or f"a number from {SCORES[0]:g} to {SCORES[1]:g}"
    wrong = [index for index, row in enumerate(rows[: file.rows]) if not _is_good(file, index, row)]
    for index in wrong[:SHOWN]:
        yield _finding(
            f"{file.name}, line {index + 2}",
            quoted(rows[index]),
            f"{index}, a tab, and {permitted}",
        )
    if more := wrong[SHOWN:]:
        yield f"{file.name}: {len(more)} more rows like these"


def _is_good(file: File, index: int, row: str) -> bool:
    number, _, text = row.partition("\t")
    if number != str(index):
        return False
    if file.labels:
        return text in file.labels
    try:  # Python also reads blanks around a number, other digits, and underscores
        is_plain = (
            len(text) <= QUOTED and text.isascii() and "_" not in text and text.strip() == text
        )
        return is_plain and SCORES[0] <= float(text) <= SCORES[1]
    except ValueError:
        return False
