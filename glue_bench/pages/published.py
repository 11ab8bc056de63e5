"""Published GLUE tables as values. papers.yaml has their scores and how these came about."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from pathlib import PurePath
from typing import Any, Literal

import yaml

from glue_bench.board.averages import AVERAGES, Average, Part
from glue_bench.config import NATIVE
from glue_bench.data.tasks import COLUMNS, TASKS

NOT_PRINTED = "-"
"""What stands in papers.yaml in place of a score that a source does not have."""
MEAN = "mean"
"""The end of a column that is the mean over the metrics and validation sets of a task."""


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """A printed row, as papers.yaml explains it.

    Attributes:
        label: What the paper calls the model.
        printed: The scores by column, as they are printed; NOT_PRINTED where there is none.
        variant: The variant of ours that the model has; empty if there is none.
        checkpoint: The name of its weights on the hub; empty if they are not there.
        parameters: The size of the model.
        steps: The steps of its pretraining.
        share: The part of all steps after which it was fine-tuned.
        options: The options of the variant, also those that are its defaults.
        segments: Where segments enter; None if the paper has none, so that any arm is like it.
    """

    label: str
    printed: Mapping[str, str]
    variant: str = ""
    checkpoint: str = ""
    parameters: float = math.nan
    steps: int | None = None
    share: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    segments: str | None = None

    def takes(self, variant: str, options: Mapping[str, Any], checkpoint: str = "") -> bool:
        """Say whether an arm is this model, sizes aside.

        Args:
            variant: The variant of the arm. A native arm is this model if it has its checkpoint.
            options: The options of the variant; the order of a list is no difference.
            checkpoint: What the arm started from: a name on the hub, with or without its owner, or
                a folder of that name.
        """
        if variant == NATIVE:
            return self.checkpoint != "" and is_copy_of(checkpoint, self.checkpoint)
        arm_options = without_order(options)
        arm_segments = arm_options.pop("segments", "input")
        return (
            variant == self.variant
            and self.segments in (None, arm_segments)
            and arm_options.items() <= without_order(self.options).items()
        )


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published table, as papers.yaml explains it. A field is None if the source does not say it.

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
        """The convention in which each printed column that we have scores for is one part."""
        parts = {}
        for name in self.columns:
            scores = scores_of(name)
            if scores:
                parts[name] = scores
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


def is_copy_of(checkpoint: str, published: str) -> bool:
    """Say whether a checkpoint has the name that a published one has on the hub.

    A folder, which begins with `/`, `~` or `.`, is known by its last name.
    """
    name = published.rpartition("/")[2]
    if checkpoint.startswith(("/", "~", ".")):
        return PurePath(checkpoint).name == name
    return checkpoint in (published, name)


def scores_of(column: str) -> Part:
    """Return our tasks, splits and metrics whose mean a printed column shows.

    The result is empty for the average and for columns outside of GLUE.
    """
    if column in COLUMNS:
        task, split = COLUMNS[column]
        return ((task, split, TASKS[task].metrics[0]),)
    task, _, metric = column.partition("_")
    if task not in TASKS:
        return ()
    if metric == MEAN:
        return tuple(product((task,), TASKS[task].validation_splits, TASKS[task].metrics))
    if metric in TASKS[task].metrics:
        return ((task, "validation", metric),)
    return ()


def published_table(rows: Mapping[str, Any], columns: str, **facts: Any) -> Published:
    """Make a table from the entry of papers.yaml for one name.

    Args:
        rows: The facts of each row by its label; `scores` is a text with a number for each column.
        columns: The names of the columns, with spaces between them.
        facts: The fields of the table; `parameters` and `steps` hold for every row with a variant
            of ours.

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
