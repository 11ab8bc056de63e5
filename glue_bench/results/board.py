"""One experiment's leaderboard: one row per arm, grouped by origin and shape, in full precision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from glue_bench.config import HELD_OUT, Protocol, changed_protocol
from glue_bench.data.tasks import COLUMNS
from glue_bench.errors import UserError, unknown
from glue_bench.records.plan import NO_PLAN, Plan
from glue_bench.records.store import Store, open_store
from glue_bench.results.encoders import FACTS, distinct_starts
from glue_bench.results.frame import ORIGINS, Results, read_results
from glue_bench.results.protocol import (
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
from glue_bench.results.together import together


@dataclass(frozen=True, kw_only=True)
class Board:
    """A leaderboard and what has to be said about it.

    `table` is what `leaderboard` returns. `rates` has the learning rate reported for each arm and task. `columns` are
    the leaderboard columns of the tasks that have run (of all, before any has), `average` is what AVERAGE is of them.
    `planned` and `collapsed` count seeds: arm -> column.
    """

    results: Results
    table: pd.DataFrame
    rates: pd.DataFrame
    columns: tuple[str, ...]
    average: Average
    planned: dict[str, dict[str, int]]
    collapsed: dict[str, dict[str, int]]


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
        UserError: there is no experiment in a folder, its records name an unknown task or origin, or several cannot
            stand together.
    """
    return open_board(path).table


