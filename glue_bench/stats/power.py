"""The number of seeds with which a true difference gets a verdict, computed as verdicts are.

Experiments are drawn at random with the estimated variances. They are judged as `verdicts` judges
real ones: with the same V, degrees of freedom and correction. The variances only scale the draws,
so one set of draws serves all designs.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from glue_bench.errors import UserError
from glue_bench.stats.estimates import ColumnEstimate
from glue_bench.stats.spreads import (
    Spread,
    combine_variances,
    spread_over_blocks,
    spread_over_seeds,
)
from glue_bench.stats.verdicts import ALPHA, Group, two_sided

POWER_DRAWS = 4000
MAX_SEEDS = 1000
MAX_PRETRAININGS = 40
MAX_FINETUNINGS = 10
TOO_FEW_EXAMPLES = (
    "no number of seeds will do: the dev set alone spreads a difference by {spread:.3g}"
)
POWER_COLUMNS = [
    "kind",
    "reference",
    "column",
    "seeds",
    "difference",
    "power",
    "pretraining_seeds",
    "finetuning_seeds",
    "cost",
    "why",
]


class Costs(NamedTuple):
    """The costs of one pretraining and one fine-tuning of an arm, in one unit, such as seconds."""

    pretraining: float
    finetuning: float


def power_frame(
    assessed: Iterable[Group], difference: float, power: float, costs: Costs
) -> pd.DataFrame:
    """Return the seeds with which a true difference gets a verdict with a given probability.

    The frame has POWER_COLUMNS, and a row by group, column and kind of `seeds` whose variance is
    known: "fine-tuning" seeds of one pretraining, or "pretraining" seeds. Each pretraining gets the
    number of fine-tuning seeds that makes the design cheapest. `cost` is the cost of one arm. `why`
    says what is missing.

    Args:
        assessed: Groups with their estimates.
        difference: The true difference, in points, or in nats of a loss.
        power: The probability of a verdict.
        costs: The costs of a pretraining and of a fine-tuning.

    Raises:
        UserError: The difference is not above 0, or the power is not between 0.05 and 1.
    """
    if not (math.isfinite(difference) and difference > 0):
        raise UserError(f"--difference {difference:g}: give points above 0, such as 0.5")
    if not ALPHA < power < 1:
        raise UserError(
            f"--power {power:g}: give a probability between {ALPHA:g} and 1, such as 0.8"
        )

    rows: list[dict[str, Any]] = []
    for group in assessed:
        for estimate in group.estimates:
            facts = {
                "kind": group.kind,
                "reference": group.reference,
                "column": estimate.column,
                "why": "",
            }
            if group.reference not in estimate.arms or len(estimate.arms) < 2:
                reasons = [*estimate.untested.values(), "a difference needs two arms"]
                rows.append({**facts, "why": reasons[0]})
                continue
            variances = variances_of(estimate, group.reference, len(group.arms))
            prices = costs if estimate.finetuned else costs._replace(finetuning=0.0)
            designs = variances.designs(difference, power, prices, blocked=estimate.blocked)
            rows += [facts | design for design in designs]

    frame = pd.DataFrame(rows, columns=POWER_COLUMNS).assign(difference=difference, power=power)
    return frame.astype({"pretraining_seeds": "Int64", "finetuning_seeds": "Int64"})


@dataclass(frozen=True, kw_only=True)
class Variances:
    """The variances from which the experiments of a group are drawn.

    Attributes:
        arms: The number of arms of the group.
        finetuning: The variance of a run over fine-tuning seeds, for each independent task.
        pretraining: The variance of the component of arm by pretraining seed.
        examples: The variance of a difference over examples alone.
        fixed: The variance that replaces `examples` if each arm has one pretraining. It also
            contains the effect of these pretrainings on single examples, which no fine-tuning seed
            changes.
        overlap: The share of the spread over seeds that the variance over examples contains.
        examples_freedom: The degrees of freedom of `examples`.
    """

    arms: int
    finetuning: tuple[float, ...]
    pretraining: float
    examples: float
    fixed: float
    overlap: float
    examples_freedom: float = math.inf

    def designs(
        self, difference: float, power: float, costs: Costs, *, blocked: bool
    ) -> Iterator[dict[str, Any]]:
        """Yield the cheapest design for each kind of seeds, as a part of a row of POWER_COLUMNS.

        Args:
            difference: The true difference.
            power: The probability of a verdict.
            costs: The costs of a pretraining and of a fine-tuning.
            blocked: Whether the variance over pretraining seeds is known.
        """
        if not blocked or sum(self.finetuning) > 0:
            yield {"seeds": "fine-tuning", **self._finetuning_design(difference, power, costs)}
        if blocked:
            yield {"seeds": "pretraining", **self._pretraining_design(difference, power, costs)}

    def _finetuning_design(self, difference: float, power: float, costs: Costs) -> dict[str, Any]:
        """Return the cheapest number of seeds of one pretraining, or why no number is enough."""
        variances = replace(self, examples=self.fixed)
        if not variances.examples_suffice(difference, power):
            return {"why": TOO_FEW_EXAMPLES.format(spread=math.sqrt(self.fixed))}
        power_of = partial(variances.power_of_seeds, difference)
        seeds = smallest_number(power_of, power, MAX_SEEDS)
        if seeds is None:
            return {"why": f"more than {MAX_SEEDS:,} seeds"}
        return _design(1, seeds, costs)

    def _pretraining_design(self, difference: float, power: float, costs: Costs) -> dict[str, Any]:
        """Return the cheapest numbers of seeds of both kinds, or why none are enough."""
        if not self.examples_suffice(difference, power):
            return {"why": TOO_FEW_EXAMPLES.format(spread=math.sqrt(self.examples))}
        # If fine-tuning seeds do not vary, more of them only cost more.
        most_finetunings = MAX_FINETUNINGS if sum(self.finetuning) > 0 else 1
        designs: list[dict[str, Any]] = []
        for finetunings in range(1, most_finetunings + 1):
            power_of = partial(self.power_of_pretrainings, difference, finetunings=finetunings)
            pretrainings = smallest_number(power_of, power, MAX_PRETRAININGS)
            if pretrainings is not None:
                designs.append(_design(pretrainings, finetunings, costs))
        if not designs:
            return {"why": f"more than {MAX_PRETRAININGS} pretraining seeds"}
        return min(designs, key=lambda design: design["cost"])

    def power_of_seeds(self, difference: float, seeds: int) -> float:
        """Return the probability of a verdict with this number of seeds of one pretraining."""
        tasks = range(len(self.finetuning))
        units = [_unit_of_seeds(self.arms, seeds, task) for task in tasks]
        total = 2 * sum(self.finetuning) / seeds
        error = math.sqrt(self.examples + total)
        observed = difference + error * _normal()
        return self._verdict_share(observed, units, self.finetuning, total)

    def power_of_pretrainings(
        self, difference: float, pretrainings: int, finetunings: int
    ) -> float:
        """Return the probability of a verdict with several pretraining seeds.

        Args:
            difference: The true difference.
            pretrainings: The number of pretraining seeds of each arm.
            finetunings: The number of fine-tuning seeds of each pretraining.
        """
        unit, mean_differences = _unit_of_blocks(self.arms, pretrainings)
        of_finetuning = sum(self.finetuning) / finetunings
        variance = self.pretraining + of_finetuning
        over_seeds = math.sqrt(variance) * mean_differences
        over_examples = math.sqrt(self.examples) * _normal()
        observed = difference + over_seeds + over_examples
        total = 2 * variance / pretrainings
        return self._verdict_share(observed, [unit], [variance], total)

    def examples_suffice(self, difference: float, power: float) -> bool:
        """Return whether infinitely many seeds reach the power in spite of the dev set's size."""
        contrasts = self.arms - 1
        quantile = -ndtri(ALPHA / 2 / contrasts)
        if self.examples == 0:
            return True
        in_errors = difference / math.sqrt(self.examples)
        share = ndtr(in_errors - quantile)
        return bool(share >= power)

    def _verdict_share(
        self,
        observed: np.ndarray,
        units: Sequence[Spread],
        variances: Sequence[float],
        total: float,
    ) -> float:
        """Return the share of drawn experiments that call the first arm better than the second.

        Args:
            observed: The observed difference in each experiment, (draws,).
            units: The spreads of parts whose variance is 1.
            variances: The true variance of each part.
            total: The true variance of the difference over seeds.
        """
        scaled: list[Spread] = []
        for unit, variance in zip(units, variances, strict=True):
            scaled_variance = unit.variance * variance
            scaled.append(unit._replace(variance=scaled_variance))
        shared = self.overlap * total
        examples = self.examples + shared
        squared_error, freedom = combine_variances(
            scaled, [0, 1], examples, shared, self.examples_freedom
        )
        error = np.sqrt(squared_error)
        p = two_sided(observed, error, freedom)
        adjusted = p * (self.arms - 1)
        is_better = (adjusted < ALPHA) & (observed > 0)
        return float(np.mean(is_better))


