"""A published table beside an experiment: the same metrics, the same average, the same statistic over seeds."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from glue_bench.records.store import Store
from glue_bench.reporting.numbers import short
from glue_bench.reporting.papers.arms import OurArm, differences, read_arms
from glue_bench.reporting.papers.published import AVERAGE, Published, Row
from glue_bench.results.frame import Results, read_results
from glue_bench.results.protocol import aggregate, at_rates, average, best_rates, part_values, run_means
from glue_bench.stats.summaries import t_interval

CELL_COLUMNS = (
    "model",
    "arm",
    "variant",
    "origin",
    "steps",
    "column",
    "published",
    "ours",
    "low",
    "high",
    "seeds",
    "difference",
    "inside",
    "unlike",
)
NO_VALUE = {"ours": math.nan, "low": math.nan, "high": math.nan, "seeds": 0}
Values = Mapping[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A published table and, where `results` are given, what an experiment has of it.

    `cells` has a row for each printed value and arm of ours that stands beside it, or one without an arm: CELL_COLUMNS.
    `published` is as printed; `ours`, `low` and `high` (the interval of the mean over seeds) are 0 to 100, NaN where
    missing; `difference` is ours minus published; `inside` says whether the published value lies in the interval
    ("yes", "no" or ""); `unlike` is in what the two are not alike, or why there is no arm. `without_row` are arms of
    ours that the table has no row for.
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
    last = read_results(store, protocol=published.ours)
    arms = read_arms(store, last)
    beside = {row.label: [arm for arm in arms if _nearest(arm, row, published) is row] for row in published.rows}
    ours = {}
    for share in {row.share for row in published.rows}:
        steps = None if share == 1.0 else round(share * max(last.all_steps, default=0))
        if steps is None or steps in last.all_steps:
            results = last if steps is None else read_results(store, steps, published.ours)
            ours[share] = results, our_values(published, results)
    placed = {arm.name for matched in beside.values() for arm in matched}
    return Comparison(
        published=published,
        cells=_frame([cell for row in published.rows for cell in _cells(published, row, beside[row.label], ours)]),
        results=last,
        without_row=tuple(arm.name for arm in arms if arm.name not in placed),
    )


def our_values(published: Published, results: Results) -> Values:
    """Ours by (arm, column): `ours`, `low`, `high` and `seeds` under the table's metrics, average and statistic.

    The rate is that with the best statistic over seeds of the table's own metrics of a task.
    """
    columns = published.single_columns
    wanted = pd.DataFrame([part[0] for part in columns.parts.values()], columns=["task", "split", "metric"])
    scores = results.scores.merge(wanted.drop_duplicates())
    scores = at_rates(scores, best_rates(run_means(scores), published.statistic))
    parts, names = part_values(scores, columns), (published.statistic, "mean")
    middles, means = (aggregate(parts, ["arm", "part"], name) for name in names)
    values = {(arm, column): _value(middles, means, (arm, column)) for arm, column in means.index}
    if published.has_average:
        middles, means = (average(scores, published.average, name) for name in names)
        values |= {(arm, AVERAGE): _value(middles, means, arm) for arm in means.index}
    return values


def _value(middles: pd.DataFrame, means: pd.DataFrame, key: Any) -> dict[str, float]:
    mean, deviation, n = means.loc[key, ["mean", "std", "n"]]
    low, high = t_interval(mean, deviation, int(n))
    return {"ours": float(middles.loc[key].iloc[0]), "low": low, "high": high, "seeds": int(n)}


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
    return f"no arm {mine.variant}{segments}" + (f" near {short(mine.parameters)} parameters" if several else "")


def _cells(
    published: Published, row: Row, arms: list[OurArm], ours: Mapping[float, tuple[Results, Values]]
) -> Iterable[dict[str, Any]]:
    if not arms or row.share not in ours:
        return _without_arm(row, _why_missing(published, row, bool(arms)))
    return [cell for arm in arms for cell in _with_arm(published, row, arm, *ours[row.share])]


def _with_arm(
    published: Published, row: Row, arm: OurArm, results: Results, values: Values
) -> Iterator[dict[str, Any]]:
    mine = {column: values.get((arm.name, column), NO_VALUE) for column in row.printed}
    seeds = int(max(value["seeds"] for value in mine.values()))
    unlike = "; ".join(differences(published, row, arm, results, seeds))
    facts = {"arm": arm.name, "variant": arm.variant, "origin": arm.origin, "steps": results.steps}
    for column, value in mine.items():
        theirs = float(row.printed[column])
        yield {
            **{"model": row.label, "column": column, "published": row.printed[column], "unlike": unlike},
            **facts,
            **value,
            "difference": value["ours"] - theirs,
            "inside": "" if math.isnan(value["low"]) else "yes" if value["low"] <= theirs <= value["high"] else "no",
        }


def _without_arm(row: Row, why: str) -> Iterator[dict[str, Any]]:
    nobody = {"arm": "", "variant": "", "origin": "", "steps": None, "inside": "", "difference": math.nan}
    for column, value in row.printed.items():
        yield {"model": row.label, "column": column, "published": value, "unlike": why, **nobody, **NO_VALUE}


def _frame(cells: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(list(cells), columns=list(CELL_COLUMNS))
    return frame.astype({"seeds": "int64", "steps": "Int64"})
