"""What one column, or the average of several, says of the arms of a group: means, variances, and why some have none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from glue_bench.stats.examples import (
    constant_score,
    contributions,
    effective_number,
    example_variance,
    finetuning_variance,
    shared_variance,
)
from glue_bench.stats.outcomes import AVERAGE, LIMITS, LOWEST_IS_BEST, Outcomes
from glue_bench.stats.variance import Spread, combined, of_blocks, of_seeds

NO_RUN = "no finished run"
"""Why an arm that has not run yet is in no test."""


class Scores(NamedTuple):
    """The runs of a task in the order of their arms, (runs,): the arm's index, both seeds, and the score."""

    arms: np.ndarray
    pretraining_seeds: np.ndarray
    seeds: np.ndarray
    values: np.ndarray

    def of(self, arms: Sequence[int]) -> "Scores":
        """The runs of some of the arms, in their order."""
        chosen = [np.flatnonzero(self.arms == arm) for arm in arms]
        index = np.repeat(np.arange(len(arms)), [len(mine) for mine in chosen])
        return Scores(index, *(part[np.concatenate(chosen)] for part in self[1:]))

    @property
    def cells(self) -> np.ndarray:
        """A number for each arm and pretraining seed, (runs,)."""
        seeds, place = np.unique(self.pretraining_seeds, return_inverse=True)
        return self.arms * len(seeds) + place

    def by_block(self) -> np.ndarray:
        """Means over fine-tuning seeds, (arms, pretraining seeds); every arm has every pretraining seed."""
        return (means_over(self.cells) @ self.values).reshape(self.arms.max() + 1, -1)

    def spread(self) -> Spread:
        """How far the arms' means spread over independent runs."""
        squares, number = _squares(self.arms, self.values)
        return of_seeds(squares / (number - 1), number)

    @property
    def finetuning_seeds(self) -> float:
        """Fine-tuning seeds for each arm and pretraining seed: the harmonic mean, by which they divide a variance."""
        return float(1 / np.mean(1 / np.unique(self.cells, return_counts=True)[1]))

    def finetuning_variance(self) -> float:
        """The variance of a run over fine-tuning seeds, pooled within arms and pretraining seeds; NaN of one seed."""
        squares, number = _squares(np.unique(self.cells, return_inverse=True)[1], self.values)
        freedom = (number - 1).sum()
        return float(squares.sum() / freedom) if freedom else np.nan


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A column or the average, for one group of arms.

    `means` and `seeds` are of all arms that have a run: points (nats of a loss), and how many fine-tuning seeds, or
    pretraining seeds where `blocked`. `arms` have an interval; `why` says what the others lack. `tasks` are the runs
    of what varies independently, by its weight. Values lie within `limits`; `constant` is what the best constant
    prediction scores, NaN where that is unknown or means nothing.

    `examples` and `shared`, (arms, arms), are V_ex and what of it the spread over seeds has too, on the diagonal of an
    arm's own mean; `of_finetuning` is what of `shared` other fine-tuning seeds of the same pretrainings would change.
    V_ex has `examples_freedom` degrees of freedom.
    """

    column: str
    lowest_is_best: bool
    limits: tuple[float, float]
    constant: float
    means: Mapping[str, float]
    seeds: Mapping[str, int]
    why: Mapping[str, str]
    arms: tuple[str, ...]
    blocked: bool
    tasks: Mapping[str, Scores] = field(default_factory=dict)
    examples: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    shared: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    of_finetuning: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    examples_freedom: float = np.inf

    def of(self, arms: Sequence[str]) -> "Estimate":
        """The same for some of the arms that have an interval."""
        chosen = [self.arms.index(arm) for arm in arms]
        square = np.ix_(chosen, chosen)
        tasks = {task: scores.of(chosen) for task, scores in self.tasks.items()}
        return replace(
            self,
            arms=tuple(arms),
            tasks=tasks,
            examples=self.examples[square],
            shared=self.shared[square],
            of_finetuning=self.of_finetuning[square],
        )

    def by_block(self) -> np.ndarray:
        """Each arm's mean over fine-tuning seeds and tasks, by pretraining seed: (arms, pretraining seeds)."""
        return np.sum([scores.by_block() for scores in self.tasks.values()], axis=0)

    @cached_property
    def spreads(self) -> list[Spread]:
        """How far differences of the arms' means spread over seeds, of each independent part."""
        return [of_blocks(self.by_block())] if self.blocked else [runs.spread() for runs in self.tasks.values()]

    def difference_variance(self, arm: str, reference: str) -> tuple[float, float]:
        """V and its degrees of freedom of the difference of two arms."""
        a, r = self.arms.index(arm), self.arms.index(reference)
        examples, shared = self.examples[a, r], self.shared[a, r]
        variance, freedom = combined(self.spreads, [a, r], examples, shared, self.examples_freedom)
        return float(variance), float(freedom)

    def deviation(self, arm: str) -> float:
        """The sample standard deviation over an arm's seeds; of an average of the seeds' averages.

        NaN where the tasks of an average differ in their seeds.
        """
        a = self.arms.index(arm)
        if self.blocked:
            return float(np.std(self.by_block()[a], ddof=1))
        runs = [scores.of([a]) for scores in self.tasks.values()]
        if any(not np.array_equal(scores.seeds, runs[0].seeds) for scores in runs):
            return np.nan
        return float(np.std(sum(scores.values for scores in runs), ddof=1))

    def own_variance(self, arm: str) -> tuple[float, float]:
        """The variance of an arm's own mean and its degrees of freedom.

        Over pretraining seeds an arm's variance is the larger one of its own and the mean over arms. As all arms share
        what is good or bad in a seed, this is known no better than from one arm: with one degree less than seeds.
        """
        a = self.arms.index(arm)
        if self.blocked:
            means = self.by_block()
            arms, blocks = means.shape
            spread = of_seeds(np.var(means, axis=1, ddof=1), np.full(arms, blocks))
            spreads = [spread._replace(pooled_freedom=blocks - 1.0)]
        else:
            spreads = self.spreads
        examples, shared = self.examples[a, a], self.shared[a, a]
        variance, freedom = combined(spreads, [a], examples, shared, self.examples_freedom)
        return float(variance), float(freedom)


