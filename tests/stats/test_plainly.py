"""Every number of a contrast against loops over runs and examples, with unequal numbers of everything."""

import math
from itertools import product

import numpy as np
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
METRICS = {
    "cola": ("cola", "matthews_correlation", correlation, (-100.0, 100.0), 26),
    "mnli_m": ("mnli", "accuracy", accuracy, (0.0, 100.0), 20),
    "mnli_mm": ("mnli", "accuracy", accuracy, (0.0, 100.0), 25),
    "stsb": ("stsb", "pearson", correlation, (-100.0, 100.0), 22),
}
MEASURES = {
    "validation_loss": ("validation_loss", "loss", loss, (-math.inf, math.inf), 9),
    "swap_1": ("swap_1", "share", share, (0.0, 100.0), 20),
}
"""Of each column its task, the metric by its name and as plain code, its limits, and how many examples it has."""
SEEDS = {
    "unequal seeds": {("add", 1): 3, ("none", 1): 4, ("wild", 1): 5, ("untied", 1): 2},
    "two seeds": {("add", 1): 2, ("none", 1): 2, ("wild", 1): 2, ("untied", 1): 2},
    "blocks of one": dict.fromkeys(product(ARMS, (1, 2, 4)), 1),
    "blocks of unequal numbers": {(arm, block): 1 + (place + block) % 3 for place, arm in enumerate(ARMS)
                                  for block in (1, 2, 4)},
    "two arms in blocks": dict.fromkeys(product(ARMS[:2], (1, 2, 3)), 2),
}  # fmt: skip
"""Of each design how many fine-tuning seeds an arm has after a pretraining seed."""


def drawn_column(
    column: str, seeds: dict[tuple[str, int], int], generator: np.random.Generator
) -> PlainColumn:
    """Runs that are right by chance, of which those of `wild` vary more."""
    task, _, metric, limits, rows = METRICS[column]
    labels = generator.uniform(0, 5, rows) if task == "stsb" else generator.integers(0, 2, rows)
    runs = []
    for (arm, pretraining), number in seeds.items():
        for seed in range(1, number + 1):
            spread = 0.3 if arm == "wild" else 0.05
            share = float(
                np.clip(0.55 + 0.08 * ARMS.index(arm) + spread * generator.normal(), 0.2, 0.95)
            )
            if task == "stsb":
                predictions = share * labels + (1 - share) * generator.uniform(0, 5, rows)
            else:
                predictions = np.where(generator.random(rows) < share, labels, 1 - labels)
            runs.append(PlainRun(arm, pretraining, seed, predictions))
    return PlainColumn(task, metric, limits, labels, runs)


def measured_column(measure: str, generator: np.random.Generator) -> PlainColumn:
    """Pretrainings measured on documents of unequal length; a share has hits among as many trials."""
    task, _, metric, limits, rows = MEASURES[measure]
    counts = generator.integers(5, 400, rows).astype(float)
    document, runs = generator.normal(3.0, 0.4, rows), []
    for place, (arm, pretraining) in enumerate(product(ARMS, (1, 2, 5))):
        spread = 0.2 if arm == "wild" else 0.02
        nats = (
            document
            + 0.05 * ARMS.index(arm)
            + spread * generator.normal()
            + 0.05 * generator.normal(size=rows)
        )
        hits = generator.binomial(counts.astype(int), 0.5 + 0.01 * place).astype(float)
        runs.append(PlainRun(arm, pretraining, 1, hits if metric is share else nats * counts))
    return PlainColumn(task, metric, limits, counts, runs)


def outcomes_of_plain(
    name: str, column: PlainColumn, arms: tuple[str, ...], is_averaged: bool = True
) -> ColumnRuns:
    """The same runs in an order of the column's own, as the package takes them."""
    order = np.random.default_rng(len(name)).permutation(len(column.runs))
    runs = [column.runs[place] for place in order]
    values = Runs(
        np.array([arms.index(run.arm) for run in runs]),
        np.array([run.pretraining for run in runs]),
        np.array([run.seed for run in runs]),
        np.array([column.metric(run.predictions, column.labels) for run in runs]),
    )
    return ColumnRuns(
        measure=measures.MEASURES[name],
        task=column.task,
        arms=arms,
        runs=values,
        predictions=np.stack([run.predictions for run in runs]),
        labels=column.labels,
        averaged=is_averaged,
    )


