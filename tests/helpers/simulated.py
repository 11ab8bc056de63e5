"""Experiments whose true scores are known, as outcomes in memory.

A run's strength on an example is ability + example (shared by all arms) + arm's own view of the example + seed + noise
of seed and example, all normal. Classes are right where it is above 0; STS-B's predictions are the label plus an error
whose size the seed decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from glue_bench.data.measures import MEASURES, accuracy, correlation, loss
from glue_bench.data.tasks import COLUMNS
from glue_bench.stats.runs import ColumnRuns, Runs
from glue_bench.stats.sums import example_terms, score_from_sums

POSITIVE = 0.7


@dataclass(frozen=True)
class Regime:
    """Variances of a strength: of the example, of an arm's view of it, of the seed, of seed and example together."""

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


def simulate(generator: np.random.Generator, *, columns: Sequence[str] = ("sst2",), rates: Mapping[str, float],
             seeds: int = 3, rows: int = 400, regime: Regime = REGIMES["seeds and examples"],
             unstable: Mapping[str, float] | None = None, pretrainings: int = 1, pretraining: float = 0.0,
             block: float = 0.0) -> list[ColumnRuns]:  # fmt: skip
    """One experiment. `rates` are the chance to be right at the mean seed.

    `seeds` are fine-tuning seeds for each of the `pretrainings`, whose seeds add the variance `pretraining` to each arm
    and `block` to all arms alike. `unstable` multiplies an arm's own variances over seeds.
    """
    factors = np.sqrt([(unstable or {}).get(arm, 1.0) for arm in rates])[:, None, None]
    ability, result = np.array(list(rates.values()))[:, None, None], []
    shifts: dict[str, np.ndarray] = {}  # MNLI's columns share their runs
    for column in columns:
        shapes = (
            (len(rates), pretrainings, seeds),
            (len(rates), pretrainings, 1),
            (1, pretrainings, 1),
        )
        sizes = factors * np.sqrt(regime.seed), factors * np.sqrt(pretraining), np.sqrt(block)
        drawn = sum(
            generator.normal(size=shape) * size for shape, size in zip(shapes, sizes, strict=True)
        )
        seed = shifts.setdefault(COLUMNS[column][0], drawn.reshape(len(rates), -1, 1))
        shapes = (1, 1, rows), (len(rates), 1, rows), (len(rates), seed.shape[1], rows)
        variances = regime.shared, regime.view, regime.noise
        strength = sum(generator.normal(size=shape) * np.sqrt(each)
                       for shape, each in zip(shapes, variances, strict=True))  # fmt: skip
        if column == "stsb":
            labels = generator.normal(size=rows)
            predictions = labels + error_size(ability, regime, seed) * strength / np.sqrt(
                regime.within
            )
        else:
            labels = (generator.random(rows) < POSITIVE).astype(int)
            right = norm.ppf(ability) * np.sqrt(regime.within) + seed + strength > 0
            predictions = np.where(right, labels, 1 - labels)
        outcomes = outcomes_of(column, dict(zip(rates, predictions, strict=True)), labels)
        numbers = np.indices((len(rates), pretrainings, seeds)).reshape(3, -1) + 1
        result.append(
            replace(
                outcomes,
                runs=outcomes.runs._replace(pretraining_seeds=numbers[1], seeds=numbers[2]),
            )
        )
    return result


def error_size(rate: float | np.ndarray, regime: Regime, seed: np.ndarray) -> np.ndarray:
    """The size of STS-B's errors: a rate of 0.8 gives a correlation of 0.8 at the mean seed."""
    return np.sqrt(1 / np.square(rate) - 1) * np.exp(-seed / np.sqrt(regime.within))


def outcomes_of(
    column: str, predictions: Mapping[str, np.ndarray], labels: np.ndarray, **more
) -> ColumnRuns:
    """ColumnRuns of arm -> predictions (seeds, rows), with seeds 1, 2, ... and their own scores."""
    owners = np.repeat(np.arange(len(predictions)), [len(runs) for runs in predictions.values()])
    stacked = np.concatenate(list(predictions.values()))
    task = COLUMNS[column][0] if column in COLUMNS else column
    measure = MEASURES[column]
    metric = more.pop("metric", measure.metric)
    if metric != measure.metric:
        kinds = {"loss": loss, "accuracy": accuracy, "share": accuracy}
        measure = replace(kinds.get(metric, correlation)(column, measure.title), metric=metric)
    scale = more.pop("scale", 100.0)
    sums = example_terms(metric, stacked, labels).sum(axis=0, dtype=float)
    seeds = np.concatenate([np.arange(1, len(runs) + 1) for runs in predictions.values()])
    runs = Runs(
        owners,
        np.zeros(len(stacked), int),
        seeds,
        scale * score_from_sums(metric, sums, len(labels)),
    )
    values = {
        **{"measure": measure, "task": task, "arms": tuple(predictions)},
        **{"runs": runs, "predictions": stacked, "labels": labels},
    }
    return ColumnRuns(**values | more)


def fill_drawn(bench, outcomes: ColumnRuns) -> None:
    """A column of such an experiment on disk: its runs with their predictions, and the labels."""
    runs = zip(
        outcomes.runs.arms,
        outcomes.runs.seeds,
        outcomes.runs.values,
        outcomes.predictions,
        strict=True,
    )
    for owner, seed, score, run in runs:
        bench.finish(outcomes.task, int(seed), score / 100, arm=outcomes.arms[owner])
        bench.predict(
            bench.cells[-1]["cell_id"], {"validation": np.stack([1.0 - run, run], axis=1)}
        )
    bench.label(outcomes.task, {"validation": outcomes.labels})
