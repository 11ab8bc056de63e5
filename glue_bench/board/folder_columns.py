"""Columns of runs from several folders of experiments, with the arms of all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from glue_bench.board.board import Board, open_board
from glue_bench.board.column_runs import read_outcomes
from glue_bench.data.tasks import scored_columns
from glue_bench.errors import UserError
from glue_bench.stats.runs import ColumnRuns, Runs


def columns_of_folders(paths: Sequence[str | Path]) -> Iterator[ColumnRuns]:
    """Yield the columns that all folders of experiments have, with the arms of all.

    Raises:
        UserError: a path is no such folder, the experiments have no task in common, or their data
            of a task differ.
    """
    boards = [open_board(path) for path in paths]

    columns_by_folder: list[dict[str, ColumnRuns]] = []
    for board in boards:
        columns_of_board: dict[str, ColumnRuns] = {}
        for column in read_outcomes(board):
            columns_of_board[column.column] = column
        columns_by_folder.append(columns_of_board)

    shared = list(columns_by_folder[0])
    for columns in columns_by_folder[1:]:
        shared = [name for name in shared if name in columns]
    if not shared:
        raise UserError("the experiments have no task in common")

    arms: list[str] = []
    for board in boards:
        arms += board.arms
    is_ambiguous = len(set(arms)) < len(arms)
    names = [board.results.experiment for board in boards]

    for name in shared:
        _check_same_data(boards, name)
        parts = [columns[name] for columns in columns_by_folder]
        yield _joined(names, parts, is_ambiguous=is_ambiguous)


def _check_same_data(boards: Sequence[Board], column: str) -> None:
    """Raise UserError if the experiments have other rows or labels of a column's task."""
    task, _ = scored_columns()[column]
    first = boards[0].results
    for board in boards[1:]:
        results = board.results
        if results.plan.tasks[task].digest != first.plan.tasks[task].digest:
            raise UserError(
                f"'{results.experiment}' has other rows or labels of {task} than "
                f"'{first.experiment}'; run both on the same data"
            )


def _joined(
    experiments: Sequence[str], parts: Sequence[ColumnRuns], *, is_ambiguous: bool
) -> ColumnRuns:
    """Return one column with the arms of several experiments.

    If two experiments have an arm with the same name, all names begin with the experiment's name.
    """
    arms: list[str] = []
    owners: list[np.ndarray] = []
    problems: dict[str, str] = {}
    finished_arms: set[str] = set()

    for experiment, column in zip(experiments, parts, strict=True):
        prefix = f"{experiment}/" if is_ambiguous else ""
        owners.append(column.runs.arms + len(arms))
        for arm in column.arms:
            arms.append(prefix + arm)
        for arm, reason in column.problems.items():
            problems[prefix + arm] = reason
        finished_arms.update(prefix + arm for arm in column.finished_arms)

    runs = Runs(
        arms=np.concatenate(owners),
        pretraining_seeds=np.concatenate([column.runs.pretraining_seeds for column in parts]),
        seeds=np.concatenate([column.runs.seeds for column in parts]),
        values=np.concatenate([column.runs.values for column in parts]),
    )

    # Clusters depend only on the rows, which are the same here. An older folder does not have them.
    clusters = [column.clusters for column in parts if column.clusters is not None]
    return replace(
        parts[0],
        arms=tuple(arms),
        runs=runs,
        predictions=np.concatenate([column.predictions for column in parts]),
        problems=problems,
        finished_arms=frozenset(finished_arms),
        clusters=clusters[0] if clusters else None,
    )
