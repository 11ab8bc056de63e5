"""Seeds needed: against statsmodels where both apply, and against how often the verdicts see a difference."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from helpers.plain_statistics import larger, of_table
from helpers.simulated import REGIMES, outcomes_of, simulate
from scipy.special import stdtrit
from scipy.stats import norm

from glue_bench.errors import UserError
from glue_bench.stats.power import Costs, Variances, power_frame, smallest_number, variances_of
from glue_bench.stats.verdicts import Group, assess, verdicts

EQUAL = Costs(1.0, 1.0)
NOTHING = Variances(
    arms=2, finetuning=(1.0,), pretraining=math.nan, examples=0.0, fixed=0.0, overlap=0.0
)


@pytest.fixture(scope="module")
def t_test_power():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.stats.power import TTestIndPower, TTestPower
    return TTestIndPower(), TTestPower()


def group(arms):
    return Group(arms=tuple(arms), reference=next(iter(arms)))


def drawn(arms="ab", seed=0, **given):
    given = {
        "columns": ["sst2", "rte"],
        "rates": dict.fromkeys(arms, 0.8),
        "regime": REGIMES["all three"],
    } | given
    return assess(simulate(np.random.default_rng(seed), **given), [group(given["rates"])])


@pytest.mark.parametrize(("effect", "blocks"), [(1.0, 4), (2.0, 10)])
def test_two_arms_without_examples_have_about_the_power_of_t_tests(t_test_power, effect, blocks):
    theirs = t_test_power[0].power(effect, nobs1=20, alpha=0.05)
    # The larger of the pooled and the own variance costs a little.
    assert NOTHING.power_of_seeds(effect, 20) == pytest.approx(theirs, abs=0.06)
    assert NOTHING.power_of_seeds(effect, 20) <= theirs + 0.02
    spreads = replace(
        NOTHING, finetuning=(0.5,), pretraining=0.75
    )  # with two fine-tuning seeds 1 in all
    paired = t_test_power[1].power(1.5 / math.sqrt(2), nobs=blocks, alpha=0.05)
    assert spreads.power_of_pretrainings(1.5, blocks, 2) == pytest.approx(paired, abs=0.03)


def test_more_arms_and_smaller_differences_have_less_and_a_dev_set_can_be_too_small_for_any_number_of_seeds():
    spreads = replace(NOTHING, examples=0.3)
    assert replace(spreads, arms=8).power_of_seeds(2.0, 5) < spreads.power_of_seeds(2.0, 5) - 0.1
    assert (
        spreads.power_of_seeds(1.5, 5)
        < spreads.power_of_seeds(2.0, 5)
        < spreads.power_of_seeds(2.0, 8)
    )
    edge = 1 / (norm.ppf(0.975) + norm.ppf(0.8))  # where endless seeds give just 80%
    for share, suffices in ((1.01, False), (0.99, True)):
        assert replace(NOTHING, examples=(edge * share) ** 2).examples_suffice(1.0, 0.8) == suffices


def test_power_is_how_often_the_verdicts_see_it():
    """Simulated from strengths, judged by `verdicts`, against what a pilot's variances promise."""
    regime, rates, seen = REGIMES["seeds and examples"], dict.fromkeys("abcd", 0.8) | {"b": 0.9}, 0
    for seed in range(150):
        frame = verdicts(drawn(seed=seed, rates=rates, seeds=5, regime=regime, columns=["rte"]))
        seen += (
            frame[(frame["column"] == "rte") & (frame["arm"] == "b")]["verdict"].item() == "better"
        )
    promised = []
    for seed in range(10):
        (pilot,) = drawn(seed=seed, rates=rates, seeds=5, regime=regime, columns=["rte"])
        promised.append(variances_of(pilot.estimates[0], "a", 4).power_of_seeds(10.0, 5))
    assert np.mean(promised) == pytest.approx(seen / 150, abs=0.1)


def in_blocks(seed, arms, shared):
    """Arms with four pretrainings, which make something of single examples, and three fine-tuning seeds of each."""
    generator, number = np.random.default_rng(seed), len(arms)
    own = generator.normal(size=(number, 1, 1, 400)) + shared * generator.normal(
        size=(number, 4, 1, 400)
    )
    right = (
        (0.8 + own + 0.5 * generator.normal(size=(number, 4, 3, 400)) > 0)
        .reshape(number, 12, 400)
        .astype(int)
    )
    made = outcomes_of("rte", dict(zip(arms, right, strict=True)), np.ones(400, int))
    pretrainings, seeds = (
        np.tile(np.repeat([1, 2, 3, 4], 3), number),
        np.tile([1, 2, 3], 4 * number),
    )
    return replace(made, runs=made.runs._replace(pretraining_seeds=pretrainings, seeds=seeds))


