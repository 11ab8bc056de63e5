"""Verdicts where arms vary as unlike over seeds as those of results/minilm: by some 500 times on STS-B."""

import numpy as np
import pytest
from scipy.stats import t as student_t

from glue_bench.stats.estimates import Spread, combined, of_seeds

EXPERIMENTS, SEEDS = 20_000, 3
DEVIATIONS = {"cola": (3.2, 1.9, 1.5, 5.2), "stsb": (0.6, 0.8, 13.7, 8.5), "rte": (2.4, 2.0, 2.0, 2.7)}
"""Points over seeds, of `add`, `concat`, `untied` and `none`."""
OVER_EXAMPLES = {"cola": 2.2, "stsb": 0.98, "rte": 1.06}
"""Points: of a difference of two arms."""


@pytest.mark.parametrize("columns", [["cola"], ["stsb"], ["rte"], ["cola", "stsb", "rte"]], ids=", ".join)
def test_few_columns_of_equal_arms_have_a_mark(columns):
    generator, weight = np.random.default_rng(0), 1 / len(columns)
    means, spreads, examples = np.zeros((EXPERIMENTS, 4)), [], 0.0
    for column in columns:
        runs = generator.normal(0, DEVIATIONS[column], (EXPERIMENTS, SEEDS, 4))
        luck = generator.normal(0, OVER_EXAMPLES[column] / np.sqrt(2), (EXPERIMENTS, 4))
        means += weight * (runs.mean(axis=1) + luck)
        one = of_seeds(runs.var(axis=1, ddof=1), np.full(4, SEEDS))
        square = weight**2
        spreads.append(Spread(one.variance * square, one.freedom, one.own, one.pooled * square, one.pooled_freedom))
        examples += square * OVER_EXAMPLES[column] ** 2
    marked = np.zeros(EXPERIMENTS, bool)
    for arm in (1, 2, 3):
        variance, freedom = combined(spreads, (arm, 0), examples, 0.0)
        marked |= np.abs(means[:, arm] - means[:, 0]) > student_t.isf(0.05 / 2 / 3, freedom) * np.sqrt(variance)
    assert marked.mean() < 0.05
