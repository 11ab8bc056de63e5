"""A tidy frame of foreign runs becomes one column of arrays for each task and metric."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pandas as pd

from glue_bench.board.foreign import RUN
from glue_bench.data.measures import Measure
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
    """
    frame = _with_metric(frame, metric)
    known_metrics = frame["metric"].unique()
    for name in lower:
        if name not in known_metrics:
            raise unknown("metric", name, known_metrics.tolist(), "--lower")
    _check_metrics(frame)
    systems = tuple(frame["system"].unique())
    columns: list[ColumnRuns] = []
    names: dict[str, tuple[str, str]] = {}
    dropped = 0
    groups = frame.groupby(["task", "metric"], sort=False)
    for place, ((task, metric_name), rows) in enumerate(groups):
        key = f"column {place}"  # tasks may have any name, also "average"
        title = str(metric_name)
        names[key] = (str(task), title)
        is_lowest_best = title in lower
        column, left_out = _column(
            key, rows, systems, title, is_lowest_best=is_lowest_best, is_common=is_common
        )
        dropped += left_out
        columns.append(column)
    averaged = _have_average(columns, names)
    marked = [replace(column, averaged=averaged) for column in columns]
    return marked, names, dropped


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


def _have_average(columns: list[ColumnRuns], names: dict[str, tuple[str, str]]) -> bool:
    """Return whether the columns can be averaged.

    They can if there is one column for each task and all have the same unit and direction. Columns
    whose intervals are over examples alone are not averaged with columns that have several seeds.
    """
    kinds: set[tuple[str, bool, bool]] = set()
    for column in columns:
        measure = column.measure
        kinds.add((measure.unit, measure.lowest_is_best, column.single_runs))
    tasks = [task for task, _ in names.values()]
    return len(kinds) == 1 and len(set(tasks)) == len(tasks)


def _check_metrics(frame: pd.DataFrame) -> None:
    """Raise UserError if a system lacks a metric that another system has for the same task."""
    for task, rows in frame.groupby("task", sort=False):
        metrics_by_system = rows.groupby("system", sort=False)["metric"].unique()
        for metric in rows["metric"].unique():
            for system, metrics in metrics_by_system.items():
                if metric not in metrics:
                    raise UserError(
                        f"system {quoted(system)} has no {quoted(metric)} of task {quoted(task)}, "
                        f"but {', '.join(metrics)}; compare by one metric that all have (--metric)"
                    )


def _column(
    key: str,
    rows: pd.DataFrame,
    systems: tuple[str, ...],
    metric: str,
    *,
    is_lowest_best: bool,
    is_common: bool,
) -> tuple[ColumnRuns, int]:
    """Return the runs of one task and metric, and how many examples were left out."""
    runs = rows[RUN].drop_duplicates().reset_index(drop=True)
    scores = _runs_without_values(runs, systems)
    if "score" in rows:
        measure = _plain_measure(key, metric, is_lowest_best=is_lowest_best)
        return _column_of_scores(key, rows, systems, scores, measure), 0
    run_of_row = _positions(rows[RUN], runs)
    examples, ids = pd.factorize(rows["id"])
    present = np.zeros((len(runs), len(ids)), bool)
    present[run_of_row, examples] = True
    kept = np.asarray(present.all(axis=0))
    if not kept.all():
        _refuse_missing(rows, runs, present, ids, is_common=is_common)
    measure, predictions, labels = _example_values(
        key,
        rows,
        metric,
        (run_of_row, examples),
        present.shape,
        ids,
        is_lowest_best=is_lowest_best,
    )
    predictions = predictions[:, kept]
    labels = labels[kept]
    terms = example_terms(measure.metric, predictions, labels)
    sums = terms.sum(axis=0, dtype=np.float64)
    values = score_from_sums(measure.metric, sums, len(labels)) * measure.factor
    most_runs = int(np.bincount(scores.arms).max())
    column = ColumnRuns(
        measure=measure,
        task=key,
        arms=systems,
        runs=scores._replace(values=values),
        predictions=predictions,
        labels=labels,
        clusters=_clusters(rows, ids, kept),
        single_runs=len(labels) > 0 and most_runs == 1,
    )
    return column, int((~kept).sum())


def _runs_without_values(runs: pd.DataFrame, systems: tuple[str, ...]) -> Runs:
    """Return the system, block and seed of each run; `runs` has the columns RUN."""
    if len(runs) > MAX_RUNS:
        raise UserError(f"{len(runs):,} runs of one task, but at most {MAX_RUNS:,} are compared")
    return Runs(
        arms=runs["system"].map(systems.index).to_numpy(),
        pretraining_seeds=pd.factorize(runs["block"])[0],
        seeds=pd.factorize(runs["seed"])[0],
        values=np.empty(0),
    )


