"""The conventions by which papers average GLUE, and the averages of arms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import pandas as pd

from glue_bench.board.aggregation import BOTH_SEEDS, aggregate, aggregate_over_seeds
from glue_bench.data.tasks import COLUMNS, TASKS, TRAINABLE, find_task, scored_columns

Place = tuple[str, str, str]
"""A task, a split and a metric."""
Part = tuple[Place, ...]
NOT_AVERAGED = "wnli"
"""The task that is left out of AVERAGE, by which arms are ordered: its validation set misleads."""


@dataclass(frozen=True)
class Average:
    """A convention of averaging GLUE.

    Attributes:
        rule: The convention in words.
        parts: What is averaged. Each part weighs the same, and is itself the mean over its places.
    """

    rule: str
    parts: Mapping[str, Part]

    @property
    def tasks(self) -> set[str]:
        """The tasks that all have to be there."""
        return {task for part in self.parts.values() for task, _, _ in part}


def _parts_of_tasks(*, main_metric_alone: bool) -> dict[str, Part]:
    """Return the splits of each task with all metrics of the task, or with its main metric."""
    parts: dict[str, Part] = {}
    for name in TRAINABLE:
        task = TASKS[name]
        metrics = task.metrics[:1] if main_metric_alone else task.metrics
        parts[name] = tuple(product((name,), task.columns, metrics))
    return parts


def _parts_of_columns() -> dict[str, Part]:
    """Return for each leaderboard column its split with the main metric."""
    parts: dict[str, Part] = {}
    for column, (task, split) in COLUMNS.items():
        parts[column] = ((task, split, TASKS[task].metrics[0]),)
    return parts


def _without_wnli(parts: Mapping[str, Part]) -> dict[str, Part]:
    return {name: part for name, part in parts.items() if name != NOT_AVERAGED}


GLUE_PARTS = _parts_of_columns()
AVERAGES: dict[str, Average] = {
    "average_official": Average(
        "macro-average, WNLI included; a task with two metrics counts as their mean, MNLI matched "
        "and mismatched as one (GLUE paper, section 3.4)",
        _parts_of_tasks(main_metric_alone=False),
    ),
    "average_nine_columns": Average(
        "MNLI matched and mismatched count separately, accuracy for QQP and MRPC, Pearson for "
        "STS-B (TUPE, table 1)",
        _without_wnli(GLUE_PARTS),
    ),
    "average_eight_columns": Average(
        "as nine columns, but MNLI matched and mismatched count as one (ModernBERT)",
        _without_wnli(_parts_of_tasks(main_metric_alone=True)),
    ),
    "average_eight_tasks": Average(
        "as official, but without WNLI (MosaicBERT)",
        _without_wnli(_parts_of_tasks(main_metric_alone=False)),
    ),
}
"""The four conventions of papers. The first two stand in the leaderboard's frame."""


def column_part(column: str) -> Part:
    """Return the place of a leaderboard column, with its task's main metric."""
    task, split = scored_columns()[column]
    metrics = find_task(task).metrics
    main_metric = metrics[0]
    return ((task, split, main_metric),)


def average_of(columns: Sequence[str]) -> Average:
    """Return the mean of the main metrics of these columns.

    The average covers one benchmark. It is GLUE if there is a task of GLUE, so that a user's own
    task changes no average of GLUE. WNLI is left out if there are other columns of GLUE. With all
    columns of GLUE this is `average_nine_columns`, by which papers compare.
    """
    averaged = columns_of_first_benchmark(columns)
    averaged = [column for column in averaged if column != NOT_AVERAGED] or averaged
    parts = {column: column_part(column) for column in averaged}
    return Average(f"mean of {len(averaged)} columns", parts)


def columns_of_first_benchmark(columns: Sequence[str]) -> list[str]:
    """Return the columns of one benchmark: the benchmark of the first known task among them."""
    if not columns:
        return []
    order = list(scored_columns())
    benchmark = benchmark_of(min(columns, key=order.index))
    of_benchmark: list[str] = []
    for column in columns:
        if benchmark_of(column) == benchmark:
            of_benchmark.append(column)
    return of_benchmark


