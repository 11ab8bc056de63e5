"""Verdicts on which arms differ.

The arms of a group are contrasted with one reference. The contrasts of a column are a family of
tests, and each contrast has one p-value.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit  # a tenth of the time that scipy.stats takes to load

from glue_bench.data.measures import AVERAGE
from glue_bench.errors import UserError
from glue_bench.stats.averages import average_estimate
from glue_bench.stats.estimates import ColumnEstimate, column_estimate
from glue_bench.stats.runs import ColumnRuns

ALPHA = 0.05
NO_COMMON_GROUP = "its arms differ in origin or shape"
Pair = tuple[str, str]
NUMBER_COLUMNS = [
    "difference",
    "error",
    "freedom",
    "low",
    "high",
    "p",
    "p_adjusted",
    "smallest",
    "p_paired",
]
VERDICT_COLUMNS = [
    "kind",
    "column",
    "arm",
    "reference",
    "difference",
    "low",
    "high",
    "error",
    "freedom",
    "p",
    "p_adjusted",
    "smallest",
    "n_arm",
    "n_reference",
    "seeds",
    "agree",
    "paired",
    "p_paired",
    "family",
    "verdict",
    "why",
]
LEAST_FOR_DEVIATION = 3
"""The number of seeds below which a standard deviation is not shown."""
MIN_PAIRED_SEEDS = 6
"""The number of seeds below which there is no paired t test."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Arms that are compared with each other, all of them with one reference.

    Attributes:
        arms: The arms, with the reference.
        reference: The arm that the others are compared with.
        kind: The kind of the group. No two groups have the same kind and the same reference.
        estimates: The estimates of the columns, which `assess` adds. The primary column, on which
            the arms are judged, comes first.
    """

    arms: tuple[str, ...]
    reference: str
    kind: str = "reference"
    estimates: tuple[ColumnEstimate, ...] = ()

    def rows_of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of this group in a frame of several, which has `kind` and `reference`."""
        is_of_group = (frame["kind"] == self.kind) & (frame["reference"] == self.reference)
        return frame[is_of_group]


def assess(
    columns: Iterable[ColumnRuns], groups: Sequence[Group], primary: str = AVERAGE
) -> list[Group]:
    """Return the groups with estimates of every column, and of the average.

    A group gets the columns in which it has a run, and all columns that count in the average. If
    only one counts, there is no average.

    Args:
        columns: The runs of each column. They are taken one by one, so that the predictions of one
            column are held at a time.
        groups: The groups.
        primary: The column that comes first in each group.
    """
    estimates_by_group: list[list[ColumnEstimate]] = [[] for _ in groups]
    averaged: set[str] = set()
    for column_runs in columns:
        if column_runs.averaged:
            averaged.add(column_runs.column)
        for group, estimates in zip(groups, estimates_by_group, strict=True):
            estimates.append(column_estimate(column_runs, group.arms, group.reference))
    assessed: list[Group] = []
    for group, estimates in zip(groups, estimates_by_group, strict=True):
        counted = [estimate for estimate in estimates if estimate.column in averaged]
        kept = [estimate for estimate in estimates if estimate.means or estimate.column in averaged]
        if len(counted) > 1:
            kept.insert(0, average_estimate(counted, group.arms))
        kept.sort(key=lambda estimate: estimate.column != primary)
        assessed.append(replace(group, estimates=tuple(kept)))
    return assessed


