"""How often `compare` calls two equal systems different: simulated files of each kind that it reads.

    python benchmarks/comparisons.py [--experiments 2000] [--only TEXT]

Systems have equal true scores. Examples differ in difficulty, which all systems share, so that their
answers are correlated. In a setting with clusters the examples of one share a part of what is not
difficulty. A false verdict is any contrast with a verdict; a false tie is a pair that is called
equivalent although its true difference is the margin.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from glue_bench.data.measures import Measure
from glue_bench.stats.runs import ColumnRuns, Runs
from glue_bench.stats.verdicts import Group, assess, contrast_rows, equivalence

MARGIN = 0.06
"""The true difference in probability of the settings that test for false ties."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One kind of files: so many systems, examples, seeds, and examples of a cluster."""

    title: str
    systems: int = 2
    examples: int = 500
    seeds: int = 1
    cluster_size: int = 1
    has_examples: bool = True
    seed_deviation: float = 0.3


SETTINGS = (
    Setting(title="one run each, 100 examples", examples=100),
    Setting(title="one run each, 500 examples"),
    Setting(title="one run each, 500 examples, 6 systems", systems=6),
    Setting(title="one run each, 2,000 examples, 6 systems", systems=6, examples=2000),
    Setting(title="five seeds with examples", seeds=5),
    Setting(title="five seeds with examples, 6 systems", seeds=5, systems=6),
    Setting(title="five seeds, scores only", seeds=5, has_examples=False),
    Setting(title="five seeds, scores only, 6 systems", seeds=5, systems=6, has_examples=False),
    Setting(title="clusters of 5, one run each", cluster_size=5),
    Setting(title="clusters of 20, one run each", cluster_size=20, examples=2000),
    Setting(title="clusters of 5, five seeds", cluster_size=5, seeds=5),
)


def draw(
    setting: Setting, generator: np.random.Generator, *, difference: float = 0.0
) -> ColumnRuns:
    """Draw the runs of one experiment; the first system's answers are right more often by `difference`."""
    runs = setting.systems * setting.seeds
    owners = np.repeat(np.arange(setting.systems), setting.seeds)
    clusters = np.arange(setting.examples) // setting.cluster_size
    difficulty = generator.normal(size=setting.examples)
    of_cluster = generator.normal(size=(setting.systems, clusters.max() + 1))[:, clusters]
    of_run = setting.seed_deviation * generator.normal(size=(runs, 1)) * (setting.seeds > 1)
    strength = 0.5 + difficulty + of_run
    if setting.cluster_size > 1:
        strength = strength + 0.7 * of_cluster[owners]
    probability = 1 / (1 + np.exp(-strength))
    probability[owners == 0] = np.clip(probability[owners == 0] + difference, 0, 1)
    right = (generator.random((runs, setting.examples)) < probability).astype(float)
    labels = np.ones(setting.examples)
    has_clusters = setting.cluster_size > 1
    column = ColumnRuns(
        measure=Measure("task", "task", "accuracy"),
        task="task",
        arms=tuple(f"system {number}" for number in range(setting.systems)),
        runs=Runs(
            owners,
            np.zeros(runs, int),
            np.tile(np.arange(setting.seeds), setting.systems),
            100 * right.mean(axis=1),
        ),
        predictions=right,
        labels=labels,
        clusters=clusters if has_clusters else None,
        single_runs=setting.seeds == 1,
    )
    if setting.has_examples:
        return column
    return replace(column, predictions=np.empty((runs, 0)), labels=np.empty(0))


def rows_of(column: ColumnRuns, *, is_best: bool) -> pd.DataFrame:
    """Return the contrasts of one column, against the first system or against the best one."""
    group = Group(arms=column.arms, reference=column.arms[0])
    (group,) = assess([column], [group])
    means = group.estimates[0].means
    reference = max(means, key=lambda arm: means[arm]) if is_best else column.arms[0]
    group = replace(group, reference=reference)
    pairs = [(arm, reference) for arm in column.arms if arm != reference]
    all_pairs = len(column.arms) * (len(column.arms) - 1) // 2
    family = all_pairs if is_best else len(pairs)
    return pd.DataFrame(contrast_rows(group, pairs, family, stepwise=not is_best))


def measure(setting: Setting, experiments: int) -> dict[str, float]:
    """Return the shares of experiments with a false verdict and with a false tie, in percent."""
    generator = np.random.default_rng(0)
    named = best = ties = 0
    for _ in range(experiments):
        column = draw(setting, generator)
        named += bool((rows_of(column, is_best=False)["verdict"] != "").any())
        best += bool((rows_of(column, is_best=True)["verdict"] != "").any())
    mean_gap = _true_gap(setting)
    for _ in range(experiments):
        rows = rows_of(draw(setting, generator, difference=MARGIN), is_best=False)
        ties += bool(equivalence(rows, mean_gap)["equivalent"].any())
    return {
        "named reference": 100 * named / experiments,
        "best as reference": 100 * best / experiments,
        "false ties": 100 * ties / experiments,
    }


def _true_gap(setting: Setting) -> float:
    """Return the true difference, in points, of a setting's first system from the others."""
    large = replace(setting, examples=400_000, systems=2, seeds=1, has_examples=True)
    column = draw(large, np.random.default_rng(1), difference=MARGIN)
    scores = 100 * column.predictions.mean(axis=1)
    return float(scores[0] - scores[1])


def main(
    experiments: Annotated[int, typer.Option(help="Simulated experiments of each setting.")] = 2000,
    only: Annotated[str, typer.Option(help="Only settings whose title has this text.")] = "",
) -> None:
    """Print the rates of every setting."""
    for setting in SETTINGS:
        if only in setting.title:
            rates = measure(setting, experiments)
            texts = ", ".join(f"{name} {rate:.1f}%" for name, rate in rates.items())
            print(f"{setting.title}: {texts}", flush=True)


if __name__ == "__main__":
    typer.run(main)
