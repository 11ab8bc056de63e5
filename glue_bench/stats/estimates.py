"""Estimates of one column, or of the average of several, for the arms of a group.

An estimate has the arms' means, the variances of their differences (see `spreads` and `examples`),
and for each arm without an interval the reason.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from glue_bench.stats.examples import example_variance, finetuning_variance, shared_variance
from glue_bench.stats.runs import ColumnRuns, Runs, effective_number, mean_weights
from glue_bench.stats.spreads import (
    Spread,
    combine_variances,
    spread_over_blocks,
    spread_over_seeds,
)
from glue_bench.stats.sums import RATIOS, cluster_values, contributions
from glue_bench.stats.tested import common_seeds, find_rows, has_blocks, untested_arms

SOURCES = ("pretraining", "finetuning", "examples")
"""Where the variance of a difference comes from."""


def _no_pairs() -> np.ndarray:
    return np.zeros((0, 0))


@dataclass(frozen=True, kw_only=True)
class ColumnEstimate:
    """A column or the average, for one group of arms.

    Attributes:
        column: The name of the column.
        lowest_is_best: Whether a lower value is better, as of a loss.
        limits: The smallest and the largest value that is possible.
        means: The mean of each arm that has a run, in points or in nats. If an arm has several
            pretrainings, the means of the pretrainings are averaged.
        seeds: The number of each arm's fine-tuning seeds, or of its pretraining seeds if `blocked`.
        untested: By arm, why it has no interval.
        arms: The arms that have an interval.
        blocked: Whether intervals are computed from several pretraining seeds, which are blocks.
        finetuned: Whether a run costs a fine-tuning. Measures of a pretrained encoder do not.
        tasks: The runs of `arms` in each task, multiplied by the weight of the task. Tasks vary
            independently.
        examples: V_ex of each pair of `arms`, (arms, arms).
        shared: The part of `examples` that the spread over seeds contains as well, (arms, arms).
        of_finetuning: The part of `shared` that other fine-tuning seeds of the same pretrainings
            would change, (arms, arms).
        examples_freedom: The degrees of freedom of `examples`.
        single_runs: Whether each arm has one run, so that intervals cover other examples alone.
        clustered: Whether examples that share a text count as one cluster.
    """

    column: str
    lowest_is_best: bool
    limits: tuple[float, float]
    means: Mapping[str, float]
    seeds: Mapping[str, int]
    untested: Mapping[str, str]
    arms: tuple[str, ...]
    blocked: bool
    finetuned: bool = True
    tasks: Mapping[str, Runs] = field(default_factory=dict)
    examples: np.ndarray = field(default_factory=_no_pairs)
    shared: np.ndarray = field(default_factory=_no_pairs)
    of_finetuning: np.ndarray = field(default_factory=_no_pairs)
    examples_freedom: float = np.inf
    single_runs: bool = False
    clustered: bool = False

    @property
    def kind(self) -> str:
        """Return the kind of seeds that the intervals are made of; "examples" without seeds."""
        if self.single_runs:
            return "examples"
        return "pretraining" if self.blocked else "fine-tuning"

    def for_arms(self, arms: Sequence[str]) -> "ColumnEstimate":
        """Return the estimate of some of the arms that have an interval."""
        indices = [self.arms.index(arm) for arm in arms]
        pairs = np.ix_(indices, indices)
        return replace(
            self,
            arms=tuple(arms),
            tasks={task: runs.for_arms(indices) for task, runs in self.tasks.items()},
            examples=self.examples[pairs],
            shared=self.shared[pairs],
            of_finetuning=self.of_finetuning[pairs],
        )

    def by_block(self) -> np.ndarray:
        """Return each arm's mean over fine-tuning seeds and tasks, (arms, pretraining seeds)."""
        means = [runs.by_block() for runs in self.tasks.values()]
        return np.sum(means, axis=0)

    def differences(self, arm: str, reference: str) -> np.ndarray:
        """Return the differences of two arms that have an interval, one for each seed, (seeds,).

        If `blocked`, the seeds are pretraining seeds. Else they are the fine-tuning seeds that both
        arms have in every task.
        """
        row = self.arms.index(arm)
        reference_row = self.arms.index(reference)
        if self.blocked:
            means = self.by_block()
            return means[row] - means[reference_row]

        scores_by_task = []
        for runs in self.tasks.values():
            places = zip(runs.arms, runs.seeds, strict=True)
            scores = dict(zip(places, runs.values, strict=True))
            scores_by_task.append(scores)

        differences: list[float] = []
        for owner, seed in scores_by_task[0]:
            if owner != row:
                continue
            place = (row, seed)
            reference_place = (reference_row, seed)
            of_tasks: list[float] = []
            for scores in scores_by_task:
                if place in scores and reference_place in scores:
                    difference = scores[place] - scores[reference_place]
                    of_tasks.append(difference)
            if len(of_tasks) == len(scores_by_task):
                differences.append(sum(of_tasks))

        return np.array(differences)

    @cached_property
    def spreads(self) -> list[Spread]:
        """Return the spread over seeds of each independent part. Single runs have no spread."""
        if self.single_runs:
            return []
        if self.blocked:
            return [spread_over_blocks(self.by_block())]
        spreads: list[Spread] = []
        for runs in self.tasks.values():
            variances, seeds = runs.variances()
            spreads.append(spread_over_seeds(variances, seeds))
        return spreads

    def difference_variance(self, arm: str, reference: str) -> tuple[float, float]:
        """Return V, the variance of the difference of two arms, and its degrees of freedom."""
        row = self.arms.index(arm)
        column = self.arms.index(reference)
        examples = self.examples[row, column]
        if self.single_runs:
            return float(examples), float(self.examples_freedom)
        shared = self.shared[row, column]
        variance, freedom = combine_variances(
            self.spreads, [row, column], examples, shared, self.examples_freedom
        )
        return float(variance), float(freedom)

    def example_variance(self, reference: str) -> float:
        """Return the variance of a difference over examples alone, without what seeds add to it.

        It is the mean over the contrasts with the reference; NaN if there is none.
        """
        if reference not in self.arms or len(self.arms) < 2:
            return np.nan
        row = self.arms.index(reference)
        difference = self.examples[row] - self.shared[row]
        alone = np.maximum(0.0, difference)
        of_others = np.delete(alone, row)
        return float(of_others.mean())

    def variance_shares(self, reference: str) -> dict[str, float]:
        """Return the share of each source in the variance of a difference from the reference.

        The sources are "pretraining" (of several seeds; with one fine-tuning seed for each it
        includes fine-tuning), "finetuning" and "examples". A share is NaN if its source is not
        known: single runs show the examples alone, and scores without predictions do not show the
        examples. There are no shares without a tested difference.
        """
        shares = dict.fromkeys(SOURCES, math.nan)
        if reference not in self.arms or len(self.arms) < 2:
            return shares
        if self.single_runs:
            return shares | {"examples": 1.0}

        seeds = [self.seeds[arm] for arm in self.arms]
        # Two arms, each with the mean over its seeds.
        factor = 2 / float(np.mean(seeds))
        variances = {"examples": self.example_variance(reference)}

        of_finetuning = 0.0
        for runs in self.tasks.values():
            runs_of_seed = runs.finetuning_seeds if self.blocked else 1.0
            of_finetuning += runs.finetuning_variance / runs_of_seed
        if self.blocked:
            variances["pretraining"] = factor * self.pretraining_variance
        if not math.isnan(of_finetuning):
            variances["finetuning"] = factor * of_finetuning

        total = sum(variances.values())
        if total > 0:
            for source, variance in variances.items():
                shares[source] = variance / total

        if not self.examples.any():
            shares["examples"] = math.nan
        return shares

    @property
    def pretraining_variance(self) -> float:
        """Return the variance of the effect that a pretraining seed has on one arm alone.

        This is the component of arm by pretraining seed. It is NaN without blocks. With one
        fine-tuning seed for each pretraining only its sum with the variance of fine-tuning is
        known, and this sum is returned.
        """
        if not self.blocked or len(self.arms) < 2:
            return np.nan
        of_finetuning = 0.0
        for runs in self.tasks.values():
            of_finetuning += runs.finetuning_variance / runs.finetuning_seeds
        spread = self.spreads[0]
        total = float(spread.pooled)
        return total if math.isnan(of_finetuning) else max(0.0, total - of_finetuning)


