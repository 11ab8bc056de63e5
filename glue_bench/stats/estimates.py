"""What one column, or the average of several, says of the arms of a group: means, variances, and why some have none.

A run's score is y = mu + a + b + c: `a` of the examples (an arm's runs share it, and all arms see the same examples),
`b` of the seed, `c` of seed and example together. The difference of two arms' means over n seeds varies by

    V = V_ex + max(0, s - I_a / n_a - I_r / n_r)        s = s_a^2 / n_a + s_r^2 / n_r

V_ex is the variance over examples with the runs held fixed, s_a^2 the variance of an arm's run scores over seeds, and I
the variance of `c`, which both have and which therefore is taken off once.

Few seeds give a poor s_a^2, so it is pooled over the arms of a block; but where one arm is less stable than the others,
pooling would promise too much of it. So the larger one counts: s_a^2 = max(S_a^2, S_p^2). V is Student's, with
Satterthwaite's (1946) degrees of freedom: V^2 over the sum of squares of the parts of s, each over its own.

With several pretraining seeds the arms of one seed share initial weights, masks and order, and are a randomised block.
What counts is then the mean square of the residuals of an arm's mean in a block, without the arm and the block; an arm
that is less stable than the others is seen in its own residuals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit  # a tenth of the time that scipy.stats takes to load

from glue_bench.data.measures import AVERAGE
from glue_bench.stats.examples import example_variance, finetuning_variance, shared_variance
from glue_bench.stats.runs import ColumnRuns, Runs, effective_number, means_over
from glue_bench.stats.sums import RATIOS, contributions

LEAST_FOR_OWN = 3
"""Seeds from which an arm's own variance has degrees of freedom of its own; of two it would have one, too few."""
TAIL = 0.025
FEW = 4
"""Up to so many pooled degrees of freedom `combined` lowers those of V."""
SQUARES = ("examples", "shared", "of_finetuning")
"""The fields of an ColumnEstimate that have a value for each pair of arms."""


class Spread(NamedTuple):
    """Of each arm (..., arms): the variance of its mean over seeds, its freedom, and whether it is the arm's own.

    All that are not the arm's own are one pooled estimate: `pooled` (...), of one seed, with `pooled_freedom`.
    """

    variance: np.ndarray
    freedom: np.ndarray
    own: np.ndarray
    pooled: np.ndarray
    pooled_freedom: float


def of_seeds(variances: np.ndarray, seeds: np.ndarray) -> Spread:
    """The spread of means over independent runs: sample variances (..., arms) of so many `seeds` (arms,), each >= 2."""
    freedom = seeds - 1
    pooled = (variances * freedom).sum(axis=-1, keepdims=True) / freedom.sum()
    return _larger(variances, pooled, seeds, freedom.sum())


def of_blocks(means: np.ndarray) -> Spread:
    """The spread of differences of means over blocks, from the means (..., arms, blocks) of at least 2 by 2.

    R_a, the sum of an arm's squared residuals, has the expectation (P - 1) ((1 - 2/A) v_a + sum_b v_b / A^2); solved
    for v_a with the mean square in place of the mean of all v_b, it says what the arm's own variance is.
    """
    *_, arms, blocks = means.shape
    centred = means - means.mean(axis=-1, keepdims=True)
    squares = np.sum((centred - centred.mean(axis=-2, keepdims=True)) ** 2, axis=-1)
    pooled = squares.sum(axis=-1, keepdims=True) / ((arms - 1) * (blocks - 1))
    own = (
        (squares / (blocks - 1) - pooled / arms) * arms / (arms - 2)
        if arms > 2
        else pooled + 0 * squares
    )
    return _larger(own, pooled, np.full(arms, blocks), (arms - 1) * (blocks - 1))


def _larger(
    own: np.ndarray, pooled: np.ndarray, seeds: np.ndarray, pooled_freedom: float
) -> Spread:
    is_own = own > pooled
    freedom = np.where(is_own & (seeds >= LEAST_FOR_OWN), seeds - 1, pooled_freedom)
    return Spread(
        np.maximum(own, pooled) / seeds, freedom, is_own, pooled[..., 0], float(pooled_freedom)
    )


