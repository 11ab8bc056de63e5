"""Which arms differ: contrasts with one reference, a family of tests for each column, one p-value for each contrast."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit  # a tenth of the time that scipy.stats takes to load

from glue_bench.stats.estimates import Estimate, average_estimate, column_estimate
from glue_bench.stats.outcomes import AVERAGE, Outcomes

ALPHA = 0.05
APART = "its arms differ in origin or shape"
Pair = tuple[str, str]
NUMBERS = ["difference", "error", "freedom", "low", "high", "p", "p_adjusted", "smallest"]
VERDICT_COLUMNS = [
    "origin", "shape", "column", "arm", "reference", "difference", "low", "high", "error", "freedom", "p",
    "p_adjusted", "smallest", "n_arm", "n_reference", "seeds", "agree", "paired", "family", "verdict", "why",
]  # fmt: skip
ARM_COLUMNS = ["origin", "shape", "column", "arm", "mean", "n", "seeds", "deviation", "why"]
COLUMN_COLUMNS = ["origin", "shape", "column", "reference", "smallest", "seeds", "pretraining_seeds",
                  "finetuning_seeds", "pretraining_deviation", "finetuning_deviation",
                  "example_deviation"]  # fmt: skip
LEAST_FOR_DEVIATION = 3
COVERS = {
    "fine-tuning": "other fine-tuning seeds, other examples; not other pretrainings",
    "random": "other fine-tuning seeds, other examples",
    "pretraining": "other pretrainings, other fine-tuning seeds, other examples (documents for Val. loss)",
}
"""What an interval covers, by the kind of seeds that it is made of, or of fine-tuning seeds of random weights."""
LETTER_COLUMNS = ["origin", "shape", "column", "arm", "mean", "letters"]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Arms that are compared with each other, all of them with `reference`; `origin` and `shape` name their block.

    `estimates` is what `assess` finds in their columns: the primary one, on which the arms are judged, comes first.
    """

    origin: str
    shape: str
    arms: tuple[str, ...]
    reference: str
    estimates: tuple[Estimate, ...] = ()


def assess(outcomes: Iterable[Outcomes], groups: Sequence[Group], primary: str = AVERAGE) -> list[Group]:
    """The groups with estimates of every column, and of the average. One column's predictions are held at a time.

    A group has the columns of which it has a run, and all that count in the average. A single column has no average.
    """
    columns: list[list[Estimate]] = [[] for _ in groups]
    averaged, assessed = set[str](), []
    for one in outcomes:
        averaged |= {one.column} if one.averaged else set()
        for group, mine in zip(groups, columns, strict=True):
            mine.append(column_estimate(one, group.arms, group.reference))
    for group, mine in zip(groups, columns, strict=True):
        counted = [column for column in mine if column.column in averaged]
        average = [average_estimate(counted, group.arms)] if len(counted) > 1 else []
        shown = [*average, *(column for column in mine if column.means or column.column in averaged)]
        ordered = sorted(shown, key=lambda column: column.column != primary)
        assessed.append(replace(group, estimates=tuple(ordered)))
    return assessed


def verdicts(assessed: Iterable[Group], *, every: bool = False) -> pd.DataFrame:
    """Each arm's contrast with the reference of its group, in each column: VERDICT_COLUMNS.

    One row per group, column and arm other than the reference, or with `every` one per pair of arms, by Holm's method
    as `declared`.

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
    """
    rows = []
    for one in assessed:
        pairs = [(arm, one.reference) for arm in one.arms if arm != one.reference]
        pairs = list(combinations(one.arms, 2)) if every else pairs
        rows += contrast_rows(one, pairs, len(pairs), stepwise=every)
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS).astype(dict.fromkeys(NUMBERS, float))


def declared(assessed: Iterable[Group], contrasts: Sequence[Pair]) -> pd.DataFrame:
    """Contrasts named before the runs, as `verdicts`; adjusted by Holm's method for their own number in a column.

    `family` counts all that were named, also those whose arms have not run. The intervals hold for all of them together
    (Bonferroni), which those of Holm's steps would not. So Holm's method may find a difference whose interval includes
    0, and `smallest` is the least difference that has a verdict whatever the others show. Arms that share no group are
    not tested (APART). Variances over seeds are pooled over the arms that the contrasts name, and no others: an arm
    that was added later changes no row.
    """
    assessed = list(assessed)
    known = {arm for one in assessed for arm in one.arms}
    homes = {
        (arm, reference): min(mine, key=lambda one: reference not in one.arms)
        for arm, reference in contrasts
        if reference in known and (mine := [one for one in assessed if arm in one.arms])
    }
    named = {arm for pair in contrasts for arm in pair}
    rows = []
    for one in assessed:
        estimates = tuple(estimate.of([arm for arm in estimate.arms if arm in named]) for estimate in one.estimates)
        asked = [pair for pair, home in homes.items() if home is one]
        rows += contrast_rows(replace(one, estimates=estimates), asked, len(contrasts))
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS).astype(dict.fromkeys(NUMBERS, float))


