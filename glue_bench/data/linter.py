"""What the GLUE site would refuse, or score wrongly in silence, in a submission: every finding, not the first.

Stricter than a forgiving reader in one thing: lines end at a line feed alone. Whether the site strips a carriage
return from a label is not documented, and a label that keeps one is wrong on every row.
"""

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain

from glue_bench.data.archive import base_name, is_folder, is_junk, is_nested, open_zip, read_entry
from glue_bench.data.submission import FILES, HEADER, File
from glue_bench.data.tsv import BOM, SCORES
from glue_bench.errors import QUOTED, quoted, shortened

SHOWN = 3
MOST_ENTRIES = 1000
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """What is wrong, where, and what was expected. `line` is None where it is about a file as a whole."""

    file: str
    line: int | None
    problem: str
    expected: str = ""

    def __str__(self) -> str:
        name = shortened(self.file, QUOTED)
        place = name if self.line is None else f"{name}, line {self.line}"
        return f"{place}: {self.problem}" + (f"; expected {shortened(self.expected, QUOTED)}" if self.expected else "")


Kinded = tuple[str, Finding]


def lint(content: bytes, where: str = "the file") -> list[Finding]:
    """Every finding in the bytes of a zip, the zip's own first, then file by file; of a kind in a file the first three.

    Raises:
        UserError: it is no zip.
    """
    with open_zip(content, where) as archive:
        names = archive.namelist()
        if len(names) > MOST_ENTRIES:
            return [Finding(where, None, f"{len(names)} entries", "the eleven files")]
        findings = bounded(_lint_names(names))
        # Of two entries with one name, readers take the last.
        last = {base_name(name): name for name in names if not is_folder(name) and not is_junk(name)}
        for name in (name for name in FILES if name in last):
            entry = read_entry(archive, archive.getinfo(last[name]))
            if entry.problem:
                findings.append(Finding(name, None, entry.problem, entry.expected))
            else:
                findings += lint_file(FILES[name], entry.content)
    return findings


def _lint_names(names: list[str]) -> Iterator[Kinded]:
    for name in names:
        if is_junk(name):
            yield "junk", Finding(name, None, "left by an operating system, not part of a submission", "no such file")
        elif is_folder(name):
            yield "folder", Finding(name, None, "a folder", "the eleven files at the top of the zip, in no folder")
        elif is_nested(name):
            yield "nested", Finding(name, None, "inside a folder", f"{base_name(name)} at the top of the zip")
    plain = [name for name in names if not is_junk(name) and not is_folder(name)]
    bare = [base_name(name) for name in plain]
    counts = Counter(bare)
    for name in (name for name in counts if counts[name] > 1):
        yield "duplicate", Finding(name, None, f"{counts[name]} times in the zip", "once")
    for name in (name for name in counts if name not in FILES):
        near = get_close_matches(name, FILES, n=1)
        yield "unknown", Finding(name, None, "unknown file", near[0] if near else "only the eleven files")
    for number, name in enumerate(name for name in FILES if name not in bare):
        # Each by a kind of its own: a missing file is never left out of the list.
        yield f"missing {number}", Finding(name, None, "missing", f"{FILES[name].rows} predictions")


def lint_file(file: File, content: bytes) -> list[Finding]:
    """The findings of one file."""
    return bounded(_lint_content(file, content))


