"""Every number of a contrast against loops over runs and examples, with unequal numbers."""

import math
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from helpers.plain_statistics import (
    PlainColumn,
    PlainRun,
    accuracy,
    contrast,
    correlation,
    loss,
    share,
)

from glue_bench.data import measures
from glue_bench.stats.runs import ColumnRuns, Runs
from glue_bench.stats.verdicts import Group, assess, verdicts

ARMS = ("add", "none", "wild", "untied")
NUMBERS = ["difference", "error", "freedom", "low", "high", "smallest", "p", "p_adjusted"]


class Plan(NamedTuple):
    """A column: its task, its metric as plain code, its limits, and its number of examples."""

    task: str
    metric: Callable[[np.ndarray, np.ndarray], float]
    limits: tuple[float, float]
    rows: int


COLUMNS = {
    "cola": Plan("cola", correlation, (-100.0, 100.0), 26),
    "mnli_m": Plan("mnli", accuracy, (0.0, 100.0), 20),
    "mnli_mm": Plan("mnli", accuracy, (0.0, 100.0), 25),
    "stsb": Plan("stsb", correlation, (-100.0, 100.0), 22),
}
MEASURES = {
    "validation_loss": Plan("validation_loss", loss, (-math.inf, math.inf), 9),
    "swap_1": Plan("swap_1", share, (0.0, 100.0), 20),
}
Seeds = dict[tuple[str, int], int]
UNEQUAL_BLOCKS: Seeds = {}
for place, arm in enumerate(ARMS):
    for block in (1, 2, 4):
        UNEQUAL_BLOCKS[arm, block] = 1 + (place + block) % 3
SEEDS: dict[str, Seeds] = {
    "unequal seeds": {("add", 1): 3, ("none", 1): 4, ("wild", 1): 5, ("untied", 1): 2},
    "two seeds": {("add", 1): 2, ("none", 1): 2, ("wild", 1): 2, ("untied", 1): 2},
    "blocks of one": dict.fromkeys(product(ARMS, (1, 2, 4)), 1),
    "blocks of unequal numbers": UNEQUAL_BLOCKS,
    "two arms in blocks": dict.fromkeys(product(ARMS[:2], (1, 2, 3)), 2),
}
"""The number of fine-tuning seeds for each arm and pretraining seed, by design."""


def draw_column(column: str, seeds: Seeds, generator: np.random.Generator) -> PlainColumn:
    """Draw runs that are right by chance; those of `wild` vary more."""
    plan = COLUMNS[column]
    if plan.task == "stsb":
        labels = generator.uniform(0, 5, plan.rows)
    else:
        labels = generator.integers(0, 2, plan.rows)

    runs: list[PlainRun] = []
    for (arm, pretraining), count in seeds.items():
        mean = 0.55 + 0.08 * ARMS.index(arm)
        spread = 0.3 if arm == "wild" else 0.05
        for seed in range(1, count + 1):
            strength = mean + spread * generator.normal()
            rate = float(np.clip(strength, 0.2, 0.95))
            if plan.task == "stsb":
                guesses = generator.uniform(0, 5, plan.rows)
                predictions = rate * labels + (1 - rate) * guesses
            else:
                is_right = generator.random(plan.rows) < rate
                predictions = np.where(is_right, labels, 1 - labels)
            runs.append(PlainRun(arm, pretraining, seed, predictions))

    return PlainColumn(plan.task, plan.metric, plan.limits, labels, runs)


def draw_measure(measure: str, generator: np.random.Generator) -> PlainColumn:
    """Draw pretrainings measured on documents of unequal length.

    A document of a share has as many trials as a document of a loss has tokens.
    """
    plan = MEASURES[measure]
    counts = generator.integers(5, 400, plan.rows).astype(float)
    documents = generator.normal(3.0, 0.4, plan.rows)
    runs: list[PlainRun] = []
    for place, (arm, pretraining) in enumerate(product(ARMS, (1, 2, 5))):
        mean = 0.05 * ARMS.index(arm)
        spread = 0.2 if arm == "wild" else 0.02
        of_run = mean + spread * generator.normal()
        noise = 0.05 * generator.normal(size=plan.rows)
        nats = documents + of_run + noise
        share_of_hits = 0.5 + 0.01 * place
        hits = generator.binomial(counts.astype(int), share_of_hits)
        numerators = hits.astype(float) if measure == "swap_1" else nats * counts
        runs.append(PlainRun(arm, pretraining, 1, numerators))
    return PlainColumn(plan.task, plan.metric, plan.limits, counts, runs)


def column_runs_of(
    name: str, column: PlainColumn, arms: tuple[str, ...], *, averaged: bool = True
) -> ColumnRuns:
    """Return the same runs as a ColumnRuns, in an order that differs by column."""
    generator = np.random.default_rng(len(name))
    order = generator.permutation(len(column.runs))
    plain_runs = [column.runs[place] for place in order]
    rows: list[tuple[int, int, int, float]] = []
    predictions: list[np.ndarray] = []
    for run in plain_runs:
        score = column.metric(run.predictions, column.labels)
        rows.append((arms.index(run.arm), run.pretraining, run.seed, score))
        predictions.append(run.predictions)
    columns = [np.array(values) for values in zip(*rows, strict=True)]
    return ColumnRuns(
        measure=measures.MEASURES[name],
        task=column.task,
        arms=arms,
        runs=Runs(*columns),
        predictions=np.stack(predictions),
        labels=column.labels,
        averaged=averaged,
    )


class Judged(NamedTuple):
    """A design: its columns for plain code, its arms, and the verdicts by column and arm."""

    columns: dict[str, PlainColumn]
    arms: tuple[str, ...]
    frame: pd.DataFrame

    @property
    def compared_arms(self) -> list[str]:
        """Return the arms without the reference."""
        return [arm for arm in self.arms if arm != "none"]


