"""The eleven files that the GLUE site takes, and the zip around them: how they are written, and what is wrong in one.

Names, header and row counts: the site's FAQ and sample submission (https://gluebenchmark.com/faq).
"""

import io
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from glue_bench.data.archive import BadEntry, open_zip, plain_entry, read_entry
from glue_bench.data.metrics import decide
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.data.tsv import BOM, SCORES
from glue_bench.errors import QUOTED, quoted, shortened

HEADER = "index\tprediction"
SHOWN = 3  # findings of a kind
MOST_ENTRIES = 1000
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
JUNK = re.compile(r"(^|[/\\])(__MACOSX([/\\]|$)|\._|\.DS_Store$|Thumbs\.db$|desktop\.ini$)", re.IGNORECASE)

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
    """One file of a submission: the labels and rows of `task`, predicted by the model of `model` on its `split`."""

    name: str
    task: str
    model: str
    split: str
    rows: int

    @property
    def labels(self) -> tuple[str, ...]:
        """Permitted predictions; empty where it is a number from 0 to 5."""
        return TASKS[self.task].written


_ENDINGS = {"test": "", "test_matched": "-m", "test_mismatched": "-mm"}
_FILES = [
    File(f"{task.title}{_ENDINGS[split]}.tsv", name, name, split, task.splits[split].rows)
    for name, task in TASKS.items()
    for split in task.test_splits
]
_FILES[-1] = replace(_FILES[-1], model="mnli", split=AX_SPLIT)
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
    """A zip of files by name: the same bytes for the same content, whenever and wherever it is made.

    Nothing is compressed, because compressors differ between builds of zlib; all eleven files take 4 MB.
    """
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

    Lines end at a line feed alone: whether the site strips a carriage return from a label is not documented.

    Raises:
        UserError: it is no zip.
    """
    with open_zip(content, where) as archive:
        names = archive.namelist()
        if len(names) > MOST_ENTRIES:
            return [Finding("zip", where, None, f"{len(names)} entries", "the eleven files")]
        findings = _first_of_each_kind(_lint_names(names))
        # Of two entries with one name, readers take the last.
        places = {_base_name(name): name for name in names if not JUNK.search(name)}
        for name, file in FILES.items():
            try:
                if name in places:
                    findings += _first_of_each_kind(_lint_content(file, read_entry(archive, places[name])))
            except BadEntry as problem:
                findings.append(Finding("entry", name, None, *problem.args))
    return findings


def _lint_names(names: list[str]) -> Iterator[Finding]:
    plain = []
    for name in names:
        if JUNK.search(name):
            yield Finding("junk", name, None, "left by an operating system, not part of a submission", "no such file")
        elif not _base_name(name):
            yield Finding("folder", name, None, "a folder", "the eleven files at the top of the zip, in no folder")
        else:
            plain.append(_base_name(name))
            if plain[-1] != name:
                yield Finding("nested", name, None, "inside a folder", f"{plain[-1]} at the top of the zip")
    for name, count in Counter(plain).items():
        if count > 1:
            yield Finding("duplicate", name, None, f"{count} times in the zip", "once")
        if name not in FILES:
            near = get_close_matches(name, FILES, n=1)
            yield Finding("unknown", name, None, "unknown file", near[0] if near else "only the eleven files")
    for name in FILES:
        if name not in plain:  # each by a kind of its own: a missing file is never left out of the list
            yield Finding(f"missing {name}", name, None, "missing", f"{FILES[name].rows} predictions")


def _base_name(name: str) -> str:
    """The name without its folders, which some programs on Windows divide by a backslash; of a folder nothing."""
    return re.split(r"[/\\]", name)[-1]


def _lint_content(file: File, content: bytes) -> Iterator[Finding]:
    if content.startswith(BOM):
        yield Finding("bom", file.name, 1, "begins with a byte-order mark", "plain UTF-8")
        content = content.removeprefix(BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        yield Finding("encoding", file.name, line, f"byte 0x{content[error.start]:02x} is not UTF-8", "UTF-8")
        return
    if count := text.count("\r"):
        line = text[: text.index("\r")].count("\n") + 1
        yield Finding("ends", file.name, line, f"carriage returns, {count} of them", "lines that end in a line feed")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    yield from _lint_lines(file, text)


def _lint_lines(file: File, text: str) -> Iterator[Finding]:
    count = text.count("\n") + (not text.endswith("\n"))
    if count > 2 * (file.rows + MOST_ENTRIES):
        yield Finding("rows", file.name, None, f"{count} lines", f"{file.rows + 1}")
        return
    numbered = []
    for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
        if line.strip():
            numbered.append((number, line.removesuffix("\n")))
        else:
            yield Finding("blank", file.name, number, "a blank line", "none")
    if not numbered:
        yield Finding("empty", file.name, None, "empty", f"the header and {file.rows} predictions")
        return
    has_header = not re.match(r"[0-9]+[\t,; ]", numbered[0][1])
    if numbered[0] != (1, HEADER):
        found = quoted(numbered[0][1])
        problem = f"header {found}" if has_header else f"no header, but {found}"
        yield Finding("header", file.name, numbered[0][0], problem, f"{HEADER!r} (with a tab)")
    rows = numbered[has_header:]
    if len(rows) != file.rows:
        yield Finding("rows", file.name, None, f"{len(rows)} rows", f"{file.rows}")
    for index, (number, line) in enumerate(rows):
        yield from _lint_row(file, number, line, index)


def _lint_row(file: File, number: int, line: str, index: int) -> Iterator[Finding]:
    fields = line.split("\t")
    stripped = [field.strip() for field in fields]
    if stripped != fields:
        yield Finding("spaces", file.name, number, f"blanks around a field in {quoted(line)}", "none")
    if len(fields) == 1:
        yield Finding("fields", file.name, number, "1 field", "2, index and prediction (separated by a tab)")
    elif len(fields) != 2:
        yield Finding("fields", file.name, number, f"{len(fields)} fields", "2, index and prediction")
    else:
        if stripped[0] != str(index):
            expected = f"{index}: they count from 0 without a gap"
            yield Finding("index", file.name, number, f"index {quoted(stripped[0])}", expected)
        if problem := _label_problem(file, stripped[1]):
            permitted = " or ".join(file.labels) or f"a number from {SCORES[0]:g} to {SCORES[1]:g}"
            yield Finding(problem[0], file.name, number, problem[1], permitted)


def _label_problem(file: File, text: str) -> tuple[str, str] | None:
    """Kind and problem of a prediction that the file may not hold; None for a good one."""
    if len(text) > QUOTED:  # which the patterns would take long to refuse
        return "long", f"{quoted(text)} is no prediction"
    is_number = NUMBER.fullmatch(text)
    if file.labels:
        return None if text in file.labels else ("label", f"label {text!r}{_hint(file.labels, text)}")
    if NOT_FINITE.fullmatch(text) or (is_number and not math.isfinite(float(text))):
        return "finite", f"{text} is not finite"
    if not is_number:
        return "number", f"{text!r} is not a number"
    return None if SCORES[0] <= float(text) <= SCORES[1] else ("range", f"score {text} is out of range")


def _hint(labels: tuple[str, ...], text: str) -> str:
    are_numbers = labels[0].isdigit()
    if text.lower() in labels:
        return " (labels are in small letters)"
    if NUMBER.fullmatch(text):
        return " (a number that is no class)" if are_numbers else " (a class's number, where its name is wanted)"
    return " (a name, where the class's number is wanted)" if are_numbers else ""


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
