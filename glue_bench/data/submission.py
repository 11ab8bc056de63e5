"""The eleven files that the GLUE site takes, and the zip around them: how they are written, and what is wrong in one.

Names, header and row counts: the site's FAQ and sample submission (https://gluebenchmark.com/faq).
"""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from glue_bench.data.metrics import decide
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.data.tsv import SCORES
from glue_bench.errors import QUOTED, UserError, quoted, shortened
from glue_bench.files import ENCRYPTED, UNREADABLE, plain_entry

HEADER = "index\tprediction"
SHOWN = 3  # findings of a kind
MOST_ENTRIES = 1000
LARGEST_ENTRY = 2**23  # bytes that are unpacked; the largest file of a good submission has 3.5 MB
LARGEST_ZIP = 2**24  # bytes of a zip that is read; a good submission that is not compressed has 4 MB

MAJORITY = {
    **{"cola": "1", "sst2": "1", "mrpc": "1", "stsb": "2.701", "qqp": "0", "wnli": "0"},
    **dict.fromkeys(("mnli", "qnli", "rte", "ax"), "entailment"),
}
"""The most frequent training label of each task as files spell it; of STS-B the mean.

Counted on the official training files: CoLA 6023 of 8551, SST-2 37569 of 67349, MRPC 2474 of 3668, STS-B the mean of
5749 scores, RTE 1249 of 2490, WNLI 323 of 635. On a part of them, for want of the whole: QQP 22006 of 34998, MNLI
4533 of 13393, QNLI 6092 of 12096; the last two are so even that the whole may say otherwise. AX has no training file
and takes MNLI's. Counted again with
`pandas.Series(open_source(FOLDER).load(task).splits["train"]["label"]).value_counts()`.
"""


@dataclass(frozen=True)
class File:
    """One file of a submission: the labels and rows of `task`, predicted by the model of `model` on its `split`.

    `labels` are the permitted predictions; empty where it is a number from 0 to 5.
    """

    name: str
    task: str
    model: str
    split: str
    rows: int

    @property
    def labels(self) -> tuple[str, ...]:
        return TASKS[self.task].written


_ENDINGS = {"test": "", "test_matched": "-m", "test_mismatched": "-mm"}
_FILES = [
    File(f"{task.title}{_ENDINGS[split]}.tsv", task.name, task.name, split, task.splits[split].rows)
    for task in [*TASKS.values()][:-1]
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


@dataclass(frozen=True)
class Finding:
    """What is wrong, where, and what was expected; `line` is None where it is about a file as a whole.

    Of findings of one `kind` in a file only the first are listed.
    """

    kind: str
    file: str
    line: int | None
    problem: str
    expected: str = ""

    def __str__(self) -> str:
        name = shortened(self.file, QUOTED)
        place = name if self.line is None else f"{name}, line {self.line}"
        return f"{place}: {self.problem}" + (f"; expected {shortened(self.expected, QUOTED)}" if self.expected else "")


def lint(content: bytes, where: str = "the file") -> list[Finding]:
    """Every finding in the bytes of a zip, the zip's own first, then file by file; of a kind in a file the first three.

    Lines end at a line feed alone: whether the site strips a carriage return from a label is not documented. Raises
    UserError for what is no zip, or a very large one.
    """
    try:
        if len(content) > LARGEST_ZIP:
            raise ValueError(f"it has {len(content)} bytes, at most {LARGEST_ZIP} are read")
        archive = zipfile.ZipFile(io.BytesIO(content))
    except UNREADABLE as error:
        raise UserError(f"{where} is not a zip ({str(error).lower()}); expected a zip of eleven files") from error
    names = archive.namelist()
    if len(names) > MOST_ENTRIES:
        return [Finding("zip", where, None, f"{len(names)} entries", "the eleven files")]
    findings = _first_of_each_kind(_lint_names(names))
    for name in (name for name in FILES if name in names):  # of two entries with one name, readers take the last
        findings += _first_of_each_kind(_lint_entry(FILES[name], archive, archive.getinfo(name)))
    return findings


def _lint_names(names: list[str]) -> Iterator[Finding]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Finding("duplicate", name, None, f"{count} times in the zip", "once")
        if name not in FILES:  # some programs on Windows divide folders by a backslash
            near = get_close_matches(re.split(r"[/\\]", name)[-1], FILES, n=1) or ["only the eleven files"]
            yield Finding("unknown", name, None, "unknown file", f"{near[0]} at the top of the zip")
    for name in FILES:
        if name not in names:  # each by a kind of its own: a missing file is never left out of the list
            yield Finding(f"missing {name}", name, None, "missing", f"{FILES[name].rows} predictions")


def _lint_entry(file: File, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[Finding]:
    """An entry that may be anything: of what is packed at most LARGEST_ENTRY bytes are unpacked."""
    if entry.flag_bits & ENCRYPTED:
        yield Finding("entry", file.name, None, "encrypted", "a zip without a password")
    elif entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # LZMA takes the memory that it says
        problem = f"compressed by method {entry.compress_type}"
        yield Finding("entry", file.name, None, problem, "8 (deflated), or none")
    else:
        try:
            with archive.open(entry) as opened:  # `archive.read` would unpack all, whatever the head says of its size
                content = opened.read(LARGEST_ENTRY + 1)
        except UNREADABLE as error:
            yield Finding("entry", file.name, None, f"cannot be unpacked ({error})", "a zip that is whole")
            return
        if len(content) > LARGEST_ENTRY:
            yield Finding("entry", file.name, None, f"more than {LARGEST_ENTRY} bytes when unpacked", "3.5 MB at most")
        else:
            yield from _lint_lines(file, content.decode(errors="backslashreplace").removesuffix("\n").split("\n"))


def _lint_lines(file: File, lines: list[str]) -> Iterator[Finding]:
    """The header, the number of rows, and each row that is not its index, a tab and a prediction."""
    if lines[0] != HEADER:
        yield Finding("header", file.name, 1, quoted(lines[0]), f"the header {HEADER!r}")
    if len(lines) != file.rows + 1:
        yield Finding("rows", file.name, None, f"{len(lines) - 1} rows", f"{file.rows}")
    if len(lines) > 2 * (file.rows + MOST_ENTRIES):
        return
    permitted = " or ".join(file.labels) or f"a number from {SCORES[0]:g} to {SCORES[1]:g}"
    for index, line in enumerate(lines[1:]):
        number, _, text = line.partition("\t")
        if number != str(index) or not _is_permitted(file, text):
            yield Finding("row", file.name, index + 2, quoted(line), f"{index}, a tab, and {permitted}")


def _is_permitted(file: File, text: str) -> bool:
    if file.labels:
        return text in file.labels
    try:  # Python also reads blanks around a number, other digits, and underscores
        is_plain = len(text) <= QUOTED and text.isascii() and "_" not in text and text.strip() == text
        return is_plain and SCORES[0] <= float(text) <= SCORES[1]
    except ValueError:
        return False


def _first_of_each_kind(found: Iterable[Finding]) -> list[Finding]:
    """The first three of each kind, then how many more there are; a kind at a time."""
    kept: dict[str, list[Finding]] = {}
    counts: Counter[str] = Counter()
    for finding in found:
        counts[finding.kind] += 1
        if counts[finding.kind] <= SHOWN:
            kept.setdefault(finding.kind, []).append(finding)
    for kind, some in kept.items():
        if more := counts[kind] - len(some):
            what = "more files like this" if some[-1].line is None else "more like this"
            some.append(Finding(kind, some[-1].file, None, f"{more} {what}"))
    return [finding for some in kept.values() for finding in some]