def column_estimate(outcomes: Outcomes, arms: Sequence[str], reference: str = "") -> Estimate:
    """A column, for the arms of a group.

    An arm that lacks pretraining seeds of the `reference` is not tested: blocks are complete, so that it would take
    from all others the blocks that it lacks.
    """
    order = np.lexsort((outcomes.seeds, outcomes.pretraining_seeds))
    runs = {arm: order[outcomes.owners[order] == outcomes.arms.index(arm)] for arm in arms}
    pretrained = {arm: set(outcomes.pretraining_seeds[mine].tolist()) for arm, mine in runs.items()}
    blocked = len(set().union(*pretrained.values())) > 1
    seeds = {arm: len(pretrained[arm]) if blocked else len(mine) for arm, mine in runs.items()}
    why = {arm: reason for arm in arms if (reason := _why_not(outcomes, arm, runs[arm], seeds[arm], blocked))}
    full = pretrained.get(reference, set()) if blocked else set()
    lacking = {arm: len(full - pretrained[arm]) for arm in arms if arm not in why}
    why |= {arm: f"{number} of {len(full)} pretraining seeds are missing" for arm, number in lacking.items() if number}
    tested = tuple(arm for arm in arms if arm not in why)
    common = set.intersection(*(pretrained[arm] for arm in tested)) if tested else set()
    if blocked and len(common) < 2:
        why |= dict.fromkeys(tested, "the arms have fewer than two pretraining seeds in common")
        tested = ()
    if blocked:
        seeds |= dict.fromkeys(tested, len(common))
    estimate = Estimate(
        column=outcomes.column,
        lowest_is_best=outcomes.metric in LOWEST_IS_BEST,
        limits=LIMITS[outcomes.metric],
        constant=constant_score(outcomes.metric, outcomes.labels),
        means={arm: float(outcomes.scores[mine].mean()) for arm, mine in runs.items() if len(mine)},
        seeds=seeds,
        why=why,
        arms=tested,
        blocked=blocked,
    )
    if not tested:
        return estimate
    whole = np.concatenate([runs[arm] for arm in tested])
    return _measured(estimate, outcomes.of(whole[np.isin(outcomes.pretraining_seeds[whole], list(common))]))


