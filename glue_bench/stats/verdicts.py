"""Which arms differ: contrasts with one reference, a family of tests for each column, one p-value for each contrast."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit  # a tenth of the time that scipy.stats takes to load

from glue_bench.data.measures import AVERAGE
from glue_bench.errors import UserError
from glue_bench.stats.estimates import ColumnEstimate, average_estimate, column_estimate
from glue_bench.stats.runs import ColumnRuns

ALPHA = 0.05
NO_COMMON_GROUP = "its arms differ in origin or shape"
Pair = tuple[str, str]
NUMBERS = ["difference", "error", "freedom", "low", "high", "p", "p_adjusted", "smallest"]
VERDICT_COLUMNS = [
    "kind", "column", "arm", "reference", "difference", "low", "high", "error", "freedom", "p", "p_adjusted",
    "smallest", "n_arm", "n_reference", "seeds", "agree", "paired", "family", "verdict", "why",
]  # fmt: skip
LEAST_FOR_DEVIATION = 3
"""Of fewer seeds a deviation tells too little."""
COVERS = {
    "fine-tuning": "other fine-tuning seeds, other examples; not other pretrainings",
    "random": "other fine-tuning seeds, other examples",
    "pretraining": "other pretrainings, other fine-tuning seeds, other examples (documents for Val. loss)",
}
"""What an interval covers, by the kind of seeds that it is made of, or of fine-tuning seeds of random weights."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Arms that are compared with each other, all of them with `reference`; that and `kind` tell a group from others.

    `estimates` is what `assess` finds in their columns: the primary one, on which the arms are judged, comes first.
    """

    arms: tuple[str, ...]
    reference: str
    kind: str = "reference"
    estimates: tuple[ColumnEstimate, ...] = ()


def assess(
    outcomes: Iterable[ColumnRuns], groups: Sequence[Group], primary: str = AVERAGE
) -> list[Group]:
    """The groups with estimates of every column, and of the average. One column's predictions are held at a time.

    A group has the columns of which it has a run, and all that count in the average. A single column has no average.
    """
    columns: list[list[ColumnEstimate]] = [[] for _ in groups]
    averaged, assessed = set[str](), []
    for one in outcomes:
        averaged |= {one.column} if one.averaged else set()
        for group, estimates in zip(groups, columns, strict=True):
            estimates.append(column_estimate(one, group.arms, group.reference))
    for group, estimates in zip(groups, columns, strict=True):
        counted = [column for column in estimates if column.column in averaged]
        average = [average_estimate(counted, group.arms)] if len(counted) > 1 else []
        shown = [
            *average,
            *(column for column in estimates if column.means or column.column in averaged),
        ]
        ordered = sorted(shown, key=lambda column: column.column != primary)
        assessed.append(replace(group, estimates=tuple(ordered)))
    return assessed


def verdicts(assessed: Sequence[Group], declared: Sequence[Sequence[str]] = ()) -> pd.DataFrame:
    """Each arm's contrast with the reference of its group, in each column, then those `declared`: VERDICT_COLUMNS.

    One row per group, column and arm other than the reference; the `kind` is that of the group, or "declared".

    - `difference`: mean of `arm` less mean of `reference` over their seeds; points (0 to 100), of a loss nats.
    - `error`, `freedom`: the standard error of the difference over seeds and examples, and its degrees of freedom.
    - `p`: two-sided, of Student's t = difference / error; `p_adjusted`: the same, times `family`, at most 1.
    - `family`: how many contrasts a column has: the group's arms without the reference, whether they have run or not.
    - `low`, `high`: a simultaneous 95% interval, which holds for all contrasts of the column together; it excludes 0
      exactly where `p_adjusted` is below 0.05. It is clipped to what the metric's range allows.
    - `smallest`: half the width of that interval before clipping: the least difference that would have had a verdict.
    - `n_arm`, `n_reference`: how many seeds the two have, of the kind that `seeds` names: "fine-tuning" where all runs
      start from one pretraining, and the interval covers other fine-tuning seeds of it, or "pretraining", where it
      covers other pretrainings.
    - `agree`, `paired`: in how many seeds the difference has the sign of `difference`, of how many that both arms have.
    - `verdict`: "better" or "worse" than the reference where `p_adjusted` is below 0.05, else "". Of a loss the lower
      one is better.
    - `why`: what is missing where there is no test; all but `difference` are NaN then.

    Those `declared`, (arm, reference), were named before the runs, and are adjusted by Holm's method for their own
    number: `family` counts all that were named. Their intervals hold for all of them together (Bonferroni), which those
    of Holm's steps would not. So Holm's method may find a difference whose interval includes 0, and `smallest` is the
    least difference that has a verdict whatever the others show. Arms that share no group are not tested.
    Variances over seeds are pooled over the arms that the contrasts name, and no others: an arm that was added later
    changes no row.
    """
    rows = []
    for one in assessed:
        pairs = [(arm, one.reference) for arm in one.arms if arm != one.reference]
        rows += contrast_rows(one, pairs, len(pairs), stepwise=False)
    known = {arm for one in assessed for arm in one.arms}
    homes = {
        (arm, reference): min(with_arm, key=lambda one: reference not in one.arms)
        for arm, reference in declared
        if reference in known and (with_arm := [one for one in assessed if arm in one.arms])
    }
    named = {arm for pair in declared for arm in pair}
    for one in assessed:
        estimates = tuple(
            estimate.of([arm for arm in estimate.arms if arm in named])
            for estimate in one.estimates
        )
        pairs = [pair for pair, home in homes.items() if home is one]
        rows += contrast_rows(
            replace(one, kind="declared", estimates=estimates), pairs, len(declared)
        )
    frame = pd.DataFrame(rows, columns=VERDICT_COLUMNS)
    return frame.astype({**dict.fromkeys(NUMBERS, float), "agree": "Int64", "paired": "Int64"})


def holm(p_values: np.ndarray, number: int) -> np.ndarray:
    """How many times each p-value is taken by Holm's (1979) step-down method for `number` tests.

    Tests that were not made (NaN) come last.
    """
    order = np.argsort(p_values, kind="stable")
    steps, ordered = number - np.arange(len(order)), p_values[order]
    largest = np.maximum.accumulate(steps * ordered)
    times = np.empty(len(order))
    times[order] = np.divide(largest, ordered, out=steps.astype(float), where=ordered > 0)
    return times


def equivalence(frame: pd.DataFrame, margin: float) -> pd.DataFrame:
    """A frame of `verdicts` with `p_equivalent`, and `equivalent`: whether two arms differ by less than `margin`.

    Two one-sided tests (Schuirmann 1987), the larger p-value of the two, times 2 and `family`, even where p is
    corrected by Holm's method: `equivalent` exactly where the interval of `verdicts` lies within the margin. Points, or
    nats of a loss. Raises UserError for a margin that is not above 0.
    """
    if not margin > 0:
        raise UserError(f"--equivalent {margin:g}: give a difference above 0, such as 0.5")
    nearest = (margin - frame["difference"].abs()) / frame[
        "error"
    ]  # the side on which the margin is nearer
    p = np.minimum(1.0, 2 * np.asarray(stdtr(frame["freedom"], -nearest)) * frame["family"])
    return frame.assign(p_equivalent=p, equivalent=p < ALPHA)


def two_sided(difference: np.ndarray, error: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """p of Student's t; 1 for no difference and 0 for one that has no spread at all."""
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(difference == 0, 0.0, np.abs(difference) / error)
    return 2 * np.asarray(stdtr(freedom, -np.where(np.isnan(error), np.nan, statistic)))