def variances_of(estimate: ColumnEstimate, reference: str, arms: int) -> Variances:
    """Return the variances of an estimate whose reference has an interval.

    With one fine-tuning seed for each pretraining, only the sum of the variances of pretraining and
    fine-tuning is known. The sum counts as the variance of pretraining.

    Args:
        estimate: The estimate of a column.
        reference: The arm that the others are compared with.
        arms: The number of arms of the group, whether they have an interval or not.
    """
    row = estimate.arms.index(reference)

    total: np.ndarray | float = 0.0
    for spread in estimate.spreads:
        total = total + (spread.variance + spread.variance[row])
    totals = np.delete(total, row)

    divisors = np.where(totals > 0, totals, 1.0)
    shared = np.delete(estimate.shared[row], row)
    overlaps = shared / divisors

    finetuning = tuple(runs.finetuning_variance for runs in estimate.tasks.values())
    if math.isnan(sum(finetuning)):
        finetuning = (0.0,)
    examples = estimate.example_variance(reference)
    blocks = estimate.seeds[reference] if estimate.blocked else 1

    shared_differences = estimate.shared[row] - estimate.of_finetuning[row]
    of_pretraining = np.delete(shared_differences, row)
    return Variances(
        arms=arms,
        finetuning=finetuning,
        pretraining=estimate.pretraining_variance,
        examples=examples,
        fixed=examples + blocks * float(np.maximum(0.0, of_pretraining).mean()),
        overlap=float(np.clip(overlaps.mean(), 0.0, 1.0)),
        examples_freedom=estimate.examples_freedom,
    )


