"""One experiment's leaderboard: how scores of single runs become one number of an arm, and the order of arms.

Arms are ranked together only if they have one origin and one shape: a block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.board.columns import ORIGINS
from glue_bench.board.results import Results, read_results
from glue_bench.config import HELD_OUT, Protocol, changed_protocol, load_experiment
from glue_bench.data.measures import AVERAGE, MEASURES
from glue_bench.data.tasks import COLUMNS, TASKS, TRAINABLE

Part = tuple[tuple[str, str, str], ...]
NOT_AVERAGED = "wnli"
"""The task that is left out of AVERAGE, the column by which arms are ordered: its validation set misleads."""
BLOCK_COLUMNS, ENCODER_COLUMNS = ["origin", "shape"], ["shape", "start", "parameters"]
"""The columns whose values name a block, and what tables say of an arm's encoder."""
BOTH_SEEDS = ["pretraining_seed", "seed"]
RUN_KEYS = ["arm", "task", "learning_rate", *BOTH_SEEDS]
"""What tells a run from the others of its experiment; the pretraining seed is NA without pretraining of ours."""
SCORE_COLUMNS = (
    "arm",
    "variant",
    "origin",
    "task",
    "split",
    "metric",
    "learning_rate",
    *BOTH_SEEDS,
    "value",
)


@dataclass(frozen=True)
class Average:
    """One convention of averaging GLUE, its `rule` in words.

    Each of `parts` weighs the same; its own value is the mean over its (task, split, metric).
    """

    rule: str
    parts: Mapping[str, Part]


_OFFICIAL: dict[str, Part] = {
    task: tuple(product((task,), TASKS[task].columns, TASKS[task].metrics)) for task in TRAINABLE
}
_TASKS = {task: part for task, part in _OFFICIAL.items() if task != NOT_AVERAGED}
_COLUMNS: dict[str, Part] = {
    name: ((*place, TASKS[place[0]].metrics[0]),) for name, place in COLUMNS.items()
}
AVERAGES: dict[str, Average] = {
    "average_official": Average(
        "macro-average, WNLI included; a task with two metrics counts as their mean, MNLI matched and mismatched as "
        "one (GLUE paper, section 3.4)",
        _OFFICIAL,
    ),
    "average_nine_columns": Average(
        "MNLI matched and mismatched count separately, accuracy for QQP and MRPC, Pearson for STS-B (TUPE, table 1)",
        {name: part for name, part in _COLUMNS.items() if name != NOT_AVERAGED},
    ),
    "average_eight_columns": Average(
        "as nine columns, but MNLI matched and mismatched count as one (ModernBERT)",
        {
            task: tuple(place for place in part if place[2] == TASKS[task].metrics[0])
            for task, part in _TASKS.items()
        },
    ),
    "average_eight_tasks": Average("as official, but without WNLI (MosaicBERT)", _TASKS),
}
"""The four conventions by which papers average GLUE; the first two stand in the leaderboard's frame."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A leaderboard by one protocol, of the cells after so many `steps` of pretraining (None without).

    `cells` are those of the results. `scores` (SCORE_COLUMNS, and the cell, the epoch and whether it is the `last`) are
    those of all finished cells after the epoch that the protocol reports, and `runs` are those of them that ran at the
    reported rates. `columns` are the leaderboard columns of the tasks that have run (of all, before any has).

    `table` has a row for each arm, in blocks of one origin and one shape, by `average` within one: the first columns of
    `export.leaderboard`, and ENCODER_COLUMNS.
    """

    results: Results
    protocol: Protocol
    steps: int | None
    cells: pd.DataFrame
    scores: pd.DataFrame
    runs: pd.DataFrame
    table: pd.DataFrame
    columns: tuple[str, ...]

    @property
    def arms(self) -> list[str]:
        """All arms, in the experiment's order."""
        return list(dict.fromkeys(self.cells["arm"]))

    @property
    def average(self) -> Average:
        """What AVERAGE is of the columns."""
        return average_of(self.columns)

    def title_of(self, column: str) -> str:
        """A column as tables head it, such as Avg. of 7 or Val. loss."""
        return f"Avg. of {len(self.average.parts)}" if column == AVERAGE else MEASURES[column].title

    @property
    def reported(self) -> pd.DataFrame:
        """The finished cells at the reported rates."""
        return self.cells[self.cells["cell_id"].isin(self.runs["cell_id"])]


