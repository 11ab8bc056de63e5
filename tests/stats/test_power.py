"""The seeds that a verdict needs, against statsmodels and against simulated experiments."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.plain_statistics import PlainSpread, larger, of_table
from helpers.simulated import REGIMES, outcomes_of, simulate
from scipy.special import stdtrit
from scipy.stats import norm

from glue_bench.errors import UserError
from glue_bench.stats.power import Costs, Variances, power_frame, smallest_number, variances_of
from glue_bench.stats.runs import ColumnRuns
from glue_bench.stats.verdicts import Group, assess, verdicts

EQUAL_COSTS = Costs(1.0, 1.0)
UNIT_VARIANCES = Variances(
    arms=2, finetuning=(1.0,), pretraining=math.nan, examples=0.0, fixed=0.0, overlap=0.0
)
EXPERIMENTS = 1500


@pytest.fixture(scope="module")
def t_tests():
    """Return the powers of statsmodels' t test of two samples, and of pairs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.stats.power import TTestIndPower, TTestPower
    return TTestIndPower(), TTestPower()


def group_of(arms) -> Group:
    """Return a group whose reference is the first arm."""
    return Group(arms=tuple(arms), reference=next(iter(arms)))


def assess_drawn(arms="ab", seed=0, **changes) -> Group:
    """Return a drawn experiment with its estimates."""
    options = {
        "columns": ["sst2", "rte"],
        "accuracies": dict.fromkeys(arms, 0.8),
        "regime": REGIMES["all three"],
    }
    options |= changes
    generator = np.random.default_rng(seed)
    columns = simulate(generator, **options)
    (group,) = assess(columns, [group_of(options["accuracies"])])
    return group


def design_of(group: Group, difference: float, costs: Costs = EQUAL_COSTS) -> pd.DataFrame:
    """Return the designs that find a difference with 80% power."""
    return power_frame([group], difference, 0.8, costs)


def test_two_arms_without_examples_have_about_the_power_of_a_t_test(t_tests):
    """The larger of the pooled and the own variance costs a little."""
    of_samples, _ = t_tests
    expected = of_samples.power(1.0, nobs1=20, alpha=0.05)
    power = UNIT_VARIANCES.power_of_seeds(1.0, 20)
    assert expected - 0.06 < power <= expected + 0.02


@pytest.mark.parametrize("blocks", [4, 10])
def test_two_arms_in_blocks_have_about_the_power_of_a_paired_t_test(t_tests, blocks):
    """With two fine-tuning seeds the variance of a mean is 1."""
    _, of_pairs = t_tests
    variances = replace(UNIT_VARIANCES, finetuning=(0.5,), pretraining=0.75)
    effect_size = 1.5 / math.sqrt(2)
    expected = of_pairs.power(effect_size, nobs=blocks, alpha=0.05)
    power = variances.power_of_pretrainings(1.5, blocks, 2)
    assert power == pytest.approx(expected, abs=0.03)


def test_more_arms_have_less_power():
    of_two = replace(UNIT_VARIANCES, examples=0.3)
    of_eight = replace(of_two, arms=8)
    power_of_two = of_two.power_of_seeds(2.0, 5)
    power_of_eight = of_eight.power_of_seeds(2.0, 5)
    assert power_of_eight < power_of_two - 0.1


def test_larger_differences_and_more_seeds_have_more_power():
    variances = replace(UNIT_VARIANCES, examples=0.3)
    power = variances.power_of_seeds(2.0, 5)
    of_smaller_difference = variances.power_of_seeds(1.5, 5)
    of_more_seeds = variances.power_of_seeds(2.0, 8)
    assert of_smaller_difference < power < of_more_seeds


@pytest.mark.parametrize("arms", [2, 5])
@pytest.mark.parametrize(("factor", "suffices"), [(1.01, False), (0.99, True)])
def test_a_dev_set_can_be_too_small_for_any_number_of_seeds(arms, factor, suffices):
    """At the edge infinitely many seeds give exactly 80%; the limit is corrected for all arms."""
    critical = norm.ppf(1 - 0.025 / (arms - 1))
    error_at_edge = 1 / (critical + norm.ppf(0.8))
    examples = (error_at_edge * factor) ** 2
    variances = replace(UNIT_VARIANCES, arms=arms, examples=examples)
    assert variances.examples_suffice(1.0, 0.8) == suffices


