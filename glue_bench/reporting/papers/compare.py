"""A published table beside an experiment: the same metrics, the same average, the same statistic over seeds."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from glue_bench.reporting.papers.arms import OurArm, differences, read_arms
from glue_bench.reporting.papers.published import AVERAGE, Published, Row
from glue_bench.tables.averages import aggregate, at_rates, average, best_rates, part_values
from glue_bench.tables.board import RUN, Board, make_board
from glue_bench.tables.numbers import short
from glue_bench.tables.results import Results

CELL_COLUMNS = (
    *("model", "arm", "variant", "origin", "steps", "column", "published"),
    *("ours", "seeds", "difference", "unlike"),
)
NO_VALUE = {"ours": math.nan, "seeds": 0}
Values = Mapping[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A published table and, where there is a `board`, what an experiment has of it.

    `cells` has a row for each printed value and arm of ours that stands beside it, or one without an arm: CELL_COLUMNS.
    `published` is as printed; `ours` is 0 to 100, NaN where missing; `difference` is ours minus published; `unlike` is
    in what the two are not alike, or why there is no arm. `without_row` are arms of ours that the table has no row for.
    """

    published: Published
    cells: pd.DataFrame
    board: Board | None = None
    without_row: tuple[str, ...] = ()


def set_beside(published: Published, results: Results | None = None) -> Beside:
    """The table beside an experiment; without one, the table alone."""
    if results is None:
        alone = [cell for row in published.rows for cell in _without_arm(row, "")]
        return Beside(published=published, cells=_frame(alone))
    last = make_board(results, published.ours)
    arms = read_arms(last)
    beside = {row.label: [arm for arm in arms if _nearest(arm, row, published) is row] for row in published.rows}
    ours = {}
    for share in {row.share for row in published.rows if beside[row.label]}:
        steps = last.steps if share == 1.0 else round(share * max(results.all_steps, default=0))
        if share == 1.0 or steps in results.all_steps:
            then = last if share == 1.0 else make_board(results, published.ours, steps)
            ours[share] = then, our_values(published, then)
    placed = {arm.name for matched in beside.values() for arm in matched}
    cells: list[dict[str, Any]] = []
    for row in published.rows:
        mine = beside[row.label]
        if not mine or row.share not in ours:
            cells += _without_arm(row, _why_missing(published, row, bool(mine)))
        else:
            cells += [cell for arm in mine for cell in _with_arm(published, row, arm, *ours[row.share])]
    return Beside(
        published=published,
        cells=_frame(cells),
        board=last,
        without_row=tuple(arm.name for arm in arms if arm.name not in placed),
    )


def our_values(published: Published, board: Board) -> Values:
    """Ours by (arm, column): `ours` and `seeds` under the table's metrics, average and statistic.

    The rate is that with the best statistic over seeds of the table's own metrics of a task.
    """
    columns = published.single_columns
    wanted = pd.DataFrame([part[0] for part in columns.parts.values()], columns=["task", "split", "metric"])
    scores = board.scores.merge(wanted.drop_duplicates(), on=["task", "split", "metric"])
    runs = aggregate(scores, RUN)["mean"].rename("value").reset_index()
    scores = at_rates(scores, best_rates(runs, published.statistic))
    parts = part_values(scores, columns)
    values: dict[Any, dict[Any, float]] = aggregate(parts, ["arm", "part"], published.statistic).to_dict("index")
    if published.has_average:
        whole = average(scores, published.average, published.statistic)
        values |= {(arm, AVERAGE): row for arm, row in whole.to_dict("index").items()}
    return {key: {"ours": row[published.statistic], "seeds": int(row["n"])} for key, row in values.items()}


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


def _with_arm(published: Published, row: Row, arm: OurArm, board: Board, values: Values) -> Iterator[dict[str, Any]]:
    mine = {column: values.get((arm.name, column), NO_VALUE) for column in row.printed}
    seeds = int(max(value["seeds"] for value in mine.values()))
    unlike = "; ".join(differences(published, row, arm, board, seeds))
    facts = {"arm": arm.name, "variant": arm.variant, "origin": arm.origin, "steps": board.steps}
    for column, value in mine.items():
        theirs = float(row.printed[column])
        yield {
            **{"model": row.label, "column": column, "published": row.printed[column], "unlike": unlike},
            **facts,
            **value,
            "difference": value["ours"] - theirs,
        }


def _without_arm(row: Row, why: str) -> Iterator[dict[str, Any]]:
    nobody = {"arm": "", "variant": "", "origin": "", "steps": None, "difference": math.nan}
    for column, value in row.printed.items():
        yield {"model": row.label, "column": column, "published": value, "unlike": why, **nobody, **NO_VALUE}


def _frame(cells: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(list(cells), columns=list(CELL_COLUMNS))
    return frame.astype({"seeds": "int64", "steps": "Int64"})
