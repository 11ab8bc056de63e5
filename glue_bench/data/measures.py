"""What a column of a table holds: its title, unit, direction, decimals and limits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from glue_bench.data.tasks import COLUMNS, TASKS

AVERAGE = "average"
"""The column of the mean over the columns that count in it."""


@dataclass(frozen=True)
class Measure:
    """One column. Nothing else says what its numbers mean, and its name decides nothing.

    Attributes:
        name: the column in frames and files.
        title: its heading in tables.
        metric: what is computed of predictions and labels: one of `data.metrics.METRICS`, or of a
            pretrained encoder "loss" (a summed loss over the number of tokens) or "share" (hits
            over trials).
        unit: "points" are times 100.
        lowest_is_best: whether a lower number is a better one.
        decimals: how many of them tables show.
        limits: the lowest and the highest value, in the unit.
    """

    name: str
    title: str
    metric: str
    unit: Literal["points", "nats"] = "points"
    lowest_is_best: bool = False
    decimals: int = 2
    limits: tuple[float, float] = (0.0, 100.0)

    @property
    def factor(self) -> float:
        """By what a value of the metric is multiplied to have the unit."""
        return 100.0 if self.unit == "points" else 1.0


def accuracy(name: str, title: str, metric: str = "accuracy") -> Measure:
    """Return a column of shares of right answers, or of what else lies from 0 to 100 points."""
    return Measure(name, title, metric)


def correlation(name: str, title: str, metric: str = "matthews_correlation") -> Measure:
    """Return a column of coefficients from -100 to 100 points."""
    return Measure(name, title, metric, limits=(-100.0, 100.0))


def loss(name: str, title: str) -> Measure:
    """Return a column of losses in nats. The lowest is best; they differ by less than points do."""
    return Measure(
        name,
        title,
        "loss",
        unit="nats",
        lowest_is_best=True,
        decimals=3,
        limits=(float("-inf"), float("inf")),
    )


def task_measures() -> Iterable[Measure]:
    """Yield the column of each scored split of GLUE: its task's main metric.

    MNLI's two columns are called -m and -mm.
    """
    for column, (task_name, _) in COLUMNS.items():
        task = TASKS[task_name]
        ending = column.removeprefix(task_name).replace("_", "-")
        title = task.title + ending
        metric = task.metrics[0]
        if metric == "accuracy":
            yield accuracy(column, title)
        else:
            yield correlation(column, title, metric)


MEASURES: dict[str, Measure] = {
    **{measure.name: measure for measure in task_measures()},
    "validation_loss": loss("validation_loss", "Val. loss"),
    "train_loss": loss("train_loss", "Train. loss"),
    "swap_1": accuracy("swap_1", "Swap test", "share"),
    AVERAGE: accuracy(AVERAGE, "Avg.", AVERAGE),
}
"""Every column that a leaderboard can have, by its name."""
PRETRAINING_MEASURES = ("validation_loss", "swap_1")
"""Measures of a pretrained encoder that are compared as columns."""
