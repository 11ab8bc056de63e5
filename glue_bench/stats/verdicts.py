"""Which arms differ: contrasts with one reference, a family of tests for each column, one p-value for each contrast."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from glue_bench.stats.estimates import Estimate, average_estimate, column_estimate
from glue_bench.stats.outcomes import AVERAGE, Outcomes

ALPHA = 0.05
APART = "its arms differ in origin or shape"
Pair = tuple[str, str]
Correction = Callable[[np.ndarray], np.ndarray]
NUMBERS = ["difference", "error", "freedom", "low", "high", "p", "p_adjusted", "smallest"]
VERDICT_COLUMNS = [
    "origin", "shape", "column", "arm", "reference", "difference", "low", "high", "error", "freedom", "p",
    "p_adjusted", "smallest", "n_arm", "n_reference", "seeds", "family", "verdict", "why",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Group:
    """Arms that are compared with each other, all of them with `reference`; `origin` and `shape` name their block."""

    origin: str
    shape: str
    arms: tuple[str, ...]
    reference: str


@dataclass(frozen=True, kw_only=True)
class Assessed:
    """A group and what its columns say: the primary one, on which the arms are judged, comes first."""

    group: Group
    estimates: tuple[Estimate, ...]


def assess(outcomes: Iterable[Outcomes], groups: Sequence[Group], primary: str = AVERAGE) -> list[Assessed]:
    """Estimate every column, and the average, for every group. One column's predictions are held at a time.

    A group has the columns of which it has a run, and all that count in the average. A single column has no average.
    """
    columns: list[list[Estimate]] = [[] for _ in groups]
    averaged: set[str] = set()
    for one in outcomes:
        averaged |= {one.column} if one.averaged else set()
        for group, mine in zip(groups, columns, strict=True):
            mine.append(column_estimate(one, group.arms, group.reference))
    assessed = []
    for group, mine in zip(groups, columns, strict=True):
        counted = [column for column in mine if column.column in averaged]
        shown = [column for column in mine if column.means or column.column in averaged]
        average = [average_estimate(counted, group.arms)] if len(counted) > 1 else []
        ordered = sorted([*average, *shown], key=lambda column: column.column != primary)
        assessed.append(Assessed(group=group, estimates=tuple(ordered)))
    return assessed


def verdicts(assessed: Iterable[Assessed]) -> pd.DataFrame:
    """Each arm's contrast with the reference of its group, in each column: VERDICT_COLUMNS.

    One row per group, column and arm other than the reference.

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
    - `verdict`: "better" or "worse" than the reference where `p_adjusted` is below 0.05, else "". Of a loss the lower
      one is better.
    - `why`: what is missing where there is no test; all but `difference` are NaN then.
    """
    rows = []
    for one in assessed:
        pairs = [(arm, one.group.reference) for arm in one.group.arms if arm != one.group.reference]
        rows += contrast_rows(one, pairs, bonferroni(len(pairs)))
    return _frame(rows)


def declared(assessed: Iterable[Assessed], contrasts: Sequence[Pair]) -> pd.DataFrame:
    """Contrasts named before the runs, as `verdicts`; adjusted by Holm's method for their own number in a column.

    `family` counts all that were named, also those whose arms have not run. The intervals hold for all of them together
    (Bonferroni), which those of Holm's steps would not. So Holm's method may find a difference whose interval includes
    0, and `smallest` is the least difference that has a verdict whatever the others show. Arms of two groups are not
    tested (APART).
    """
    assessed = list(assessed)
    known = {arm for one in assessed for arm in one.group.arms}
    rows = []
    for one in assessed:
        mine = [pair for pair in contrasts if pair[0] in one.group.arms and pair[1] in known]
        rows += contrast_rows(one, mine, holm(len(contrasts)))
    return _frame(rows)


def all_pairs(assessed: Iterable[Assessed]) -> pd.DataFrame:
    """Every pair of arms of a group, as `declared`, for all pairs of a column."""
    rows = []
    for one in assessed:
        pairs = list(combinations(one.group.arms, 2))
        rows += contrast_rows(one, pairs, holm(len(pairs)))
    return _frame(rows)


def seeds_covered(estimate: Estimate) -> str:
    """The kind of seeds that the intervals are made of: "pretraining" or "fine-tuning"."""
    return "pretraining" if estimate.blocked else "fine-tuning"


def bonferroni(number: int) -> Correction:
    """How many times each p-value is taken: `number` times."""
    return lambda p_values: np.full(len(p_values), float(number))


def holm(number: int) -> Correction:
    """How many times each p-value is taken by Holm's (1979) step-down method for `number` tests.

    Tests that were not made (NaN) come last.
    """

    def factors(p_values: np.ndarray) -> np.ndarray:
        order = np.argsort(p_values, kind="stable")
        steps, ordered = number - np.arange(len(order)), p_values[order]
        largest = np.maximum.accumulate(steps * ordered)
        times = np.empty(len(order))
        times[order] = np.divide(largest, ordered, out=steps.astype(float), where=ordered > 0)
        return times

    return factors


def equivalence(frame: pd.DataFrame, margin: float) -> pd.DataFrame:
    """A frame of `verdicts` with `p_equivalent`, and `equivalent`: whether two arms differ by less than `margin`.

    Two one-sided tests (Schuirmann 1987), the larger p-value of the two, times `family`, also where p is corrected by
    Holm's method. Points, or nats of a loss.
    """
    nearest = (margin - frame["difference"].abs()) / frame["error"]  # the side on which the margin is nearer
    p = np.minimum(1.0, np.asarray(student_t.sf(nearest, frame["freedom"])) * frame["family"])
    return frame.assign(p_equivalent=p, equivalent=p < ALPHA)


def two_sided(difference: np.ndarray, error: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """p of Student's t; 1 for no difference and 0 for one that has no spread at all."""
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(difference == 0, 0.0, np.abs(difference) / error)
    return 2 * np.asarray(student_t.sf(np.where(np.isnan(error), np.nan, statistic), freedom))


