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


def _no_pairs() -> np.ndarray:
    return np.zeros((0, 0))


@dataclass(frozen=True, kw_only=True)
class ColumnEstimate:
    """A column or the average, for one group of arms.

    Attributes:
        column: The name of the column.
        lowest_is_best: Whether a lower value is better, as of a loss.
        limits: The smallest and the largest value that is possible.
        means: The mean of each arm that has a run, in points or in nats. With several pretrainings
            it is the mean of their means.
        seeds: The number of each arm's fine-tuning seeds, or of its pretraining seeds if `blocked`.
        untested: By arm, why it has no interval.
        arms: The arms that have an interval.
        blocked: Whether intervals are made of several pretraining seeds, which are blocks.
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
        return np.sum([runs.by_block() for runs in self.tasks.values()], axis=0)

    def differences(self, arm: str, reference: str) -> np.ndarray:
        """Return the differences of two arms that have an interval, one for each seed, (seeds,).

        The seeds are those of pretraining if `blocked`, else the fine-tuning seeds that both arms
        have in every task.
        """
        row = self.arms.index(arm)
        reference_row = self.arms.index(reference)
        if self.blocked:
            means = self.by_block()
            return means[row] - means[reference_row]
        scores_by_task = []
        for runs in self.tasks.values():
            places = zip(runs.arms, runs.seeds, strict=True)
            scores_by_task.append(dict(zip(places, runs.values, strict=True)))
        differences: list[float] = []
        for owner, seed in scores_by_task[0]:
            pair = [(row, seed), (reference_row, seed)]
            if owner == row and all(place in scores for scores in scores_by_task for place in pair):
                differences.append(
                    sum(scores[pair[0]] - scores[pair[1]] for scores in scores_by_task)
                )
        return np.array(differences)

    @cached_property
    def spreads(self) -> list[Spread]:
        """Return the spread over seeds of each independent part; none of single runs."""
        if self.single_runs:
            return []
        if self.blocked:
            return [spread_over_blocks(self.by_block())]
        return [spread_over_seeds(*runs.variances()) for runs in self.tasks.values()]

    def difference_variance(self, arm: str, reference: str) -> tuple[float, float]:
        """Return V of the difference of two arms, and its degrees of freedom."""
        pair = [self.arms.index(arm), self.arms.index(reference)]
        place = tuple(pair)
        if self.single_runs:
            return float(self.examples[place]), float(self.examples_freedom)
        variance, freedom = combine_variances(
            self.spreads, pair, self.examples[place], self.shared[place], self.examples_freedom
        )
        return float(variance), float(freedom)

    def example_variance(self, reference: str) -> float:
        """Return the variance of a difference over examples alone, without what seeds add to it.

        It is the mean over the contrasts with the reference; NaN if there is none.
        """
        if reference not in self.arms or len(self.arms) < 2:
            return np.nan
        row = self.arms.index(reference)
        alone = np.maximum(0.0, self.examples[row] - self.shared[row])
        return float(np.delete(alone, row).mean())

    def variance_shares(self, reference: str) -> dict[str, float]:
        """Return the share of each source in the variance of a difference from the reference.

        The sources are "pretraining" (of several seeds; with one fine-tuning seed for each it
        includes fine-tuning), "finetuning" and "examples". A share is NaN if its source is not
        known: of single runs all but the examples, of scores alone the examples. There are no
        shares without a tested difference.
        """
        shares = dict.fromkeys(("pretraining", "finetuning", "examples"), math.nan)
        if reference not in self.arms or len(self.arms) < 2:
            return shares
        if self.single_runs:
            return shares | {"examples": 1.0}
        seeds = float(np.mean([self.seeds[arm] for arm in self.arms]))
        variances = {"examples": self.example_variance(reference)}
        of_run = sum(runs.finetuning_variance for runs in self.tasks.values())
        if self.blocked:
            variances["pretraining"] = 2 * self.pretraining_variance / seeds
            runs_of_block = [runs.finetuning_seeds for runs in self.tasks.values()]
            of_run = of_run / float(np.mean(runs_of_block))
        if not math.isnan(of_run):
            variances["finetuning"] = 2 * of_run / seeds
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
        known, and returned.
        """
        if not self.blocked or len(self.arms) < 2:
            return np.nan
        of_finetuning = sum(
            runs.finetuning_variance / runs.finetuning_seeds for runs in self.tasks.values()
        )
        total = float(self.spreads[0].pooled)
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
    rows_by_arm = _rows_by_arm(column_runs, arms)
    pretrainings: dict[str, set[int]] = {}
    for arm, rows in rows_by_arm.items():
        pretrainings[arm] = set(column_runs.runs.pretraining_seeds[rows].tolist())
    blocked = _has_blocks(pretrainings)
    untested = _untested_arms(column_runs, rows_by_arm, pretrainings, reference)
    tested = tuple(arm for arm in arms if arm not in untested)
    common = _common_seeds(pretrainings, tested)
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
    is_common = np.isin(column_runs.runs.pretraining_seeds[rows], list(common))
    return _with_variances(estimate, column_runs.subset(rows[is_common]))


