"""How often the verdicts are wrong, how often their intervals are right, and what they find: simulated experiments.

    python benchmarks/verdicts.py [--experiments 2000] [--only TEXT]

Two to seven arms with 400 examples, all equal (the null settings), or one better by ten points. A planned contrast is
as two arms. Prints Markdown tables in percent: family errors (any verdict where there is no difference), coverage (all
simultaneous intervals hold the true differences) and power (the better arm is called better).
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.optimize import brentq
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.simulated import POSITIVE, REGIMES, Regime, error_size, simulate

from glue_bench.stats.verdicts import Group, assess, contrast_rows

COLUMNS_OF = {
    "accuracy": ("rte",),
    "Matthews": ("cola",),
    "Pearson": ("stsb",),
    (AVERAGE := "average of four columns"): ("rte", "mrpc", "mnli_m", "mnli_mm"),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Experiments of one kind; `unstable` arms have nine times the variance over seeds."""

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
        """In words."""
        kind = (
            f"{self.pretrainings} pretrainings x {self.seeds}"
            if self.pretrainings > 1
            else f"{self.seeds} seeds"
        )
        which = {"": "equal variances", "a": "9x on the reference"}.get(
            self.unstable, "9x on another arm"
        )
        return f"{len(self.arms)} arms, {self.metric}, {self.regime}, {kind}, {which}"


SPREADS = BOTH, SEEDS = "seeds and examples", "mostly seeds"
DESIGNS = ((2, 1), (3, 1), (5, 1), (1, 2), (1, 3), (1, 4), (1, 5))  # seeds, pretrainings
NULL = (
    *(
        Setting(seeds=n, unstable=u)
        for n in (2, 3, 5)
        for u in ("", "b", "a")
        if (n, u) != (2, "a")
    ),
    *(
        Setting(regime=r, seeds=n)
        for r in (SEEDS, "mostly examples", "mostly noise")
        for n in (2, 5)
    ),
    *(Setting(metric=m, seeds=n, rate=0.8) for m in ("Matthews", "Pearson") for n in (2, 3, 5)),
    *(
        Setting(metric=m, regime=r, seeds=3, unstable="b", rate=0.8)
        for m in ("Matthews", "Pearson")
        for r in SPREADS
    ),
    Setting(regime=SEEDS, seeds=3, unstable="b", rate=0.8),
    *(Setting(seeds=n, pretrainings=p) for p, n in ((2, 1), (2, 3), (3, 2), (5, 1))),
    *(
        Setting(seeds=n, pretrainings=p, unstable=u)
        for p, n, u in ((2, 2, "b"), (3, 1, "b"), (5, 2, "b"), (3, 2, "a"))
    ),
    *(
        Setting(metric=m, rate=0.8, seeds=n, pretrainings=3)
        for m, n in (("Matthews", 2), ("Pearson", 1))
    ),
    Setting(regime="mostly examples", seeds=2, pretrainings=3),
    *(Setting(metric=AVERAGE, seeds=n, unstable=u) for n, u in ((2, ""), (2, "b"), (3, "a"))),
    Setting(metric=AVERAGE, seeds=1, pretrainings=3),
    *(
        Setting(seeds=n, pretrainings=p, regime=r, arms=("a", "b"))
        for n, p in DESIGNS
        for r in SPREADS
    ),
    *(Setting(seeds=1, pretrainings=p, arms=("a", "b", "c")) for p in (2, 3)),
)
NO_PROMISE = (
    Setting(seeds=2, unstable="a"),
    Setting(regime=SEEDS, seeds=3, unstable="a"),
    Setting(seeds=1, pretrainings=2, unstable="a"),
    *(
        Setting(seeds=n, pretrainings=p, regime=SEEDS, arms=("a", "b"), unstable="b")
        for n, p in DESIGNS
    ),
)
POWER = tuple(
    Setting(regime=r, seeds=n, better="b", rate=0.8) for r, n in (("mostly noise", 2), (BOTH, 5))
)


