"""Columns and their average as measures of `differences`, from the outcomes of one block's arms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from glue_bench.stats.differences import Measure, Part
from glue_bench.stats.outcomes import Outcomes

AVERAGE = "average"
"""The mean over the experiment's columns of their main metrics, WNLI left out: `nine columns` of what is there."""
NOT_AVERAGED = "wnli"


@dataclass(frozen=True, kw_only=True)
class Assessed:
    """A measure, every arm's mean and number of seeds in it, and why some arms have no interval.

    `means` has the arms with a finished run in every column that counts; `why` those that the measure lacks.
    """

    column: str
    arms: tuple[str, ...]
    means: Mapping[str, float]
    seeds: Mapping[str, int]
    measure: Measure | None
    why: Mapping[str, str]


def column_measure(outcomes: Outcomes, covariance: np.ndarray | None) -> Assessed:
    """A column; `covariance` (runs, runs) is of its runs' scores over resamples, None where there are none."""
    why = {arm: reason for arm in outcomes.arms if (reason := _why_not(outcomes, arm))}
    arms = tuple(arm for arm in outcomes.arms if arm not in why)
    measure = _column(outcomes, covariance, arms) if covariance is not None and arms else None
    present = [arm for arm in outcomes.arms if len(outcomes.runs[arm])]
    return Assessed(
        column=outcomes.column,
        arms=outcomes.arms,
        means={arm: float(outcomes.scores[outcomes.runs[arm]].mean()) for arm in present},
        seeds={arm: len(outcomes.runs[arm]) for arm in outcomes.arms},
        measure=measure,
        why=why,
    )


def average_measure(outcomes: Sequence[Outcomes], columns: Sequence[Assessed]) -> Assessed:
    """The mean over columns. Their examples are independent; runs are shared only by the columns of one task."""
    kept = [pair for pair in zip(outcomes, columns, strict=True) if pair[0].column != NOT_AVERAGED]
    arms = outcomes[0].arms
    why = {arm: reason for arm in arms if (reason := _why_no_average(arm, kept))}
    whole = [arm for arm in arms if kept and all(arm in assessed.means for _, assessed in kept)]
    fit = tuple(arm for arm in arms if arm not in why)
    return Assessed(
        column=AVERAGE,
        arms=arms,
        means={arm: float(np.mean([assessed.means[arm] for _, assessed in kept])) for arm in whole},
        seeds={arm: min((assessed.seeds[arm] for _, assessed in kept), default=0) for arm in arms},
        measure=_average(kept, fit) if fit else None,
        why=why,
    )


def _why_not(outcomes: Outcomes, arm: str) -> str:
    scores = outcomes.scores[outcomes.runs[arm]]
    if not len(scores):
        return "no finished run"
    if len(scores) == 1:
        return "one seed shows no spread"
    return "a run has no score" if np.isnan(scores).any() else outcomes.why


def _why_no_average(arm: str, columns: Sequence[tuple[Outcomes, Assessed]]) -> str:
    reasons = [assessed.why[arm] for _, assessed in columns if arm in assessed.why]
    if reasons:
        return reasons[0]
    seeds = {outcomes.seeds_of(arm) for outcomes, _ in columns}
    if not seeds:
        return "no column counts"
    return "seeds differ between its columns" if len(seeds) > 1 else ""


def _column(outcomes: Outcomes, covariance: np.ndarray, arms: tuple[str, ...]) -> Measure:
    means = np.zeros((len(arms), len(outcomes.scores)))
    for index, arm in enumerate(arms):
        means[index, outcomes.runs[arm]] = 1 / len(outcomes.runs[arm])
    part = Part(
        scores={arm: outcomes.scores[outcomes.runs[arm]] for arm in arms},
        interaction={arm: _interaction(covariance[np.ix_(outcomes.runs[arm], outcomes.runs[arm])]) for arm in arms},
    )
    return Measure(arms=arms, parts=(part,), examples=means @ covariance @ means.T)


def _interaction(covariance: np.ndarray) -> float:
    """The mean over resamples of the sample variance over seeds, less that of the data: how far runs part ways."""
    n = len(covariance)
    return float((np.trace(covariance) - covariance.sum() / n) / (n - 1))


def _average(columns: Sequence[tuple[Outcomes, Assessed]], arms: tuple[str, ...]) -> Measure:
    number = len(columns)
    tasks: dict[str, list[Measure]] = {}
    examples = np.zeros((len(arms), len(arms)))
    for outcomes, assessed in columns:
        assert assessed.measure is not None
        chosen = [assessed.measure.arms.index(arm) for arm in arms]
        examples += assessed.measure.examples[np.ix_(chosen, chosen)] / number**2
        tasks.setdefault(outcomes.task, []).append(assessed.measure)
    parts = tuple(_task_part(measures, arms, number) for measures in tasks.values())
    return Measure(arms=arms, parts=parts, examples=examples)


def _task_part(measures: Sequence[Measure], arms: tuple[str, ...], number: int) -> Part:
    """A task's share of an average: its columns share runs, so their scores are added before any variance."""
    return Part(
        scores={arm: sum((m.parts[0].scores[arm] for m in measures), start=np.zeros(1)) / number for arm in arms},
        interaction={arm: sum(m.interaction(arm) for m in measures) / number**2 for arm in arms},
    )
