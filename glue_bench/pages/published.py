"""Published GLUE tables as values; papers.yaml has what is printed, and how it came about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from glue_bench.board.averages import AVERAGES, Average
from glue_bench.data.tasks import COLUMNS, TASKS


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """A printed row, as papers.yaml explains it.

    Attributes:
        label: What the paper calls the model.
        printed: The scores by column, as they are printed.
        variant: The variant of ours that the model has; empty if there is none.
        parameters: The size of the model.
        steps: The steps of its pretraining.
        share: The part of all steps after which it was fine-tuned.
        options: The options of the variant, also those that are its defaults.
        segments: Where segments enter; None if the paper has none, so that any arm is like it.
    """

    label: str
    printed: Mapping[str, str]
    variant: str = ""
    parameters: float = math.nan
    steps: int | None = None
    share: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    segments: str | None = None

    def takes(self, variant: str, options: Mapping[str, Any]) -> bool:
        """Say whether an arm is this model, sizes aside; the order of a list is no difference."""
        arm_options = without_order(options)
        arm_segments = arm_options.pop("segments", "input")
        return (
            variant == self.variant
            and self.segments in (None, arm_segments)
            and arm_options.items() <= without_order(self.options).items()
        )


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published table, as papers.yaml explains it; what is None the source does not say.

    Attributes:
        title: What the table is.
        source: The paper and its address.
        split: The rows that were scored: "dev" or "test".
        protocol: How the paper came to its numbers, in words.
        columns: The columns from left to right, named as ours where they are GLUE's.
        rows: The models.
        statistic: The statistic over seeds.
        epoch: Which epoch of each run of ours stands beside the numbers.
        seeds: The seeds of fine-tuning.
        rates: The learning rates that were tried on each task.
        tokens: The tokens of a step of pretraining.
        convention: How the printed average was computed, one of AVERAGES; empty if it is the mean.
        notes: Sentences below the table.
    """

    title: str
    source: str
    split: str
    protocol: str
    columns: tuple[str, ...]
    rows: tuple[PrintedRow, ...]
    statistic: Literal["mean", "median"] = "mean"
    epoch: Literal["last", "best"] = "last"
    seeds: int | None = None
    rates: int | None = None
    tokens: int | None = None
    convention: str = ""
    notes: tuple[str, ...] = ()

    @property
    def singly(self) -> Average:
        """Each column that has a score of ours for itself; as an average, their mean."""
        parts = {}
        for name in self.columns:
            score = score_of(name)
            if score:
                parts[name] = (score,)
        return Average(f"mean of the {len(parts)} columns", parts)

    @property
    def average(self) -> Average:
        """The convention of the printed average."""
        return AVERAGES[self.convention] if self.convention else self.singly


def without_order(options: Mapping[str, Any]) -> dict[str, Any]:
    """Sort the options that are lists, so that they compare as sets do."""
    sorted_options = {}
    for name, value in options.items():
        sorted_options[name] = sorted(value) if isinstance(value, list | tuple) else value
    return sorted_options


def score_of(column: str) -> tuple[str, str, str] | None:
    """Give the task, split and metric of ours that a printed column has.

    None for the average and for what is not GLUE.
    """
    if column in COLUMNS:
        task, split = COLUMNS[column]
        return task, split, TASKS[task].metrics[0]
    task, _, metric = column.partition("_")
    if task in TASKS and metric in TASKS[task].metrics:
        return task, "validation", metric
    return None


def published_table(rows: Mapping[str, Any], columns: str, **facts: Any) -> Published:
    """Make a table of what papers.yaml has under a name.

    Args:
        rows: The facts of each row by its label; `scores` is a text with a number for each column.
        columns: The names of the columns, with spaces between them.
        facts: The fields of the table; `parameters` and `steps` are those of every row with a
            variant of ours.

    Returns:
        The table.
    """
    names = columns.split()
    shared_facts: dict[str, Any] = {}
    for name in ("parameters", "steps"):
        if name in facts:
            shared_facts[name] = facts.pop(name)
    printed_rows = []
    for label, row in rows.items():
        row_facts: dict[str, Any] = dict(row)
        scores = row_facts.pop("scores").split()
        if "variant" in row_facts:
            row_facts = shared_facts | row_facts
        printed = dict(zip(names, scores, strict=True))
        printed_rows.append(PrintedRow(label=label, printed=printed, **row_facts))
    return Published(columns=tuple(names), rows=tuple(printed_rows), **facts)


def read_papers() -> dict[str, Published]:
    """Read papers.yaml, which is a part of the package."""
    text = (files(__package__) / "papers.yaml").read_text(encoding="utf-8")
    return {name: published_table(**facts) for name, facts in yaml.safe_load(text).items()}


PAPERS = read_papers()
"""The published tables by their names on the command line."""