def column_estimate(
    column_runs: ColumnRuns, arms: Sequence[str], reference: str = ""
) -> ColumnEstimate:
    """Estimate a column for the arms of a group.

    Blocks must be complete: each tested arm has each pretraining seed that counts. So an arm that
    lacks pretraining seeds of the reference is not tested. Else every other arm would lose the
    blocks that this arm lacks.

    Args:
        column_runs: The runs of the column.
        arms: The arms of the group.
        reference: The arm that the others are compared with.
    """
    column_runs = replace(column_runs, single_runs=column_runs.has_single_runs(arms))
    rows_by_arm = find_rows(column_runs, arms)

    pretrainings: dict[str, set[int]] = {}
    for arm, rows in rows_by_arm.items():
        pretraining_seeds = column_runs.runs.pretraining_seeds[rows]
        pretrainings[arm] = set(pretraining_seeds.tolist())

    blocked = has_blocks(pretrainings)
    untested = untested_arms(column_runs, rows_by_arm, pretrainings, reference)
    tested = tuple(arm for arm in arms if arm not in untested)
    common = common_seeds(pretrainings, tested)

    seeds: dict[str, int] = {}
    for arm, rows in rows_by_arm.items():
        if not blocked:
            seeds[arm] = len(rows)
        elif arm in tested:
            seeds[arm] = len(common)
        else:
            seeds[arm] = len(pretrainings[arm])

    estimate = ColumnEstimate(
        column=column_runs.column,
        lowest_is_best=column_runs.measure.lowest_is_best,
        limits=column_runs.measure.limits,
        means=_means_by_arm(column_runs.runs, rows_by_arm),
        seeds=seeds,
        untested=untested,
        arms=tested,
        blocked=blocked,
        finetuned=column_runs.metric not in RATIOS,
        single_runs=column_runs.single_runs,
        clustered=column_runs.clusters is not None,
    )

    if not tested:
        return estimate
    rows = np.concatenate([rows_by_arm[arm] for arm in tested])
    pretraining_seeds = column_runs.runs.pretraining_seeds[rows]
    is_common = np.isin(pretraining_seeds, list(common))
    common_runs = column_runs.subset(rows[is_common])
    return _with_variances(estimate, common_runs)


