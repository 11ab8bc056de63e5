"""Columns of runs from a tidy frame, for each task and metric: the arrays that statistics take."""

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
"""Runs of one column: memory grows with their square."""
PAIR_METRICS = ("accuracy", "f1", "matthews_correlation", "pearson")
"""Metrics of pairs of prediction and label; `--metric` chooses one."""
MAX_IDS = 3
"""Ids of examples that an error names."""


def columns_of_frame(
    frame: pd.DataFrame, metric: str | None, lower: Collection[str], *, is_common: bool
) -> tuple[list[ColumnRuns], dict[str, tuple[str, str]], int]:
    """Return a column of runs for each task and metric.

    The second value has their names, the third the number of examples that were left out.
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
    """Return the rows of a metric, or of all; pairs of prediction and label get it."""
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
    """Return whether the columns are of one kind, one for each task, so that they have a mean.

    Points and plain numbers have none, nor have intervals over seeds and over examples alone.
    """
    kinds: set[tuple[str, bool, bool]] = set()
    for column in columns:
        measure = column.measure
        kinds.add((measure.unit, measure.lowest_is_best, column.single_runs))
    tasks = [task for task, _ in names.values()]
    return len(kinds) == 1 and len(set(tasks)) == len(tasks)


def _check_metrics(frame: pd.DataFrame) -> None:
    """Raise UserError for a system that has a task, but not by a metric that others have."""
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
    """Return whose each run is, with its block and its seed; `runs` has the columns RUN."""
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
    """Return a column of which nothing but the score of each run is known."""
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

    It is no error if only common examples are compared and there are some.
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
    """Return the measure of plain numbers, whose mean is the score.

    It is the ratio of their sum and their count.
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
