"""The comparison of anyone's systems: from tidy frames, or folders of experiments, to verdicts."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from glue_bench.board.board import open_board
from glue_bench.board.column_runs import read_outcomes
from glue_bench.board.foreign import RUN, read_frames
from glue_bench.data.measures import AVERAGE, Measure
from glue_bench.errors import UserError, quoted, unknown
from glue_bench.records.store import Store
from glue_bench.stats.runs import ColumnRuns, Runs
from glue_bench.stats.sums import example_terms, score_from_sums
from glue_bench.stats.verdicts import VERDICT_COLUMNS, Group, assess, contrast_rows

MAX_SYSTEMS = 64
MAX_RUNS = 2000
"""Runs of one column: memory grows with their square."""
PAIR_METRICS = ("accuracy", "f1", "matthews_correlation", "pearson")
"""Metrics of pairs of prediction and label; `--metric` chooses one."""
SHOWN_IDS = 3
Covers = Literal["examples", "seeds", "seeds and examples"]


@dataclass(frozen=True, kw_only=True)
class Versus:
    """Systems that were compared.

    Attributes:
        group: The systems with their estimates.
        contrasts: `task`, `metric` and VERDICT_COLUMNS of each system and column.
        covers: What the intervals cover.
        is_best: Whether the reference was chosen as the best by its mean. Then p is corrected for
            all pairs of systems.
        dropped: The number of examples that were left out.
    """

    group: Group
    contrasts: pd.DataFrame
    covers: Covers
    is_best: bool
    dropped: int = 0


def compare_paths(
    paths: Sequence[str | Path],
    *,
    reference: str | None = None,
    metric: str | None = None,
    lower: Collection[str] = (),
    cluster: str | None = None,
    is_common: bool = False,
) -> Versus:
    """Compare systems in files, or arms in folders of experiments.

    Args:
        paths: Files and folders as `read_frames` takes them, or folders of experiments.
        reference: The system that others are compared with; without it the best by its mean.
        metric: The only metric that is compared; of pairs one of PAIR_METRICS.
        lower: Metrics of which the lowest value is best.
        cluster: The column of examples that belong together.
        is_common: Compare on the examples that all systems have.

    Raises:
        UserError: what `read_frames` refuses; fewer than two systems; no such system or metric;
            examples that differ between systems; too many systems or runs.
    """
    if any(Store(path).has_plan for path in paths):
        columns = list(_columns_of_folders(paths))
        names = {column.column: (column.measure.title, column.metric) for column in columns}
        dropped = 0
    else:
        frame = read_frames(paths, cluster)
        columns, names, dropped = _columns_of_frame(frame, metric, lower, is_common=is_common)
    systems = columns[0].arms
    _check_systems(systems, reference)
    group = _assess_systems(columns, systems, reference)
    pairs = [(system, group.reference) for system in systems if system != group.reference]
    family = len(pairs)
    if reference is None:
        family = len(systems) * (len(systems) - 1) // 2
    rows = contrast_rows(group, pairs, family, stepwise=reference is not None)
    contrasts = pd.DataFrame(rows, columns=VERDICT_COLUMNS)
    titles = [names.get(column, (AVERAGE, "")) for column in contrasts["column"]]
    contrasts.insert(0, "task", [task for task, _ in titles])
    contrasts.insert(1, "metric", [name for _, name in titles])
    return Versus(
        group=group,
        contrasts=contrasts,
        covers=_covered(columns),
        is_best=reference is None,
        dropped=dropped,
    )


def _check_systems(systems: Sequence[str], reference: str | None) -> None:
    """Raise UserError for too few or too many systems, or an unknown reference."""
    if len(systems) < 2:
        raise UserError(f"there is one system only ({quoted(systems[0])}); give two")
    if len(systems) > MAX_SYSTEMS:
        raise UserError(f"{len(systems)} systems, but at most {MAX_SYSTEMS} are compared")
    if reference is not None and reference not in systems:
        raise unknown("system", reference, systems, "--reference")


def _assess_systems(
    columns: Sequence[ColumnRuns], systems: tuple[str, ...], reference: str | None
) -> Group:
    """Return one group of all systems; the reference is the best one if it is None."""
    (group,) = assess(columns, [Group(arms=systems, reference=reference or "")])
    chosen = reference or _best_system(group)
    # The blocks that count are those of the reference.
    if any(estimate.blocked for estimate in group.estimates):
        (group,) = assess(columns, [Group(arms=systems, reference=chosen)])
    return replace(group, reference=chosen)


def _covered(columns: Sequence[ColumnRuns]) -> Covers:
    """Return what intervals of these columns cover."""
    if any(not len(column.labels) for column in columns):
        return "seeds"
    return "examples" if all(column.single_runs for column in columns) else "seeds and examples"


def _best_system(group: Group) -> str:
    """Return the system with the best mean on the average, or on the only column."""
    estimate = group.estimates[0]
    if len(group.estimates) > 1 and estimate.column != AVERAGE:
        raise UserError(
            "these tasks and metrics have no average; give --reference, or --metric for one of them"
        )
    choose = min if estimate.lowest_is_best else max
    means = estimate.means
    return choose(means, key=lambda system: means[system])


def _columns_of_frame(
    frame: pd.DataFrame, metric: str | None, lower: Collection[str], *, is_common: bool
) -> tuple[list[ColumnRuns], dict[str, tuple[str, str]], int]:
    """Return a column of runs for each task and metric.

    The second value has their names, the third the number of examples that were left out.
    """
    if "prediction" in frame:
        if metric not in PAIR_METRICS:
            choices = ", ".join(PAIR_METRICS)
            raise UserError(f"predictions and labels need --metric, one of {choices}")
        frame = frame.assign(metric=metric)
    elif metric is not None:
        if metric not in set(frame["metric"]):
            raise unknown("metric", metric, frame["metric"].unique().tolist(), "--metric")
        frame = frame[frame["metric"] == metric]
    for name in lower:
        if name not in set(frame["metric"]):
            raise unknown("metric", name, frame["metric"].unique().tolist(), "--lower")
    systems = tuple(frame["system"].unique())
    kinds = frame[["task", "metric"]].drop_duplicates()
    one_metric_each = kinds["task"].is_unique
    one_direction = kinds["metric"].isin(list(lower)).nunique() == 1
    columns: list[ColumnRuns] = []
    names: dict[str, tuple[str, str]] = {}
    dropped = 0
    groups = frame.groupby(["task", "metric"], sort=False)
    for place, ((task, metric_name), rows) in enumerate(groups):
        key = f"column {place}"  # tasks may have any name, also "average"
        title = str(metric_name)
        names[key] = (str(task), title)
        column, left_out = _column(key, rows, systems, title, title in lower, is_common)
        dropped += left_out
        columns.append(column)
    # Points and plain numbers have no mean, nor have intervals over seeds and over examples alone.
    kinds_of_scores = {(column.measure.unit, column.single_runs) for column in columns}
    averaged = one_metric_each and one_direction and len(kinds_of_scores) == 1
    return [replace(column, averaged=averaged) for column in columns], names, dropped


def _column(
    key: str,
    rows: pd.DataFrame,
    systems: tuple[str, ...],
    metric: str,
    is_lowest_best: bool,
    is_common: bool,
) -> tuple[ColumnRuns, int]:
    """Return the runs of one task and metric, and how many examples were left out."""
    runs = rows[RUN].drop_duplicates().reset_index(drop=True)
    if len(runs) > MAX_RUNS:
        raise UserError(f"{len(runs):,} runs of one task, but at most {MAX_RUNS:,} are compared")
    scores = Runs(
        arms=runs["system"].map(systems.index).to_numpy(),
        pretraining_seeds=pd.factorize(runs["block"])[0],
        seeds=pd.factorize(runs["seed"])[0],
        values=np.empty(0),
    )
    if "score" in rows:
        measure = _plain_measure(key, metric, is_lowest_best)
        return _column_of_scores(key, rows, systems, scores, measure), 0
    run_of_row = _positions(rows[RUN], runs)
    examples, ids = pd.factorize(rows["id"])
    present = np.zeros((len(runs), len(ids)), bool)
    present[run_of_row, examples] = True
    kept = np.asarray(present.all(axis=0))
    if not kept.all():
        _refuse_missing(rows, runs, present, ids, is_common)
    measure, predictions, labels = _example_values(
        key, rows, metric, is_lowest_best, (run_of_row, examples), present.shape, ids
    )
    predictions = predictions[:, kept]
    labels = labels[kept]
    terms = example_terms(measure.metric, predictions, labels)
    sums = terms.sum(axis=0, dtype=np.float64)
    values = score_from_sums(measure.metric, sums, len(labels)) * measure.factor
    column = ColumnRuns(
        measure=measure,
        task=key,
        arms=systems,
        runs=scores._replace(values=values),
        predictions=predictions,
        labels=labels,
        clusters=_clusters(rows, ids, kept),
        single_runs=len(labels) > 0 and bool(np.bincount(scores.arms).max() == 1),
    )
    return column, int((~kept).sum())


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
    rows: pd.DataFrame, runs: pd.DataFrame, present: np.ndarray, ids: pd.Index, is_common: bool
) -> None:
    """Raise UserError for examples that a run lacks.

    It is no error if only common examples are compared and there are some.
    """
    if is_common and present.all(axis=0).any():
        return
    place = np.flatnonzero(~present.all(axis=1))[0]
    run = runs.iloc[place]
    missing = ids[~present[place]]
    first_missing = ", ".join(quoted(name) for name in missing[:SHOWN_IDS])
    advice = "--common compares on the examples that all have" if not is_common else "none is left"
    raise UserError(
        f"system {quoted(run['system'])} lacks {len(missing):,} of {len(ids):,} examples of "
        f"{quoted(rows['task'].iloc[0])}, the first {first_missing}; {advice}"
    )


def _example_values(
    key: str,
    rows: pd.DataFrame,
    metric: str,
    is_lowest_best: bool,
    places: tuple[np.ndarray, np.ndarray],
    shape: tuple[int, int],
    ids: pd.Index,
) -> tuple[Measure, np.ndarray, np.ndarray]:
    """Return the measure of a column, its predictions (runs, examples) and labels (examples,)."""
    predictions = np.zeros(shape)
    if "outcome" in rows:
        outcomes = rows["outcome"].to_numpy(float)
        predictions[places] = outcomes
        labels = np.ones(shape[1])
        if not is_lowest_best and np.isin(outcomes, (0.0, 1.0)).all():
            return Measure(key, key, "accuracy"), predictions, labels
        return _plain_measure(key, metric, is_lowest_best), predictions, labels
    predicted, gold = _pair_values(rows, metric)
    predictions[places] = predicted
    labels = np.zeros(shape[1])
    labels[places[1]] = gold
    wrong = np.flatnonzero(labels[places[1]] != gold)
    if len(wrong):
        raise UserError(f"example {quoted(ids[places[1][wrong[0]]])} has two different labels")
    limits = (0.0, 100.0) if metric in ("accuracy", "f1") else (-100.0, 100.0)
    return Measure(key, key, metric, limits=limits), predictions, labels


def _pair_values(rows: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels as numbers, (rows,) each.

    Raises UserError where the metric cannot take them.
    """
    if metric == "accuracy":
        codes = pd.factorize(pd.concat([rows["prediction"], rows["label"]]).astype(str))[0]
        return codes[: len(rows)].astype(float), codes[len(rows) :].astype(float)
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