def true_score(column: str, rate: float, regime: Regime, factor: float = 1.0) -> float:
    """The mean over seeds of the score on endless examples, points, by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights, seed = weights / weights.sum(), nodes * np.sqrt(regime.seed * factor)
    if column == "stsb":
        return float(100 * weights @ (1 / np.sqrt(1 + error_size(rate, regime, seed) ** 2)))
    right = norm.cdf((norm.ppf(rate) * np.sqrt(regime.within) + seed) / np.sqrt(regime.within))
    if column != "cola":
        return float(100 * weights @ right)
    predicted = POSITIVE * right + (1 - POSITIVE) * (1 - right)
    covariance = POSITIVE * right - predicted * POSITIVE
    return float(
        100
        * weights
        @ (covariance / np.sqrt(predicted * (1 - predicted) * POSITIVE * (1 - POSITIVE)))
    )


def rates_of(setting: Setting) -> tuple[dict[str, float], dict[str, float], Regime, float]:
    """Rates by arm whose true scores are equal, or better by ten points; variances by arm; the regime, and between."""
    regime, column = REGIMES[setting.regime], COLUMNS_OF[setting.metric][0]
    between = regime.seed if setting.pretrainings > 1 else 0.0
    factors = {arm: 9.0 if arm == setting.unstable else 1.0 for arm in setting.arms}
    spread = Regime(regime.shared, regime.view, regime.seed + between, regime.noise)
    wanted = true_score(column, setting.rate, spread)

    def rate(arm: str) -> float:
        goal = wanted + 10 * (arm == setting.better)
        return brentq(
            lambda rate: true_score(column, rate, spread, factors[arm]) - goal, 0.3, 0.999
        )

    return {arm: rate(arm) for arm in setting.arms}, factors, regime, between


def figures(setting: Setting, experiments: int, rows: int = 400) -> dict[str, float]:
    """Family errors, coverage and power of a setting, percent."""
    generator = np.random.default_rng(1)
    rates, factors, regime, between = rates_of(setting)
    columns = COLUMNS_OF[setting.metric]
    truth = [10.0 * (arm == setting.better) for arm in setting.arms[1:]]
    group = Group(arms=setting.arms, reference="a")
    errors = covered = found = 0
    for _ in range(experiments):
        outcomes = simulate(
            generator, columns=columns, rates=rates, seeds=setting.seeds, rows=rows, regime=regime,
            unstable=factors, pretrainings=setting.pretrainings, pretraining=between, block=0.05 * (between > 0),
        )  # fmt: skip
        (judged,) = assess([replace(one, averaged=len(columns) > 1) for one in outcomes], [group])
        judged = replace(judged, estimates=judged.estimates[:1])
        contrasts = contrast_rows(
            judged, [(arm, "a") for arm in setting.arms[1:]], len(truth), stepwise=False
        )
        errors += any(
            one["verdict"] and not true for one, true in zip(contrasts, truth, strict=True)
        )
        covered += all(
            one["low"] <= true <= one["high"] for one, true in zip(contrasts, truth, strict=True)
        )
        found += any(
            one["verdict"] == "better" and true for one, true in zip(contrasts, truth, strict=True)
        )
    shares = {"family errors": errors, "coverage": covered, "power": found}
    return {name: 100 * count / experiments for name, count in shares.items()}


def main(
    experiments: Annotated[int, typer.Option()] = 2000, only: Annotated[str, typer.Option()] = ""
) -> None:
    """Simulate and print."""
    for title, settings, second in (
        ("no difference", NULL, "family errors"),
        ("no difference, and no promise", NO_PROMISE, "family errors"),
        ("a difference of ten points", POWER, "power"),
    ):
        print(f"\n| {title} | {second} | coverage |\n|---|---:|---:|")
        for setting in (one for one in settings if only in one.name):
            found = figures(setting, experiments)
            print(f"| {setting.name} | {found[second]:.1f} | {found['coverage']:.1f} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