def contrast_rows(assessed: Assessed, pairs: Sequence[Pair], correction: Correction) -> list[dict[str, Any]]:
    """The contrasts of every column, a row for each pair; here, and nowhere else, is a verdict decided."""
    rows = []
    for estimate in assessed.estimates if pairs else ():
        mine = [_row(assessed.group, estimate, pair) for pair in pairs]
        difference, error, freedom = (np.array([row[name] for row in mine]) for name in NUMBERS[:3])
        p = two_sided(difference, error, freedom)
        adjusted = np.minimum(1.0, correction(p) * p)
        family = int(correction(np.zeros(1))[0])
        half = student_t.isf(ALPHA / 2 / family, freedom) * error
        low, high = estimate.limits
        better = (difference > 0) ^ estimate.lowest_is_best
        decided = {
            "low": np.clip(difference - half, low - high, high - low).tolist(),
            "high": np.clip(difference + half, low - high, high - low).tolist(),
            **{"p": p.tolist(), "p_adjusted": adjusted.tolist(), "smallest": half.tolist()},
            "verdict": np.where(adjusted < ALPHA, np.where(better, "better", "worse"), "").tolist(),
        }
        rows += [row | {"family": family} | {name: decided[name][i] for name in decided} for i, row in enumerate(mine)]
    return rows


def _row(group: Group, estimate: Estimate, pair: Pair) -> dict[str, Any]:
    arm, reference = pair
    missing = float("nan")
    reasons = dict.fromkeys(estimate.why[one] for one in pair if one in estimate.why)
    why = [f"{reason} ({', '.join(a for a in pair if estimate.why.get(a) == reason)})" for reason in reasons]
    why = why if reference in group.arms else [APART]
    variance, freedom = (missing, missing) if why else estimate.difference_variance(arm, reference)
    return {
        "origin": group.origin,
        "shape": group.shape,
        "column": estimate.column,
        "arm": arm,
        "reference": reference,
        "difference": estimate.means.get(arm, missing) - estimate.means.get(reference, missing),
        "error": math.sqrt(variance),
        "freedom": freedom,
        "n_arm": estimate.seeds[arm],
        "n_reference": estimate.seeds.get(reference, 0),
        "seeds": seeds_covered(estimate),
        "why": "; ".join(why),
    }


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS)