def arms_frame(assessed: Iterable[Group]) -> pd.DataFrame:
    """Each arm of a group by itself, in each column: ARM_COLUMNS.

    - `mean`: over `n` seeds of the kind `seeds` ("fine-tuning" or "pretraining"); points, of a loss nats.
    - `deviation`: the sample standard deviation over these seeds; NaN for fewer than three, which tell too little.
    - `why`: what is missing where it is not tested.
    """
    rows = []
    for group, estimate in ((one, estimate) for one in assessed for estimate in one.estimates):
        for arm in group.arms:
            tested = arm in estimate.arms and estimate.seeds[arm] >= LEAST_FOR_DEVIATION
            place, n = (group.origin, group.shape, estimate.column, arm, estimate.means.get(arm)), estimate.seeds[arm]
            deviation = estimate.deviation(arm) if tested else None
            rows.append((*place, n, estimate.kind, deviation, estimate.why.get(arm, "")))
    return pd.DataFrame(rows, columns=ARM_COLUMNS).astype({"mean": float, "deviation": float})


def columns_frame(assessed: Iterable[Group], contrasts: pd.DataFrame) -> pd.DataFrame:
    """Each column of a group as a whole: COLUMN_COLUMNS; `contrasts` is what `verdicts` made of the same groups.

    - `smallest`: the median over the column's contrasts of the smallest difference that would have had a verdict.
    - `seeds`: what the intervals cover, a key of COVERS.
    - `pretraining_seeds`, `finetuning_seeds`: how many each arm has, and how many for each pretraining (the mean).
    - `finetuning_deviation`: of one run over fine-tuning seeds, pooled within arms and pretraining seeds.
    - `pretraining_deviation`: of how differently arms take to a pretraining seed (the arm-by-pretraining component);
      of one fine-tuning seed for each pretraining only the sum of both is known, and stands here.
    - `example_deviation`: of a difference over dev sets of this size alone, which no number of seeds reduces.
    """
    smallest = contrasts.groupby(["origin", "shape", "column"])["smallest"].median()
    rows = []
    for group, estimate in ((one, estimate) for one in assessed for estimate in one.estimates):
        key = {"origin": group.origin, "shape": group.shape, "column": estimate.column}
        facts = {"reference": group.reference, "seeds": estimate.kind, **components(estimate, group.reference)}
        rows.append(key | facts | {"smallest": smallest.get(tuple(key.values()), math.nan)})
    return pd.DataFrame(rows, columns=COLUMN_COLUMNS)


def components(estimate: Estimate, reference: str) -> dict[str, float]:
    """The standard deviations of `columns_frame`, and the numbers of seeds; NaN where there are too few runs."""
    if not estimate.arms:
        return {}
    tasks = estimate.tasks.values()
    finetuning = sum(scores.finetuning_variance() for scores in tasks)
    of_means = sum(scores.finetuning_variance() / scores.finetuning_seeds for scores in tasks)
    pretraining = math.nan
    if estimate.blocked and len(estimate.arms) > 1:
        both = float(estimate.spreads[0].pooled)
        pretraining = both if math.isnan(finetuning) else max(0.0, both - of_means)
    return {
        "pretraining_seeds": estimate.seeds[estimate.arms[0]] if estimate.blocked else 1,
        "finetuning_seeds": float(np.mean([scores.finetuning_seeds for scores in tasks])),
        "pretraining_deviation": math.sqrt(pretraining),
        "finetuning_deviation": math.sqrt(finetuning),
        "example_deviation": math.sqrt(estimate.example_variance(reference)),
    }