def average_estimate(columns: Sequence[Estimate], arms: Sequence[str]) -> Estimate:
    """The mean over one column or more. Examples are independent; only the columns of one task share runs."""
    why = {arm: reason for arm in arms if (reason := _why_no_average(arm, columns))}
    tested = tuple(arm for arm in arms if arm not in why)
    number, tasks = len(columns), dict[str, Scores]()
    kept = [column.of(tested) for column in columns] if tested else []
    for task, scores in (item for column in kept for item in column.tasks.items()):
        before = tasks[task].values if task in tasks else 0.0
        tasks[task] = scores._replace(values=before + scores.values / number)
    whole = [arm for arm in arms if all(arm in column.means for column in columns)]
    return Estimate(
        column=AVERAGE,
        lowest_is_best=False,
        limits=tuple(np.mean([column.limits for column in columns], axis=0)),
        constant=float(np.mean([column.constant for column in columns])),
        means={arm: float(np.mean([column.means[arm] for column in columns])) for arm in whole},
        seeds={arm: min(column.seeds[arm] for column in columns) for arm in arms},
        why=why,
        arms=tested,
        blocked=any(column.blocked for column in columns),
        tasks=tasks,
        examples=sum((column.examples for column in kept), start=np.zeros(1)) / number**2,
        shared=sum((column.shared for column in kept), start=np.zeros(1)) / number**2,
        of_finetuning=sum((column.of_finetuning for column in kept), start=np.zeros(1)) / number**2,
    )


def means_over(groups: np.ndarray) -> np.ndarray:
    """Weights (groups, runs) that make of values (runs, ...) the mean of each group, which has a run at least."""
    mine = (np.arange(groups.max() + 1)[:, None] == groups).astype(float)
    return mine / mine.sum(axis=1, keepdims=True)


def _measured(estimate: Estimate, outcomes: Outcomes) -> Estimate:
    """With the variances of `outcomes`, the runs that count, ordered by arm."""
    owners = np.array([estimate.arms.index(outcomes.arms[owner]) for owner in outcomes.owners])
    scores = Scores(owners, outcomes.pretraining_seeds, outcomes.seeds, outcomes.scores)
    # What varies independently: a run, or all runs of an arm and a pretraining seed.
    units = means_over(scores.cells) if estimate.blocked else np.eye(len(owners))
    unit_owners = (units @ owners).round().astype(int)
    weights = means_over(unit_owners) @ units
    means = dict(zip(estimate.arms, (weights @ outcomes.scores).tolist(), strict=True))
    estimate = replace(estimate, means={**estimate.means, **means}, tasks={outcomes.task: scores})
    if not len(outcomes.labels):
        nothing = np.zeros((len(means), len(means)))
        return replace(estimate, examples=nothing, shared=nothing, of_finetuning=nothing)
    values = contributions(outcomes.metric, outcomes.predictions, outcomes.labels)
    shared = shared_variance(units @ values, unit_owners, estimate.blocked)
    cells = np.unique(scores.cells, return_inverse=True)[1]
    return replace(
        estimate,
        examples=example_variance(outcomes, weights, values),
        shared=shared,
        of_finetuning=finetuning_variance(values, cells, unit_owners) if estimate.blocked else shared,
        examples_freedom=effective_number(outcomes.labels) - 1 if outcomes.metric == "loss" else np.inf,
    )


def _why_not(outcomes: Outcomes, arm: str, runs: np.ndarray, seeds: int, blocked: bool) -> str:
    if not len(runs):
        return NO_RUN
    if arm in outcomes.why:  # first, because a file that is damaged or missing has to be mended, whatever else lacks
        return outcomes.why[arm]
    if seeds == 1:
        return f"one {'pretraining ' * blocked}seed does not show how much scores vary"
    return "a run has no score" if np.isnan(outcomes.scores[runs]).any() else ""


def _why_no_average(arm: str, columns: Sequence[Estimate]) -> str:
    reasons = [column.why[arm] for column in columns if arm in column.why]
    if reasons:
        return reasons[0]
    pretrained, runs = set(), dict[str, set[bytes]]()
    for column in columns:
        for task, scores in column.of([arm]).tasks.items():
            pretrained.add(tuple(np.unique(scores.pretraining_seeds)))
            runs.setdefault(task, set()).add(np.array(scores[1:3]).tobytes())
    if len(pretrained) > 1:
        return "its columns differ in their pretraining seeds"
    return "the columns of one task differ in their seeds" if max(map(len, runs.values())) > 1 else ""


def _squares(groups: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of squares around the mean, and the number, of each group that has a value."""
    number = np.bincount(groups)
    centres = np.bincount(groups, values) / np.maximum(number, 1)
    return np.bincount(groups, (values - centres[groups]) ** 2), number