def _lint_content(file: File, content: bytes) -> Iterator[Kinded]:
    if content.startswith(BOM):
        yield "bom", Finding(file.name, 1, "begins with a byte-order mark", "plain UTF-8")
        content = content.removeprefix(BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        yield "encoding", Finding(file.name, line, f"byte 0x{content[error.start]:02x} is not UTF-8", "UTF-8")
        return
    if "\r" in text:
        line = text[: text.index("\r")].count("\n") + 1
        count = text.count("\r")
        yield "ends", Finding(file.name, line, f"carriage returns, {count} of them", "lines that end in a line feed")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    yield from _lint_lines(file, text)


def _lint_lines(file: File, text: str) -> Iterator[Kinded]:
    count, filled = text.count("\n") + (not text.endswith("\n")), 0
    if count > 2 * (file.rows + MOST_ENTRIES):
        yield "rows", Finding(file.name, None, f"{count} lines", f"{file.rows + 1}")
        return
    for number, line in _lines(text):
        filled += bool(line.strip())
        if not line.strip():
            yield "blank", Finding(file.name, number, "a blank line", "none")
    numbered = ((number, line) for number, line in _lines(text) if line.strip())
    first, header = next(numbered, (0, ""))
    if not first:
        yield "empty", Finding(file.name, None, "empty", f"the header and {file.rows} predictions")
        return
    has_header = not re.match(r"[0-9]+[\t,; ]", header)
    if (first, header) != (1, HEADER):
        problem = f"header {quoted(header)}" if has_header else f"no header, but {quoted(header)}"
        yield "header", Finding(file.name, first, problem, f"{HEADER!r} (with a tab)")
    if filled - has_header != file.rows:
        yield "rows", Finding(file.name, None, f"{filled - has_header} rows", f"{file.rows}")
    for index, (number, line) in enumerate(numbered if has_header else chain([(first, header)], numbered)):
        yield from _lint_row(file, number, line, index)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, one at a time: as a list, eight million of them would take 300 MB."""
    return ((number, line.removesuffix("\n")) for number, line in enumerate(io.StringIO(text, newline="\n"), 1))


def _lint_row(file: File, number: int, line: str, index: int) -> Iterator[Kinded]:
    fields = line.split("\t")
    stripped = [field.strip() for field in fields]
    if stripped != fields:
        yield "spaces", Finding(file.name, number, f"blanks around a field in {quoted(line)}", "none")
    if len(fields) != 2:
        hint = " (separated by a tab)" if len(fields) == 1 else ""
        what = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        yield "fields", Finding(file.name, number, what, f"2, index and prediction{hint}")
        return
    if stripped[0] != str(index):
        yield (
            "index",
            Finding(file.name, number, f"index {quoted(stripped[0])}", f"{index}: they count from 0 without a gap"),
        )
    problem = label_problem(file, stripped[1])
    if problem:
        yield problem[0], Finding(file.name, number, *problem[1:])


def label_problem(file: File, text: str) -> tuple[str, str, str] | None:
    """Kind, problem and what is expected of a prediction that the file may not hold; None for a good one."""
    permitted = " or ".join(file.labels) or f"a number from {SCORES[0]:g} to {SCORES[1]:g}"
    if len(text) > QUOTED:  # which the patterns would take long to refuse
        return "long", f"{quoted(text)} is no prediction", permitted
    if file.labels:
        return None if text in file.labels else ("label", f"label {text!r}{_hint(file.labels, text)}", permitted)
    if NOT_FINITE.fullmatch(text) or (NUMBER.fullmatch(text) and not math.isfinite(float(text))):
        return "finite", f"{text} is not finite", permitted
    if not NUMBER.fullmatch(text):
        return "number", f"{text!r} is not a number", permitted
    return None if SCORES[0] <= float(text) <= SCORES[1] else ("range", f"score {text} is out of range", permitted)


def _hint(labels: tuple[str, ...], text: str) -> str:
    if text.lower() in labels:
        return " (labels are in small letters)"
    if NUMBER.fullmatch(text):
        return (
            " (a number that is no class)" if labels[0].isdigit() else " (a class's number, where its name is wanted)"
        )
    return " (a name, where the class's number is wanted)" if labels[0].isdigit() else ""


def bounded(found: Iterable[Kinded]) -> list[Finding]:
    """The first three of each kind and file, then how many more there are."""
    kept: dict[tuple[str, str], list[Finding]] = {}
    counts: dict[tuple[str, str], int] = {}
    for kind, finding in found:
        # The zip's own kinds are bounded over all of its files, a file's within it.
        place = (kind, finding.file if finding.line is not None else "")
        counts[place] = counts.get(place, 0) + 1
        if counts[place] <= SHOWN:
            kept.setdefault(place, []).append(finding)
    for place, some in kept.items():
        if counts[place] > SHOWN:
            others = "more like this" if some[-1].line is not None else "more files like this"
            some.append(Finding(some[-1].file, None, f"{counts[place] - SHOWN} {others}"))
    return [finding for some in kept.values() for finding in some]
