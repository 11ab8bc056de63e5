"""How many seeds it takes to see a difference, from how far an experiment's own scores spread."""

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import nct, norm
from scipy.stats import t as student_t

from glue_bench.errors import UserError
from glue_bench.stats.differences import Measure, pooled_variance
from glue_bench.stats.measures import Assessed
from glue_bench.stats.pairs import ALPHA, AssessedBlock
from glue_bench.values import BLOCK

MOST = 10_000
POWER_COLUMNS = [
    "origin", "column", "difference", "power", "seeds", "seed_deviation", "example_deviation", "why", "shape",
]  # fmt: skip


def power_frame(blocks: Iterable[AssessedBlock], difference: float, power: float = 0.8) -> pd.DataFrame:
    """Seeds that each of two arms needs for a difference to be seen, by block and column: POWER_COLUMNS.

    "Seen" is p < 0.05, two-sided, in one test without correction, with probability `power`. `seed_deviation` is of one
    run over seeds (pooled over the arms), `example_deviation` of a difference over dev sets alone (the root mean
    square over pairs of arms), both in points. Where no number up to 10,000 will do, `seeds` is missing and `why`
    says so.

    Raises:
        UserError: the difference is not above 0, or the power not between 0.05 and 1.
    """
    if not (math.isfinite(difference) and difference > 0):
        raise UserError(f"--difference {difference:g}: give points above 0, such as 0.5")
    if not ALPHA < power < 1:
        raise UserError(f"--power {power:g}: give a probability between {ALPHA:g} and 1, such as 0.8")
    rows = [
        {
            **dict(zip(BLOCK, block.key, strict=True)),
            "column": assessed.column,
            "difference": difference,
            "power": power,
        }
        | _row(assessed, difference, power)
        for block in blocks
        for assessed in block.assessed
    ]
    return pd.DataFrame(rows, columns=POWER_COLUMNS).astype({"seeds": "Int64"})


def seeds_needed(difference: float, power: float, seed_variance: float, example_variance: float) -> int | None:
    """The least number of seeds per arm, 2 or more, with at least this power; None where 10,000 are too few."""

    def enough(n: int) -> bool:
        return power_of(difference, n, seed_variance, example_variance) >= power

    if not enough(MOST):
        return None
    return 2 + bisect_left(range(2, MOST), True, key=enough)


def power_of(difference: float, seeds: int, seed_variance: float, example_variance: float) -> float:
    """Probability that a true difference has p < 0.05 (two-sided) with so many seeds per arm.

    The statistic is noncentral t with Satterthwaite's degrees of freedom: V = example_variance + 2 seed_variance / n,
    of which only the second term is estimated from few numbers.
    """
    by_seeds = 2 * seed_variance / seeds
    variance = example_variance + by_seeds
    if variance == 0:
        return 1.0
    shift = difference / math.sqrt(variance)
    if by_seeds == 0:
        limit = float(norm.ppf(1 - ALPHA / 2))
        return float(norm.sf(limit - shift) + norm.cdf(-limit - shift))
    freedom = 2 * (seeds - 1) * (variance / by_seeds) ** 2
    limit = float(student_t.ppf(1 - ALPHA / 2, freedom))
    # The far tail adds nothing that counts, and SciPy's noncentral t is NaN in it.
    return float(nct.sf(limit, freedom, shift))


def example_variance(measure: Measure) -> float:
    """Variance of a difference over dev sets alone, what no number of seeds takes away: the mean over pairs of arms."""
    shared = {arm: measure.interaction(arm) / measure.seeds(arm) for arm in measure.arms}
    pairs = combinations(measure.arms, 2)
    return float(np.mean([max(0.0, measure.example_variance(a, b) - (shared[a] + shared[b])) for a, b in pairs]))


def _row(assessed: Assessed, difference: float, power: float) -> dict[str, object]:
    if assessed.measure is None or len(assessed.measure.arms) < 2:
        why = next(iter(assessed.why.values()), "a difference needs two arms")
        return {"seeds": None, "why": why}
    by_seed, by_examples = pooled_variance(assessed.measure)[0], example_variance(assessed.measure)
    seeds = seeds_needed(difference, power, by_seed, by_examples)
    spread = math.sqrt(by_examples)
    why = "" if seeds else f"no number of seeds: the dev set alone spreads a difference by {spread:.2f}"
    return {"seeds": seeds, "seed_deviation": math.sqrt(by_seed), "example_deviation": spread, "why": why}