def _means_by_arm(runs: Runs, rows_by_arm: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the mean over pretrainings of the means over their fine-tuning seeds, by arm.

    Arms without a run are left out.
    """
    means: dict[str, float] = {}
    for arm, rows in rows_by_arm.items():
        if len(rows):
            _, pretrainings = np.unique(runs.pretraining_seeds[rows], return_inverse=True)
            weights = mean_weights(pretrainings)
            of_pretrainings = weights @ runs.values[rows]
            means[arm] = float(of_pretrainings.mean())
    return means


def _with_variances(estimate: ColumnEstimate, column_runs: ColumnRuns) -> ColumnEstimate:
    """Add means and variances to an estimate.

    `column_runs` are the runs that count, ordered by the arms of the estimate.
    """
    owner_list: list[int] = []
    for arm in column_runs.runs.arms:
        name = column_runs.arms[arm]
        owner_list.append(estimate.arms.index(name))
    owners = np.array(owner_list)

    scores = column_runs.runs._replace(arms=owners)

    # A unit varies independently: a run, or with blocks the mean of an arm's runs in a block.
    units = np.eye(len(owners))
    if estimate.blocked:
        units = mean_weights(scores.cells)
    mean_owners = units @ owners
    unit_owners = mean_owners.round().astype(int)

    weights = mean_weights(unit_owners) @ units
    arm_means = weights @ scores.values
    means = dict(zip(estimate.arms, arm_means.tolist(), strict=True))

    if not len(column_runs.labels):  # without predictions the variance over examples is not known
        arms = len(estimate.arms)
        zeros = np.zeros((arms, arms))
        return replace(
            estimate,
            means={**estimate.means, **means},
            tasks={column_runs.task: scores},
            examples=zeros,
            shared=zeros,
            of_finetuning=zeros,
        )

    values = contributions(column_runs.measure, column_runs.predictions, column_runs.labels)
    if column_runs.clusters is not None:
        values = cluster_values(values, column_runs.clusters)
    shared = shared_variance(units @ values, unit_owners, estimate.blocked)
    of_finetuning = shared
    if estimate.blocked:
        of_finetuning = finetuning_variance(values, scores.cells, unit_owners)

    return replace(
        estimate,
        means={**estimate.means, **means},
        tasks={column_runs.task: scores},
        examples=example_variance(column_runs, weights, values),
        shared=shared,
        of_finetuning=of_finetuning,
        examples_freedom=_examples_freedom(column_runs),
    )


def _examples_freedom(column_runs: ColumnRuns) -> float:
    """Return the degrees of freedom of the variance over examples, or over their clusters."""
    freedom = np.inf
    if column_runs.metric == "loss":
        freedom = effective_number(column_runs.labels) - 1
    if column_runs.single_runs or column_runs.clusters is not None:
        freedom = min(freedom, column_runs.independent_examples - 1)
    return freedom