def contrast_rows(
    group: Group, pairs: Sequence[Pair], family: int, *, stepwise: bool = True
) -> list[dict[str, Any]]:
    """The contrasts of every column, a row for each pair; here, and nowhere else, is a verdict decided.

    p is corrected for the number of tests in the `family` by Holm's method, or by Bonferroni's if it is not `stepwise`.
    """
    rows = []
    for estimate in group.estimates if pairs else ():
        tests = [_row(group, estimate, pair) for pair in pairs]
        difference, error, freedom = (
            np.array([row.get(name, np.nan) for row in tests]) for name in NUMBERS[:3]
        )
        p = two_sided(difference, error, freedom)
        adjusted = np.minimum(1.0, (holm(p, family) if stepwise else family) * p)
        half = -stdtrit(freedom, ALPHA / 2 / family) * error
        low, high = estimate.limits
        better = (difference > 0) ^ estimate.lowest_is_best
        decided = {
            "low": np.clip(difference - half, low - high, high - low).tolist(),
            "high": np.clip(difference + half, low - high, high - low).tolist(),
            "p": p.tolist(),
            "p_adjusted": adjusted.tolist(),
            "smallest": half.tolist(),
            "verdict": np.where(adjusted < ALPHA, np.where(better, "better", "worse"), "").tolist(),
        }
        rows += [
            row | {"family": family} | {name: decided[name][i] for name in decided}
            for i, row in enumerate(tests)
        ]
    return rows


def _row(group: Group, estimate: ColumnEstimate, pair: Pair) -> dict[str, Any]:
    """What is known of a contrast before it is decided, and why it cannot be."""
    arm, reference = pair
    reasons = dict.fromkeys(estimate.why[one] for one in pair if one in estimate.why)
    why = [
        f"{reason} ({', '.join(a for a in pair if estimate.why.get(a) == reason)})"
        for reason in reasons
    ]
    why = why if reference in group.arms else [NO_COMMON_GROUP]
    row: dict[str, Any] = {
        "kind": group.kind,
        "column": estimate.column,
        "arm": arm,
        "reference": reference,
        "difference": estimate.means.get(arm, math.nan) - estimate.means.get(reference, math.nan),
        "n_arm": estimate.seeds[arm],
        "n_reference": estimate.seeds.get(reference, 0),
        "seeds": estimate.kind,
        "why": "; ".join(why),
    }
    if not why:
        variance, row["freedom"] = estimate.difference_variance(arm, reference)
        agree = np.sign(estimate.differences(arm, reference)) == np.sign(row["difference"])
        row |= {"error": math.sqrt(variance), "agree": int(agree.sum()), "paired": len(agree)}
    return row