def open_board(path: str | Path, changes: Sequence[str] = ()) -> Board:
    """The leaderboard of the experiment in a folder, its protocol changed by KEY=VALUE.

    Raises UserError where there is no experiment in the folder, its plan names an unknown task or origin, or a change
    is wrong or asks for what the experiment has not.
    """
    results = read_results(path)
    protocol = changed_protocol(results.plan.experiment.protocol, changes)
    load_experiment(
        results.plan.experiment.model_copy(update={"protocol": protocol})
    )  # refuses what does not fit
    return make_board(results, protocol)


def make_board(
    results: Results, protocol: Protocol | None = None, steps: int | None = None
) -> Board:
    """The leaderboard after `steps` of pretraining (the last), by the experiment's own protocol unless one is given."""
    protocol = protocol or results.plan.experiment.protocol
    steps = steps or max(results.all_steps, default=None)
    cells = results.cells_after(steps)
    epochs = reported_epochs(
        results.scores.merge(cells[["cell_id", *RUN_KEYS]], on="cell_id"), protocol
    )
    scores = results.scores[results.scores["split"] != HELD_OUT].merge(epochs[["cell_id", "epoch"]])
    scores = scores.merge(cells[["cell_id", "variant", "origin", *RUN_KEYS]], on="cell_id")
    runs = scores.merge(best_rates(epochs, protocol.rate_statistic))
    tasks = {*cells["task"]}
    ran = {*cells.loc[cells["finished"], "task"]} or tasks
    columns = tuple(column for column, (task, _) in COLUMNS.items() if task in ran)
    starts = results.arms["start"] + (f", then {steps:,} steps of pretraining" if steps else "")
    # Where other contents have the same name, digests tell them apart.
    of_one_name = results.arms.groupby("start")["start_digest"].transform("nunique") == 1
    starts = starts.where(of_one_name, starts + " (" + results.arms["start_digest"].str[:12] + ")")
    arms = results.arms.assign(start=starts).loc[cells["arm"].unique()]
    every = {column: average_of([column]) for column, (task, _) in COLUMNS.items() if task in tasks}
    every |= {AVERAGE: average_of(columns)}
    every |= {name: AVERAGES[name] for name in ("average_official", "average_nine_columns")}
    table = _with_averages(arms[["origin", "arm", "variant"]], runs, every, protocol.seeds).join(
        arms[ENCODER_COLUMNS]
    )
    # Origins in their fixed order, shapes in that of their first arm, arms by their average.
    table = table.sort_values(AVERAGE, ascending=False, kind="stable")
    places: Any = {"origin": ORIGINS.index, "shape": list(arms["shape"].unique()).index}
    table = table.sort_values(
        BLOCK_COLUMNS, key=lambda values: values.map(places[values.name]), kind="stable"
    )
    return Board(
        results=results,
        protocol=protocol,
        steps=steps,
        cells=cells,
        scores=scores,
        runs=runs,
        table=table.reset_index(drop=True),
        columns=columns,
    )