def spreads_in(outcomes, chosen, arms):
    (one,) = assess([outcomes.subset(np.flatnonzero(chosen))], [group(arms)])
    return variances_of(one.estimates[-1], "a", len(arms))


def test_what_a_pretraining_makes_of_single_examples_stays_with_more_fine_tuning_seeds():
    """Seen in four pretrainings of each arm, it is what one of them alone shows."""
    drawn = [in_blocks(seed, "abc", 0.7) for seed in range(12)]
    several = [spreads_in(made, made.runs.seeds > 0, "abc") for made in drawn]
    one = [spreads_in(made, made.runs.pretraining_seeds == 1, "abc") for made in drawn]
    assert np.mean([each.fixed for each in several]) == pytest.approx(
        np.mean([each.examples for each in one]), rel=0.1
    )
    assert np.mean([each.examples for each in several]) < 0.8 * np.mean(
        [each.fixed for each in several]
    )
    assert all(each.fixed == each.examples for each in one)


def test_the_frame_has_every_column_and_says_why_there_is_no_number():
    one = drawn()
    frame = power_frame(one, 0.1, 0.8, EQUAL).set_index("column")
    assert list(frame.index) == ["average", "sst2", "rte"]
    assert frame["finetuning_seeds"].isna().all()
    assert frame["why"].str.startswith("no number of seeds will do").all()
    wide = power_frame(one, 50.0, 0.8, Costs(100.0, 3.0))
    assert (wide["finetuning_seeds"] == 2).all()
    assert (wide["pretraining_seeds"] == 1).all()
    assert (wide["cost"] == 106.0).all()
    single = power_frame(drawn(seeds=1), 1.0, 0.8, EQUAL)
    assert single["finetuning_seeds"].isna().all()
    assert set(single["why"]) == {"one seed does not show how much scores vary"}


def test_both_kinds_of_seeds_and_the_cheapest_design():
    one = drawn("abc", seeds=3, pretrainings=4, pretraining=0.01, columns=["rte"], rows=3000)
    frame = power_frame(one, 6.0, 0.8, EQUAL).set_index(["column", "seeds"])
    assert list(frame.index) == [("rte", "fine-tuning"), ("rte", "pretraining")]
    cheap = frame.loc[("rte", "pretraining")]
    dear = (
        power_frame(one, 6.0, 0.8, Costs(100.0, 1.0))
        .set_index(["column", "seeds"])
        .loc[("rte", "pretraining")]
    )
    assert cheap["cost"] == cheap["pretraining_seeds"] * (1 + cheap["finetuning_seeds"])
    assert dear["finetuning_seeds"] > cheap["finetuning_seeds"]
    assert dear["pretraining_seeds"] < cheap["pretraining_seeds"]
    frame = power_frame(
        drawn(seeds=1, pretrainings=4, pretraining=0.02), 20.0, 0.8, EQUAL
    )  # which give one design
    assert frame["seeds"].tolist() == ["pretraining"] * 3
    assert (frame["finetuning_seeds"] == 1).all()


@pytest.mark.parametrize(
    ("difference", "power"), [(0.0, 0.8), (-1.0, 0.8), (float("nan"), 0.8), (1.0, 1.0), (1.0, 0)]
)
def test_what_cannot_be_asked(difference, power):
    with pytest.raises(UserError, match="give"):
        power_frame([], difference, power, EQUAL)


def has_verdict(spreads, observed, drawn, shared) -> bool:
    """Whether a drawn difference is found, by plain arithmetic; `drawn` are the spreads of independent parts."""
    pooled_freedom = sum(spread.pooled_freedom for spread in drawn)
    weight = (stdtrit(pooled_freedom, 0.975) / norm.ppf(0.975)) ** 2 if pooled_freedom <= 4 else 1.0
    total, squares = 0.0, 0.0
    for spread in drawn:
        variances = [spread.variance[arm] for arm in "ab"]
        own = [spread.variance[arm] for arm in "ab" if spread.is_own[arm]]
        freedoms = [spread.freedom[arm] for arm in "ab" if spread.is_own[arm]]
        alone = sum(variance**2 / freedom for variance, freedom in zip(own, freedoms, strict=True))
        parts = (sum(variances) - sum(own)) ** 2 / spread.pooled_freedom + alone
        squares += max(parts, sum(variances) ** 2 / spread.pooled_freedom)
        total += sum(variances)
    of_examples = spreads.examples + shared
    freedom = (of_examples + max(0.0, weight * total - shared)) ** 2 / (weight**2 * squares)
    error = math.sqrt(of_examples + max(0.0, total - shared))
    return observed > -stdtrit(freedom, 0.025 / (spreads.arms - 1)) * error


DESIGNS = [
    {"finetuning": (1.0,), "overlap": 0.8},
    {"finetuning": (0.4, 1.6), "overlap": 0.3, "examples": 0.5},
    {"finetuning": (0.1, 2.0), "overlap": 0.0},
]