@pytest.fixture(scope="module", params=SEEDS)
def judged(request):
    """A design's columns as plain code has them, its arms, and the verdicts on them, by column and arm."""
    seeds, generator = SEEDS[request.param], np.random.default_rng(len(request.param))
    arms = tuple(dict.fromkeys(arm for arm, _ in seeds))
    columns = {name: drawn_column(name, seeds, generator) for name in METRICS}
    if request.param == "unequal seeds":  # of which one task has fewer
        fewer = {place: max(2, number - 1) for place, number in seeds.items()}
        columns["stsb"] = drawn_column("stsb", fewer, generator)
    outcomes = [outcomes_of_plain(name, column, arms) for name, column in columns.items()]
    frame = verdicts(assess(outcomes, [Group(arms=arms, reference="none")]))
    return columns, arms, frame.set_index(["column", "arm"])


@pytest.mark.parametrize("column", [*METRICS, "average"])
def test_a_contrast_is_that_of_loops_over_runs_and_examples(judged, column):
    columns, arms, frame = judged
    parts = [columns[column]] if column in columns else list(columns.values())
    for arm in arms:
        if arm != "none":
            expected = contrast(parts, arm, "none", arms, len(arms) - 1)
            found = frame.loc[(column, arm), NUMBERS].astype(float).to_dict()
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), arm


@pytest.mark.parametrize("measure", MEASURES)
def test_a_measure_of_pretraining_is_that_of_loops_over_documents(measure):
    column = measured_column(measure, np.random.default_rng(3))
    outcomes = outcomes_of_plain(measure, column, ARMS, is_averaged=False)
    frame = verdicts(assess([outcomes], [Group(arms=ARMS, reference="untied")])).set_index("arm")
    for arm in ARMS[:3]:
        expected = contrast([column], arm, "untied", ARMS, 3)
        assert frame.loc[arm, NUMBERS].astype(float).to_dict() == pytest.approx(
            expected, rel=1e-6
        ), arm


def test_an_interval_of_a_measure_is_clipped_to_what_the_measure_can_be():
    """Of two pretrainings that differ much an interval would reach beyond 100 points."""
    hits = {("add", 1): 0.0, ("add", 2): 6.0, ("none", 1): 6.0, ("none", 2): 1.0}
    runs = [PlainRun(arm, seed, 1, np.full(3, number)) for (arm, seed), number in hits.items()]
    outcomes = outcomes_of_plain(
        "swap_1", PlainColumn("swap_1", share, (0.0, 100.0), np.full(3, 6.0), runs), ARMS[:2]
    )
    (row,) = verdicts(assess([outcomes], [Group(arms=ARMS[:2], reference="none")])).to_dict(
        "records"
    )
    assert row["smallest"] > 100
    assert (row["low"], row["high"]) == (-100.0, 100.0)


def test_seeds_that_agree_are_those_that_both_arms_have(judged):
    """By hand, of the average: a fine-tuning seed counts where both have it in all columns, else a pretraining seed."""
    columns, arms, frame = judged
    last = columns["stsb"]
    is_blocked = len({run.pretraining for run in last.runs}) > 1
    totals: dict[tuple[str, int], float] = {}
    for column in columns.values():
        of_unit: dict[tuple[str, int], list[float]] = {}
        for run in column.runs:
            key = (run.arm, run.pretraining if is_blocked else run.seed)
            of_unit.setdefault(key, []).append(column.metric(run.predictions, column.labels))
        for key, values in of_unit.items():
            totals[key] = totals.get(key, 0.0) + float(np.mean(values))
    for arm in arms:
        if arm != "none":
            row = frame.loc[("average", arm)]
            whole = {(run.arm, run.pretraining if is_blocked else run.seed) for run in last.runs}
            units = [
                unit
                for name, unit in totals
                if name == arm and {(arm, unit), ("none", unit)} <= whole
            ]
            signs = [math.copysign(1, totals[arm, unit] - totals["none", unit]) for unit in units]
            agree = sum(sign == math.copysign(1, row["difference"]) for sign in signs)
            assert (row["agree"], row["paired"]) == (agree, len(units)), arm


def test_the_numbers_of_seeds_are_each_arms_own(judged):
    columns, arms, frame = judged
    fewest = columns["stsb"].runs
    kind = "pretraining" if len({run.pretraining for run in fewest}) > 1 else "seed"
    for arm in arms:
        if arm != "none":
            row = frame.loc[("average", arm)]
            expected = [
                len({getattr(run, kind) for run in fewest if run.arm == name})
                for name in (arm, "none")
            ]
            assert [row["n_arm"], row["n_reference"]] == expected, arm