def test_power_is_the_share_of_experiments_with_a_verdict():
    """Experiments are drawn from strengths and judged by `verdicts`."""
    options = {
        "accuracies": {"a": 0.8, "b": 0.9, "c": 0.8, "d": 0.8},
        "regime": REGIMES["seeds and examples"],
        "seeds": 5,
        "columns": ["rte"],
    }
    better = 0
    powers = []
    for seed in range(150):
        group = assess_drawn(seed=seed, **options)
        rows = verdicts([group]).set_index(["column", "arm"])
        better += rows.loc[("rte", "b"), "verdict"] == "better"
        if seed < 10:
            variances = variances_of(group.estimates[0], "a", 4)
            powers.append(variances.power_of_seeds(10.0, 5))
    share = better / 150
    assert np.mean(powers) == pytest.approx(share, abs=0.1)


def runs_in_blocks(seed: int) -> ColumnRuns:
    """Return three arms with four pretrainings, and three fine-tuning seeds of each.

    The pretrainings have an effect on single examples.
    """
    generator = np.random.default_rng(seed)
    of_arms = generator.normal(size=(3, 1, 1, 400))
    of_pretrainings = 0.7 * generator.normal(size=(3, 4, 1, 400))
    of_seeds = 0.5 * generator.normal(size=(3, 4, 3, 400))
    is_right = 0.8 + of_arms + of_pretrainings + of_seeds > 0
    predictions = is_right.reshape(3, 12, 400).astype(int)
    by_arm = dict(zip("abc", predictions, strict=True))
    drawn = outcomes_of("rte", by_arm, np.ones(400, int))
    of_an_arm = np.repeat([1, 2, 3, 4], 3)
    pretraining_seeds = np.tile(of_an_arm, 3)
    seeds = np.tile([1, 2, 3], 12)
    runs = drawn.runs._replace(pretraining_seeds=pretraining_seeds, seeds=seeds)
    return replace(drawn, runs=runs)


def variances_in(column_runs: ColumnRuns) -> Variances:
    (group,) = assess([column_runs], [group_of("abc")])
    return variances_of(group.estimates[-1], "a", 3)


def test_more_fine_tuning_seeds_leave_the_effect_of_a_pretraining_on_single_examples():
    """From four pretrainings of each arm follows what a study of one pretraining would show."""
    with_four: list[Variances] = []
    with_one: list[Variances] = []
    for seed in range(12):
        runs = runs_in_blocks(seed)
        of_first = np.flatnonzero(runs.runs.pretraining_seeds == 1)
        first_runs = runs.subset(of_first)
        with_four.append(variances_in(runs))
        with_one.append(variances_in(first_runs))
    fixed = np.mean([variances.fixed for variances in with_four])
    examples = np.mean([variances.examples for variances in with_four])
    examples_of_one = np.mean([variances.examples for variances in with_one])
    assert fixed == pytest.approx(examples_of_one, rel=0.1)
    assert examples < 0.8 * fixed
    for variances in with_one:
        assert variances.fixed == variances.examples


def test_the_frame_says_why_there_is_no_number():
    frame = design_of(assess_drawn(), 0.1)
    assert frame["column"].tolist() == ["average", "sst2", "rte"]
    assert frame["finetuning_seeds"].isna().all()
    for reason in frame["why"]:
        assert reason.startswith("no number of seeds will do")


def test_a_large_difference_needs_two_fine_tuning_seeds_of_one_pretraining():
    frame = design_of(assess_drawn(), 50.0, Costs(100.0, 3.0))
    assert set(frame["finetuning_seeds"]) == {2}
    assert set(frame["pretraining_seeds"]) == {1}
    assert set(frame["cost"]) == {106.0}


def test_one_seed_has_no_power():
    frame = design_of(assess_drawn(seeds=1), 1.0)
    assert frame["finetuning_seeds"].isna().all()
    assert set(frame["why"]) == {"one seed does not show how much scores vary"}


