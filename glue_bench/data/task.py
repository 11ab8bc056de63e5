"""What a task is: its splits, its texts and labels, its metrics, and where its rows are."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from glue_bench.data.origin import Origin

OWN = "own"
"""The `benchmark` of a task that an experiment defines."""


@dataclass(frozen=True)
class Split:
    """One split of a task: its file, and how many rows the official one has.

    `rows` is 0 where no number is official.
    """

    file: str
    rows: int
    header: bool = True


@dataclass(frozen=True)
class Task:
    """One task: of GLUE, of another benchmark, or of an experiment's own.

    Attributes:
        title: Its name in tables, and its folder in the classic TSV layout.
        summary: Its question.
        splits: Its splits by name.
        texts: The columns of its texts on the hub.
        labels: Class names in the order of the hub's ids; empty for regression.
        written: The same labels as TSV files and submissions spell them.
        metrics: The first is the one that a one-metric-per-task table shows (TUPE, appendix B:
            accuracy for MRPC and QQP, Pearson for STS-B).
        tsv_texts: The columns of its texts in TSV files; empty where they are those of the hub.
        tsv_label: The column of its labels in TSV files.
        skips_malformed_rows: Whether rows with a wrong number of fields are left out of splits
            with labels.
        cluster: Which of `texts` several examples share, or "". Examples that share it are not
            independent, and errors take those of one text together. An own task may name any other
            column.
        benchmark: What it is a task of: GLUE, another benchmark, or OWN.
        origin: Where its rows are, and what they hold; None for GLUE's, which a source has.
    """

    title: str
    summary: str
    splits: Mapping[str, Split]
    texts: tuple[str, ...] = ("sentence1", "sentence2")
    labels: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    tsv_texts: tuple[str, ...] = ()
    tsv_label: str = "label"
    skips_malformed_rows: bool = False
    cluster: str = ""
    benchmark: str = "GLUE"
    origin: Origin | None = None

    @cached_property
    def name(self) -> str:
        """The name of the task in configurations, in records and on the hub."""
        return self.title.lower().replace("-", "")

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number (STS-B) and not a class."""
        return not self.labels

    @property
    def num_labels(self) -> int:
        """Outputs of the classification head: classes, or 1 for regression."""
        return len(self.labels) or 1

    @property
    def validation_splits(self) -> tuple[str, ...]:
        """Splits that are scored; two for MNLI, none for AX."""
        return tuple(name for name in self.splits if name.startswith("validation"))

    @cached_property
    def columns(self) -> dict[str, str]:
        """The leaderboard column of each scored split."""
        endings = {"validation": "", "validation_matched": "_m", "validation_mismatched": "_mm"}
        return {split: self.name + endings[split] for split in self.validation_splits}

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Splits that are only predicted: their labels are not public."""
        return tuple(name for name in self.splits if name.startswith("test"))

    @property
    def full_title(self) -> str:
        """Its title behind that of its benchmark: GLUE RTE."""
        return self.title if self.benchmark == OWN else f"{self.benchmark} {self.title}"

    @property
    def place(self) -> str:
        """Its name behind that of its benchmark, in logs: `glue.rte`."""
        return f"{self.benchmark.lower()}.{self.name}"

    @property
    def definition(self) -> str:
        """All that decides its results beside its rows; empty for GLUE, where the name says it."""
        if self.origin is None:
            return ""
        facts = [self.benchmark, self.labels, self.metrics, self.cluster]
        return json.dumps(facts)