def _plain_measure(key: str, metric: str, is_lowest_best: bool) -> Measure:
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


def _columns_of_folders(paths: Sequence[str | Path]) -> Iterator[ColumnRuns]:
    """Yield the columns that all folders of experiments have, with the arms of all.

    Raises UserError for a path that is no such folder, and for a column with different rows or
    labels.
    """
    by_folder = []
    for path in paths:
        board = open_board(path)
        by_folder.append((board.results.experiment, {c.column: c for c in read_outcomes(board)}))
    arms = [arm for _, columns in by_folder for arm in next(iter(columns.values())).arms]
    is_ambiguous = len(set(arms)) < len(arms)
    shared = [name for name in by_folder[0][1] if all(name in columns for _, columns in by_folder)]
    if not shared:
        raise UserError("the experiments have no task in common")
    for name in shared:
        parts = [(experiment, columns[name]) for experiment, columns in by_folder]
        first = parts[0][1]
        for experiment, column in parts[1:]:
            if not np.array_equal(column.labels, first.labels):
                raise UserError(
                    f"'{experiment}' has other rows or labels of {name} than '{parts[0][0]}'"
                )
        yield _joined(parts, is_ambiguous=is_ambiguous)


def _joined(parts: Sequence[tuple[str, ColumnRuns]], *, is_ambiguous: bool) -> ColumnRuns:
    """Return one column with the arms of several experiments.

    If it `is_ambiguous`, an arm's name begins with that of the experiment.
    """
    arms: list[str] = []
    owners = []
    problems: dict[str, str] = {}
    for experiment, column in parts:
        names = [f"{experiment}/{arm}" if is_ambiguous else arm for arm in column.arms]
        owners.append(column.runs.arms + len(arms))
        for arm, reason in column.problems.items():
            problems[names[column.arms.index(arm)]] = reason
        arms += names
    first = parts[0][1]
    stacked = [np.concatenate([column.runs[place] for _, column in parts]) for place in range(1, 4)]
    return replace(
        first,
        arms=tuple(arms),
        runs=Runs(np.concatenate(owners), *stacked),
        predictions=np.concatenate([column.predictions for _, column in parts]),
        problems=problems,
    )
