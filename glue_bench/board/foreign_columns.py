"""A tidy frame of foreign runs becomes one column of arrays for each task and metric."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.board.foreign import RUN
from glue_bench.data.measures import AVERAGE, Measure
from glue_bench.errors import UserError, quoted, unknown
from glue_bench.stats.runs import ColumnRuns, Runs
from glue_bench.stats.sums import example_terms, score_from_sums

MAX_RUNS = 2000
"""The largest number of runs of one column. Memory grows with its square."""
PAIR_METRICS = ("accuracy", "f1", "matthews_correlation", "pearson")
"""The metrics that a prediction and a label give; `--metric` chooses one."""
MAX_IDS = 3
"""The largest number of example ids that an error names."""


def columns_of_frame(
    frame: pd.DataFrame, metric: str | None, lower: Collection[str], *, is_common: bool
) -> tuple[list[ColumnRuns], dict[str, tuple[str, str]], int]:
    """Return a column of runs for each task and metric.

    Args:
        frame: The runs, with a row for each score or for each example of a run.
        metric: The metric to keep, or to compute from predictions and labels.
        lower: The metrics whose lowest value is the best.
        is_common: Whether only the examples that all runs have are compared.

    Returns:
        The columns, the task and metric of each column by its key, and the number of examples that
        were left out.

    Raises:
        UserError: There is no such metric, or a system lacks it; examples that differ between runs;
            labels that do; values that the metric cannot take; more than MAX_RUNS runs.
    """
    frame = _with_metric(frame, metric)
    _check_metrics(frame, lower)
    systems = tuple(frame["system"].unique())
    # Averages add up runs of one block or seed, so that it has one number in all columns.
    numbers = {name: pd.factorize(frame[name])[0] for name in ("block", "seed")}
    frame = frame.assign(**numbers)
    columns: list[ColumnRuns] = []
    names: dict[str, tuple[str, str]] = {}
    left_out: set[tuple[Any, Any]] = set()  # of a task and an id
    for (task, metric_name), rows in frame.groupby(["task", "metric"], sort=False):
        key = _column_name(str(task), str(metric_name), names)
        names[key] = (str(task), str(metric_name))
        measure = _measure(key, rows, is_lowest_best=metric_name in lower)
        if "score" in rows:
            columns.append(_column_of_scores(measure, rows, systems))
            continue
        kept = _rows_of_common_examples(rows, is_common=is_common)
        missing = set(rows["id"].unique()).difference(kept["id"].unique())
        left_out.update((task, name) for name in missing)
        columns.append(_column_of_examples(measure, kept, systems))
    averaged = _have_average(columns, names)
    return [replace(column, averaged=averaged) for column in columns], names, len(left_out)


def _with_metric(frame: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """Return the rows of a metric, or all rows without one; rows of predictions get the metric."""
    if "prediction" in frame:
        if metric not in PAIR_METRICS:
            choices = ", ".join(PAIR_METRICS)
            raise UserError(f"predictions and labels need --metric, one of {choices}")
        return frame.assign(metric=metric)
    if metric is None:
        return frame
    is_chosen = frame["metric"] == metric
    if not is_chosen.any():
        raise unknown("metric", metric, frame["metric"].unique().tolist(), "--metric")
    return frame[is_chosen]


def _check_metrics(frame: pd.DataFrame, lower: Collection[str]) -> None:
    """Raise UserError for a metric that is not there, or that some systems of a task lack."""
    known_metrics = frame["metric"].unique()
    for name in lower:
        if name not in known_metrics:
            raise unknown("metric", name, known_metrics.tolist(), "--lower")
    for task, rows in frame.groupby("task", sort=False):
        metrics_by_system = rows.groupby("system", sort=False)["metric"].unique()
        for metric in rows["metric"].unique():
            for system, metrics in metrics_by_system.items():
                if metric not in metrics:
                    raise UserError(
                        f"system {quoted(system)} has no {quoted(metric)} of task {quoted(task)}, "
                        f"but {', '.join(metrics)}; compare by one metric that all have (--metric)"
                    )


def _column_name(task: str, metric: str, taken: Collection[str]) -> str:
    """Return a name that no other column has, also where a task is called as the average is."""
    name = task
    if name == AVERAGE or name in taken:
        name = f"{task} ({metric})"
    while name in taken:
        name += "'"
    return name


def _have_average(columns: list[ColumnRuns], names: dict[str, tuple[str, str]]) -> bool:
    """Return whether the columns can be averaged.

    They can if there is one column for each task and all have the same unit and direction. Columns
    whose intervals are over examples alone are not averaged with columns that have several seeds.
    """
    kinds: set[tuple[str, bool, bool]] = set()
    for column in columns:
        measure = column.measure
        kinds.add((measure.unit, measure.lowest_is_best, column.single_runs))
    tasks = {task for task, _ in names.values()}
    return len(kinds) == 1 and len(tasks) == len(names)


def _measure(key: str, rows: pd.DataFrame, *, is_lowest_best: bool) -> Measure:
    """Return the measure of a column: a metric of pairs, points, or the mean of plain numbers."""
    metric = str(rows["metric"].iloc[0])
    if "prediction" in rows:
        limits = (0.0, 100.0) if metric in ("accuracy", "f1") else (-100.0, 100.0)
        return Measure(key, key, metric, limits=limits)
    if "outcome" in rows and rows["outcome"].isin((0.0, 1.0)).all() and not is_lowest_best:
        return Measure(key, key, "accuracy")
    return Measure(
        key,
        metric,
        "loss",  # the sum of the numbers over their count: their mean
        unit="nats",
        lowest_is_best=is_lowest_best,
        decimals=4,
        limits=(float("-inf"), float("inf")),
    )


def _rows_of_common_examples(rows: pd.DataFrame, *, is_common: bool) -> pd.DataFrame:
    """Return the rows of examples that all runs have.

    Raises UserError if a run lacks an example, unless `is_common` asks for the others and there are
    some.
    """
    runs = rows.groupby(RUN, sort=False)
    is_everywhere = rows.groupby("id")["id"].transform("size") == runs.ngroups
    if is_everywhere.all() or (is_common and is_everywhere.any()):
        return rows[is_everywhere]
    ids = pd.Index(rows["id"].unique())
    incomplete_runs = (run for _, run in runs if len(run) < len(ids))
    run = next(incomplete_runs)
    missing = ids[~ids.isin(run["id"])]
    first_missing = ", ".join(quoted(name) for name in missing[:MAX_IDS])
    advice = "none is left" if is_common else "--common compares on the examples that all have"
    raise UserError(
        f"system {quoted(run['system'].iloc[0])} lacks {len(missing):,} of {len(ids):,} examples "
        f"of {quoted(run['task'].iloc[0])}, the first {first_missing}; {advice}"
    )


def _runs(rows: pd.DataFrame, systems: tuple[str, ...], values: np.ndarray) -> Runs:
    """Return the runs in the order in which they begin; `values` (runs,) are their scores."""
    runs = rows[RUN].drop_duplicates()
    if len(runs) > MAX_RUNS:
        raise UserError(f"{len(runs):,} runs of one task, but at most {MAX_RUNS:,} are compared")
    return Runs(
        arms=runs["system"].map(systems.index).to_numpy(),
        pretraining_seeds=runs["block"].to_numpy(),
        seeds=runs["seed"].to_numpy(),
        values=values,
    )


def _column_of_scores(measure: Measure, rows: pd.DataFrame, systems: tuple[str, ...]) -> ColumnRuns:
    """Return a column whose runs have scores, but no predictions."""
    return ColumnRuns(
        measure=measure,
        task=measure.name,
        arms=systems,
        runs=_runs(rows, systems, rows["score"].to_numpy(float)),
        predictions=np.empty((len(rows), 0)),
        labels=np.empty(0),
    )


def _column_of_examples(
    measure: Measure, rows: pd.DataFrame, systems: tuple[str, ...]
) -> ColumnRuns:
    """Return a column of runs that have the same examples. Both are in their first order."""
    run_of_row = rows.groupby(RUN, sort=False).ngroup()
    example_of_row, ids = pd.factorize(rows["id"])
    row_predictions, row_labels = _answers(rows, measure.metric)
    predictions = np.empty((run_of_row.max() + 1, len(ids)))
    predictions[run_of_row, example_of_row] = row_predictions
    labels = np.empty(len(ids))
    labels[example_of_row] = row_labels
    relabelled = ids[example_of_row[labels[example_of_row] != row_labels]]
    if len(relabelled):
        example = quoted(relabelled[0])
        task = quoted(rows["task"].iloc[0])
        raise UserError(f"example {example} of {task} has two different labels; give one label")
    terms = example_terms(measure.metric, predictions, labels)
    sums = terms.sum(axis=0, dtype=np.float64)
    scores = score_from_sums(measure.metric, sums, len(ids)) * measure.factor
    runs = _runs(rows, systems, scores)
    clusters = None
    if "cluster" in rows:
        cluster_of_id = rows[["id", "cluster"]].drop_duplicates()
        for name in cluster_of_id.loc[cluster_of_id["id"].duplicated(), "id"]:
            raise UserError(f"example {quoted(name)} is in two clusters; give it one")
        clusters = pd.factorize(cluster_of_id["cluster"])[0]
    return ColumnRuns(
        measure=measure,
        task=measure.name,
        arms=systems,
        runs=runs,
        predictions=predictions,
        labels=labels,
        clusters=clusters,
        single_runs=bool(np.bincount(runs.arms).max() == 1),
    )


def _answers(rows: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels as numbers, (rows,) each. An outcome has the label 1.

    Raises UserError where the metric cannot take them.
    """
    if "outcome" in rows:
        return rows["outcome"].to_numpy(float), np.ones(len(rows))
    if metric == "accuracy":
        codes, _ = pd.factorize(pd.concat([rows["prediction"], rows["label"]]))
        predictions, labels = np.split(codes.astype(float), 2)
        return predictions, labels
    numbers = rows[["prediction", "label"]].apply(pd.to_numeric, errors="coerce")
    is_allowed = np.isfinite(numbers) if metric == "pearson" else numbers.isin((0.0, 1.0))
    for name in numbers:
        for value in rows.loc[~is_allowed[name], name]:
            kind = "a number" if metric == "pearson" else "0 or 1"
            raise UserError(f"{metric} needs {kind} as {name}, not {quoted(value)}")
    return numbers["prediction"].to_numpy(float), numbers["label"].to_numpy(float)
