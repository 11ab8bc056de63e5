"""What the runs of a group say beside its contrasts: each arm by itself, and each column as a whole."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from glue_bench.stats.estimates import Estimate
from glue_bench.stats.verdicts import ALPHA, Assessed, seeds_covered

ARM_COLUMNS = ["origin", "shape", "column", "arm", "mean", "n", "seeds", "deviation", "low", "high", "error", "freedom",
               "why"]  # fmt: skip
COLUMN_COLUMNS = ["origin", "shape", "column", "reference", "constant", "smallest", "seeds", "pretraining_seeds",
                  "finetuning_seeds", "pretraining_deviation", "finetuning_deviation",
                  "example_deviation"]  # fmt: skip
LEAST_FOR_DEVIATION = 3
COVERS = {
    "fine-tuning": "other fine-tuning seeds of the same pretrained weights, and other examples; not other pretrainings",
    "pretraining": "other pretrainings, other fine-tuning seeds and other examples",
}
"""What an interval covers, by the kind of seeds that it is made of."""


def arms_frame(assessed: Iterable[Assessed]) -> pd.DataFrame:
    """Each arm of a group by itself, in each column: ARM_COLUMNS.

    - `mean`: over `n` seeds of the kind `seeds` ("fine-tuning" or "pretraining"); points, of a loss nats.
    - `deviation`: the sample standard deviation over these seeds; NaN for fewer than three, which tell too little.
    - `low`, `high`: a 95% interval of this mean alone, from `error` and `freedom`, over seeds and examples. It is for
      comparing with a figure that is known, such as a published one; two arms are compared by `verdicts`.
    - `why`: what is missing where there is no interval.
    """
    rows = [_arm(one, estimate, arm) for one in assessed for estimate in one.estimates for arm in one.group.arms]
    return pd.DataFrame(rows, columns=ARM_COLUMNS).astype(dict.fromkeys(("mean", "deviation", "low", "high"), float))


def columns_frame(assessed: Iterable[Assessed], contrasts: pd.DataFrame) -> pd.DataFrame:
    """Each column of a group as a whole: COLUMN_COLUMNS; `contrasts` is what `verdicts` made of the same groups.

    - `constant`: the score of the majority class, or of a constant; NaN where it is unknown or means nothing.
    - `smallest`: the median over the column's contrasts of the smallest difference that would have had a verdict.
    - `seeds`: what the intervals cover, a key of COVERS.
    - `pretraining_seeds`, `finetuning_seeds`: how many each arm has, and how many for each pretraining (the mean).
    - `finetuning_deviation`: of one run over fine-tuning seeds, pooled within arms and pretraining seeds.
    - `pretraining_deviation`: of how differently arms take to a pretraining seed (the arm-by-pretraining component);
      of one fine-tuning seed for each pretraining only the sum of both is known, and stands here.
    - `example_deviation`: of a difference over dev sets of this size alone, which no number of seeds reduces.
    """
    smallest = contrasts.groupby(["origin", "shape", "column"])["smallest"].median()
    rows = [
        {
            "origin": one.group.origin,
            "shape": one.group.shape,
            "column": estimate.column,
            "reference": one.group.reference,
            "constant": estimate.constant,
            "smallest": smallest.get((one.group.origin, one.group.shape, estimate.column), math.nan),
            "seeds": seeds_covered(estimate),
            **components(estimate, one.group.reference),
        }
        for one in assessed
        for estimate in one.estimates
    ]
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
        "example_deviation": math.sqrt(example_variance(estimate, reference)),
    }


def example_variance(estimate: Estimate, reference: str) -> float:
    """The variance of a difference over examples alone, without what seeds add to it: the mean over contrasts."""
    if reference not in estimate.arms or len(estimate.arms) < 2:
        return math.nan
    r = estimate.arms.index(reference)
    rest = np.maximum(0.0, estimate.examples[r] - estimate.shared[r])
    return float(np.delete(rest, r).mean())


def _arm(assessed: Assessed, estimate: Estimate, arm: str) -> dict[str, Any]:
    group, mean = assessed.group, estimate.means.get(arm, math.nan)
    row = {
        **{"origin": group.origin, "shape": group.shape, "column": estimate.column, "arm": arm, "mean": mean},
        **{"n": estimate.seeds[arm], "seeds": seeds_covered(estimate), "why": estimate.why.get(arm, "")},
    }
    if arm not in estimate.arms:
        return row
    variance, freedom = estimate.own_variance(arm)
    half = float(student_t.isf(ALPHA / 2, freedom)) * math.sqrt(variance)
    low, high = estimate.limits
    return row | {
        "deviation": estimate.deviation(arm) if estimate.seeds[arm] >= LEAST_FOR_DEVIATION else math.nan,
        **{"low": max(low, mean - half), "high": min(high, mean + half), "error": math.sqrt(variance)},
        "freedom": freedom,
    }
