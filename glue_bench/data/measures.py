"""What a column of a table holds: its title, unit, direction, decimals and limits."""

from dataclasses import dataclass
from typing import Literal

from glue_bench.data.tasks import find_task, scored_columns

AVERAGE = "average"
"""The column of the mean over the columns that count in it."""
SHARES = ("accuracy", "f1", "macro_f1")
"""Metrics that lie from 0 to 1; others are coefficients from -1 to 1."""


@dataclass(frozen=True)
class Measure:
    """One column of a table. What its numbers mean is said here alone, and not by its name.

    Attributes:
        name: the column in frames and files.
        title: its heading in tables.
        metric: what is computed of predictions and labels: one of `data.metrics.METRICS`, or of a
            pretrained encoder "loss" (a summed loss over the number of tokens) or "share" (hits
            over trials). AVERAGE has itself: it is computed of columns.
        unit: "points" are values of the metric times 100; "nats" are its values.
        lowest_is_best: whether a lower number is a better one.
        decimals: the number of decimals in tables.
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
        """The number by which a value of the metric is multiplied to have the unit."""
        return 100.0 if self.unit == "points" else 1.0


def percentage(name: str, title: str, metric: str = "accuracy") -> Measure:
    """Return a column of values from 0 to 100 points, such as shares of right answers."""
    return Measure(name, title, metric)


def coefficient(name: str, title: str, metric: str = "matthews_correlation") -> Measure:
    """Return a column of coefficients from -100 to 100 points."""
    return Measure(name, title, metric, limits=(-100.0, 100.0))


def loss(name: str, title: str) -> Measure:
    """Return a column of losses in nats, of which the lowest is best.

    They have three decimals, because they differ by less than points do.
    """
    return Measure(
        name,
        title,
        "loss",
        unit="nats",
        lowest_is_best=True,
        decimals=3,
        limits=(float("-inf"), float("inf")),
    )


def task_measure(column: str) -> Measure:
    """Return the column of a scored split: its task's main metric.

    MNLI's two columns are called -m and -mm. Raises KeyError where no task has the column.
    """
    task_name, _ = scored_columns()[column]
    task = find_task(task_name)
    ending = column.removeprefix(task_name).replace("_", "-")
    title = task.title + ending
    metric = task.metrics[0]
    if metric in SHARES:
        return percentage(column, title, metric)
    return coefficient(column, title, metric)


class Measures(dict[str, Measure]):
    """Every column that a leaderboard can have, by its name.

    The columns of tasks are made when they are asked for, because an experiment may define a task.
    """

    def __missing__(self, name: str) -> Measure:
        return task_measure(name)


MEASURES = Measures(
    {
        "validation_loss": loss("validation_loss", "Val. loss"),
        "train_loss": loss("train_loss", "Train. loss"),
        # How often a text is more likely than the same text with two neighbouring words swapped.
        "swap_1": percentage("swap_1", "Swap test", "share"),
        AVERAGE: percentage(AVERAGE, "Avg.", AVERAGE),
    }
)
PRETRAINING_MEASURES = ("validation_loss", "swap_1")
"""Measures of a pretrained encoder that are compared as columns."""