def _rows_by_arm(column_runs: ColumnRuns, arms: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the indices of each arm's runs, by pretraining seed and then by fine-tuning seed."""
    scores = column_runs.runs
    order = np.lexsort((scores.seeds, scores.pretraining_seeds))
    owners = scores.arms[order]
    return {arm: order[owners == column_runs.arms.index(arm)] for arm in arms}


def _has_blocks(pretrainings: Mapping[str, set[int]]) -> bool:
    """Return whether the arms have several pretraining seeds together."""
    return len(set().union(*pretrainings.values())) > 1


def _common_seeds(pretrainings: Mapping[str, set[int]], arms: Sequence[str]) -> set[int]:
    """Return the pretraining seeds that all of these arms have."""
    return set.intersection(*(pretrainings[arm] for arm in arms)) if arms else set()


def _untested_arms(
    column_runs: ColumnRuns,
    rows_by_arm: Mapping[str, np.ndarray],
    pretrainings: Mapping[str, set[int]],
    reference: str,
) -> dict[str, str]:
    """Return by arm why it has no interval, for the arms that have none."""
    blocked = _has_blocks(pretrainings)
    expected = pretrainings.get(reference, set()) if blocked else set()
    untested: dict[str, str] = {}
    for arm, rows in rows_by_arm.items():
        seeds = len(pretrainings[arm]) if blocked else len(rows)
        missing = len(expected - pretrainings[arm])
        if not len(rows):
            untested[arm] = "no finished run"
        elif arm in column_runs.problems:
            # It comes first because a damaged or missing file has to be mended in any case.
            untested[arm] = column_runs.problems[arm]
        elif seeds == 1 and not column_runs.single_runs:
            kind = "pretraining seed" if blocked else "seed"
            untested[arm] = f"one {kind} does not show how much scores vary"
        elif np.isnan(column_runs.runs.values[rows]).any():
            untested[arm] = "a run has no score"
        elif column_runs.independent_examples == 1:
            unit = "example" if column_runs.clusters is None else "cluster of examples"
            untested[arm] = f"one {unit} does not show how much scores vary"
        elif missing:
            untested[arm] = f"{missing} of {len(expected)} pretraining seeds are missing"
    tested = [arm for arm in rows_by_arm if arm not in untested]
    if blocked and len(_common_seeds(pretrainings, tested)) < 2:
        reason = "the arms have fewer than two pretraining seeds in common"
        untested |= dict.fromkeys(tested, reason)
    return untested


def _means_by_arm(runs: Runs, rows_by_arm: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the mean over pretrainings of the means over their fine-tuning seeds, by arm.

    Arms without a run are left out.
    """
    means: dict[str, float] = {}
    for arm, rows in rows_by_arm.items():
        if len(rows):
            _, pretrainings = np.unique(runs.pretraining_seeds[rows], return_inverse=True)
            of_pretrainings = mean_weights(pretrainings) @ runs.values[rows]
            means[arm] = float(of_pretrainings.mean())
    return means


def _with_variances(estimate: ColumnEstimate, column_runs: ColumnRuns) -> ColumnEstimate:
    """Add means and variances to an estimate.

    `column_runs` are the runs that count, ordered by the arms of the estimate.
    """
    names = [column_runs.arms[arm] for arm in column_runs.runs.arms]
    owners = np.array([estimate.arms.index(name) for name in names])
    scores = column_runs.runs._replace(arms=owners)
    # A unit varies independently: a run, or with blocks the mean of an arm's runs in a block.
    units = np.eye(len(owners))
    if estimate.blocked:
        units = mean_weights(scores.cells)
    unit_owners = (units @ owners).round().astype(int)
    weights = mean_weights(unit_owners) @ units
    means = dict(zip(estimate.arms, (weights @ scores.values).tolist(), strict=True))
    if not len(column_runs.labels):  # scores alone, which say nothing of examples
        zeros = np.zeros((len(estimate.arms), len(estimate.arms)))
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
    examples_freedom = np.inf
    if column_runs.metric == "loss":
        examples_freedom = effective_number(column_runs.labels) - 1
    if column_runs.single_runs or column_runs.clusters is not None:
        examples_freedom = min(examples_freedom, values.shape[1] - 1)
    return replace(
        estimate,
        means={**estimate.means, **means},
        tasks={column_runs.task: scores},
        examples=example_variance(column_runs, weights, values),
        shared=shared,
        of_finetuning=of_finetuning,
        examples_freedom=examples_freedom,
    )
