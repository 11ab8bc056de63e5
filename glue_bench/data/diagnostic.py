"""The labelled diagnostic set: AX with its labels and the linguistic phenomena of every pair.

Wang et al. 2019, "GLUE", section 4: four coarse categories, each with finer phenomena; a pair may
show several. The file is `diagnostic-full.tsv` of the GLUE site
(https://gluebenchmark.com/diagnostics).
"""

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd

from glue_bench.data.folder import DOWNLOADED, task_folders
from glue_bench.data.task_data import TaskData
from glue_bench.data.tasks import TASKS
from glue_bench.data.tsv import read_split, read_table, to_labels, unlabelled
from glue_bench.errors import UserError

LABELLED = "diagnostic-full.tsv"
"""The file of the labelled set."""
CATEGORIES = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")
AX = TASKS["ax"]
Phenomenon = tuple[str, str]
"""A category, and a phenomenon of it."""


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """The labelled set, in the order of its file.

    Attributes:
        path: The file.
        pairs: Columns text_a, text_b and `label`, a class id in the order of `Task.labels`.
        phenomena: The rows that show each phenomenon, a mask (rows,). ("", "") is everything,
            (category, "") the category with all of its phenomena.
    """

    path: Path
    pairs: pd.DataFrame
    phenomena: dict[Phenomenon, np.ndarray]

    @property
    def digest(self) -> str:
        """The digest of AX with these sentences, which models predict without labels."""
        no_labels = unlabelled(AX, len(self.pairs))
        return _digest(self.pairs.assign(label=no_labels))


def _digest(pairs: pd.DataFrame) -> str:
    """Return the digest of the data that has these pairs."""
    return TaskData("ax", "tsv", {"test": pairs}).digest


def read_diagnostic(path: Path) -> Diagnostic:
    """Read the labelled set from its file, or from the folder of GLUE's data or of its AX.

    Raises UserError for a file, a column or a row that does not fit: where, and what was expected.
    """
    file = _labelled_file(path)
    columns = ["Premise", "Hypothesis", "Label", *CATEGORIES]
    table, _ = read_table(file, columns)
    if table.empty:
        raise UserError(f"{file}: no rows; expected {AX.splits['test'].rows}")
    pairs = {
        "text_a": list(table["Premise"]),
        "text_b": list(table["Hypothesis"]),
        "label": to_labels(file, AX, table["Label"]),
    }
    return Diagnostic(path=file, pairs=pd.DataFrame(pairs), phenomena=_phenomena(table))


def _labelled_file(path: Path) -> Path:
    """Return the file of the labelled set, which may be in a folder."""
    places = [path]
    if path.is_dir():
        folders = task_folders(path, AX) or [path / AX.title]
        places = [folder / LABELLED for folder in (*folders, path / DOWNLOADED, path)]
    for place in places:
        if place.is_file():
            return place
    if path.is_dir():
        looked_for = ", ".join(map(str, places))
        raise UserError(f"no {LABELLED} in {path}; looked for {looked_for}")
    # It is no file either; reading it reports that.
    return path


def _phenomena(table: pd.DataFrame) -> dict[Phenomenon, np.ndarray]:
    """Return the `phenomena` of a `Diagnostic` from the columns of its categories."""
    everything = np.ones(len(table), dtype=bool)
    phenomena: dict[Phenomenon, np.ndarray] = {("", ""): everything}
    for category in CATEGORIES:
        names = table[category].str.strip()
        names = names.str.replace(r"\s*;\s*", ";", regex=True)
        counts = names.str.get_dummies(";").drop(columns="", errors="ignore")
        is_present = counts > 0
        if len(is_present.columns):
            phenomena[category, ""] = is_present.any(axis=1).to_numpy()
        for name in is_present:
            phenomena[category, str(name)] = is_present[name].to_numpy()
    return phenomena


def check_same_sentences(diagnostic: Diagnostic, digest: str | None) -> bool:
    """Return whether the labels are known to belong to the predicted sentences, in their order.

    Equal sentences have equal digests. The two official files differ in blanks, so that digests may
    differ. Then the sentences are compared word by word with those of the file without labels, if
    it lies beside the labelled one and is the one that was predicted.

    Args:
        diagnostic: The labelled set.
        digest: The digest of the data that was predicted; None if it is not known.

    Returns:
        True if they belong to them; False if the file without labels is absent, so that it is not
        known.

    Raises:
        UserError: the sentences of the two files differ, or those of neither file were predicted.
    """
    if digest == diagnostic.digest:
        return True
    plain_file = diagnostic.path.with_name(AX.splits["test"].file)
    if not plain_file.is_file():
        return False
    plain_pairs, _ = read_split(plain_file, AX, "test")
    if digest is not None and _digest(plain_pairs) != digest:
        fault = f"the runs predicted other sentences than those of {plain_file}"
        raise UserError(f"{fault}; run MNLI again on this data")
    labelled_words = _words(diagnostic.pairs)
    plain_words = _words(plain_pairs)
    # The first line of the file is the header.
    for line, (labelled, plain) in enumerate(zip_longest(labelled_words, plain_words), start=2):
        if labelled != plain:
            fault = f"not the sentences of that line in {plain_file}"
            raise UserError(f"{diagnostic.path}, line {line}: {fault}")
    return True


def _words(pairs: pd.DataFrame) -> list[list[list[str]]]:
    """Return the words of both texts of each pair."""
    texts = pairs[["text_a", "text_b"]]
    return texts.map(str.split).to_numpy().tolist()
