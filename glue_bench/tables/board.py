"""One experiment's leaderboard: one row per arm, grouped by origin and shape, in full precision."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from glue_bench.config import HELD_OUT, Protocol, changed_protocol
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.errors import UserError, unknown
from glue_bench.tables.arms import FACTS, with_starts
from glue_bench.tables.averages import (
    AVERAGE,
    AVERAGES,
    LEADING,
    SEEDS,
    Average,
    aggregate,
    at_rates,
    average,
    average_of,
    best_rates,
    main_scores,
)
from glue_bench.tables.join import join
from glue_bench.tables.numbers import title_of
from glue_bench.tables.results import ORIGINS, Results, read_results

SCORE_COLUMNS = ("arm", "variant", "origin", "task", "split", "metric", "learning_rate", "pretraining_seed", "seed",
                 "value")  # fmt: skip
RUN = ["arm", "task", "learning_rate", "pretraining_seed", "seed"]
"""What tells a run from the others of its experiment; the pretraining's seed is NA where there is none."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A leaderboard by one protocol, of the cells after so many `steps` of pretraining (None without).

    `cells` are those of the results. `scores` (SCORE_COLUMNS, and the cell, the epoch
    and whether it is the `last`) are those of all finished cells after the epoch that the protocol reports, and `runs`
    are those of them that ran at the reported `rates` (arm, task, learning_rate). `choosing` has for each finished
    run (RUN, cell_id) the `value` by which its rate competes. `table` is what `leaderboard` returns. `columns` are the
    leaderboard columns of the tasks that have run (of all, before any has), `average` is what AVERAGE is of them.
    `planned` and `collapsed` count seeds: arm -> column.
    """

    results: Results
    protocol: Protocol
    steps: int | None
    cells: pd.DataFrame
    scores: pd.DataFrame
    choosing: pd.DataFrame
    rates: pd.DataFrame
    runs: pd.DataFrame
    table: pd.DataFrame
    columns: tuple[str, ...]
    average: Average
    planned: dict[str, dict[str, int]]
    collapsed: dict[str, dict[str, int]]

    @property
    def arms(self) -> list[str]:
        """All arms, in the experiment's order."""
        return list(dict.fromkeys(self.cells["arm"]))

    def title_of(self, column: str) -> str:
        """A column as tables head it, such as Avg. of 7 or Val. loss."""
        return self.average.title if column == AVERAGE else title_of(column)

    @property
    def missing(self) -> pd.DataFrame:
        """The cells that have no record."""
        return self.cells[~self.cells["finished"]]

    @property
    def reported(self) -> pd.DataFrame:
        """The finished cells at the reported rates."""
        cells = at_rates(self.cells, self.rates)
        return cells[cells["finished"]]


