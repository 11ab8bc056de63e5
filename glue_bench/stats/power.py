"""How many seeds it takes until a difference has a verdict, by the arithmetic of the verdicts themselves.

Experiments with the variances found are drawn, and judged as `verdicts` judges: the same V, degrees of freedom and
correction. Draws do not depend on the variances, which only scale them, so that few are needed for many designs.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from glue_bench.errors import UserError
from glue_bench.stats.estimates import Estimate
from glue_bench.stats.summaries import components, example_variance
from glue_bench.stats.variance import Spread, combined, of_blocks, of_seeds
from glue_bench.stats.verdicts import ALPHA, Assessed, two_sided

DRAWS = 4000
MOST_SEEDS, MOST_PRETRAININGS, MOST_FINETUNINGS = 1000, 40, 10
TOO_FEW = "no number of seeds will do: the dev set alone spreads a difference by {spread:.2f}"
POWER_COLUMNS = [
    "origin", "shape", "column", "seeds", "difference", "power", "pretraining_seeds", "finetuning_seeds",
    "best_finetuning_seeds", "cost", "why",
]  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """What one pretraining and what one fine-tuning seed of an arm costs, in one unit, such as seconds."""

    pretraining: float
    finetuning: float


def power_frame(
    assessed: Iterable[Assessed], difference: float, power: float = 0.8, costs: Costs | None = None
) -> pd.DataFrame:
    """Seeds with which a true difference gets a verdict with this probability: POWER_COLUMNS, by group and column.

    A row for each kind of `seeds` whose variance is known: "fine-tuning" seeds of one pretraining, or "pretraining"
    seeds, each with as many fine-tuning seeds as cost least. `difference` is in points (nats of a loss). `cost` is that
    of one arm, NaN without `costs`, in whose place a pretraining then counts as much as a fine-tuning;
    `best_finetuning_seeds` is sqrt(c_P sigma_F^2 / (c_F sigma_P^2)), which is best for many pretraining seeds. `why`
    says so where no number will do, or what is missing.

    Raises:
        UserError: the difference is not above 0, or the power not between 0.05 and 1.
    """
    if not (math.isfinite(difference) and difference > 0):
        raise UserError(f"--difference {difference:g}: give points above 0, such as 0.5")
    if not ALPHA < power < 1:
        raise UserError(f"--power {power:g}: give a probability between {ALPHA:g} and 1, such as 0.8")
    rows = [
        {"origin": one.group.origin, "shape": one.group.shape, "column": estimate.column, "power": power, **row}
        | {"difference": difference}
        for one in assessed
        for estimate in one.estimates
        for row in _rows(estimate, one.group.reference, len(one.group.arms), Target(difference, power), costs)
    ]
    whole = dict.fromkeys(("pretraining_seeds", "finetuning_seeds"), "Int64")
    return pd.DataFrame(rows, columns=POWER_COLUMNS).astype(whole)


@dataclass(frozen=True)
class Target:
    """A true difference, and the probability with which it is to be seen."""

    difference: float
    power: float


@dataclass(frozen=True, kw_only=True)
class Spreads:
    """The variances from which experiments are drawn, for a group of so many arms.

    `finetuning` is that of a run for each independent task, `pretraining` of the arm-by-pretraining component,
    `examples` that of a difference over examples alone, and `overlap` the share of the spread over seeds that the
    variance over examples has too.
    """

    arms: int
    finetuning: tuple[float, ...]
    pretraining: float
    examples: float
    overlap: float

    def power_of_seeds(self, difference: float, seeds: int) -> float:
        """The probability of a verdict with so many fine-tuning seeds of one pretraining."""
        units = [_unit_of_seeds(self.arms, seeds, task) for task in range(len(self.finetuning))]
        spread = 2 * sum(self.finetuning) / seeds
        found = difference + math.sqrt(self.examples + spread) * _normal()
        return self._seen(found, [_scaled(unit, v) for unit, v in zip(units, self.finetuning, strict=True)], spread)

    def power_of_pretrainings(self, difference: float, pretrainings: int, finetunings: int) -> float:
        """The probability of a verdict with so many pretraining seeds, and fine-tuning seeds for each."""
        unit, means = _unit_of_blocks(self.arms, pretrainings)
        each = self.pretraining + sum(self.finetuning) / finetunings
        found = difference + math.sqrt(each) * means + math.sqrt(self.examples) * _normal()
        return self._seen(found, [_scaled(unit, each)], 2 * each / pretrainings)

    def _seen(self, found: np.ndarray, spreads: list[Spread], total: float) -> float:
        shared = self.overlap * total
        variance, freedom = combined(spreads, [0, 1], self.examples + shared, shared)
        p = two_sided(found, np.sqrt(variance), freedom)
        return float(np.mean((p * (self.arms - 1) < ALPHA) & (found > 0)))

    def examples_suffice(self, target: Target) -> bool:
        """Whether endless seeds would do: their only limit is the dev set."""
        if self.examples == 0:
            return True
        limit = norm.isf(ALPHA / 2 / (self.arms - 1))
        return bool(norm.sf(limit - target.difference / math.sqrt(self.examples)) >= target.power)


def spreads_of(estimate: Estimate, reference: str, arms: int) -> Spreads:
    """The variances of an estimate whose reference has an interval.

    With one fine-tuning seed for each pretraining only the sum of their variances is known, and counts as the latter's.
    """
    found, r = components(estimate, reference), estimate.arms.index(reference)
    totals = np.delete(sum(spread.variance + spread.variance[r] for spread in estimate.spreads), r)
    overlaps = np.delete(estimate.shared[r], r) / np.where(totals > 0, totals, 1.0)
    finetuning = tuple(scores.finetuning_variance() for scores in estimate.tasks.values())
    pretraining = found["pretraining_deviation"] ** 2
    if math.isnan(sum(finetuning)):
        finetuning, pretraining = (0.0,), float(estimate.spreads[0].pooled)
    return Spreads(
        arms=arms,
        finetuning=finetuning,
        pretraining=pretraining,
        examples=example_variance(estimate, reference),
        overlap=float(np.clip(overlaps.mean(), 0.0, 1.0)),
    )


def least(enough: Callable[[int], bool], most: int) -> int | None:
    """The least number from 2 on that is enough, of those up to `most`; None where none is."""
    if not enough(most):
        return None
    return 2 + bisect_left(range(2, most), True, key=enough)


def _rows(
    estimate: Estimate, reference: str, arms: int, target: Target, costs: Costs | None
) -> Iterator[dict[str, Any]]:
    if reference not in estimate.arms or len(estimate.arms) < 2:
        yield {"why": next(iter(estimate.why.values()), "a difference needs two arms")}
        return
    spreads = spreads_of(estimate, reference, arms)
    designs = {"pretraining": _pretrainings} if estimate.blocked else {}
    if sum(spreads.finetuning) > 0 or not estimate.blocked:
        designs = {"fine-tuning": _finetunings, **designs}
    for seeds, cheapest in designs.items():
        design = cheapest(spreads, target, costs or Costs(1.0, 1.0))
        why = "" if design else TOO_FEW.format(spread=math.sqrt(spreads.examples))
        cost = design.get("cost") if costs else None
        yield {"seeds": seeds, "why": why} | design | {"cost": cost}


def _finetunings(spreads: Spreads, target: Target, costs: Costs) -> dict[str, Any]:
    if not spreads.examples_suffice(target):
        return {}
    number = least(lambda n: spreads.power_of_seeds(target.difference, n) >= target.power, MOST_SEEDS)
    if number is None:
        return {}
    return {"pretraining_seeds": 1, "finetuning_seeds": number, "cost": costs.pretraining + number * costs.finetuning}


def _pretrainings(spreads: Spreads, target: Target, costs: Costs) -> dict[str, Any]:
    """The cheapest design: of each number of fine-tuning seeds that with the fewest pretraining seeds."""
    if not spreads.examples_suffice(target):
        return {}
    designs = []
    for each in range(1, MOST_FINETUNINGS + 1):

        def enough(number: int, each: int = each) -> bool:
            return spreads.power_of_pretrainings(target.difference, number, each) >= target.power

        if (number := least(enough, MOST_PRETRAININGS)) is not None:
            cost = number * (costs.pretraining + each * costs.finetuning)
            designs.append({"pretraining_seeds": number, "finetuning_seeds": each, "cost": cost})
    best = math.nan
    if spreads.pretraining > 0:
        ratio = costs.pretraining * sum(spreads.finetuning) / (costs.finetuning * spreads.pretraining)
        best = math.sqrt(ratio)
    return min(designs, key=lambda design: design["cost"]) | {"best_finetuning_seeds": best} if designs else {}


def _scaled(unit: Spread, variance: float) -> Spread:
    return unit._replace(variance=unit.variance * variance, pooled=unit.pooled * variance)


@cache
def _normal() -> np.ndarray:
    return np.random.default_rng(0).normal(size=DRAWS)


@cache
def _unit_of_seeds(arms: int, seeds: int, task: int) -> Spread:
    """The spread in each drawn experiment, of one task's runs whose variance is 1."""
    generator = np.random.default_rng([1, arms, seeds, task])
    return of_seeds(generator.chisquare(seeds - 1, (DRAWS, arms)) / (seeds - 1), np.full(arms, seeds))


@cache
def _unit_of_blocks(arms: int, blocks: int) -> tuple[Spread, np.ndarray]:
    """As `_unit_of_seeds`, of means of blocks; and the difference of the first two arms' means."""
    means = np.random.default_rng([2, arms, blocks]).normal(size=(DRAWS, arms, blocks))
    return of_blocks(means), means[:, 0].mean(axis=-1) - means[:, 1].mean(axis=-1)