def test_dear_pretrainings_get_more_fine_tuning_seeds():
    group = assess_drawn(
        "abc", seeds=3, pretrainings=4, pretraining=0.01, columns=["rte"], rows=3000
    )
    cheap = design_of(group, 6.0).set_index("seeds").loc["pretraining"]
    dear_designs = design_of(group, 6.0, Costs(100.0, 1.0))
    dear = dear_designs.set_index("seeds").loc["pretraining"]
    runs_per_pretraining = 1 + cheap["finetuning_seeds"]
    assert cheap["cost"] == cheap["pretraining_seeds"] * runs_per_pretraining
    assert dear["finetuning_seeds"] > cheap["finetuning_seeds"]
    assert dear["pretraining_seeds"] < cheap["pretraining_seeds"]


def test_one_fine_tuning_seed_for_each_pretraining_gives_one_design():
    group = assess_drawn(seeds=1, pretrainings=4, pretraining=0.02)
    frame = design_of(group, 20.0)
    assert frame["seeds"].tolist() == ["pretraining"] * 3
    assert set(frame["finetuning_seeds"]) == {1}


@pytest.mark.parametrize(
    ("difference", "power"), [(0.0, 0.8), (-1.0, 0.8), (float("nan"), 0.8), (1.0, 1.0), (1.0, 0)]
)
def test_a_question_without_an_answer_is_refused(difference, power):
    with pytest.raises(UserError, match="give"):
        power_frame([], difference, power, EQUAL_COSTS)


def has_verdict(
    variances: Variances, observed: float, spreads: list[PlainSpread], shared: float
) -> bool:
    """Return whether a drawn difference of the arms a and b is found, by plain arithmetic."""
    pooled_freedom = sum(spread.pooled_freedom for spread in spreads)
    weight = 1.0
    if pooled_freedom <= 4:
        weight = (stdtrit(pooled_freedom, 0.975) / norm.ppf(0.975)) ** 2

    total = 0.0
    squares = 0.0
    for spread in spreads:
        from_pooled = 0.0
        from_own = 0.0
        for arm in "ab":
            of_arm = spread.variance[arm]
            if spread.is_own[arm]:
                from_own += of_arm**2 / spread.freedom[arm]
            else:
                from_pooled += of_arm
        variance = spread.variance["a"] + spread.variance["b"]
        terms = from_pooled**2 / spread.pooled_freedom + from_own
        smallest = variance**2 / spread.pooled_freedom
        squares += max(terms, smallest)
        total += variance

    of_examples = variances.examples + shared
    weighted = of_examples + max(0.0, weight * total - shared)
    freedom = weighted**2 / (weight**2 * squares)
    error = math.sqrt(of_examples + max(0.0, total - shared))

    alpha = 0.025 / (variances.arms - 1)
    critical = -stdtrit(freedom, alpha)
    return observed > critical * error


DESIGNS = [
    {"finetuning": (1.0,), "overlap": 0.8},
    {"finetuning": (0.4, 1.6), "overlap": 0.3, "examples": 0.5},
    {"finetuning": (0.1, 2.0), "overlap": 0.0},
]


@pytest.mark.parametrize("changes", DESIGNS)
@pytest.mark.parametrize("seeds", [2, 4])
def test_the_power_of_seeds_equals_a_simulation_run_by_run(changes, seeds):
    variances = replace(UNIT_VARIANCES, arms=3, **changes)
    shared = variances.overlap * 2 * sum(variances.finetuning) / seeds
    seeds_by_arm = dict.fromkeys("abc", seeds)
    freedom = 3 * (seeds - 1)

    error = math.sqrt(variances.examples)
    generator = np.random.default_rng(1)
    with_verdict = 0

    for _ in range(EXPERIMENTS):
        observed = 3.5 + error * generator.normal()
        spreads = []
        for variance in variances.finetuning:
            deviation = math.sqrt(variance)
            scores = deviation * generator.normal(size=(3, seeds))
            of_runs = scores.var(axis=1, ddof=1).tolist()
            pooled = sum(of_runs) / 3
            by_arm = dict(zip("abc", of_runs, strict=True))
            spreads.append(larger(by_arm, pooled, seeds_by_arm, freedom))
            first, second, _ = scores.mean(axis=1)
            observed += first - second
        with_verdict += has_verdict(variances, observed, spreads, shared)

    power = variances.power_of_seeds(3.5, seeds)
    assert power == pytest.approx(with_verdict / EXPERIMENTS, abs=0.035)


