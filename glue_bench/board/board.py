"""The leaderboard of one experiment: one number per arm and column, and the order of the arms.

Arms are ranked together only if they have one origin and one shape: these arms are a block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from glue_bench.board.aggregation import BOTH_SEEDS, RUN_KEYS, best_rates, reported_epochs
from glue_bench.board.averages import (
    AVERAGES,
    Average,
    average_of,
    averages_by_name,
    benchmark_of,
)
from glue_bench.board.columns import ORIGINS
from glue_bench.board.results import Results, read_results
from glue_bench.config import HELD_OUT, Protocol, changed_protocol, load_experiment
from glue_bench.data.measures import AVERAGE, MEASURES
from glue_bench.data.tasks import scored_columns

ARM_KEYS = ["origin", "arm", "variant"]
"""The first columns of every table of arms."""
BLOCK_COLUMNS = ["origin", "shape"]
"""The columns whose values name a block."""
ENCODER_COLUMNS = ["shape", "start", "parameters"]
"""The columns of tables that describe an arm's encoder."""
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


@dataclass(frozen=True, kw_only=True)
class Board:
    """A leaderboard by one protocol.

    Attributes:
        results: The results of the experiment.
        protocol: The protocol.
        steps: The steps of pretraining after which the cells start; None without pretraining.
        cells: The cells of the results that start after `steps`.
        scores: SCORE_COLUMNS of the finished cells after the epoch that the protocol reports, and
            `cell_id`, `epoch`, and whether it is the `last`.
        runs: The rows of `scores` at the reported learning rates.
        table: A row for each arm: the first columns of `glue_bench.leaderboard`, and
            ENCODER_COLUMNS. Arms of one block stand together, in the order of their average.
        columns: The leaderboard columns of the tasks that have run, or of all tasks before any has.
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
        """Return all arms, in the order of the experiment."""
        return list(dict.fromkeys(self.cells["arm"]))

    @property
    def average(self) -> Average:
        """Return the convention by which AVERAGE is computed."""
        return average_of(self.columns)

    @cached_property
    def titles(self) -> dict[str, str]:
        """Return the title of each column in tables, such as Avg. of 7 or Val. loss."""
        titles = {name: MEASURES[name].title for name in (*MEASURES, *self.columns)}
        parts = list(self.average.parts)
        average_title = f"avg. of {len(parts)}"
        benchmarks = {benchmark_of(column) for column in self.columns}
        if len(benchmarks) > 1:
            titles[AVERAGE] = f"{benchmark_of(parts[0])} {average_title}"
        else:
            titles[AVERAGE] = average_title.capitalize()
        return titles

    @cached_property
    def partial_columns(self) -> frozenset[str]:
        """Return the columns of tasks that were run on a part of their official rows."""
        columns = _columns_of_tasks({*self.results.partial_tasks})
        return frozenset(columns)

    @cached_property
    def by_steps(self) -> "tuple[Board, ...]":
        """Return the board after each number of steps of pretraining at which cells start."""
        boards: list[Board] = []
        for steps in self.results.all_steps:
            if steps == self.steps:
                boards.append(self)
            else:
                boards.append(make_board(self.results, self.protocol, steps))
        return tuple(boards)

    @property
    def reported(self) -> pd.DataFrame:
        """Return the finished cells at the reported learning rates."""
        cell_ids = self.cells["cell_id"]
        reported_ids = self.runs["cell_id"]
        is_reported = cell_ids.isin(reported_ids)
        return self.cells[is_reported]


def open_board(path: str | Path, changes: Sequence[str] = ()) -> Board:
    """Return the leaderboard of the experiment in a folder.

    Args:
        path: The folder.
        changes: Changes of the protocol, KEY=VALUE.

    Raises:
        UserError: There is no experiment in the folder, its plan names an unknown task or origin,
            or a change is wrong, or asks for something that the experiment does not have.
    """
    results = read_results(path)
    experiment = results.plan.experiment
    protocol = changed_protocol(experiment.protocol, changes)
    # This refuses a protocol that does not fit the experiment.
    load_experiment(experiment.model_copy(update={"protocol": protocol}))
    return make_board(results, protocol)


def make_board(
    results: Results, protocol: Protocol | None = None, steps: int | None = None
) -> Board:
    """Return the leaderboard of results.

    Args:
        results: The results of an experiment.
        protocol: The protocol; if it is None, the protocol of the experiment.
        steps: The steps of pretraining after which cells start; the last if it is None.
    """
    protocol = protocol or results.plan.experiment.protocol
    steps = steps or max(results.all_steps, default=None)

    cells = results.cells_after(steps)
    scores_of_cells = results.scores.merge(cells[["cell_id", *RUN_KEYS]], on="cell_id")
    epochs = reported_epochs(scores_of_cells, protocol)
    scores = results.scores[results.scores["split"] != HELD_OUT]
    scores = scores.merge(epochs[["cell_id", "epoch"]])
    scores = scores.merge(cells[["cell_id", "variant", "origin", *RUN_KEYS]], on="cell_id")

    rates = best_rates(epochs, protocol.rate_statistic)
    runs = scores.merge(rates)

    tasks = set(cells["task"])
    finished_cells = cells[cells["finished"]]
    tasks_run = set(finished_cells["task"])
    columns = _columns_of_tasks(tasks_run or tasks)

    conventions = {column: average_of([column]) for column in _columns_of_tasks(tasks)}
    conventions[AVERAGE] = average_of(columns)
    for name in ("average_official", "average_nine_columns"):
        conventions[name] = AVERAGES[name]

    starts = _starts(results.arms, steps)
    arms = results.arms.assign(start=starts)
    arm_names = cells["arm"].unique()
    arms = arms.loc[arm_names]

    table = _with_averages(arms[ARM_KEYS], runs, conventions, protocol.seeds)
    table = table.join(arms[ENCODER_COLUMNS])

    return Board(
        results=results,
        protocol=protocol,
        steps=steps,
        cells=cells,
        scores=scores,
        runs=runs,
        table=_sort_blocks(table),
        columns=columns,
    )


def _columns_of_tasks(tasks: set[str]) -> tuple[str, ...]:
    """Return the leaderboard columns of tasks, in the order of the leaderboard."""
    return tuple(column for column, (task, _) in scored_columns().items() if task in tasks)


def _starts(arms: pd.DataFrame, steps: int | None) -> pd.Series:
    """Return what each arm started from, with its steps of pretraining.

    If starts with the same name have different contents, their digests are added.
    """
    starts = arms["start"]
    if steps:
        starts = starts + f", then {steps:,} steps of pretraining"
    digests = arms.groupby("start")["start_digest"]
    contents = digests.transform("nunique")
    short_digests = arms["start_digest"].str[:12]
    with_digest = starts + " (" + short_digests + ")"
    return starts.where(contents == 1, with_digest)


def _sort_blocks(table: pd.DataFrame) -> pd.DataFrame:
    """Sort arms into blocks, and by their average within a block.

    Origins are in their fixed order, and shapes are in the order of their first arm in `table`.
    """
    shapes = list(table["shape"].unique())
    by_average = table.sort_values(AVERAGE, ascending=False, kind="stable")

    def place(values: pd.Series) -> pd.Series:
        order = ORIGINS if values.name == "origin" else shapes
        return values.map(order.index)

    return by_average.sort_values(BLOCK_COLUMNS, key=place, kind="stable", ignore_index=True)


def _with_averages(
    frame: pd.DataFrame, runs: pd.DataFrame, conventions: Mapping[str, Average], statistic: str
) -> pd.DataFrame:
    """Add the averages of runs to a frame whose index has the arms.

    Each convention gets the column of its name and one with `_std`, a leaderboard column also `_n`.
    """
    columns: dict[str, pd.Series] = {}
    for name, averaged in averages_by_name(runs, conventions, statistic).items():
        rows = averaged.reindex(frame.index)
        columns[name] = rows[statistic]
        columns[f"{name}_std"] = rows["std"]
        if name in scored_columns():
            counts = rows["n"].fillna(0)
            columns[f"{name}_n"] = counts.astype(int)
    return frame.assign(**columns)


def averages_frame(board: Board) -> pd.DataFrame:
    """Return ARM_KEYS, the value and `_std` of each of AVERAGES, and `shape`; rows as in the board.

    The frame is empty if no average is known, because each convention needs all of its tasks.
    """
    tasks = {*board.runs["task"]}
    if not any(convention.tasks <= tasks for convention in AVERAGES.values()):
        names: list[str] = []
        for name in AVERAGES:
            names.append(name)
            names.append(f"{name}_std")
        return pd.DataFrame(columns=[*ARM_KEYS, *names, "shape"])
    table = board.table.set_index("arm", drop=False)
    frame = _with_averages(table[ARM_KEYS], board.runs, AVERAGES, board.protocol.seeds)
    with_shape = frame.assign(shape=table["shape"])
    frame = with_shape.reset_index(drop=True)
    if not frame[list(AVERAGES)].notna().any(axis=None):
        return frame[:0]
    return frame