def verdicts(assessed: Sequence[Group], declared: Sequence[Sequence[str]] = ()) -> pd.DataFrame:
    """Return the contrasts of arms with the reference of their group, then the `declared` ones.

    The frame has VERDICT_COLUMNS, one row per group, column and arm other than the reference. The
    `kind` is the kind of the group, or "declared".

    - `difference`: mean of `arm` minus mean of `reference` over their seeds; points (0 to 100), or
      nats of a loss.
    - `error`, `freedom`: the standard error of the difference over seeds and examples, and its
      degrees of freedom.
    - `p`: two-sided, of Student's t = difference / error. `p_adjusted`: the same times `family`, at
      most 1 (Bonferroni).
    - `family`: the number of contrasts of a column: the group's arms without the reference, whether
      they have run or not.
    - `low`, `high`: a simultaneous 95% interval, which holds for all contrasts of the column
      together. It excludes 0 exactly where `p_adjusted` is below 0.05. It is clipped to the range
      of the metric.
    - `smallest`: half the width of that interval before clipping: the smallest difference that
      would have had a verdict.
    - `n_arm`, `n_reference`: the number of seeds of the two arms, of the kind that `seeds` names.
      With "fine-tuning" all runs start from one pretraining, and the interval covers other
      fine-tuning seeds of it. With "pretraining" it covers other pretrainings.
    - `paired`: the number of seeds that both arms have. `agree`: the number of these seeds in which
      the difference has the sign of `difference`.
    - `p_paired`: the p-value of Student's paired t test on the differences of these seeds,
      corrected as `p_adjusted` is; NaN below MIN_PAIRED_SEEDS. It pools no variance over arms and
      leaves out the examples. It decides nothing.
    - `verdict`: "better" or "worse" than the reference where `p_adjusted` is below 0.05, else "".
      A lower loss is better.
    - `why`: what is missing where there is no test; all but `difference` are NaN then.

    Contrasts that were `declared` before the runs are adjusted by Holm's (1979) method for their
    own number: `family` counts all that were declared. Their intervals hold for all of them
    together (Bonferroni), which intervals of Holm's steps would not. So Holm's method may find a
    difference whose interval includes 0, and `smallest` is the smallest difference that has a
    verdict whatever the others show. Arms that share no group are not tested (NO_COMMON_GROUP).
    Variances over seeds are pooled over the arms that the declared contrasts name, and no others:
    an arm that was added later changes no row.

    Args:
        assessed: Groups with their estimates.
        declared: Pairs of an arm and its reference.
    """
    rows: list[dict[str, Any]] = []
    for group in assessed:
        pairs = [(arm, group.reference) for arm in group.arms if arm != group.reference]
        rows += contrast_rows(group, pairs, len(pairs), stepwise=False)

    homes = _groups_of_declared(assessed, declared)
    arms_of_declared: set[str] = set()
    for pair in declared:
        arms_of_declared.update(pair)

    for place, group in enumerate(assessed):
        estimates: list[ColumnEstimate] = []
        for estimate in group.estimates:
            pooled_arms = [arm for arm in estimate.arms if arm in arms_of_declared]
            estimates.append(estimate.for_arms(pooled_arms))
        pairs = [pair for pair, home in homes.items() if home == place]
        planned = replace(group, kind="declared", estimates=tuple(estimates))
        rows += contrast_rows(planned, pairs, len(declared))

    types: dict[str, Any] = {"agree": "Int64", "paired": "Int64"}
    for name in NUMBER_COLUMNS:
        types[name] = float
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS).astype(types)


def _groups_of_declared(
    assessed: Sequence[Group], declared: Sequence[Sequence[str]]
) -> dict[Pair, int]:
    """Return for each declared contrast the index of the group in which it is tested.

    It is the first group that has both arms, else the first that has the arm. A contrast is left
    out if one of its arms is in no group.
    """
    homes: dict[Pair, int] = {}
    for arm, reference in declared:
        has_reference = False
        for place, group in enumerate(assessed):
            has_both = arm in group.arms and reference in group.arms
            has_reference |= reference in group.arms
            if has_both:
                homes[arm, reference] = place
                break
            if arm in group.arms:
                homes.setdefault((arm, reference), place)
        if not has_reference:
            homes.pop((arm, reference), None)
    return homes


def holm(p_values: np.ndarray, number: int) -> np.ndarray:
    """Return the factor of each p-value in Holm's (1979) step-down method.

    The k-th smallest p-value, k = 0, 1, ..., is multiplied by `number` - k. An adjusted p-value is
    not smaller than the adjusted p-values of the steps before it.

    Args:
        p_values: (tests,). Tests that were not made are NaN and come last.
        number: The number of tests of the family, which may be larger than the number of p-values.

    Returns:
        Factors (tests,): p * factor, at most 1, is the adjusted p-value.
    """
    order = np.argsort(p_values, kind="stable")
    ordered = p_values[order]
    steps = number - np.arange(len(order))
    largest = np.maximum.accumulate(steps * ordered)
    # A p-value that is 0 or missing gets the factor of its step.
    in_order = np.divide(largest, ordered, out=steps.astype(float), where=ordered > 0)
    factors = np.empty(len(order))
    factors[order] = in_order
    return factors


