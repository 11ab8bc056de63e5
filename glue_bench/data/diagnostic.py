"""The labelled diagnostic set: AX with its labels and the linguistic phenomena of every pair.

Wang et al. 2019, "GLUE", section 4: four coarse categories, each with finer phenomena; a pair may show several. The
file is `diagnostic-full.tsv` of the GLUE site (https://gluebenchmark.com/diagnostics).
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
CATEGORIES = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")
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
        return TaskData(
            "ax", "tsv", {"test": self.pairs.assign(label=unlabelled(AX, len(self.pairs)))}
        ).digest


def read_diagnostic(path: Path) -> Diagnostic:
    """Read the labelled set from its file, or from the folder of GLUE's data or of its AX.

    Raises UserError for a file, a column or a row that does not fit: where, and what was expected.
    """
    places = [path]
    if path.is_dir():
        folders = task_folders(path, AX) or [path / AX.title]
        places = [folder / LABELLED for folder in (*folders, path / DOWNLOADED, path)]
    file = next((place for place in places if place.is_file()), path)
    if file.is_dir():
        raise UserError(f"no {LABELLED} in {path}; looked for {', '.join(map(str, places))}")
    table, _ = read_table(file, ["Premise", "Hypothesis", "Label", *CATEGORIES])
    if not len(table):
        raise UserError(f"{file}: no rows; expected {AX.splits['test'].rows}")
    labels = to_labels(file, AX, table["Label"])
    phenomena = {("", ""): np.ones(len(table), dtype=bool)}
    for category in CATEGORIES:
        names = table[category].str.strip().str.replace(r"\s*;\s*", ";", regex=True)
        shown = names.str.get_dummies(";").drop(columns="", errors="ignore") > 0
        if len(shown.columns):
            phenomena[category, ""] = shown.any(axis=1).to_numpy()
        phenomena |= {(category, str(name)): shown[name].to_numpy() for name in shown}
    pairs = {"text_a": list(table["Premise"]), "text_b": list(table["Hypothesis"]), "label": labels}
    return Diagnostic(path=file, pairs=pd.DataFrame(pairs), phenomena=phenomena)


def check_order(diagnostic: Diagnostic, digest: str | None) -> bool:
    """Whether the labels are known to be in the order of the predicted sentences, whose data has this digest.

    Equal sentences have equal digests. Where they are spelled otherwise (blanks), the file without labels beside the
    labelled one vouches for the order, if it is the one that was predicted. Without it nothing is known: False. Raises
    UserError where the two files' sentences differ, or what was predicted is neither.
    """
    if digest == diagnostic.digest:
        return True
    beside = diagnostic.path.with_name(AX.splits["test"].file)
    if not beside.is_file():
        return False
    predicted, _ = read_split(beside, AX, "test")
    if digest is not None and TaskData("ax", "tsv", {"test": predicted}).digest != digest:
        raise UserError(
            f"the runs predicted other sentences than those of {beside}; run MNLI again on this data"
        )
    words = (
        frame[["text_a", "text_b"]].map(str.split).to_numpy().tolist()
        for frame in (diagnostic.pairs, predicted)
    )
    for number, (ours, theirs) in enumerate(zip_longest(*words), 2):
        if ours != theirs:
            raise UserError(
                f"{diagnostic.path}, line {number}: not the sentences of that line in {beside}"
            )
    return True