def reported_epochs(scores: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """The epoch of each run that the protocol reports, and the `value` by which its rate competes: a row for each run.

    The value is the main metric on the set that chooses, the mean over MNLI's two validation sets; NaN where there is
    none, or an undefined one.
    """
    by = ["cell_id", *RUN_KEYS, "epoch", "last"]
    chooses = (scores["split"] == HELD_OUT) == (protocol.choose_on == HELD_OUT)
    values = aggregate(main_scores(scores[chooses]), by)["mean"].rename("value").reset_index()
    values = scores[by].drop_duplicates().merge(values, on=by, how="left")
    if protocol.epoch == "last":
        return values[values["last"]]
    # The first of equals: an epoch that is no better has only cost time. An undefined value loses to any other.
    return (
        values.sort_values(["value", "epoch"], ascending=[False, True])
        .drop_duplicates("cell_id")
        .sort_index()
    )


def _with_averages(
    frame: pd.DataFrame, runs: pd.DataFrame, conventions: Mapping[str, Average], by: str
) -> pd.DataFrame:
    columns: dict[str, pd.Series] = {}
    for name, averaged in averages_by_name(runs, conventions, by).items():
        rows = averaged.reindex(frame.index)
        columns[name] = rows[by]
        columns[f"{name}_std"] = rows["std"]
        if name in COLUMNS:
            columns[f"{name}_n"] = rows["n"].fillna(0).astype(int)
    return frame.assign(**columns)


def boards_by_steps(board: Board) -> list[Board]:
    """The same board after each number of steps at which cells start."""
    return [
        board if steps == board.steps else make_board(board.results, board.protocol, steps)
        for steps in board.results.all_steps
    ]


def steps_frame(board: Board) -> pd.DataFrame:
    """GLUE against pretraining steps: the leaderboard's columns, one row per arm and fine-tuned checkpoint (`steps`).

    Empty where only one checkpoint is fine-tuned.
    """
    if len(board.results.all_steps) < 2:
        return pd.DataFrame()
    boards = boards_by_steps(board)
    tables = [after.table.assign(steps=after.steps) for after in boards]
    return pd.concat(tables, ignore_index=True)[
        ["origin", "arm", "variant", "steps", *tables[0].columns[3:-1]]
    ]


def averages_frame(board: Board) -> pd.DataFrame:
    """Every convention of averaging: origin, arm, variant; for each of AVERAGES its value and `_std`; and shape.

    Rows as in the leaderboard. Empty where no average is known: a convention needs all of its tasks.
    """
    table = board.table.set_index("arm", drop=False)
    frame = _with_averages(
        table[["origin", "arm", "variant"]], board.runs, AVERAGES, board.protocol.seeds
    )
    is_known = frame[list(AVERAGES)].notna().any(axis=None)
    return frame.assign(shape=table["shape"]).reset_index(drop=True)[: None if is_known else 0]


def floors(board: Board) -> pd.DataFrame:
    """What trivial baselines score: a row for each, its name as `arm`, with the board's columns and AVERAGE."""
    places = pd.DataFrame([(*_COLUMNS[column][0], column) for column in board.columns],
                          columns=["task", "split", "metric", "column"])  # fmt: skip
    known = board.results.baselines.merge(places, on=["task", "split", "metric"])
    table = known.pivot(index="baseline", columns="column", values="value").reindex(
        columns=list(board.columns)
    )
    table = table.loc[list(dict.fromkeys(known["baseline"]))]
    table[AVERAGE] = table[list(board.average.parts)].mean(axis=1, skipna=False)
    return table.rename_axis(index="arm", columns=None).reset_index()


def average_of(columns: Sequence[str]) -> Average:
    """The mean of the main metrics of the columns that are there: of all but WNLI's, if there are others.

    Where none is missing this is `average_nine_columns`, by which papers compare.
    """
    averaged = [column for column in columns if column != NOT_AVERAGED] or list(columns)
    return Average(
        f"mean of {len(averaged)} columns", {column: _COLUMNS[column] for column in averaged}
    )


def best_rates(runs: pd.DataFrame, statistic: str = "mean") -> pd.DataFrame:
    """The learning rate reported for each arm and task: arm, task, learning_rate.

    `runs` has these, BOTH_SEEDS and `value`. The rate with the best statistic ("mean" or "median") over seeds wins.
    Only the rates with the most finished seeds compete, because a mean of few seeds wins by luck; an undefined value
    loses to any other; ties take the lower rate.
    """
    of_rate = ["arm", "task", "learning_rate"]
    rates = (
        aggregate_over_seeds(runs, of_rate, statistic).round(9).reset_index()
    )  # the order of summation must not break a tie
    rates = rates.sort_values(["n", statistic, "learning_rate"], ascending=[False, False, True])
    return rates.drop_duplicates(of_rate[:2]).sort_index()[of_rate].reset_index(drop=True)


def main_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of each task's main metric."""
    return scores[scores["metric"] == scores["task"].map(lambda task: TASKS[task].metrics[0])]


def aggregate(values: pd.DataFrame, by: list[str], statistic: str = "mean") -> pd.DataFrame:
    """The statistic ("mean" or "median"), sample standard deviation (missing for n = 1) and n of `value`, by `by`.

    An undefined (NaN) value makes statistic and deviation NaN: leaving it out would flatter a failed run.
    """
    groups = values.groupby(by, sort=False, dropna=False)["value"]
    n, undefined = groups.size(), groups.count() < groups.size()
    middle, deviation = groups.agg(statistic).mask(undefined), groups.std(ddof=1).mask(undefined)
    return pd.DataFrame({statistic: middle, "std": deviation, "n": n})


def aggregate_over_seeds(
    values: pd.DataFrame, by: list[str], statistic: str = "mean"
) -> pd.DataFrame:
    """The same as `aggregate`, but a "mean" is the mean over pretrainings of the means over their fine-tuning seeds.

    So every pretraining weighs the same, however many of its fine-tunings have finished. Contrasts take the same mean.
    """
    over_runs = aggregate(values, by, statistic)
    if statistic != "mean":
        return over_runs
    of_pretrainings = (
        aggregate(values, [*by, "pretraining_seed"])["mean"].rename("value").reset_index()
    )
    return over_runs.assign(mean=aggregate(of_pretrainings, by)["mean"])


def average(scores: pd.DataFrame, convention: Average, statistic: str = "mean") -> pd.DataFrame:
    """Return the average of one convention as `averages_by_name` does."""
    return averages_by_name(scores, {"": convention}, statistic)[""]


def averages_by_name(
    scores: pd.DataFrame, conventions: Mapping[str, Average], statistic: str = "mean"
) -> dict[str, pd.DataFrame]:
    """Compute the averages of several conventions at once, which takes little longer than one.

    Args:
        scores: the scores of runs, at one learning rate a task.
        conventions: conventions of averaging by name.
        statistic: "mean" or "median" over seeds.

    Returns:
        By name a frame with one row per arm. Its column `statistic` is the mean over the parts of each part's
        `aggregate_over_seeds`, NaN if a part is missing. `std` is the sample deviation over the `n` seeds of each
        seed's average, NaN unless all parts have the same two or more.
    """
    values = _values_by_convention(scores, conventions)
    of_parts = aggregate_over_seeds(values, ["convention", "arm", "part"], statistic)[
        statistic
    ].unstack("part")
    of_runs = values.pivot(index=["convention", "arm", *BOTH_SEEDS], columns="part", values="value")
    means: list[pd.Series] = []
    run_means: list[pd.Series] = []
    for name, convention in conventions.items():
        parts = list(convention.parts)
        rows = of_parts[of_parts.index.get_level_values("convention") == name]
        means.append(rows.reindex(columns=parts).mean(axis=1, skipna=False))
        rows = of_runs[of_runs.index.get_level_values("convention") == name]
        run_means.append(rows.reindex(columns=parts).mean(axis=1, skipna=False))
    by_arm = ["convention", "arm"]
    over_runs = aggregate(pd.concat(run_means).rename("value").reset_index(), by_arm)
    part_counts = values.groupby(by_arm)["part"].nunique()
    convention_sizes = {name: len(convention.parts) for name, convention in conventions.items()}
    sizes = part_counts.index.get_level_values("convention").map(convention_sizes)
    is_complete = part_counts == sizes
    deviations = over_runs["std"].where(is_complete)
    numbers = over_runs["n"].where(is_complete, 0)
    table = pd.DataFrame({statistic: pd.concat(means), "std": deviations, "n": numbers})
    frames: dict[str, pd.DataFrame] = {}
    for name in conventions:
        rows = table[table.index.get_level_values("convention") == name]
        frames[name] = rows.droplevel("convention")
    return frames


def part_values(scores: pd.DataFrame, convention: Average) -> pd.DataFrame:
    """Return one `value` per arm, part and BOTH_SEEDS; a run that lacks one of a part's scores has none."""
    return _values_by_convention(scores, {"": convention}).drop(columns="convention")


def _values_by_convention(scores: pd.DataFrame, conventions: Mapping[str, Average]) -> pd.DataFrame:
    rows: list[tuple[object, ...]] = []
    for name, convention in conventions.items():
        for part, places in convention.parts.items():
            rows += [(name, part, len(places), *place) for place in places]
    columns = ["convention", "part", "places", "task", "split", "metric"]
    merged = scores.merge(pd.DataFrame(rows, columns=columns), on=["task", "split", "metric"])
    keys = ["convention", "arm", "part", *BOTH_SEEDS]
    values = aggregate(merged, [*keys, "places"]).reset_index()
    is_complete = values["n"] == values["places"]
    return values.loc[is_complete, [*keys, "mean"]].rename(columns={"mean": "value"})