def open_board(paths: str | Path | Sequence[str | Path], changes: Iterable[str] = ()) -> Board:
    """The leaderboard of the experiment in a folder, or of several together, the (first) protocol changed by KEY=VALUE.

    Raises:
        UserError: there is no experiment in a folder, its records name an unknown task or origin, a change is wrong
            or asks for what the experiment has not, or as `together`.
    """
    stores = [open_store(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    plans = [store.read_plan() or NO_PLAN for store in stores]
    declared = [plan.protocol for plan in plans]
    protocol = changed_protocol(declared[0], changes)
    for plan in plans if protocol != declared[0] else ():  # an experiment's own protocol was checked with its file
        _check_fits(protocol, plan)
    if len(stores) == 1:
        board = make_board(stores[0], protocol=protocol)
    else:
        several = [read_results(store, protocol=protocol) for store in stores]
        names = [results.experiment for results in several]
        board = _board(together(several, dict(zip(names, declared, strict=True))))
    arms = list(dict.fromkeys(board.results.cells["arm"]))
    if protocol.reference not in (None, declared[0].reference, *arms):
        raise unknown("arm", str(protocol.reference), arms, "--protocol reference")
    return board


def _check_fits(protocol: Protocol, plan: Plan) -> None:
    """Refuse what an experiment's file may not declare either; of an experiment without a plan nothing is known.

    Raises:
        UserError: the experiment has no slice held out, several rates for a task, or no pretraining.
    """
    if not plan.cells:
        return
    rates = pd.DataFrame([(cell.task, cell.learning_rate) for cell in plan.cells]).groupby(0, sort=False)[1].nunique()
    several, of = [str(task) for task in rates.index[rates > 1]], f"'{plan.experiment}'"
    if protocol.choose_on == HELD_OUT and plan.held_out_share is None:
        raise UserError(f"--protocol choose_on={HELD_OUT}: {of} was run without finetuning.held_out_share")
    if protocol.rate == "fixed" and several:
        raise UserError(f"--protocol rate=fixed: in {of}, {', '.join(several)} has several learning rates")
    if protocol.primary == "validation_loss" and all(cell.steps is None for cell in plan.cells):
        raise UserError(f"--protocol primary=validation_loss: {of} has no pretraining, which measures it")


def steps_frame(store: Store, results: Results | None = None) -> pd.DataFrame:
    """GLUE against pretraining steps: the leaderboard's columns, one row per arm and fine-tuned checkpoint (`steps`).

    Empty where only one checkpoint is fine-tuned. `results` are the store's, where they have been read; the protocol is
    theirs. Raises as `leaderboard`.
    """
    results = results or read_results(store)
    if len(results.all_steps) < 2:
        return pd.DataFrame()
    tables = [make_board(store, steps, results.protocol).table.assign(steps=steps) for steps in results.all_steps]
    frame = pd.concat(tables, ignore_index=True)
    return frame[["origin", "arm", "variant", "steps", *tables[0].columns[3:-1]]]


def make_board(store: Store, steps: int | None = None, protocol: Protocol | None = None) -> Board:
    """The leaderboard of a store after `steps` of pretraining (the last), with the counts that its notes need.

    `protocol` takes the place of the experiment's own.
    """
    return _board(read_results(store, steps, protocol))


def averages_frame(board: Board) -> pd.DataFrame:
    """Every convention of averaging: origin, arm, variant; for each of AVERAGES its value and `_std`; and shape.

    Rows as in the leaderboard. Empty where the experiment lacks the tasks of every convention.
    """
    frame = board.table[["origin", "arm", "variant"]].set_index("arm", drop=False)
    tasks = {COLUMNS[column][0] for column in board.columns}
    if not any(tasks.issuperset(convention.tasks) for convention in AVERAGES.values()):
        return frame.iloc[:0].assign(shape="")
    scores, statistic = at_rates(board.results.scores, board.rates), board.results.protocol.seeds
    for name, convention in AVERAGES.items():
        mine = average(scores, convention, statistic).reindex(frame.index)
        frame = frame.assign(**{name: mine[statistic], f"{name}_std": mine["std"]})
    return frame.assign(shape=board.table.set_index("arm")["shape"]).reset_index(drop=True)


def _board(results: Results) -> Board:
    rates = best_rates(results.choosing, results.protocol.rate_statistic)
    planned_tasks = set(results.cells["task"])
    tasks = set(results.cells.loc[results.cells["finished"], "task"]) or planned_tasks
    planned_columns, columns = (
        tuple(column for column, (task, _) in COLUMNS.items() if task in some) for some in (planned_tasks, tasks)
    )
    runs = results.cells.drop_duplicates(["arm", "task", *SEEDS])
    planned = runs.groupby(["arm", "task"], sort=False).size().to_dict()
    arms = list(dict.fromkeys(results.cells["arm"]))
    return Board(
        results=results,
        table=_table(results, at_rates(results.scores, rates), planned_columns, average_of(columns)),
        rates=rates,
        columns=columns,
        average=average_of(columns),
        planned={arm: {c: int(planned.get((arm, COLUMNS[c][0]), 0)) for c in columns} for arm in arms},
        collapsed=_collapsed(at_rates(results.cells, rates), arms, columns),
    )


def _table(results: Results, scores: pd.DataFrame, columns: tuple[str, ...], there: Average) -> pd.DataFrame:
    arms = distinct_starts(results.cells).drop_duplicates("arm").set_index("arm", drop=False)
    table, statistic = arms[["origin", "arm", "variant"]], results.protocol.seeds
    for column in columns:
        task, split = COLUMNS[column]
        values = main_scores(scores[(scores["task"] == task) & (scores["split"] == split)])
        mine = aggregate(values, ["arm"], statistic).reindex(table.index)
        counts = mine["n"].fillna(0).astype(int)
        table = table.assign(**{column: mine[statistic], f"{column}_std": mine["std"], f"{column}_n": counts})
    for name, convention in {AVERAGE: there, **{name: AVERAGES[name] for name in LEADING}}.items():
        mine = average(scores, convention, statistic).reindex(table.index)
        table = table.assign(**{name: mine[statistic], f"{name}_std": mine["std"]})
    table = table.join(arms[FACTS])
    # Origins in their fixed order, shapes in that of their first arm, arms by their average.
    blocks = [
        block.sort_values(AVERAGE, ascending=False, kind="stable")
        for origin in ORIGINS
        for _, block in table[table["origin"] == origin].groupby("shape", sort=False)
    ]
    return pd.concat(blocks, ignore_index=True) if blocks else table.reset_index(drop=True)


def _collapsed(cells: pd.DataFrame, arms: list[str], columns: tuple[str, ...]) -> dict[str, dict[str, int]]:
    counts = {arm: dict.fromkeys(columns, 0) for arm in arms}
    named: dict[tuple[str, str], str] = {place: column for column, place in COLUMNS.items()}
    for arm, task, splits in zip(cells["arm"], cells["task"], cells["collapsed"], strict=True):
        for column in (named[task, split] for split in splits if (task, split) in named):
            counts[arm][column] += 1
    return counts