@pytest.mark.parametrize("changes", DESIGNS, ids=str)
@pytest.mark.parametrize("seeds", [2, 4])
def test_the_power_of_seeds_is_that_of_experiments_drawn_run_by_run(changes, seeds):
    spreads, generator, found = replace(NOTHING, arms=3, **changes), np.random.default_rng(1), 0
    for _ in range(1500):
        observed, drawn = 3.5 + math.sqrt(spreads.examples) * generator.normal(), []
        for variance in spreads.finetuning:
            scores = math.sqrt(variance) * generator.normal(size=(3, seeds))
            own = dict(zip("abc", scores.var(axis=1, ddof=1).tolist(), strict=True))
            drawn.append(
                larger(own, sum(own.values()) / 3, dict.fromkeys("abc", seeds), 3 * (seeds - 1))
            )
            observed += scores[0].mean() - scores[1].mean()
        found += has_verdict(
            spreads, observed, drawn, spreads.overlap * 2 * sum(spreads.finetuning) / seeds
        )
    assert spreads.power_of_seeds(3.5, seeds) == pytest.approx(found / 1500, abs=0.035)


@pytest.mark.parametrize(
    ("blocks", "finetunings", "overlap", "difference"),
    [(2, 1, 0.9, 6.0), (4, 1, 0.7, 2.5), (4, 3, 0.0, 2.5)],
)
def test_the_power_of_pretrainings_is_that_of_experiments_drawn_block_by_block(
    blocks, finetunings, overlap, difference
):
    spreads = replace(
        NOTHING, arms=3, finetuning=(0.9, 0.6), pretraining=0.5, examples=0.1, overlap=overlap
    )
    generator, found = np.random.default_rng(1), 0
    deviation = math.sqrt(0.5 + 1.5 / finetunings)
    for _ in range(1500):
        table = deviation * generator.normal(size=(3, blocks))
        observed = (
            difference + table[0].mean() - table[1].mean() + math.sqrt(0.1) * generator.normal()
        )
        shared = overlap * 2 * deviation**2 / blocks
        found += has_verdict(spreads, observed, [of_table(table, tuple("abc"))], shared)
    assert spreads.power_of_pretrainings(difference, blocks, finetunings) == pytest.approx(
        found / 1500, abs=0.035
    )


def test_the_limit_of_endless_seeds_is_corrected_for_all_arms():
    edge = 1 / (norm.ppf(1 - 0.025 / 4) + norm.ppf(0.8))
    for share, suffices in ((1.01, False), (0.99, True)):
        assert (
            replace(NOTHING, arms=5, examples=(edge * share) ** 2).examples_suffice(1.0, 0.8)
            == suffices
        )


def test_the_least_number_may_be_the_largest_that_is_tried():
    def power_of(number: int) -> float:
        return 0.9 if number >= 10 else 0.1

    assert [smallest_number(power_of, 0.8, most) for most in (9, 10, 50)] == [None, 10, 10]


def test_the_correction_counts_arms_that_have_not_run():
    rates = dict.fromkeys("ab", 0.8)
    outcomes = simulate(np.random.default_rng(0), columns=["rte"], rates=rates, seeds=4, rows=3000)
    groups = [
        Group(arms=arms, reference="a") for arms in (("a", "b"), ("a", "b", "c", "d", "e", "f"))
    ]
    found = []
    for one in assess([replace(outcomes[0], arms=tuple("abcdef"))], groups):
        spreads = variances_of(one.estimates[0], "a", len(one.arms))
        (design,) = spreads.designs(4.0, 0.8, EQUAL, blocked=False)
        row = power_frame([one], 4.0, 0.8, EQUAL).iloc[0]
        assert row["finetuning_seeds"] == design["finetuning_seeds"], one.arms
        found.append(design["finetuning_seeds"])
    assert found[1] > found[0]


def test_a_measure_of_pretraining_costs_no_fine_tuning():
    generator, counts = np.random.default_rng(0), np.full(300, 512.0)
    piece = generator.normal(2000, 300, size=300)
    losses = {
        arm: piece + generator.normal(0, 20, (3, 1)) + generator.normal(0, 5, (3, 300))
        for arm in "ab"
    }
    made = outcomes_of("validation_loss", losses, counts, scale=1.0, averaged=False)
    runs = made.runs._replace(pretraining_seeds=np.tile([1, 2, 3], 2), seeds=np.zeros(6, int))
    assessed = assess([replace(made, runs=runs)], [group("ab")])
    row = power_frame(assessed, 0.2, 0.8, Costs(10.0, 1000.0)).iloc[0]
    assert row["cost"] == 10.0 * row["pretraining_seeds"], row


def test_a_verdict_for_the_other_arm_is_not_counted():
    """Of two equal arms each is found better in half of the 5%."""
    assert NOTHING.power_of_seeds(0.0, 20) == pytest.approx(0.025, abs=0.01)
