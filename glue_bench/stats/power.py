"""How many seeds it takes until a difference has a verdict, by the arithmetic of the verdicts themselves.

Experiments with the variances found are drawn, and judged as `verdicts` judges: the same V, degrees of freedom and
correction. Draws do not depend on the variances, which only scale them, so that one set of draws serves all designs.
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
from glue_bench.stats.estimates import ColumnEstimate, Spread, combined, of_blocks, of_seeds
from glue_bench.stats.verdicts import ALPHA, Group, two_sided

DRAWS = 4000
MOST_SEEDS, MOST_PRETRAININGS, MOST_FINETUNINGS = 1000, 40, 10
TOO_FEW = "no number of seeds will do: the dev set alone spreads a difference by {spread:.3g}"
POWER_COLUMNS = ["kind", "reference", "column", "seeds", "difference", "power", "pretraining_seeds", "finetuning_seeds",
                 "cost", "why"]  # fmt: skip


class Costs(NamedTuple):
    """What one pretraining and what one fine-tuning seed of an arm costs, in one unit, such as seconds."""

    pretraining: float
    finetuning: float


def power_frame(
    assessed: Iterable[Group], difference: float, power: float, costs: Costs
) -> pd.DataFrame:
    """Seeds with which a true difference gets a verdict with this probability: POWER_COLUMNS, by group and column.

    A row for each kind of `seeds` whose variance is known: "fine-tuning" seeds of one pretraining, or "pretraining"
    seeds, each with as many fine-tuning seeds as cost least. `difference` is in points (nats of a loss). `cost` is that
    of one arm. `why` says what is missing. Raises UserError for a difference that is not above 0, or a power that is
    not between 0.05 and 1.
    """
    if not (math.isfinite(difference) and difference > 0):
        raise UserError(f"--difference {difference:g}: give points above 0, such as 0.5")
    if not ALPHA < power < 1:
        raise UserError(
            f"--power {power:g}: give a probability between {ALPHA:g} and 1, such as 0.8"
        )
    rows = []
    for group, estimate in ((one, estimate) for one in assessed for estimate in one.estimates):
        facts = {
            "kind": group.kind,
            "reference": group.reference,
            "column": estimate.column,
            "why": "",
        }
        if group.reference not in estimate.arms or len(estimate.arms) < 2:
            rows.append(
                facts | {"why": next(iter(estimate.why.values()), "a difference needs two arms")}
            )
            continue
        spreads = variances_of(estimate, group.reference, len(group.arms))
        each = costs if estimate.finetuned else costs._replace(finetuning=0.0)
        rows += [
            facts | design
            for design in spreads.designs(difference, power, each, blocked=estimate.blocked)
        ]
    frame = pd.DataFrame(rows, columns=POWER_COLUMNS).assign(difference=difference, power=power)
    return frame.astype(dict.fromkeys(("pretraining_seeds", "finetuning_seeds"), "Int64"))


@dataclass(frozen=True, kw_only=True)
class Variances:
    """The variances from which experiments are drawn, for a group of so many arms.

    `finetuning` is that of a run for each independent task, `pretraining` of the arm-by-pretraining component,
    `examples` that of a difference over examples alone, and `overlap` the share of the spread over seeds that the
    variance over examples has too. With one pretraining of each arm `fixed` takes the place of `examples`: what the
    pretrainings make of single examples is in it, and no fine-tuning seed changes that.
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
        """The cheapest design of each kind of seeds."""

        def design(pretrainings: int, finetunings: int) -> dict[str, Any]:
            cost = pretrainings * (costs.pretraining + finetunings * costs.finetuning)
            return {
                "pretraining_seeds": pretrainings,
                "finetuning_seeds": finetunings,
                "cost": cost,
            }

        has_finetuning = sum(self.finetuning) > 0
        if not blocked or has_finetuning:
            one = replace(self, examples=self.fixed)
            number = None
            why = TOO_FEW.format(spread=math.sqrt(self.fixed))
            if one.examples_suffice(difference, power):
                why = f"more than {MOST_SEEDS:,} seeds"
                number = least(partial(one.power_of_seeds, difference), power, MOST_SEEDS)
            yield {"seeds": "fine-tuning", **(design(1, number) if number else {"why": why})}
        if blocked:
            made, why = list[dict[str, Any]](), TOO_FEW.format(spread=math.sqrt(self.examples))
            if self.examples_suffice(difference, power):
                why = f"more than {MOST_PRETRAININGS} pretraining seeds"
                # Without a spread more fine-tuning seeds only cost more.
                for each in range(1, 1 + (MOST_FINETUNINGS if has_finetuning else 1)):
                    reached = partial(self.power_of_pretrainings, difference, finetunings=each)
                    if number := least(reached, power, MOST_PRETRAININGS):
                        made.append(design(number, each))
            yield {
                "seeds": "pretraining",
                **min(made, key=lambda one: one["cost"], default={"why": why}),
            }

    def power_of_seeds(self, difference: float, seeds: int) -> float:
        """The probability of a verdict with so many fine-tuning seeds of one pretraining."""
        units = [_unit_of_seeds(self.arms, seeds, task) for task in range(len(self.finetuning))]
        total = 2 * sum(self.finetuning) / seeds
        observed = difference + math.sqrt(self.examples + total) * _normal()
        return self._seen(observed, units, self.finetuning, total)

    def power_of_pretrainings(
        self, difference: float, pretrainings: int, finetunings: int
    ) -> float:
        """The probability of a verdict with so many pretraining seeds, and fine-tuning seeds for each."""
        unit, means = _unit_of_blocks(self.arms, pretrainings)
        each = self.pretraining + sum(self.finetuning) / finetunings
        observed = difference + math.sqrt(each) * means + math.sqrt(self.examples) * _normal()
        return self._seen(observed, [unit], [each], 2 * each / pretrainings)

    def examples_suffice(self, difference: float, power: float) -> bool:
        """Whether endless seeds would do: their only limit is the dev set."""
        limit = -ndtri(ALPHA / 2 / (self.arms - 1))
        return self.examples == 0 or bool(
            ndtr(difference / math.sqrt(self.examples) - limit) >= power
        )

    def _seen(
        self,
        observed: np.ndarray,
        units: Sequence[Spread],
        variances: Sequence[float],
        total: float,
    ) -> float:
        """Of spreads drawn with the variance 1, scaled to these."""
        pairs = zip(units, variances, strict=True)
        scaled = [unit._replace(variance=unit.variance * each) for unit, each in pairs]
        shared = self.overlap * total
        variance, freedom = combined(
            scaled, [0, 1], self.examples + shared, shared, self.examples_freedom
        )
        p = two_sided(observed, np.sqrt(variance), freedom)
        return float(np.mean((p * (self.arms - 1) < ALPHA) & (observed > 0)))