def _column_of_scores(
    key: str, rows: pd.DataFrame, systems: tuple[str, ...], runs: Runs, measure: Measure
) -> ColumnRuns:
    """Return a column whose runs have scores, but no predictions."""
    return ColumnRuns(
        measure=measure,
        task=key,
        arms=systems,
        runs=runs._replace(values=rows["score"].to_numpy(float)),
        predictions=np.empty((len(rows), 0)),
        labels=np.empty(0),
    )


def _clusters(rows: pd.DataFrame, ids: pd.Index, kept: np.ndarray) -> np.ndarray | None:
    """Return the number of each kept example's cluster, (kept examples,), if there are clusters."""
    if "cluster" not in rows:
        return None
    names = rows.drop_duplicates("id").set_index("id").loc[ids, "cluster"]
    return pd.factorize(names.to_numpy()[kept])[0]


def _positions(rows: pd.DataFrame, runs: pd.DataFrame) -> np.ndarray:
    """Return the position in `runs` of the run that each row belongs to, (rows,)."""
    index = pd.MultiIndex.from_frame(runs)
    return index.get_indexer(pd.MultiIndex.from_frame(rows))


def _refuse_missing(
    rows: pd.DataFrame,
    runs: pd.DataFrame,
    present: np.ndarray,
    ids: pd.Index,
    *,
    is_common: bool,
) -> None:
    """Raise UserError for examples that a run lacks.

    There is no error if only common examples are compared and at least one exists.
    """
    if is_common and present.all(axis=0).any():
        return
    place = np.flatnonzero(~present.all(axis=1))[0]
    run = runs.iloc[place]
    missing = ids[~present[place]]
    first_missing = ", ".join(quoted(name) for name in missing[:MAX_IDS])
    advice = "--common compares on the examples that all have" if not is_common else "none is left"
    raise UserError(
        f"system {quoted(run['system'])} lacks {len(missing):,} of {len(ids):,} examples of "
        f"{quoted(rows['task'].iloc[0])}, the first {first_missing}; {advice}"
    )


def _example_values(
    key: str,
    rows: pd.DataFrame,
    metric: str,
    places: tuple[np.ndarray, np.ndarray],
    shape: tuple[int, int],
    ids: pd.Index,
    *,
    is_lowest_best: bool,
) -> tuple[Measure, np.ndarray, np.ndarray]:
    """Return the measure of a column, its predictions (runs, examples) and labels (examples,)."""
    predictions = np.zeros(shape)
    if "outcome" in rows:
        outcomes = rows["outcome"].to_numpy(float)
        predictions[places] = outcomes
        labels = np.ones(shape[1])
        if not is_lowest_best and np.isin(outcomes, (0.0, 1.0)).all():
            return Measure(key, key, "accuracy"), predictions, labels
        measure = _plain_measure(key, metric, is_lowest_best=is_lowest_best)
        return measure, predictions, labels
    predicted, gold = _pair_values(rows, metric)
    predictions[places] = predicted
    labels = np.zeros(shape[1])
    labels[places[1]] = gold
    wrong = np.flatnonzero(labels[places[1]] != gold)
    if len(wrong):
        _, examples = places
        example = ids[examples[wrong[0]]]
        raise UserError(f"example {quoted(example)} has two different labels")
    limits = (0.0, 100.0) if metric in ("accuracy", "f1") else (-100.0, 100.0)
    return Measure(key, key, metric, limits=limits), predictions, labels


def _pair_values(rows: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels as numbers, (rows,) each.

    Raises UserError where the metric cannot take them.
    """
    if metric == "accuracy":
        answers = pd.concat([rows["prediction"], rows["label"]])
        codes, _ = pd.factorize(answers.astype(str))
        numbers = codes.astype(float)
        count = len(rows)
        return numbers[:count], numbers[count:]
    pair = []
    for name in ("prediction", "label"):
        numbers = pd.to_numeric(rows[name], errors="coerce").to_numpy(float)
        wrong = np.flatnonzero(~np.isfinite(numbers))
        if metric != "pearson":
            wrong = np.flatnonzero(~np.isin(numbers, (0.0, 1.0)))
        if len(wrong):
            kind = "a number" if metric == "pearson" else "0 or 1"
            value = quoted(rows[name].iloc[wrong[0]])
            raise UserError(f"{metric} needs {kind} as {name}, not {value}")
        pair.append(numbers)
    return pair[0], pair[1]


def _plain_measure(key: str, metric: str, *, is_lowest_best: bool) -> Measure:
    """Return the measure of a column whose score is the mean of plain numbers.

    The metric "loss" computes the sum of the numbers over their count, which is this mean.
    """
    return Measure(
        key,
        metric,
        "loss",
        unit="nats",
        lowest_is_best=is_lowest_best,
        decimals=4,
        limits=(float("-inf"), float("inf")),
    )