def equivalence(frame: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Test whether two arms differ by less than a margin, by two one-sided tests (Schuirmann 1987).

    The p-value is the larger one of the two tests, multiplied by 2 and by `family`, even if p is
    corrected by Holm's method. So a contrast is `equivalent` exactly where its interval lies in the
    margin.

    Args:
        frame: A frame of `verdicts`.
        margin: Points, or nats of a loss.

    Returns:
        The frame with the columns `p_equivalent` and `equivalent`.

    Raises:
        UserError: The margin is not above 0.
    """
    if not margin > 0:
        raise UserError(f"--equivalent {margin:g}: give a difference above 0, such as 0.5")
    # The test against the nearer end of the margin has the larger p-value.
    size = frame["difference"].abs()
    distance = margin - size
    statistic = distance / frame["error"]
    one_sided = np.asarray(stdtr(frame["freedom"], -statistic))
    factor = 2 * one_sided
    p = np.minimum(1.0, factor * frame["family"])
    return frame.assign(p_equivalent=p, equivalent=p < ALPHA)


def two_sided(difference: np.ndarray, error: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return the two-sided p-values of Student's t = difference / error.

    It is 1 where there is no difference, and 0 where there is a difference without any error.

    Args:
        difference: (...).
        error: The standard errors, (...); NaN gives NaN.
        freedom: The degrees of freedom, (...).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(difference) / error
    statistic = np.where(difference == 0, 0.0, ratio)
    statistic = np.where(np.isnan(error), np.nan, statistic)
    return 2 * np.asarray(stdtr(freedom, -statistic))


def paired_p(differences: np.ndarray) -> float:
    """Return the p-value of Student's paired t test on the differences of seeds, (seeds,).

    It is NaN below MIN_PAIRED_SEEDS.
    """
    count = len(differences)
    if count < MIN_PAIRED_SEEDS:
        return math.nan
    deviation = differences.std(ddof=1)
    error = deviation / math.sqrt(count)
    freedom = np.array(count - 1)
    p = two_sided(differences.mean(), error, freedom)
    return float(p)


def contrast_rows(
    group: Group, pairs: Sequence[Pair], family: int, *, stepwise: bool = True
) -> list[dict[str, Any]]:
    """Return the contrasts of every column, a row for each pair. All verdicts are decided here.

    Args:
        group: A group with its estimates.
        pairs: Pairs of an arm and its reference.
        family: The number of tests that p is corrected for.
        stepwise: Whether to correct p by Holm's method, else by Bonferroni's.

    Returns:
        Rows with VERDICT_COLUMNS; a row without a test lacks `error`, `freedom` and seeds.
    """
    rows: list[dict[str, Any]] = []
    if not pairs:
        return rows

    for estimate in group.estimates:
        tests = [_test_row(group, estimate, pair) for pair in pairs]
        difference = np.array([row["difference"] for row in tests])
        error = np.array([row.get("error", np.nan) for row in tests])
        freedom = np.array([row.get("freedom", np.nan) for row in tests])

        p = two_sided(difference, error, freedom)
        of_pairs = np.array([row.get("p_paired", np.nan) for row in tests])
        adjusted = _adjusted(p, family, stepwise=stepwise)
        quantile = -stdtrit(freedom, ALPHA / 2 / family)
        half_width = quantile * error

        low, high = estimate.limits
        largest = high - low
        is_better = (difference > 0) ^ estimate.lowest_is_best
        direction = np.where(is_better, "better", "worse")
        verdict = np.where(adjusted < ALPHA, direction, "")

        decided = {
            "low": np.clip(difference - half_width, -largest, largest),
            "high": np.clip(difference + half_width, -largest, largest),
            "p": p,
            "p_adjusted": adjusted,
            "smallest": half_width,
            "p_paired": _adjusted(of_pairs, family, stepwise=stepwise),
            "verdict": verdict,
        }

        for place, row in enumerate(tests):
            row["family"] = family
            for name, values in decided.items():
                row[name] = values[place].item()
            rows.append(row)
    return rows


def _adjusted(p_values: np.ndarray, family: int, *, stepwise: bool) -> np.ndarray:
    """Return p-values after Holm's correction, or Bonferroni's, for a family of tests."""
    factors = holm(p_values, family) if stepwise else family
    return np.minimum(1.0, factors * p_values)


def _test_row(group: Group, estimate: ColumnEstimate, pair: Pair) -> dict[str, Any]:
    """Return what is known of a contrast before it is decided, or why it cannot be tested."""
    arm, reference = pair
    arms_by_reason: dict[str, list[str]] = {}
    for name in pair:
        if name in estimate.untested:
            arms_by_reason.setdefault(estimate.untested[name], []).append(name)

    reasons = [f"{reason} ({', '.join(arms)})" for reason, arms in arms_by_reason.items()]
    if reference not in group.arms:
        reasons = [NO_COMMON_GROUP]

    mean = estimate.means.get(arm, math.nan)
    reference_mean = estimate.means.get(reference, math.nan)
    row: dict[str, Any] = {
        "kind": group.kind,
        "column": estimate.column,
        "arm": arm,
        "reference": reference,
        "difference": mean - reference_mean,
        "n_arm": estimate.seeds[arm],
        "n_reference": estimate.seeds.get(reference, 0),
        "seeds": estimate.kind,
        "why": "; ".join(reasons),
    }

    if reasons:
        return row

    variance, freedom = estimate.difference_variance(arm, reference)
    differences = estimate.differences(arm, reference)
    signs = np.sign(differences)
    row["error"] = math.sqrt(variance)
    row["freedom"] = freedom
    agrees = signs == np.sign(row["difference"])
    row["agree"] = int(agrees.sum())
    row["paired"] = len(signs)
    row["p_paired"] = paired_p(differences)
    return row
