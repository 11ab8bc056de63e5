"""Published GLUE tables: their rows as printed, how their numbers came about, and which models they are of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from glue_bench.config import Protocol
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.tables.averages import AVERAGES, Average

Score = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A printed row: its name, its figures as texts by column, and the model of ours that it is the counterpart of.

    What these are stands in papers.yaml; without a `variant` none of ours is like it.
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
        """Whether an arm is this model, sizes aside."""
        others = {name: value for name, value in options.items() if name != "segments"}
        return (
            variant == self.variant
            and self.segments in (None, options.get("segments", "input"))
            and all(name in self.options and _same(value, self.options[name]) for name, value in others.items())
        )


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published table, as papers.yaml explains it; what is None the source does not say.

    `split` is "dev" or "test". `statistic` is the one over seeds, `epoch` the one of each run of ours beside it.
    """

    title: str
    source: str
    split: str
    protocol: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    statistic: Literal["mean", "median"] = "mean"
    epoch: Literal["last", "best"] = "last"
    seeds: int | None = None
    rates: int | None = None
    tokens: int | None = None
    convention: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ours(self) -> Protocol:
        """How our numbers are made beside it: as the paper made its own, chosen on the dev set that is reported."""
        rate: Literal["best-mean", "best-median"] = "best-median" if self.statistic == "median" else "best-mean"
        return Protocol(rate=rate, seeds=self.statistic, epoch=self.epoch)

    @property
    def scores(self) -> dict[str, Score]:
        """(task, split, metric) of ours by column, of those that have one."""
        return {name: score for name in self.columns if (score := score_of(name))}

    @property
    def singly(self) -> Average:
        """Every column for itself; as an average, their mean."""
        parts = {name: (score,) for name, score in self.scores.items()}
        return Average(title="Average", rule=f"mean of the {len(parts)} columns", parts=parts)

    @property
    def average(self) -> Average:
        """The convention of the printed average."""
        return AVERAGES[self.convention] if self.convention else self.singly


def score_of(column: str) -> Score | None:
    """(task, split, metric) of ours; None of the average and of what is not GLUE."""
    if column in COLUMNS:
        task, split = COLUMNS[column]
        return task, split, TASKS[task].metrics[0]
    task, _, metric = column.partition("_")
    return (task, "validation", metric) if task in TASKS and metric in TASKS[task].metrics else None


def _published(rows: Mapping[str, Any], columns: str, notes: tuple[str, ...] = (), **facts: Any) -> Published:
    names = tuple(columns.split())
    of_all = {name: facts.pop(name) for name in ("parameters", "steps") if name in facts}
    made = []
    for label, row in rows.items():
        of_row = {name: value for name, value in row.items() if name != "scores"}
        printed = dict(zip(names, row["scores"].split(), strict=True))
        made.append(Row(label=label, printed=printed, **(of_all if "variant" in row else {}) | of_row))
    return Published(columns=names, rows=tuple(made), notes=tuple(notes), **facts)


def _same(mine: Any, theirs: Any) -> bool:
    """Equal values; lists without their order."""
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple):
        return sorted(map(str, mine)) == sorted(map(str, theirs))
    return bool(mine == theirs)


TABLES: dict[str, Published] = {
    name: _published(**facts)
    for name, facts in yaml.safe_load((files(__package__) / "papers.yaml").read_text(encoding="utf-8")).items()
}
"""By their names on the command line."""
