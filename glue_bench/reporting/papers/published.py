"""A published table: its rows as printed, how the paper came by them, and which arm of ours stands beside each."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

from glue_bench.config import Protocol
from glue_bench.data.tasks import TASKS
from glue_bench.tables.averages import Average

Score = tuple[str, str, str]

AVERAGE = "average"
AVERAGE_COLUMNS = ("avg_reported", "score_reported")


def _main(task: str) -> Score:
    return task, "validation", TASKS[task].metrics[0]


COLUMNS: dict[str, Score | None] = {
    "MNLI_m": ("mnli", "validation_matched", "accuracy"),
    "MNLI_mm": ("mnli", "validation_mismatched", "accuracy"),
    "MNLI": ("mnli", "validation_matched", "accuracy"),
    "QNLI": _main("qnli"),
    "QQP": _main("qqp"),
    "QQP_acc": _main("qqp"),
    "QQP_f1": ("qqp", "validation", "f1"),
    "SST2": _main("sst2"),
    "CoLA": _main("cola"),
    "MRPC": _main("mrpc"),
    "MRPC_acc": _main("mrpc"),
    "MRPC_f1": ("mrpc", "validation", "f1"),
    "RTE": _main("rte"),
    "STSB": _main("stsb"),
    "STSB_pearson": _main("stsb"),
    "STSB_spearman": ("stsb", "validation", "spearmanr"),
    "WNLI": _main("wnli"),
    "AX": ("ax", "test", "matthews_correlation"),
    "PAWS": None,
}
"""What a column of a table's CSV holds: (task, split, metric) of ours, None for what is not GLUE. Others are no scores.

The split is that of our score; where the paper scores the test set, `Published.split` says so.
"""


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """The arm of ours that stands beside a published row.

    `options` are the variant's own defaults, which an arm may spell out; any other option makes it another model.
    `segments` is where segments enter, if the paper says. `parameters` and, if the CSV does not print them, `steps` of
    pretraining are those of the published model; `share` is the part of all steps after which it was fine-tuned.
    """

    variant: str
    parameters: float
    steps: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    segments: str | None = None
    share: float = 1.0

    def takes(self, variant: str, options: Mapping[str, Any]) -> bool:
        """Whether an arm is this model, sizes aside."""
        others = {name: value for name, value in options.items() if name != "segments"}
        return (
            variant == self.variant
            and self.segments in (None, options.get("segments", "input"))
            and all(name in self.options and _same(value, self.options[name]) for name, value in others.items())
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A printed row: what the paper calls it, its figures as text by column, its pretraining steps if known."""

    label: str
    printed: Mapping[str, str]
    steps: int | None
    counterpart: Counterpart | None

    @property
    def share(self) -> float:
        """The part of all pretraining steps after which it was fine-tuned."""
        return self.counterpart.share if self.counterpart else 1.0


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published table. What is None the source does not say.

    `file` is its CSV beside this module: columns named in COLUMNS and AVERAGE_COLUMNS hold what is printed, `steps`
    the pretraining steps, `labels` what names a row. `split` is "dev" or "test". `protocol` says how a value came
    about, `statistic` is the one over seeds ("mean" or "median"), `epoch` the one of each run of ours beside it.
    `convention` is that of the average: None for the mean of all columns. `batch_tokens` are those of a pretraining
    step at full length. `counterparts` go by row.
    """

    title: str
    source: str
    file: str
    split: str
    protocol: str
    labels: tuple[str, ...] = ("model",)
    statistic: Literal["mean", "median"] = "mean"
    epoch: Literal["last", "best"] = "last"
    seeds: int | None = None
    rates: int | None = None
    batch_tokens: int | None = None
    convention: Average | None = None
    counterparts: Mapping[str, Counterpart] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def _lines(self) -> list[dict[str, str]]:
        text = (files(__package__) / self.file).read_text(encoding="utf-8")
        return list(csv.DictReader(text.splitlines()))

    @cached_property
    def columns(self) -> dict[str, Score | None]:
        """The printed columns in the paper's order, without the average."""
        return {name: COLUMNS[name] for name in self._lines[0] if name in COLUMNS}

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The printed rows in the paper's order."""
        return tuple(self._row(line) for line in self._lines)

    @property
    def ours(self) -> Protocol:
        """How our numbers are made beside it: as the paper made its own, chosen on the dev set that is reported."""
        rate: Literal["best-mean", "best-median"] = "best-median" if self.statistic == "median" else "best-mean"
        return Protocol(rate=rate, seeds=self.statistic, epoch=self.epoch)

    @property
    def has_average(self) -> bool:
        """Whether the paper prints an average."""
        return AVERAGE in self.rows[0].printed

    @property
    def average(self) -> Average:
        """The convention of the printed average."""
        return self.convention or self.single_columns

    @property
    def single_columns(self) -> Average:
        """Every column for itself; as an average, their mean."""
        parts = {name: (score,) for name, score in self.columns.items() if score}
        return Average(title="Average", rule=f"mean of the {len(parts)} columns", parts=parts)

    def _row(self, line: Mapping[str, str]) -> Row:
        label = ", ".join(line[name] for name in self.labels)
        figures = {name: line[name] for name in self.columns}
        for name in AVERAGE_COLUMNS:
            if name in line:
                figures[AVERAGE] = line[name]
        counterpart = self.counterparts.get(label)
        stated = counterpart.steps if counterpart else None
        steps = int(line["steps"]) if "steps" in line else stated
        return Row(label=label, printed=figures, steps=steps, counterpart=counterpart)


def _same(mine: Any, theirs: Any) -> bool:
    """Equal values; lists and tuples without their order."""
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple):
        return sorted(map(str, mine)) == sorted(map(str, theirs))
    return bool(mine == theirs)
