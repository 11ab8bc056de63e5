"""The estimate of an average over columns, from the estimates of the columns."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from glue_bench.data.measures import AVERAGE
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.runs import Runs


def average_estimate(columns: Sequence[ColumnEstimate], arms: Sequence[str]) -> ColumnEstimate:
    """Estimate the mean over one column or more. Different columns have independent examples."""
    untested: dict[str, str] = {}
    means: dict[str, float] = {}
    seeds: dict[str, int] = {}

    for arm in arms:
        reason = _average_problem(columns, arm)
        if reason:
            untested[arm] = reason
        means_of_columns: list[float] = []
        seeds_of_columns: list[int] = []
        for column in columns:
            seeds_of_columns.append(column.seeds[arm])
            if arm in column.means:
                means_of_columns.append(column.means[arm])
        if len(means_of_columns) == len(columns):
            mean = np.mean(means_of_columns)
            means[arm] = float(mean)
        seeds[arm] = min(seeds_of_columns)

    tested = tuple(arm for arm in arms if arm not in untested)
    limits = np.mean([column.limits for column in columns], axis=0)
    estimate = ColumnEstimate(
        column=AVERAGE,
        lowest_is_best=all(column.lowest_is_best for column in columns),
        limits=tuple(limits),
        means=means,
        seeds=seeds,
        untested=untested,
        arms=tested,
        blocked=any(column.blocked for column in columns),
        single_runs=all(column.single_runs for column in columns),
    )

    if not tested:
        return estimate
    return _with_variances(estimate, [column.for_arms(tested) for column in columns])


def _with_variances(estimate: ColumnEstimate, columns: Sequence[ColumnEstimate]) -> ColumnEstimate:
    """Add the runs and the variances of the tested arms to the estimate of an average."""
    arms = len(estimate.arms)
    examples = np.zeros((arms, arms))
    shared = examples.copy()
    of_finetuning = examples.copy()
    for column in columns:
        examples += column.examples
        shared += column.shared
        of_finetuning += column.of_finetuning
    # The variance of a mean of independent parts is their sum over the square of their number.
    factor = len(columns) ** 2
    return replace(
        estimate,
        tasks=_averaged_runs(columns),
        examples=examples / factor,
        shared=shared / factor,
        of_finetuning=of_finetuning / factor,
        examples_freedom=min(column.examples_freedom for column in columns),
    )


def _averaged_runs(columns: Sequence[ColumnEstimate]) -> dict[str, Runs]:
    """Return the runs of each task, with the sum of their scores over the number of columns.

    Only the columns of one task share runs, so that these are added run by run.
    """
    tasks: dict[str, Runs] = {}
    for column in columns:
        for task, runs in column.tasks.items():
            values = runs.values / len(columns)
            if task in tasks:
                earlier = tasks[task]
                values = earlier.values + values
            tasks[task] = runs._replace(values=values)
    return tasks


def _average_problem(columns: Sequence[ColumnEstimate], arm: str) -> str:
    """Say why an arm has no interval in the average; "" if it has one."""
    without_interval = [column for column in columns if arm in column.untested]
    if without_interval:
        first = without_interval[0]
        reason = first.untested[arm]
        if len(without_interval) == len(columns):
            return reason
        return f"{first.column}: {reason}"
    pretrainings: set[tuple[int, ...]] = set()
    for column in columns:
        for runs in column.for_arms([arm]).tasks.values():
            seeds = np.unique(runs.pretraining_seeds)
            pretrainings.add(tuple(seeds))
    return "" if len(pretrainings) == 1 else "its columns differ in their pretraining seeds"