@pytest.fixture(scope="module", params=SEEDS)
def judged(request) -> Judged:
    """With unequal seeds one task has fewer runs than the others."""
    seeds = SEEDS[request.param]
    generator = np.random.default_rng(len(request.param))
    arms = tuple(dict.fromkeys(arm for arm, _ in seeds))
    columns = {name: draw_column(name, seeds, generator) for name in COLUMNS}
    if request.param == "unequal seeds":
        fewer_seeds = {place: max(2, count - 1) for place, count in seeds.items()}
        columns["stsb"] = draw_column("stsb", fewer_seeds, generator)
    runs = [column_runs_of(name, column, arms) for name, column in columns.items()]
    group = Group(arms=arms, reference="none")
    frame = verdicts(assess(runs, [group]))
    return Judged(columns, arms, frame.set_index(["column", "arm"]))


def numbers_of(row: pd.Series) -> dict[str, float]:
    """Return the NUMBERS of a verdict."""
    return row[NUMBERS].astype(float).to_dict()


@pytest.mark.parametrize("column", [*COLUMNS, "average"])
def test_a_contrast_equals_loops_over_runs_and_examples(judged, column):
    names = COLUMNS if column == "average" else [column]
    parts = [judged.columns[name] for name in names]
    family = len(judged.compared_arms)
    for arm in judged.compared_arms:
        numbers = numbers_of(judged.frame.loc[(column, arm)])
        expected = contrast(parts, arm, "none", judged.arms, family)
        assert numbers == pytest.approx(expected, rel=1e-6, abs=1e-9), arm


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_of_pretraining_equals_loops_over_documents(measure):
    column = draw_measure(measure, np.random.default_rng(3))
    runs = column_runs_of(measure, column, ARMS, averaged=False)
    group = Group(arms=ARMS, reference="untied")
    frame = verdicts(assess([runs], [group]))
    rows = frame.set_index("arm")
    for arm in ARMS[:3]:
        numbers = numbers_of(rows.loc[arm])
        expected = contrast([column], arm, "untied", ARMS, 3)
        assert numbers == pytest.approx(expected, rel=1e-6), arm


def test_an_interval_of_a_measure_is_clipped_to_the_range_of_the_measure():
    """With two pretrainings that differ much an interval would reach beyond 100 points."""
    hits = {("add", 1): 0.0, ("add", 2): 6.0, ("none", 1): 6.0, ("none", 2): 1.0}
    runs: list[PlainRun] = []
    for (arm, pretraining), count in hits.items():
        numerators = np.full(3, count)
        runs.append(PlainRun(arm, pretraining, 1, numerators))
    trials = np.full(3, 6.0)
    column = PlainColumn("swap_1", share, (0.0, 100.0), trials, runs)
    column_runs = column_runs_of("swap_1", column, ("add", "none"))
    group = Group(arms=("add", "none"), reference="none")
    frame = verdicts(assess([column_runs], [group]))
    row = frame.iloc[0]
    assert row["smallest"] > 100
    assert row["low"] == -100.0
    assert row["high"] == 100.0


def unit_of(run: PlainRun, *, blocked: bool) -> int:
    """Return the seed that counts: that of pretraining in blocks, else that of fine-tuning."""
    return run.pretraining if blocked else run.seed


def totals_by_unit(judged: Judged, *, blocked: bool) -> dict[tuple[str, int], float]:
    """Return by arm and seed the sum over columns of the mean score."""
    totals: dict[tuple[str, int], float] = {}
    for column in judged.columns.values():
        scores: dict[tuple[str, int], list[float]] = {}
        for run in column.runs:
            key = (run.arm, unit_of(run, blocked=blocked))
            score = column.metric(run.predictions, column.labels)
            scores.setdefault(key, []).append(score)
        for key, values in scores.items():
            total = totals.get(key, 0.0)
            totals[key] = total + float(np.mean(values))
    return totals


class Units(NamedTuple):
    """The seeds that count for the average, by arm, and whether they are blocks."""

    by_arm: dict[str, set[int]]
    blocked: bool


def units_of_average(judged: Judged) -> Units:
    """Find the seeds by hand. STS-B is the column with the fewest runs.

    A fine-tuning seed counts if an arm has it in all columns, else a pretraining seed.
    """
    runs = judged.columns["stsb"].runs
    blocked = len({run.pretraining for run in runs}) > 1
    by_arm: dict[str, set[int]] = {}
    for run in runs:
        unit = unit_of(run, blocked=blocked)
        by_arm.setdefault(run.arm, set()).add(unit)
    return Units(by_arm, blocked)


def test_seeds_agree_among_the_seeds_that_both_arms_have(judged):
    """The numbers are compared for the average."""
    units = units_of_average(judged)
    totals = totals_by_unit(judged, blocked=units.blocked)
    for arm in judged.compared_arms:
        row = judged.frame.loc[("average", arm)]
        paired = units.by_arm[arm] & units.by_arm["none"]
        differences = [totals[arm, unit] - totals["none", unit] for unit in paired]
        sign = np.sign(row["difference"])
        agrees = np.sign(differences) == sign
        assert row["agree"] == sum(agrees), arm
        assert row["paired"] == len(paired), arm


def test_each_arm_has_its_own_number_of_seeds(judged):
    units = units_of_average(judged)
    of_reference = len(units.by_arm["none"])
    for arm in judged.compared_arms:
        row = judged.frame.loc[("average", arm)]
        of_arm = len(units.by_arm[arm])
        assert row["n_arm"] == of_arm, arm
        assert row["n_reference"] == of_reference, arm
