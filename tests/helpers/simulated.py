"""Experiments whose true scores are known, as outcomes in memory.

A run's strength on an example is ability + example (shared by all arms) + arm's own view of the
example + seed + noise of seed and example, all normal. Classes are right where it is above 0;
STS-B's predictions are the label plus an error whose size the seed decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from glue_bench.data.measures import MEASURES, coefficient, loss, percentage
from glue_bench.data.tasks import COLUMNS
from glue_bench.stats.runs import ColumnRuns, Runs
from glue_bench.stats.sums import example_terms, score_from_sums

POSITIVE = 0.7


@dataclass(frozen=True)
class Regime:
    """Variances of a strength: of the example, of an arm's view of it, of the seed, of seed and
    example together.
    """

    shared: float
    view: float
    seed: float
    noise: float

    @property
    def within(self) -> float:
        return self.shared + self.view + self.noise


REGIMES = {
    "mostly seeds": Regime(1.0, 0.05, 0.05, 0.02),
    "seeds and examples": Regime(1.0, 0.30, 0.02, 0.05),
    "mostly examples": Regime(0.6, 0.40, 0.0005, 0.02),
    "all three": Regime(0.7, 0.20, 0.005, 0.30),
    "mostly noise": Regime(0.8, 0.05, 0.002, 0.40),
}


def simulate(
    generator: np.random.Generator,
    *,
    accuracies: Mapping[str, float],
    columns: Sequence[str] = ("sst2",),
    seeds: int = 3,
    rows: int = 400,
    regime: Regime = REGIMES["seeds and examples"],
    unstable: Mapping[str, float] | None = None,
    pretrainings: int = 1,
    pretraining: float = 0.0,
    block: float = 0.0,
) -> list[ColumnRuns]:
    """Draw one experiment.

    Args:
        generator: draws everything.
        accuracies: by arm the chance to be right at the mean seed.
        columns: the columns of the leaderboard that are drawn.
        seeds: fine-tuning seeds for each of the pretrainings.
        rows: examples of each column.
        regime: the variances of a strength.
        unstable: factors of an arm's own variances over seeds.
        pretrainings: how many pretrainings an arm has.
        pretraining: the variance that a pretraining's seed adds to an arm.
        block: the variance that it adds to all arms alike.
    """
    factors = np.sqrt([(unstable or {}).get(arm, 1.0) for arm in accuracies])[:, None, None]
    count = len(accuracies)
    numbers = np.indices((count, pretrainings, seeds)).reshape(3, -1) + 1
    experiment: list[ColumnRuns] = []
    shifts: dict[str, np.ndarray] = {}  # MNLI's columns share their runs
    for column in columns:
        own_shift = draw(generator, factors * np.sqrt(regime.seed), count, pretrainings, seeds)
        arm_shift = draw(generator, factors * np.sqrt(pretraining), count, pretrainings, 1)
        block_shift = draw(generator, np.sqrt(block), 1, pretrainings, 1)
        shift = (own_shift + arm_shift + block_shift).reshape(count, -1, 1)
        seed = shifts.setdefault(COLUMNS[column][0], shift)
        labels, predictions = draw_column(generator, column, regime, accuracies, seed, rows)
        outcomes = outcomes_of(column, dict(zip(accuracies, predictions, strict=True)), labels)
        runs = outcomes.runs._replace(pretraining_seeds=numbers[1], seeds=numbers[2])
        experiment.append(replace(outcomes, runs=runs))
    return experiment


def draw_column(
    generator: np.random.Generator,
    column: str,
    regime: Regime,
    accuracies: Mapping[str, float],
    seed: np.ndarray,
    rows: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the labels (rows) of a column and its predictions (arms, runs, rows).

    `seed` (arms, runs, 1) is what the seed of each run adds to its strength.
    """
    count = len(accuracies)
    ability = np.array(list(accuracies.values()))[:, None, None]
    shared = draw(generator, np.sqrt(regime.shared), 1, 1, rows)
    view = draw(generator, np.sqrt(regime.view), count, 1, rows)
    noise = draw(generator, np.sqrt(regime.noise), count, seed.shape[1], rows)
    strength = shared + view + noise
    if column == "stsb":
        labels = generator.normal(size=rows)
        errors = strength / np.sqrt(regime.within)
        return labels, labels + error_size(ability, regime, seed) * errors
    labels = (generator.random(rows) < POSITIVE).astype(int)
    is_right = norm.ppf(ability) * np.sqrt(regime.within) + seed + strength > 0
    return labels, np.where(is_right, labels, 1 - labels)


def draw(generator: np.random.Generator, size: np.ndarray | float, *shape: int) -> np.ndarray:
    """Draw normal numbers with these standard deviations."""
    return generator.normal(size=shape) * size


def error_size(rate: float | np.ndarray, regime: Regime, seed: np.ndarray) -> np.ndarray:
    """Return the size of STS-B's errors: a rate of 0.8 gives a correlation of 0.8 at the mean
    seed.
    """
    return np.sqrt(1 / np.square(rate) - 1) * np.exp(-seed / np.sqrt(regime.within))


def outcomes_of(
    column: str, predictions: Mapping[str, np.ndarray], labels: np.ndarray, **options
) -> ColumnRuns:
    """Return ColumnRuns of arm -> predictions (seeds, rows), with seeds 1, 2, ... and their own
    scores.
    """
    counts = [len(runs) for runs in predictions.values()]
    owners = np.repeat(np.arange(len(predictions)), counts)
    seeds = np.concatenate([np.arange(1, count + 1) for count in counts])
    stacked = np.concatenate(list(predictions.values()))

    measure = MEASURES[column]
    metric = options.pop("metric", measure.metric)
    if metric != measure.metric:
        kinds = {"loss": loss, "accuracy": percentage, "share": percentage}
        kind = kinds.get(metric, coefficient)
        measure = replace(kind(column, measure.title), metric=metric)

    sums = example_terms(metric, stacked, labels).sum(axis=0, dtype=float)
    scores = options.pop("scale", 100.0) * score_from_sums(metric, sums, len(labels))

    values = {
        "measure": measure,
        "task": COLUMNS[column][0] if column in COLUMNS else column,
        "arms": tuple(predictions),
        "runs": Runs(owners, np.zeros(len(stacked), int), seeds, scores),
        "predictions": stacked,
        "labels": labels,
    }
    return ColumnRuns(**values | options)


def fill_drawn(bench, outcomes: ColumnRuns) -> None:
    """Add a column of such an experiment to one on disk: its runs with their predictions, and
    the labels.
    """
    columns = (outcomes.runs.arms, outcomes.runs.seeds, outcomes.runs.values, outcomes.predictions)
    for owner, seed, score, predicted in zip(*columns, strict=True):
        arm = outcomes.arms[owner]
        cell = bench.finish(outcomes.task, seed=int(seed), score=score / 100, arm=arm)
        logits = np.stack([1.0 - predicted, predicted], axis=1)
        bench.predict(cell["cell_id"], {"validation": logits})
    bench.label(outcomes.task, {"validation": outcomes.labels})
