"""A published table beside an experiment: the same metrics, the same average, the same statistic over seeds."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.records.store import Store
from glue_bench.reporting.assessment import assess_experiment
from glue_bench.reporting.numbers import short
from glue_bench.reporting.papers.arms import OurArm, differences, read_arms
from glue_bench.reporting.papers.published import AVERAGE, Published, Row
from glue_bench.results.board import Board, make_board
from glue_bench.results.frame import Results
from glue_bench.results.protocol import aggregate, at_rates, average, best_rates, part_values, run_means
from glue_bench.stats.outcomes import AVERAGE as OUR_AVERAGE

CELL_COLUMNS = (
    *("model", "arm", "variant", "origin", "steps", "column", "published"),
    *("ours", "low", "high", "seeds", "difference", "inside", "unlike"),
)
NO_INTERVAL = {"low": math.nan, "high": math.nan}
NO_VALUE = {"ours": math.nan, "seeds": 0, **NO_INTERVAL}
Values = Mapping[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A published table and, where `results` are given, what an experiment has of it.

    `cells` has a row for each printed value and arm of ours that stands beside it, or one without an arm: CELL_COLUMNS.
    `published` is as printed; `ours`, `low` and `high` (the 95% interval of our mean, by the variance of our verdicts)
    are 0 to 100, NaN where missing; `difference` is ours minus published; `unlike` is in what the two are not alike, or
    why there is no arm; `inside` says whether the published value lies in the interval ("yes" or "no"; "" where they
    are unlike, or the published value is a median, so that it would be no test). `without_row` are arms of ours that
    the table has no row for.
    """

    published: Published
    cells: pd.DataFrame
    results: Results | None = None
    without_row: tuple[str, ...] = ()


def compare(published: Published, store: Store | None = None) -> Comparison:
    """The table beside the experiment in a store; without one, the table alone."""
    if store is None:
        alone = [cell for row in published.rows for cell in _without_arm(row, "")]
        return Comparison(published=published, cells=_frame(alone))
    board = make_board(store, protocol=published.ours)
    last = board.results
    arms = read_arms(store, last)
    beside = {row.label: [arm for arm in arms if _nearest(arm, row, published) is row] for row in published.rows}
    ours = {}
    for share in {row.share for row in published.rows if beside[row.label]}:
        steps = last.steps if share == 1.0 else round(share * max(last.all_steps, default=0))
        if share == 1.0 or steps in last.all_steps:
            then = board if share == 1.0 else make_board(store, steps, published.ours)
            ours[share] = then.results, our_values(published, store, then)
    placed = {arm.name for matched in beside.values() for arm in matched}
    cells: list[dict[str, Any]] = []
    for row in published.rows:
        mine = beside[row.label]
        if not mine or row.share not in ours:
            cells += _without_arm(row, _why_missing(published, row, bool(mine)))
        else:
            cells += [cell for arm in mine for cell in _with_arm(published, row, arm, *ours[row.share])]
    return Comparison(
        published=published,
        cells=_frame(cells),
        results=last,
        without_row=tuple(arm.name for arm in arms if arm.name not in placed),
    )


def our_values(published: Published, store: Store, board: Board) -> Values:
    """Ours by (arm, column): `ours`, `low`, `high` and `seeds` under the table's metrics, average and statistic.

    The rate is that with the best statistic over seeds of the table's own metrics of a task. Intervals are of the mean,
    and of the leaderboard's columns: a second metric of a task, or an average by another convention, has none.
    """
    columns = published.single_columns
    wanted = pd.DataFrame([part[0] for part in columns.parts.values()], columns=["task", "split", "metric"])
    scores = board.results.scores.merge(wanted.drop_duplicates())
    rates = best_rates(run_means(scores), published.statistic)
    intervals = _intervals(published, store, replace(board, rates=rates)) if len(rates) else {}
    parts = part_values(at_rates(scores, rates), columns)
    values: dict[Any, dict[Any, float]] = aggregate(parts, ["arm", "part"], published.statistic).to_dict("index")
    if published.has_average:
        whole = average(at_rates(scores, rates), published.average, published.statistic)
        values |= {(arm, AVERAGE): row for arm, row in whole.to_dict("index").items()}
    return {
        key: {"ours": row[published.statistic], "seeds": int(row["n"]), **intervals.get(key, NO_INTERVAL)}
        for key, row in values.items()
    }


def _intervals(published: Published, store: Store, board: Board) -> dict[tuple[str, str], dict[str, float]]:
    """The interval of each arm's mean in the columns that the leaderboard has, too."""
    main = {(*place, TASKS[place[0]].metrics[0]): column for column, place in COLUMNS.items()}
    ours = {main[score]: name for name, score in published.columns.items() if score in main}
    if set(published.average.parts.values()) == set(board.average.parts.values()):
        ours[OUR_AVERAGE] = AVERAGE
    frame = assess_experiment(store, board).arms
    return {
        (row["arm"], ours[row["column"]]): {"low": row["low"], "high": row["high"]}
        for row in frame[frame["column"].isin(list(ours))].to_dict("records")
    }


def _nearest(arm: OurArm, row: Row, published: Published) -> Row | None:
    """Of the rows that an arm could stand beside, at this one's share of steps, the nearest in size."""
    fitting = [
        (abs(math.log(arm.parameters / other.counterpart.parameters)) if arm.parameters else 0.0, other)
        for other in published.rows
        if other.counterpart and other.counterpart.takes(arm.variant, arm.options) and other.share == row.share
    ]
    return min(fitting, key=lambda pair: pair[0], default=(0.0, None))[1]


def _why_missing(published: Published, row: Row, has_arm: bool) -> str:
    mine = row.counterpart
    if mine is None:
        return "no variant of ours"
    if has_arm:
        return f"no fine-tuned checkpoint after {mine.share:.0%} of the steps"
    others = [other.counterpart for other in published.rows if other is not row and other.counterpart]
    several = any((other.variant, other.share) == (mine.variant, mine.share) for other in others)
    segments = f" with segments: {mine.segments}" if mine.segments == "scores" else ""
    return f"no run of {mine.variant}{segments}" + (f" near {short(mine.parameters)} parameters" if several else "")


def _with_arm(
    published: Published, row: Row, arm: OurArm, results: Results, values: Values
) -> Iterator[dict[str, Any]]:
    mine = {column: values.get((arm.name, column), NO_VALUE) for column in row.printed}
    seeds = int(max(value["seeds"] for value in mine.values()))
    unlike = "; ".join(differences(published, row, arm, results, seeds))
    facts = {"arm": arm.name, "variant": arm.variant, "origin": arm.origin, "steps": results.steps}
    for column, value in mine.items():
        theirs = float(row.printed[column])
        inside = "yes" if value["low"] <= theirs <= value["high"] else "no"
        yield {
            **{"model": row.label, "column": column, "published": row.printed[column], "unlike": unlike},
            **facts,
            **value,
            "difference": value["ours"] - theirs,
            # The interval is of our mean, which a median need not be near where runs are skewed (one that collapses).
            "inside": "" if unlike or published.statistic == "median" or math.isnan(value["low"]) else inside,
        }


def _without_arm(row: Row, why: str) -> Iterator[dict[str, Any]]:
    nobody = {"arm": "", "variant": "", "origin": "", "steps": None, "inside": "", "difference": math.nan}
    for column, value in row.printed.items():
        yield {"model": row.label, "column": column, "published": value, "unlike": why, **nobody, **NO_VALUE}


def _frame(cells: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(list(cells), columns=list(CELL_COLUMNS))
    return frame.astype({"seeds": "int64", "steps": "Int64"})