def variances_of(estimate: ColumnEstimate, reference: str, arms: int) -> Variances:
    """The variances of an estimate whose reference has an interval.

    With one fine-tuning seed for each pretraining only the sum of their variances is known, and counts as the latter's.
    """
    r = estimate.arms.index(reference)
    totals = np.delete(sum(spread.variance + spread.variance[r] for spread in estimate.spreads), r)
    overlaps = np.delete(estimate.shared[r], r) / np.where(totals > 0, totals, 1.0)
    finetuning = tuple(scores.finetuning_variance for scores in estimate.tasks.values())
    examples = estimate.example_variance(reference)
    blocks = estimate.seeds[reference] if estimate.blocked else 1
    of_pretraining = np.maximum(0.0, np.delete(estimate.shared[r] - estimate.of_finetuning[r], r))
    return Variances(
        arms=arms,
        finetuning=(0.0,) if math.isnan(sum(finetuning)) else finetuning,
        pretraining=estimate.pretraining_variance,
        examples=examples,
        fixed=examples + blocks * float(of_pretraining.mean()),
        overlap=float(np.clip(overlaps.mean(), 0.0, 1.0)),
        examples_freedom=estimate.examples_freedom,
    )


def least(power_of: Callable[[int], float], power: float, most: int) -> int | None:
    """The least number from 2 on that has the power, of those up to `most`; None where none has."""
    return 2 + bisect_left(range(2, most), power, key=power_of) if power_of(most) >= power else None


@cache
def _normal() -> np.ndarray:
    return np.random.default_rng(0).normal(size=DRAWS)


@cache
def _unit_of_seeds(arms: int, seeds: int, task: int) -> Spread:
    """The spread in each drawn experiment, of one task's runs whose variance is 1."""
    generator = np.random.default_rng([1, arms, seeds, task])
    return of_seeds(
        generator.chisquare(seeds - 1, (DRAWS, arms)) / (seeds - 1), np.full(arms, seeds)
    )


@cache
def _unit_of_blocks(arms: int, blocks: int) -> tuple[Spread, np.ndarray]:
    """As `_unit_of_seeds`, of means of blocks; and the difference of the first two arms' means."""
    means = np.random.default_rng([2, arms, blocks]).normal(size=(DRAWS, arms, blocks))
    return of_blocks(means), means[:, 0].mean(axis=-1) - means[:, 1].mean(axis=-1)
