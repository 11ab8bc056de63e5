"""How scores of single runs become one number: aggregation over seeds, rates, and the conventions of averaging GLUE."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from glue_bench.data.tasks import COLUMNS, TASKS, TRAINABLE

Part = tuple[tuple[str, str, str], ...]
AVERAGE, NOT_AVERAGED = "average", "wnli"
"""The column by which arms are ordered, and the task that is left out of it: its validation set misleads."""
SEEDS = ["pretraining_seed", "seed"]
"""The columns that tell apart the runs of an arm on a task at a rate; the first is NA without pretraining of ours."""


@dataclass(frozen=True, kw_only=True)
class Average:
    """One convention of averaging GLUE.

    Each of `parts` weighs the same; its own value is the mean over its (task, split, metric).
    """

    rule: str
    parts: Mapping[str, Part]

    @property
    def title(self) -> str:
        """As a column's head."""
        return f"Avg. of {len(self.parts)}"

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it needs."""
        needed = {task for part in self.parts.values() for task, _, _ in part}
        return tuple(task for task in TASKS if task in needed)


_OFFICIAL: dict[str, Part] = {
    task: tuple((task, split, metric) for split in TASKS[task].columns for metric in TASKS[task].metrics)
    for task in TRAINABLE
}
_COLUMNS: dict[str, Part] = {name: ((*COLUMNS[name], TASKS[COLUMNS[name][0]].metrics[0]),) for name in COLUMNS}
AVERAGES: dict[str, Average] = {
    "average_official": Average(
        rule="macro-average, WNLI included; a task with two metrics counts as their "
        "mean, MNLI matched and mismatched as one (GLUE paper, section 3.4)",
        parts=_OFFICIAL,
    ),
    "average_nine_columns": Average(
        rule="MNLI matched and mismatched count separately, accuracy "
        "for QQP and MRPC, Pearson for STS-B (TUPE, table 1)",
        parts={name: part for name, part in _COLUMNS.items() if name != NOT_AVERAGED},
    ),
    "average_eight_columns": Average(
        rule="as nine columns, but MNLI matched and mismatched count as one (ModernBERT)",
        parts={task: tuple(place for place in part if place[2] == TASKS[task].metrics[0])
               for task, part in _OFFICIAL.items() if task != NOT_AVERAGED},
    ),
    "average_eight_tasks": Average(
        rule="as official, but without WNLI (MosaicBERT)",
        parts={task: part for task, part in _OFFICIAL.items() if task != NOT_AVERAGED},
    ),
}  # fmt: skip
"""The four conventions by which papers average GLUE."""
LEADING = ("average_official", "average_nine_columns")
"""Those that stand in the leaderboard's frame beside `average_of`."""


def average_of(columns: Sequence[str]) -> Average:
    """The mean of the main metrics of the columns that are there: of all but WNLI's, if there are others.

    Where none is missing this is `average_nine_columns`, by which papers compare.
    """
    averaged = [column for column in columns if column != NOT_AVERAGED] or list(columns)
    return Average(rule=f"mean of {len(averaged)} columns", parts={column: _COLUMNS[column] for column in averaged})


def best_rates(runs: pd.DataFrame, statistic: str = "mean") -> pd.DataFrame:
    """The learning rate reported for each arm and task: arm, task, learning_rate.

    `runs` has these and seed and `value`. The rate with the best statistic ("mean" or "median") over seeds wins. Only
    the rates with the most finished seeds compete, because a mean of few seeds wins by luck; an undefined value loses
    to any other; ties take the lower rate.
    """
    rates = aggregate(runs, ["arm", "task", "learning_rate"], statistic).reset_index()
    rates[statistic] = rates[statistic].round(9)  # the order of summation must not break a tie
    rates = rates.sort_values(["n", statistic, "learning_rate"], ascending=[False, False, True])
    best = rates.drop_duplicates(["arm", "task"]).sort_index()
    return best[["arm", "task", "learning_rate"]].reset_index(drop=True)


def at_rates(frame: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """The rows of scores or cells that ran at the rate chosen for their arm and task, in order."""
    return frame.merge(rates, on=["arm", "task", "learning_rate"], how="inner")


def main_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of each task's main metric."""
    return scores[scores["metric"] == scores["task"].map(lambda task: TASKS[task].metrics[0])]


def aggregate(values: pd.DataFrame, by: list[str], statistic: str = "mean") -> pd.DataFrame:
    """The statistic ("mean" or "median"), sample standard deviation (missing for n = 1) and n of `value`, by `by`.

    An undefined (NaN) value makes statistic and deviation NaN: leaving it out would flatter a failed run.
    """
    groups = values.groupby(by, sort=False, dropna=False)["value"]
    n, undefined = groups.size(), groups.count() < groups.size()
    return pd.DataFrame(
        {statistic: groups.agg(statistic).mask(undefined), "std": groups.std(ddof=1).mask(undefined), "n": n}
    )


def average(scores: pd.DataFrame, convention: Average, statistic: str = "mean") -> pd.DataFrame:
    """The statistic, `std` and `n` of one convention for each arm (the index), from scores at one rate a task.

    The first is the mean over the parts of each part's statistic over seeds, NaN if a part is missing. The deviation
    is the sample deviation over the n seeds of each seed's average, NaN unless all parts have the same two or more.
    """
    if not set(convention.tasks).issubset(scores["task"]):
        return pd.DataFrame({statistic: math.nan, "std": math.nan, "n": 0}, index=pd.unique(scores["arm"]))
    values, parts = part_values(scores, convention), list(convention.parts)
    middles = aggregate(values, ["arm", "part"], statistic)[statistic].unstack("part").reindex(columns=parts)
    runs = values.pivot(index=["arm", *SEEDS], columns="part", values="value").reindex(columns=parts)
    whole = values.groupby("arm")["part"].nunique() == len(parts)
    by_seed = pd.DataFrame({"arm": runs.index.get_level_values("arm"), "value": runs.mean(axis=1, skipna=False).array})
    over_seeds = aggregate(by_seed, ["arm"])
    return pd.DataFrame(
        {
            statistic: middles.mean(axis=1, skipna=False),
            "std": over_seeds["std"].where(whole),
            "n": over_seeds["n"].where(whole, 0),
        }
    )


def part_values(scores: pd.DataFrame, convention: Average) -> pd.DataFrame:
    """One value for each arm, part and SEEDS; a run that lacks one of a part's scores has none."""
    parts = pd.DataFrame(
        [(part, *score) for part, entries in convention.parts.items() for score in entries],
        columns=["part", "task", "split", "metric"],
    )
    scores = scores.merge(parts, on=["task", "split", "metric"])
    values = aggregate(scores, ["arm", "part", *SEEDS]).reset_index()
    whole = values["n"] == values["part"].map(lambda part: len(convention.parts[part]))
    return values.loc[whole, ["arm", "part", *SEEDS, "mean"]].rename(columns={"mean": "value"})
