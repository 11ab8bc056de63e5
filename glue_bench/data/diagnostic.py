"""The labelled diagnostic set: AX with its labels and the linguistic phenomena of every pair.

Wang et al. 2019, "GLUE", section 4: four coarse categories, each with finer phenomena; a pair may show several. The
file is `diagnostic-full.tsv` of the GLUE site (https://gluebenchmark.com/diagnostics).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.data.task_data import TaskData
from glue_bench.data.tasks import TASKS
from glue_bench.data.tsv import DOWNLOADED, places_of, read_lines, read_split, unlabelled
from glue_bench.errors import UserError, quoted

LABELLED = "diagnostic-full.tsv"
CATEGORIES = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")
PREMISE, HYPOTHESIS, LABEL = "Premise", "Hypothesis", "Label"
AX = TASKS["ax"]


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """The labelled set, in the order of its file.

    `pairs` has the columns text_a, text_b and `label`, a class id in the order of `Task.labels`. `phenomena` maps
    (category, phenomenon) to the rows that show it, a mask (rows,): ("", "") is everything, (category, "") the whole
    category.
    """

    path: Path
    pairs: pd.DataFrame
    phenomena: dict[tuple[str, str], np.ndarray]

    @property
    def digest(self) -> str:
        """The digest of the same pairs without their labels: that of the data which models predict."""
        return TaskData("ax", "tsv", {"test": self.pairs.assign(label=unlabelled(AX, len(self.pairs)))}).digest


def read_diagnostic(path: Path) -> Diagnostic:
    """Read the labelled set from its file, or from the folder of GLUE's data or of its AX.

    Raises:
        UserError: no such file, a column that is missing, or a row that does not fit: where, and what was expected.
    """
    file = _locate(path)
    lines = read_lines(file)
    columns = lines[0].split("\t")
    instead = f"expected the labelled {LABELLED} of the GLUE site, not the one without labels"
    places_of(file, columns, (*CATEGORIES, PREMISE, HYPOTHESIS, LABEL), instead)
    rows = [_row(file, number, line, columns) for number, line in enumerate(lines[1:], 2)]
    if not rows:
        raise UserError(f"{file}: no rows; expected {AX.splits['test'].rows}")
    table = pd.DataFrame(rows)
    pairs = {"text_a": table[PREMISE], "text_b": table[HYPOTHESIS], "label": table[LABEL].map(AX.labels.index)}
    return Diagnostic(path=file, pairs=pd.DataFrame(pairs), phenomena=_phenomena(table))


def _locate(path: Path) -> Path:
    if not path.is_dir():
        return path
    tried = [path / AX.title / LABELLED, path / DOWNLOADED / LABELLED, path / LABELLED]
    if file := next((file for file in tried if file.is_file()), None):
        return file
    raise UserError(f"no {LABELLED} in {path}; looked for {', '.join(map(str, tried))}")


def _row(path: Path, number: int, line: str, columns: Sequence[str]) -> dict[str, str]:
    fields = line.split("\t")
    if len(fields) != len(columns):
        raise UserError(f"{path}, line {number}: {len(fields)} fields; expected {len(columns)}")
    row = dict(zip(columns, fields, strict=True))
    if row[LABEL] not in AX.written:
        raise UserError(f"{path}, line {number}: bad label {quoted(row[LABEL])}; expected {' or '.join(AX.written)}")
    return row


def _phenomena(table: pd.DataFrame) -> dict[tuple[str, str], np.ndarray]:
    masks = {("", ""): np.ones(len(table), dtype=bool)}
    for category in CATEGORIES:
        shown = [{name.strip() for name in cell.split(";")} - {""} for cell in table[category]]
        masks[category, ""] = np.array([bool(names) for names in shown])
        for phenomenon in sorted(set().union(*shown)):
            masks[category, phenomenon] = np.array([phenomenon in names for names in shown])
    return {place: mask for place, mask in masks.items() if mask.any()}


def check_order(diagnostic: Diagnostic, digest: str | None) -> bool:
    """Whether the labels are known to be in the order of the predicted sentences, whose data has this digest.

    Equal sentences have equal digests. Where they are spelled otherwise (blanks), the file without labels beside the
    labelled one vouches for the order, if it is the one that was predicted. Without it nothing is known: False.

    Raises:
        UserError: the two files' sentences differ, or what was predicted is neither.
    """
    if digest == diagnostic.digest:
        return True
    beside = diagnostic.path.with_name(AX.splits["test"].file)
    if not beside.is_file():
        return False
    predicted, _ = read_split(beside, AX, "test")
    if digest is not None and TaskData("ax", "tsv", {"test": predicted}).digest != digest:
        raise UserError(f"the runs predicted other sentences than those of {beside}; run MNLI again on this data")
    ours, theirs = _words(diagnostic.pairs), _words(predicted)
    if len(ours) != len(theirs):
        raise UserError(f"{diagnostic.path} has {len(ours)} rows, {beside} {len(theirs)}; expected the same sentences")
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True), 2):
        if mine != other:
            raise UserError(f"{diagnostic.path}, line {number}: not the sentences of that line in {beside}")
    return True


def _words(pairs: pd.DataFrame) -> list[tuple[list[str], list[str]]]:
    return [(first.split(), second.split()) for first, second in zip(pairs["text_a"], pairs["text_b"], strict=True)]
