"""How often verdicts are wrong, intervals hold, and differences are found: simulated experiments.

    python benchmarks/verdicts.py [--experiments 2000] [--only TEXT]

Two to seven arms with 400 examples, all equal (the null settings), or one better by ten points. A
planned contrast is tested as two arms are. Prints Markdown tables in percent: family errors (any
verdict where there is no difference), coverage (all simultaneous intervals hold the true
differences) and power (the better arm is called better).
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from scipy.optimize import brentq
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.simulated import POSITIVE, REGIMES, Regime, error_size, simulate

from glue_bench.stats.verdicts import Group, assess, contrast_rows

AVERAGE_OF_FOUR = "average of four columns"
COLUMNS_OF = {
    "accuracy": ("rte",),
    "Matthews": ("cola",),
    "Pearson": ("stsb",),
    AVERAGE_OF_FOUR: ("rte", "mrpc", "mnli_m", "mnli_mm"),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Experiments of one kind.

    Attributes:
        metric: One of COLUMNS_OF.
        regime: One of REGIMES.
        seeds: Fine-tuning seeds for each pretraining.
        unstable: The arm with nine times the variance over seeds.
        pretrainings: Pretraining seeds of each arm.
        better: The arm that is better by ten points.
        rate: The chance to be right of an arm with the usual variance.
        arms: The arms; the first is the reference.
    """

    metric: str = "accuracy"
    regime: str = "seeds and examples"
    seeds: int = 3
    unstable: str = ""
    pretrainings: int = 1
    better: str = ""
    rate: float = 0.7
    arms: tuple[str, ...] = tuple("abcdefg")

    @property
    def name(self) -> str:
        """Return the setting in words."""
        kind = f"{self.seeds} seeds"
        if self.pretrainings > 1:
            kind = f"{self.pretrainings} pretrainings x {self.seeds}"
        variances = "9x on another arm"
        if not self.unstable:
            variances = "equal variances"
        if self.unstable == "a":
            variances = "9x on the reference"
        return f"{len(self.arms)} arms, {self.metric}, {self.regime}, {kind}, {variances}"


SEEDS = "mostly seeds"
SEEDS_AND_EXAMPLES = "seeds and examples"
SPREADS = (SEEDS_AND_EXAMPLES, SEEDS)


class Design(NamedTuple):
    """The numbers of seeds of an arm."""

    seeds: int
    pretrainings: int


DESIGNS = [
    Design(2, 1),
    Design(3, 1),
    Design(5, 1),
    Design(1, 2),
    Design(1, 3),
    Design(1, 4),
    Design(1, 5),
]


def null_settings() -> list[Setting]:
    """Return the settings without a difference, for which the verdicts promise at most 5% errors."""
    settings = [
        Setting(seeds=2),
        Setting(seeds=2, unstable="b"),
    ]
    for seeds in (3, 5):
        settings += [Setting(seeds=seeds, unstable=arm) for arm in ("", "b", "a")]
    for regime in (SEEDS, "mostly examples", "mostly noise"):
        settings += [Setting(regime=regime, seeds=seeds) for seeds in (2, 5)]
    for metric in ("Matthews", "Pearson"):
        settings += [Setting(metric=metric, seeds=seeds, rate=0.8) for seeds in (2, 3, 5)]
    for metric in ("Matthews", "Pearson"):
        for regime in SPREADS:
            settings.append(Setting(metric=metric, regime=regime, seeds=3, unstable="b", rate=0.8))
    settings += [
        Setting(regime=SEEDS, seeds=3, unstable="b", rate=0.8),
        Setting(seeds=1, pretrainings=2),
        Setting(seeds=3, pretrainings=2),
        Setting(seeds=2, pretrainings=3),
        Setting(seeds=1, pretrainings=5),
        Setting(seeds=2, pretrainings=2, unstable="b"),
        Setting(seeds=1, pretrainings=3, unstable="b"),
        Setting(seeds=2, pretrainings=5, unstable="b"),
        Setting(seeds=2, pretrainings=3, unstable="a"),
        Setting(metric="Matthews", rate=0.8, seeds=2, pretrainings=3),
        Setting(metric="Pearson", rate=0.8, seeds=1, pretrainings=3),
        Setting(regime="mostly examples", seeds=2, pretrainings=3),
        Setting(metric=AVERAGE_OF_FOUR, seeds=2),
        Setting(metric=AVERAGE_OF_FOUR, seeds=2, unstable="b"),
        Setting(metric=AVERAGE_OF_FOUR, seeds=3, unstable="a"),
        Setting(metric=AVERAGE_OF_FOUR, seeds=1, pretrainings=3),
    ]
    for seeds, pretrainings in DESIGNS:
        for regime in SPREADS:
            settings.append(
                Setting(seeds=seeds, pretrainings=pretrainings, regime=regime, arms=("a", "b"))
            )
    for pretrainings in (2, 3):
        settings.append(Setting(seeds=1, pretrainings=pretrainings, arms=("a", "b", "c")))
    return settings


def settings_without_promise() -> list[Setting]:
    """Return the settings without a difference in which more than 5% of verdicts are wrong."""
    settings = [
        Setting(seeds=2, unstable="a"),
        Setting(regime=SEEDS, seeds=3, unstable="a"),
        Setting(seeds=1, pretrainings=2, unstable="a"),
    ]
    for seeds, pretrainings in DESIGNS:
        settings.append(
            Setting(
                seeds=seeds,
                pretrainings=pretrainings,
                regime=SEEDS,
                arms=("a", "b"),
                unstable="b",
            )
        )
    return settings