def smallest_number(power_of: Callable[[int], float], power: float, limit: int) -> int | None:
    """Return the smallest number from 2 to `limit` that has the power, or None if none has it.

    Args:
        power_of: A function from the number to the power; it must not fall.
        power: The power that is asked for.
        limit: The largest number to try.
    """
    if power_of(limit) < power:
        return None
    return 2 + bisect_left(range(2, limit), power, key=power_of)


def _design(pretrainings: int, finetunings: int, costs: Costs) -> dict[str, Any]:
    cost_of_seed = costs.pretraining + finetunings * costs.finetuning
    return {
        "pretraining_seeds": pretrainings,
        "finetuning_seeds": finetunings,
        "cost": pretrainings * cost_of_seed,
    }


@cache
def _normal() -> np.ndarray:
    """Return standard normal numbers (draws,), the errors over examples."""
    return np.random.default_rng(0).normal(size=POWER_DRAWS)


@cache
def _unit_of_seeds(arms: int, seeds: int, task: int) -> Spread:
    """Return the spread of one task's runs in each drawn experiment; a run has the variance 1."""
    generator = np.random.default_rng([1, arms, seeds, task])
    freedom = seeds - 1
    squares = generator.chisquare(freedom, (POWER_DRAWS, arms))
    seeds_of_arms = np.full(arms, seeds)
    return spread_over_seeds(squares / freedom, seeds_of_arms)


@cache
def _unit_of_blocks(arms: int, blocks: int) -> tuple[Spread, np.ndarray]:
    """Return the spread over blocks whose means have the variance 1, in each drawn experiment.

    The second value is the difference of the means of the first two arms, (draws,).
    """
    generator = np.random.default_rng([2, arms, blocks])
    means = generator.normal(size=(POWER_DRAWS, arms, blocks))
    first = means[:, 0].mean(axis=-1)
    second = means[:, 1].mean(axis=-1)
    return spread_over_blocks(means), first - second
