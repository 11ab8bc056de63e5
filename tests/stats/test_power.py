"""Seeds needed, against statsmodels where examples add nothing, and by simulation where they do."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import norm, t
from simulated import REGIMES, simulate

from glue_bench.errors import UserError
from glue_bench.stats.pairs import assess
from glue_bench.stats.power import power_frame, power_of, seeds_needed


@pytest.fixture(scope="module")
def t_test_power():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.stats.power import TTestIndPower
    return TTestIndPower()


@pytest.mark.parametrize("seeds", [2, 3, 5, 20])
@pytest.mark.parametrize("effect", [0.3, 1.0, 2.0])
def test_without_examples_it_is_the_power_of_a_t_test(t_test_power, seeds, effect):
    theirs = t_test_power.power(effect, nobs1=seeds, alpha=0.05, alternative="two-sided")
    # Ours counts only a difference seen on its own side.
    assert power_of(effect * 1.7, seeds, 1.7**2, 0.0) == pytest.approx(theirs, abs=0.02)
    assert power_of(effect * 1.7, seeds, 1.7**2, 0.0) <= theirs + 1e-9


@pytest.mark.parametrize("effect", [0.5, 1.0, 3.0])
def test_the_number_of_seeds_is_that_of_a_t_test(t_test_power, effect):
    theirs = t_test_power.solve_power(effect, power=0.8, alpha=0.05)
    assert seeds_needed(effect, 0.8, 1.0, 0.0) == max(2, math.ceil(theirs))


def test_it_is_the_least_number():
    n = seeds_needed(1.0, 0.8, 2.0, 0.05)
    assert power_of(1.0, n, 2.0, 0.05) >= 0.8 > power_of(1.0, n - 1, 2.0, 0.05)


def test_a_dev_set_can_be_too_small_for_any_number_of_seeds():
    spread = 1 / (norm.ppf(0.975) + norm.ppf(0.8))  # where endless seeds give just 80%
    assert seeds_needed(1.0, 0.8, 1.0, (spread * 1.01) ** 2) is None
    assert seeds_needed(1.0, 0.8, 1.0, (spread * 0.9) ** 2) is not None


def test_power_is_how_often_a_difference_is_seen():
    generator, n, by_seed, by_example = np.random.default_rng(0), 4, 1.5, 0.4
    found = 2.5 + generator.normal(size=20_000) * np.sqrt(by_example + 2 * by_seed / n)
    variance = by_seed * generator.chisquare(2 * (n - 1), size=20_000) / (2 * (n - 1))
    total = by_example + 2 * variance / n
    limits = t.ppf(0.975, 2 * (n - 1) * (total / (2 * variance / n)) ** 2) * np.sqrt(total)
    assert np.mean(found > limits) == pytest.approx(power_of(2.5, n, by_seed, by_example), abs=0.03)


def test_no_spread_at_all_needs_the_least():
    assert seeds_needed(0.1, 0.8, 0.0, 0.0) == 2


def test_the_frame_has_every_column_and_says_why_there_is_no_number():
    outcomes = simulate(
        np.random.default_rng(0), columns=["sst2", "rte"], rates={"a": 0.8, "b": 0.8}, regime=REGIMES["all three"]
    )
    frame = power_frame(assess(outcomes, 100), 0.1).set_index("column")
    assert list(frame.index) == ["sst2", "rte", "average"]
    assert frame["seeds"].isna().all()
    assert frame["why"].str.startswith("no number of seeds: the dev set alone spreads a difference by ").all()
    wide = power_frame(assess(outcomes, 100), 30.0)
    assert (wide["seeds"] == 2).all()


def test_one_seed_has_no_spread_to_plan_with():
    outcomes = simulate(np.random.default_rng(0), rates={"a": 0.8, "b": 0.8}, seeds=1)
    frame = power_frame(assess(outcomes, 100), 1.0)
    assert frame["seeds"].isna().all()
    assert set(frame["why"]) == {"one seed shows no spread"}


@pytest.mark.parametrize(("difference", "power"), [(0.0, 0.8), (-1.0, 0.8), (float("nan"), 0.8), (1.0, 1.0), (1.0, 0)])
def test_what_cannot_be_asked(difference, power):
    with pytest.raises(UserError, match="give"):
        power_frame([], difference, power)