def leaderboard(path: str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """The leaderboard of the experiment in the folder `path` (DIR/<experiment>), or of several together.

    One row per arm. Columns: origin, arm, variant; for each leaderboard column of the experiment's tasks `<col>` (mean
    or median over seeds of its main metric, 0 to 100), `<col>_std` (sample standard deviation) and `<col>_n`
    (finished seeds), MNLI matched and mismatched apart; `average` of the columns that are there (without WNLI),
    `average_official` and `average_nine_columns`, each with its `_std`; `shape` of the encoder, `start` (the
    checkpoint, or fresh weights) and `parameters`, without any head. Missing values are NaN. Rows are in blocks of one
    origin and one shape, and in the order of `average` within one; arms without an average come last.

    Example:
        >>> glue_bench.leaderboard("runs/demo")[["arm", "rte", "rte_std"]]  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in a folder, its plan names an unknown task or origin, or several cannot
            stand together.
    """
    return open_board(path).table


def open_board(paths: str | Path | Sequence[str | Path], changes: Iterable[str] = ()) -> Board:
    """The leaderboard of the experiment in a folder, or of several together, the (first) protocol changed by KEY=VALUE.

    Raises:
        UserError: there is no experiment in a folder, its plan names an unknown task or origin, a change is wrong
            or asks for what the experiment has not, or as `join`.
    """
    several = [read_results(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    own = several[0].protocol
    protocol = changed_protocol(own, changes)
    for results in several if protocol != own else ():  # an experiment's own protocol was checked with its file
        _check_fits(protocol, results)
    board = make_board(join(several, protocol) if len(several) > 1 else several[0], protocol)
    if protocol.reference not in (None, own.reference, *board.arms):
        raise unknown("arm", str(protocol.reference), board.arms, "--protocol reference")
    return board


def make_board(results: Results, protocol: Protocol | None = None, steps: int | None = None) -> Board:
    """The leaderboard after `steps` of pretraining (the last), by the experiment's own protocol unless one is given."""
    protocol = protocol or results.protocol
    joined = len(results.experiments) > 1
    steps = steps or max(results.all_steps, default=None)
    cells = results.cells if joined else results.after(steps)
    arms = with_starts(results.arms, None if joined else steps)
    if joined and (cells["steps"] != steps).fillna(True).any():  # experiments that are not alike in it
        steps = None
    reported = _reported(results.scores.merge(cells[["cell_id", *RUN]], on="cell_id"), protocol)
    choosing = reported[["cell_id", *RUN, "value"]]
    scores = results.scores.merge(reported[["cell_id", "epoch"]], on=["cell_id", "epoch"])
    scores = scores[scores["split"] != HELD_OUT].merge(cells[["cell_id", "variant", "origin", *RUN]], on="cell_id")
    rates = best_rates(choosing, protocol.rate_statistic)
    planned = {*cells["task"]}
    ran = {*cells.loc[cells["finished"], "task"]} or planned
    columns = tuple(column for column, (task, _) in COLUMNS.items() if task in ran)
    runs, names = at_rates(scores, rates), list(dict.fromkeys(cells["arm"]))
    shown = [column for column, (task, _) in COLUMNS.items() if task in planned]
    return Board(
        results=results,
        protocol=protocol,
        steps=steps,
        cells=cells,
        scores=scores,
        choosing=choosing,
        rates=rates,
        runs=runs,
        table=_table(arms.loc[names], runs, shown, average_of(columns), protocol.seeds),
        columns=columns,
        average=average_of(columns),
        planned=_planned(cells, names, columns),
        collapsed=_collapsed(at_rates(cells, rates), names, columns),
    )


def steps_frame(board: Board) -> pd.DataFrame:
    """GLUE against pretraining steps: the leaderboard's columns, one row per arm and fine-tuned checkpoint (`steps`).

    Empty where only one checkpoint is fine-tuned, and of several experiments together.
    """
    results = board.results
    if len(results.all_steps) < 2 or len(results.experiments) > 1:
        return pd.DataFrame()
    tables = [make_board(results, board.protocol, steps).table.assign(steps=steps) for steps in results.all_steps]
    frame = pd.concat(tables, ignore_index=True)
    return frame[["origin", "arm", "variant", "steps", *tables[0].columns[3:-1]]]


def averages(board: Board) -> pd.DataFrame:
    """Every convention of averaging: origin, arm, variant; for each of AVERAGES its value and `_std`; and shape.

    Rows as in the leaderboard. Empty where the experiment lacks the tasks of every convention.
    """
    frame = board.table[["origin", "arm", "variant"]].set_index("arm", drop=False)
    tasks = {COLUMNS[column][0] for column in board.columns}
    if not any(tasks.issuperset(convention.tasks) for convention in AVERAGES.values()):
        return frame.iloc[:0].assign(shape="")
    for name, convention in AVERAGES.items():
        mine = average(board.runs, convention, board.protocol.seeds).reindex(frame.index)
        frame = frame.assign(**{name: mine[board.protocol.seeds], f"{name}_std": mine["std"]})
    return frame.assign(shape=board.table.set_index("arm")["shape"]).reset_index(drop=True)


def floors(board: Board) -> pd.DataFrame:
    """What trivial baselines score: a row for each, its name as `arm`, with the board's columns and AVERAGE."""
    places = pd.DataFrame([(*COLUMNS[c], TASKS[COLUMNS[c][0]].metrics[0], c) for c in board.columns],
                          columns=["task", "split", "metric", "column"])  # fmt: skip
    known = board.results.baselines.merge(places, on=["task", "split", "metric"])
    table = known.pivot(index="baseline", columns="column", values="value").reindex(columns=list(board.columns))
    table = table.loc[list(dict.fromkeys(known["baseline"]))]
    table[AVERAGE] = table[list(board.average.parts)].mean(axis=1, skipna=False)
    return table.rename_axis(index="arm", columns=None).reset_index()


def _check_fits(protocol: Protocol, results: Results) -> None:
    """Refuse what an experiment's file may not declare either.

    Raises:
        UserError: the experiment has no slice held out, several rates for a task, or no pretraining.
    """
    rates = results.cells.groupby("task", sort=False)["learning_rate"].nunique()
    several, of = [str(task) for task in rates.index[rates > 1]], f"'{results.experiment}'"
    if protocol.choose_on == HELD_OUT and results.held_out_share is None:
        raise UserError(f"--protocol choose_on={HELD_OUT}: {of} was run without finetuning.held_out_share")
    if protocol.rate == "fixed" and several:
        raise UserError(f"--protocol rate=fixed: in {of}, {', '.join(several)} has several learning rates")
    if protocol.primary == "validation_loss" and not results.all_steps:
        raise UserError(f"--protocol primary=validation_loss: {of} has no pretraining, which measures it")


def _reported(scores: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    """The epoch of each run that the protocol reports, and the `value` by which its rate competes: a row for each run.

    The value is the main metric on the set that chooses, the mean over MNLI's two validation sets; NaN where there is
    none, or an undefined one.
    """
    by = ["cell_id", *RUN, "epoch", "last"]
    chooses = (scores["split"] == HELD_OUT) == (protocol.choose_on == HELD_OUT)
    values = aggregate(main_scores(scores[chooses]), by)["mean"].rename("value").reset_index()
    values = scores[by].drop_duplicates().merge(values, on=by, how="left")
    if protocol.epoch == "last":
        return values[values["last"]]
    # The first of equals: an epoch that is no better has only cost time. An undefined value loses to any other.
    best = values.sort_values(["value", "epoch"], ascending=[False, True]).drop_duplicates("cell_id")
    return best.sort_index()


def _table(
    arms: pd.DataFrame, runs: pd.DataFrame, columns: Iterable[str], there: Average, statistic: str
) -> pd.DataFrame:
    table = arms[["origin", "arm", "variant"]]
    for column in columns:
        task, split = COLUMNS[column]
        values = main_scores(runs[(runs["task"] == task) & (runs["split"] == split)])
        mine = aggregate(values, ["arm"], statistic).reindex(table.index)
        counts = mine["n"].fillna(0).astype(int)
        table = table.assign(**{column: mine[statistic], f"{column}_std": mine["std"], f"{column}_n": counts})
    for name, convention in {AVERAGE: there, **{name: AVERAGES[name] for name in LEADING}}.items():
        mine = average(runs, convention, statistic).reindex(table.index)
        table = table.assign(**{name: mine[statistic], f"{name}_std": mine["std"]})
    table = table.join(arms[FACTS])
    # Origins in their fixed order, shapes in that of their first arm, arms by their average.
    blocks = [
        block.sort_values(AVERAGE, ascending=False, kind="stable")
        for origin in ORIGINS
        for _, block in table[table["origin"] == origin].groupby("shape", sort=False)
    ]
    return pd.concat(blocks, ignore_index=True) if blocks else table.reset_index(drop=True)


def _planned(cells: pd.DataFrame, arms: Iterable[str], columns: Sequence[str]) -> dict[str, dict[str, int]]:
    planned = cells.drop_duplicates(["arm", "task", *SEEDS]).groupby(["arm", "task"]).size().to_dict()
    return {arm: {column: int(planned.get((arm, COLUMNS[column][0]), 0)) for column in columns} for arm in arms}


def _collapsed(cells: pd.DataFrame, arms: Iterable[str], columns: Iterable[str]) -> dict[str, dict[str, int]]:
    places = zip(cells["arm"], cells["task"], cells["collapsed"], strict=True)
    counts = Counter((arm, task, split) for arm, task, splits in places for split in splits)
    return {arm: {column: counts[arm, *COLUMNS[column]] for column in columns} for arm in arms}