def benchmark_of(column: str) -> str:
    """Return the benchmark of the task of a leaderboard column."""
    task, _ = scored_columns()[column]
    return find_task(task).benchmark


def average(scores: pd.DataFrame, convention: Average, statistic: str = "mean") -> pd.DataFrame:
    """Return the average of one convention as `averages_by_name` does."""
    return averages_by_name(scores, {"": convention}, statistic)[""]


def averages_by_name(
    scores: pd.DataFrame, conventions: Mapping[str, Average], statistic: str = "mean"
) -> dict[str, pd.DataFrame]:
    """Compute the averages of several conventions at once, which takes little longer than one.

    Args:
        scores: The scores of runs, at one learning rate a task.
        conventions: Conventions of averaging by name.
        statistic: "mean" or "median" over seeds.

    Returns:
        A frame with one row per arm for each convention, by name. Its column `statistic` is the
        mean over the parts of each part's `aggregate_over_seeds`, NaN if a part is missing. `std`
        is the sample deviation over the `n` seeds of each seed's average, NaN unless all parts have
        the same two or more.
    """
    values = _values_by_convention(scores, conventions)
    over_seeds = aggregate_over_seeds(values, ["convention", "arm", "part"], statistic)

    of_parts = over_seeds[statistic].unstack("part")
    run_keys = ["convention", "arm", *BOTH_SEEDS]
    of_runs = values.pivot(index=run_keys, columns="part", values="value")

    means = _mean_over_parts(of_parts, conventions)
    run_means = _mean_over_parts(of_runs, conventions)
    arm_keys = ["convention", "arm"]

    run_values = run_means.rename("value").reset_index()
    over_runs = aggregate(run_values, arm_keys)
    by_arm = values.groupby(arm_keys)
    part_counts = by_arm["part"].nunique()

    convention_sizes = {name: len(convention.parts) for name, convention in conventions.items()}
    counted_conventions = part_counts.index.get_level_values("convention")
    sizes = counted_conventions.map(convention_sizes)
    is_complete = part_counts == sizes

    columns = {
        statistic: means,
        "std": over_runs["std"].where(is_complete),
        "n": over_runs["n"].where(is_complete, 0),
    }
    table = pd.DataFrame(columns)

    frames: dict[str, pd.DataFrame] = {}
    for name in conventions:
        conventions_of_rows = table.index.get_level_values("convention")
        rows = table[conventions_of_rows == name]
        frames[name] = rows.droplevel("convention")
    return frames


def _mean_over_parts(values: pd.DataFrame, conventions: Mapping[str, Average]) -> pd.Series:
    """Return the mean over each convention's parts, NaN where a part is missing.

    `values` has the convention in its index, and a column for each part of any convention.
    """
    means: list[pd.Series] = []
    for name, convention in conventions.items():
        conventions_of_rows = values.index.get_level_values("convention")
        rows = values[conventions_of_rows == name]
        part_names = list(convention.parts)
        parts = rows.reindex(columns=part_names)
        means.append(parts.mean(axis=1, skipna=False))
    return pd.concat(means)


def part_values(scores: pd.DataFrame, convention: Average) -> pd.DataFrame:
    """Return one `value` per arm, part and BOTH_SEEDS.

    A run that lacks one of a part's scores has none.
    """
    return _values_by_convention(scores, {"": convention}).drop(columns="convention")


def _values_by_convention(scores: pd.DataFrame, conventions: Mapping[str, Average]) -> pd.DataFrame:
    """Return what `part_values` returns, for several conventions, with a column `convention`."""
    rows: list[tuple[object, ...]] = []
    for name, convention in conventions.items():
        for part, places in convention.parts.items():
            for place in places:
                rows.append((name, part, len(places), *place))
    columns = ["convention", "part", "places", "task", "split", "metric"]
    wanted_scores = pd.DataFrame(rows, columns=columns)
    merged = scores.merge(wanted_scores, on=["task", "split", "metric"])
    keys = ["convention", "arm", "part", *BOTH_SEEDS]
    values = aggregate(merged, [*keys, "places"]).reset_index()
    is_complete = values["n"] == values["places"]
    complete = values.loc[is_complete, [*keys, "mean"]]
    return complete.rename(columns={"mean": "value"})