NULL = null_settings()
NO_PROMISE = settings_without_promise()
POWER = [
    Setting(regime="mostly noise", seeds=2, better="b", rate=0.8),
    Setting(regime=SEEDS_AND_EXAMPLES, seeds=5, better="b", rate=0.8),
]


def true_score(column: str, rate: float, regime: Regime, factor: float = 1.0) -> float:
    """Return the mean over seeds of the score on endless examples, by Gauss-Hermite quadrature.

    Args:
        column: The column of the leaderboard.
        rate: The chance to be right at the mean seed.
        regime: The variances of a strength.
        factor: The factor of the variance over seeds.

    Returns:
        The score in points.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    seed = nodes * np.sqrt(regime.seed * factor)
    if column == "stsb":
        correlations = 1 / np.sqrt(1 + error_size(rate, regime, seed) ** 2)
        return float(100 * weights @ correlations)
    strength = norm.ppf(rate) * np.sqrt(regime.within) + seed
    right = norm.cdf(strength / np.sqrt(regime.within))
    if column != "cola":
        return float(100 * weights @ right)
    predicted = POSITIVE * right + (1 - POSITIVE) * (1 - right)
    covariance = POSITIVE * right - predicted * POSITIVE
    variances = predicted * (1 - predicted) * POSITIVE * (1 - POSITIVE)
    return float(100 * weights @ (covariance / np.sqrt(variances)))


class Truth(NamedTuple):
    """What the experiments of a setting are drawn from.

    Attributes:
        rates: By arm the chance to be right at the mean seed.
        factors: By arm the factor of its variances over seeds.
        regime: The variances of a strength.
        between: The variance over pretraining seeds.
    """

    rates: dict[str, float]
    factors: dict[str, float]
    regime: Regime
    between: float


def truth_of(setting: Setting) -> Truth:
    """Return rates with which the true scores are equal, or better by ten points."""
    regime = REGIMES[setting.regime]
    column = COLUMNS_OF[setting.metric][0]
    between = regime.seed if setting.pretrainings > 1 else 0.0
    over_seeds = replace(regime, seed=regime.seed + between)
    goal = true_score(column, setting.rate, over_seeds)
    rates: dict[str, float] = {}
    factors: dict[str, float] = {}
    for arm in setting.arms:
        factors[arm] = 9.0 if arm == setting.unstable else 1.0
        arm_goal = goal + 10 if arm == setting.better else goal

        def distance(rate: float, factor=factors[arm], arm_goal=arm_goal) -> float:
            return true_score(column, rate, over_seeds, factor) - arm_goal

        rates[arm] = brentq(distance, 0.3, 0.999)
    return Truth(rates, factors, regime, between)


def figures(setting: Setting, experiments: int, rows: int = 400) -> dict[str, float]:
    """Return the family errors, the coverage and the power of a setting, percent.

    Args:
        setting: The setting.
        experiments: The number of experiments to draw.
        rows: The number of examples of each column.
    """
    generator = np.random.default_rng(1)
    truth = truth_of(setting)
    columns = COLUMNS_OF[setting.metric]
    arms = setting.arms[1:]
    differences = [10.0 if arm == setting.better else 0.0 for arm in arms]
    group = Group(arms=setting.arms, reference="a")
    counts = {"family errors": 0, "coverage": 0, "power": 0}
    for _ in range(experiments):
        drawn = simulate(
            generator,
            columns=columns,
            accuracies=truth.rates,
            seeds=setting.seeds,
            rows=rows,
            regime=truth.regime,
            unstable=truth.factors,
            pretrainings=setting.pretrainings,
            pretraining=truth.between,
            block=0.05 if truth.between > 0 else 0.0,
        )
        averaged = len(columns) > 1
        runs = [replace(column_runs, averaged=averaged) for column_runs in drawn]
        (judged,) = assess(runs, [group])
        judged = replace(judged, estimates=judged.estimates[:1])
        pairs = [(arm, "a") for arm in arms]
        contrasts = contrast_rows(judged, pairs, len(pairs), stepwise=False)
        is_wrong = False
        is_covered = True
        is_found = False
        for contrast, difference in zip(contrasts, differences, strict=True):
            is_wrong |= bool(contrast["verdict"]) and difference == 0
            is_covered &= contrast["low"] <= difference <= contrast["high"]
            is_found |= contrast["verdict"] == "better" and difference > 0
        counts["family errors"] += is_wrong
        counts["coverage"] += is_covered
        counts["power"] += is_found
    return {name: 100 * count / experiments for name, count in counts.items()}


def main(
    experiments: Annotated[int, typer.Option()] = 2000, only: Annotated[str, typer.Option()] = ""
) -> None:
    """Simulate and print."""
    for title, settings, figure in (
        ("no difference", NULL, "family errors"),
        ("no difference, and no promise", NO_PROMISE, "family errors"),
        ("a difference of ten points", POWER, "power"),
    ):
        print(f"\n| {title} | {figure} | coverage |\n|---|---:|---:|")
        for setting in settings:
            if only in setting.name:
                percent = figures(setting, experiments)
                row = f"{percent[figure]:.1f} | {percent['coverage']:.1f}"
                print(f"| {setting.name} | {row} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