@pytest.mark.parametrize(
    ("blocks", "finetunings", "overlap", "difference"),
    [(2, 1, 0.9, 6.0), (4, 1, 0.7, 2.5), (4, 3, 0.0, 2.5)],
)
def test_the_power_of_pretrainings_equals_a_simulation_block_by_block(
    blocks, finetunings, overlap, difference
):
    variances = Variances(
        arms=3,
        finetuning=(0.9, 0.6),
        pretraining=0.5,
        examples=0.1,
        fixed=0.0,
        overlap=overlap,
    )

    deviation = math.sqrt(0.5 + 1.5 / finetunings)
    shared = overlap * 2 * deviation**2 / blocks

    generator = np.random.default_rng(1)
    with_verdict = 0
    for _ in range(EXPERIMENTS):
        table = deviation * generator.normal(size=(3, blocks))
        first, second, _ = table.mean(axis=1)
        of_examples = math.sqrt(0.1) * generator.normal()
        observed = difference + first - second + of_examples
        spread = of_table(table, tuple("abc"))
        with_verdict += has_verdict(variances, observed, [spread], shared)

    power = variances.power_of_pretrainings(difference, blocks, finetunings)
    assert power == pytest.approx(with_verdict / EXPERIMENTS, abs=0.035)


@pytest.mark.parametrize(("limit", "expected"), [(9, None), (10, 10), (50, 10)])
def test_the_smallest_number_may_be_the_largest_that_is_tried(limit, expected):
    def power_of(number: int) -> float:
        return 0.9 if number >= 10 else 0.1

    assert smallest_number(power_of, 0.8, limit) == expected


def test_the_correction_counts_arms_that_have_not_run():
    accuracies = dict.fromkeys("ab", 0.8)
    (runs,) = simulate(
        np.random.default_rng(0), columns=["rte"], accuracies=accuracies, seeds=4, rows=3000
    )
    runs = replace(runs, arms=tuple("abcdef"))
    seeds: list[int] = []
    for group in assess([runs], [group_of("ab"), group_of("abcdef")]):
        (estimate,) = group.estimates
        variances = variances_of(estimate, "a", len(group.arms))
        (design,) = variances.designs(4.0, 0.8, EQUAL_COSTS, blocked=False)
        (seeds_in_frame,) = design_of(group, 4.0)["finetuning_seeds"]
        assert seeds_in_frame == design["finetuning_seeds"], group.arms
        seeds.append(seeds_in_frame)
    assert seeds[1] > seeds[0]


def test_a_measure_of_pretraining_costs_no_fine_tuning():
    generator = np.random.default_rng(0)
    counts = np.full(300, 512.0)
    pieces = generator.normal(2000, 300, size=300)
    losses: dict[str, np.ndarray] = {}
    for arm in "ab":
        of_seeds = generator.normal(0, 20, (3, 1))
        noise = generator.normal(0, 5, (3, 300))
        losses[arm] = pieces + of_seeds + noise
    drawn = outcomes_of("validation_loss", losses, counts, scale=1.0, averaged=False)
    pretraining_seeds = np.tile([1, 2, 3], 2)
    runs = drawn.runs._replace(pretraining_seeds=pretraining_seeds, seeds=np.zeros(6, int))
    loss = replace(drawn, runs=runs)
    (group,) = assess([loss], [group_of("ab")])
    row = design_of(group, 0.2, Costs(10.0, 1000.0)).iloc[0]
    assert row["cost"] == 10.0 * row["pretraining_seeds"], row


def test_a_verdict_for_the_other_arm_is_not_counted():
    """Each of two equal arms is found better in half of the 5%."""
    power = UNIT_VARIANCES.power_of_seeds(0.0, 20)
    assert power == pytest.approx(0.025, abs=0.01)