def letters_of(arms: Sequence[str], apart: Collection[frozenset[str]]) -> dict[str, str]:
    """Compact letters for arms in order, the best first: two arms share a letter exactly if they are not in `apart`.

    Insert and absorb (Piepho 2004, "An algorithm for a letter-based representation of all-pairwise comparisons").
    """
    groups = [frozenset(arms)] if arms else []
    for pair in sorted(apart, key=sorted):
        split: list[frozenset[str]] = []
        for group in groups:
            split += [group - {arm} for arm in sorted(pair)] if pair <= group else [group]
        groups = list(dict.fromkeys(group for group in split if not any(group < other for other in split)))  # absorbed
    groups.sort(key=lambda group: sorted(map(arms.index, group)))
    # a to z, then a1 to z1 and so on.
    letters = [letter + turn for turn in ("", *map(str, range(1, len(groups)))) for letter in ascii_lowercase]
    return {arm: "".join(letters[i] for i, group in enumerate(groups) if arm in group) for arm in arms}


def letters_frame(assessed: Iterable[Group], pairs: pd.DataFrame) -> pd.DataFrame:
    """Letters of each arm that has an interval, the best first: LETTER_COLUMNS; `pairs` are verdicts of `every` one."""
    apart, rows = dict[tuple[str, ...], set[frozenset[str]]](), []
    for *key, arm, reference in pairs.loc[pairs["verdict"] != "", VERDICT_COLUMNS[:5]].to_numpy().tolist():
        apart.setdefault(tuple(key), set()).add(frozenset((arm, reference)))
    for group, estimate in ((one, estimate) for one in assessed for estimate in one.estimates):
        place = (group.origin, group.shape, estimate.column)
        order = sorted(estimate.arms, key=estimate.means.__getitem__, reverse=not estimate.lowest_is_best)
        letters = letters_of(order, apart.get(place, set()))
        rows += [(*place, arm, estimate.means[arm], letters[arm]) for arm in order]
    return pd.DataFrame(rows, columns=LETTER_COLUMNS)


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

    Two one-sided tests (Schuirmann 1987), the larger p-value of the two, times `family`, also where p is corrected by
    Holm's method. Points, or nats of a loss.
    """
    nearest = (margin - frame["difference"].abs()) / frame["error"]  # the side on which the margin is nearer
    p = np.minimum(1.0, np.asarray(stdtr(frame["freedom"], -nearest)) * frame["family"])
    return frame.assign(p_equivalent=p, equivalent=p < ALPHA)


def two_sided(difference: np.ndarray, error: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """p of Student's t; 1 for no difference and 0 for one that has no spread at all."""
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(difference == 0, 0.0, np.abs(difference) / error)
    return 2 * np.asarray(stdtr(freedom, -np.where(np.isnan(error), np.nan, statistic)))


def contrast_rows(group: Group, pairs: Sequence[Pair], family: int, *, stepwise: bool = True) -> list[dict[str, Any]]:
    """The contrasts of every column, a row for each pair; here, and nowhere else, is a verdict decided.

    p is corrected for the number of tests in the `family` by Holm's method, or by Bonferroni's if it is not `stepwise`.
    """
    rows = []
    for estimate in group.estimates if pairs else ():
        mine = [_row(group, estimate, pair) for pair in pairs]
        difference, error, freedom = (np.array([row[name] for row in mine]) for name in NUMBERS[:3])
        p = two_sided(difference, error, freedom)
        adjusted = np.minimum(1.0, (holm(p, family) if stepwise else family) * p)
        half = -stdtrit(freedom, ALPHA / 2 / family) * error
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
    """What is known of a contrast before it is decided, and why it cannot be."""
    arm, reference = pair
    reasons = dict.fromkeys(estimate.why[one] for one in pair if one in estimate.why)
    why = [f"{reason} ({', '.join(a for a in pair if estimate.why.get(a) == reason)})" for reason in reasons]
    why = why if reference in group.arms else [APART]
    difference = estimate.means.get(arm, math.nan) - estimate.means.get(reference, math.nan)
    variance, freedom = (math.nan, math.nan) if why else estimate.difference_variance(arm, reference)
    by_seed = None if why else estimate.differences(arm, reference)
    return {
        **{"origin": group.origin, "shape": group.shape, "column": estimate.column},
        **{"arm": arm, "reference": reference, "difference": difference},
        **{"error": math.sqrt(variance), "freedom": freedom, "seeds": estimate.kind},
        **{"n_arm": estimate.seeds[arm], "n_reference": estimate.seeds.get(reference, 0)},
        "agree": None if by_seed is None else int((np.sign(by_seed) == np.sign(difference)).sum()),
        "paired": None if by_seed is None else len(by_seed),
        "why": "; ".join(why),
    }