def combined(
    spreads: Sequence[Spread],
    arms: Sequence[int],
    examples: float,
    shared: float,
    examples_freedom: float = np.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """V and its degrees of freedom, (...), of the difference of two arms.

    `spreads` are of independent parts of a measure, such as the tasks of an average, each by its weight; `examples` is
    V_ex and `shared` what of it the spread over seeds has, too. V_ex is known well from hundreds of examples, and from
    few documents with `examples_freedom`.

    A spread of few degrees of freedom is often far too small by chance. V then seems to be that of the examples, which
    have many degrees, and with Satterthwaite's freedom up to 13% of intervals miss. So up to FEW degrees the spread
    counts (t / z)^2 times in the freedom, but once in V; t and z are the 97.5% quantiles of Student's t with the
    spread's own degrees and of the normal distribution. In simulation at most about 5% miss then.
    """
    chosen = list(arms)
    total, squares = 0.0, 0.0
    for spread in spreads:
        variance, own = spread.variance[..., chosen], spread.own[..., chosen]
        total = total + variance.sum(axis=-1)
        together = np.where(own, 0.0, variance).sum(axis=-1)
        alone = np.where(own, variance**2 / spread.freedom[..., chosen], 0.0).sum(axis=-1)
        parts = together**2 / spread.pooled_freedom + alone
        # An own and a pooled variance come from the same runs: together they have no more freedom than all of these.
        squares = squares + np.maximum(parts, variance.sum(axis=-1) ** 2 / spread.pooled_freedom)
    pooled = sum(spread.pooled_freedom for spread in spreads)
    weight = (stdtrit(pooled, TAIL) / stdtrit(np.inf, TAIL)) ** 2 if pooled <= FEW else 1.0
    weighted = examples + np.maximum(0.0, weight * total - shared)
    squares = weight**2 * squares + np.square(examples) / examples_freedom
    with np.errstate(divide="ignore", invalid="ignore"):
        return examples + np.maximum(0.0, total - shared), np.where(
            squares > 0, weighted**2 / squares, np.inf
        )


@dataclass(frozen=True, kw_only=True)
class ColumnEstimate:
    """A column or the average, for one group of arms.

    `means` and `seeds` are of all arms that have a run: points (nats of a loss; of several pretrainings the mean of
    their means), and how many fine-tuning seeds, or pretraining seeds where `blocked`. `arms` have an interval; `why`
    says what the others lack. `tasks` are the runs of what varies independently, by its weight. Values lie within
    `limits`; `finetuned` says whether a run costs a fine-tuning: measures of a pretrained encoder do not.

    `examples` and `shared`, (arms, arms), are V_ex, with `examples_freedom`, and what of it the spread over seeds has
    too; `of_finetuning` is what of `shared` other fine-tuning seeds of the same pretrainings would change.
    """

    column: str
    lowest_is_best: bool
    limits: tuple[float, float]
    means: Mapping[str, float]
    seeds: Mapping[str, int]
    why: Mapping[str, str]
    arms: tuple[str, ...]
    blocked: bool
    finetuned: bool = True
    tasks: Mapping[str, Runs] = field(default_factory=dict)
    examples: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    shared: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    of_finetuning: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    examples_freedom: float = np.inf

    @property
    def kind(self) -> str:
        """The kind of seeds that the intervals are made of."""
        return "pretraining" if self.blocked else "fine-tuning"

    def of(self, arms: Sequence[str]) -> "ColumnEstimate":
        """The same for some of the arms that have an interval."""
        chosen = [self.arms.index(arm) for arm in arms]
        squares = {name: getattr(self, name)[np.ix_(chosen, chosen)] for name in SQUARES}
        tasks = {task: scores.of(chosen) for task, scores in self.tasks.items()}
        return replace(self, arms=tuple(arms), tasks=tasks, **squares)

    def by_block(self) -> np.ndarray:
        """Each arm's mean over fine-tuning seeds and tasks, by pretraining seed: (arms, pretraining seeds)."""
        return np.sum([scores.by_block() for scores in self.tasks.values()], axis=0)

    def differences(self, arm: str, reference: str) -> np.ndarray:
        """Of two arms that have an interval, seed by seed: of pretraining where `blocked`, else of what both have."""
        a, r = self.arms.index(arm), self.arms.index(reference)
        if self.blocked:
            means = self.by_block()
            return means[a] - means[r]
        tasks = self.tasks.values()
        parts = [
            dict(zip(zip(one.arms, one.seeds, strict=True), one.values, strict=True))
            for one in tasks
        ]
        both = [
            s
            for arm, s in parts[0]
            if arm == a and all((a, s) in part and (r, s) in part for part in parts)
        ]
        return np.array([sum(part[a, s] - part[r, s] for part in parts) for s in both])

    @cached_property
    def spreads(self) -> list[Spread]:
        """How far differences of the arms' means spread over seeds, of each independent part."""
        if self.blocked:
            return [of_blocks(self.by_block())]
        return [of_seeds(*runs.variances()) for runs in self.tasks.values()]

    def difference_variance(self, arm: str, reference: str) -> tuple[float, float]:
        """V and its degrees of freedom of the difference of two arms."""
        a, r = self.arms.index(arm), self.arms.index(reference)
        v, freedom = combined(
            self.spreads, [a, r], self.examples[a, r], self.shared[a, r], self.examples_freedom
        )
        return float(v), float(freedom)

    def example_variance(self, reference: str) -> float:
        """The variance of a difference over examples alone, without what seeds add to it: the mean over contrasts."""
        if reference not in self.arms or len(self.arms) < 2:
            return np.nan
        r = self.arms.index(reference)
        return float(np.delete(np.maximum(0.0, self.examples[r] - self.shared[r]), r).mean())

    @property
    def pretraining_variance(self) -> float:
        """That of how differently arms take to a pretraining seed (the arm-by-pretraining component); NaN without.

        Of one fine-tuning seed for each pretraining only the sum with the variance of fine-tuning is known.
        """
        if not self.blocked or len(self.arms) < 2:
            return np.nan
        of_means = sum(
            scores.finetuning_variance / scores.finetuning_seeds for scores in self.tasks.values()
        )
        both = float(self.spreads[0].pooled)
        return both if math.isnan(of_means) else max(0.0, both - of_means)


def column_estimate(
    outcomes: ColumnRuns, arms: Sequence[str], reference: str = ""
) -> ColumnEstimate:
    """A column, for the arms of a group.

    An arm that lacks pretraining seeds of the `reference` is not tested: blocks are complete, so that it would take
    from all others the blocks that it lacks.
    """
    scores = outcomes.runs
    order = np.lexsort((scores.seeds, scores.pretraining_seeds))
    runs = {arm: order[scores.arms[order] == outcomes.arms.index(arm)] for arm in arms}
    pretrained = {arm: set(scores.pretraining_seeds[rows].tolist()) for arm, rows in runs.items()}
    blocked = len(set().union(*pretrained.values())) > 1
    full = pretrained.get(reference, set()) if blocked else set()
    seeds = {arm: len(pretrained[arm]) if blocked else len(rows) for arm, rows in runs.items()}

    def why_not(arm: str) -> str:
        if not len(runs[arm]):
            return "no finished run"
        if (
            arm in outcomes.why
        ):  # a file that is damaged or missing has to be mended, whatever else lacks
            return outcomes.why[arm]
        if seeds[arm] == 1:
            return f"one {'pretraining ' * blocked}seed does not show how much scores vary"
        if np.isnan(scores.values[runs[arm]]).any():
            return "a run has no score"
        lacking = len(full - pretrained[arm])
        return f"{lacking} of {len(full)} pretraining seeds are missing" if lacking else ""

    why = {arm: reason for arm in arms if (reason := why_not(arm))}
    tested = tuple(arm for arm in arms if arm not in why)
    common = set.intersection(*(pretrained[arm] for arm in tested)) if tested else set()
    if blocked and len(common) < 2:
        why |= dict.fromkeys(tested, "the arms have fewer than two pretraining seeds in common")
        tested = ()
    seeds |= dict.fromkeys(tested, len(common)) if blocked else {}
    estimate = ColumnEstimate(
        column=outcomes.column,
        lowest_is_best=outcomes.measure.lowest_is_best,
        limits=outcomes.measure.limits,
        means={arm: _mean_of(scores, rows) for arm, rows in runs.items() if len(rows)},
        seeds=seeds,
        why=why,
        arms=tested,
        blocked=blocked,
        finetuned=outcomes.metric not in RATIOS,
    )
    if not tested:
        return estimate
    whole = np.concatenate([runs[arm] for arm in tested])
    return _measured(
        estimate, outcomes.of(whole[np.isin(scores.pretraining_seeds[whole], list(common))])
    )


def average_estimate(columns: Sequence[ColumnEstimate], arms: Sequence[str]) -> ColumnEstimate:
    """The mean over one column or more. Examples are independent; only the columns of one task share runs."""

    def why_not(arm: str) -> str:
        if lacking := [column for column in columns if arm in column.why]:
            reason = lacking[0].why[arm]
            return reason if len(lacking) == len(columns) else f"{lacking[0].column}: {reason}"
        runs = [scores for column in columns for scores in column.of([arm]).tasks.values()]
        alike = len({tuple(np.unique(scores.pretraining_seeds)) for scores in runs}) == 1
        return "" if alike else "its columns differ in their pretraining seeds"

    why = {arm: reason for arm in arms if (reason := why_not(arm))}
    tested = tuple(arm for arm in arms if arm not in why)
    number, tasks = len(columns), dict[str, Runs]()
    kept = [column.of(tested) for column in columns] if tested else []
    for task, scores in (item for column in kept for item in column.tasks.items()):
        before = tasks[task].values if task in tasks else 0.0
        tasks[task] = scores._replace(values=before + scores.values / number)
    squares: Any = {
        name: sum(getattr(column, name) for column in kept) / number**2 for name in SQUARES if kept
    }
    whole = [arm for arm in arms if all(arm in column.means for column in columns)]
    return ColumnEstimate(
        column=AVERAGE,
        lowest_is_best=all(column.lowest_is_best for column in columns),
        limits=tuple(np.mean([column.limits for column in columns], axis=0)),
        means={arm: float(np.mean([column.means[arm] for column in columns])) for arm in whole},
        seeds={arm: min(column.seeds[arm] for column in columns) for arm in arms},
        why=why,
        arms=tested,
        blocked=any(column.blocked for column in columns),
        tasks=tasks,
        **squares,
    )


def _mean_of(scores: Runs, rows: np.ndarray) -> float:
    """The mean over pretrainings of the means over their fine-tuning seeds, of some of the runs."""
    pretrainings = np.unique(scores.pretraining_seeds[rows], return_inverse=True)[1]
    return float((means_over(pretrainings) @ scores.values[rows]).mean())


def _measured(estimate: ColumnEstimate, outcomes: ColumnRuns) -> ColumnEstimate:
    """With the variances of `outcomes`, the runs that count, ordered by arm."""
    owners = np.array([estimate.arms.index(outcomes.arms[owner]) for owner in outcomes.runs.arms])
    scores = outcomes.runs._replace(arms=owners)
    # What varies independently: a run, or all runs of an arm and a pretraining seed.
    units = means_over(scores.cells) if estimate.blocked else np.eye(len(owners))
    unit_owners = (units @ owners).round().astype(int)
    weights = means_over(unit_owners) @ units
    means = dict(zip(estimate.arms, (weights @ scores.values).tolist(), strict=True))
    values = contributions(outcomes.measure, outcomes.predictions, outcomes.labels)
    shared = shared_variance(units @ values, unit_owners, estimate.blocked)
    return replace(
        estimate,
        means={**estimate.means, **means},
        tasks={outcomes.task: scores},
        examples=example_variance(outcomes, weights, values),
        shared=shared,
        of_finetuning=finetuning_variance(values, scores.cells, unit_owners)
        if estimate.blocked
        else shared,
        examples_freedom=effective_number(outcomes.labels) - 1
        if outcomes.metric == "loss"
        else np.inf,
    )
