"""Verdicts: what the frames hold, what decides, and what is not tested."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.simulated import REGIMES, outcomes_of, simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, ttest_rel

from glue_bench.data.measures import MEASURES
from glue_bench.errors import UserError
from glue_bench.stats.runs import ColumnRuns
from glue_bench.stats.verdicts import (
    NO_COMMON_GROUP,
    NUMBER_COLUMNS,
    Group,
    assess,
    equivalence,
    holm,
    paired_p,
    two_sided,
    verdicts,
)

ACCURACIES = {"low": 0.6, "high": 0.9, "higher": 0.9}


def draw(seed=5, **changes) -> list[ColumnRuns]:
    options = {
        "columns": ["sst2", "cola", "rte"],
        "accuracies": ACCURACIES,
        "regime": REGIMES["mostly examples"],
    }
    return simulate(np.random.default_rng(seed), **(options | changes))


def draw_one(**changes) -> ColumnRuns:
    (column_runs,) = draw(**{"columns": ["rte"]} | changes)
    return column_runs


def assess_all(columns: list[ColumnRuns], primary: str = "average") -> Group:
    """Return one group of all arms; the first is the reference."""
    arms = columns[0].arms
    (group,) = assess(columns, [Group(arms=arms, reference=arms[0])], primary)
    return group


def verdicts_of(columns: list[ColumnRuns], primary: str = "average") -> pd.DataFrame:
    return verdicts([assess_all(columns, primary)])


def declared_verdicts(groups: list[Group], contrasts) -> pd.DataFrame:
    return verdicts(groups, contrasts).query("kind == 'declared'")


def without_runs(column_runs: ColumnRuns, is_left_out: np.ndarray) -> ColumnRuns:
    return column_runs.subset(np.flatnonzero(~is_left_out))


@pytest.fixture(scope="module")
def multipletests():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.stats.multitest import multipletests
    return multipletests


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_equals_statsmodels(multipletests, values):
    p_values = np.array(values)
    factors = holm(p_values, len(p_values))
    adjusted = np.minimum(1, factors * p_values)
    _, expected, *_ = multipletests(p_values, method="holm")
    np.testing.assert_allclose(adjusted, expected, atol=1e-12)


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=10), missing=st.integers(1, 5))
def test_tests_that_were_not_made_count_as_the_largest_p_values(multipletests, values, missing):
    ones = np.ones(missing)
    gaps = np.full(missing, np.nan)
    with_ones = np.append(values, ones)
    with_gaps = np.append(values, gaps)
    _, expected, *_ = multipletests(with_ones, method="holm")
    factors = holm(with_gaps, len(with_gaps))
    adjusted = np.minimum(1, factors * with_gaps)
    tested = slice(len(values))
    np.testing.assert_allclose(adjusted[tested], expected[tested], atol=1e-12)


def test_a_row_for_each_arm_but_the_reference_the_average_first():
    frame = verdicts_of(draw())
    assert frame["column"].unique().tolist() == ["average", "sst2", "cola", "rte"]
    expected = ["high", "higher"] * 4
    assert frame["arm"].tolist() == expected
    assert set(frame["reference"]) == {"low"}
    assert set(frame["family"]) == {2}


def test_a_row_has_every_number():
    frame = verdicts_of(draw(seeds=6))
    assert frame[NUMBER_COLUMNS].notna().all(axis=None)


def test_an_adjusted_p_value_is_p_times_the_family():
    frame = verdicts_of(draw(seeds=6))
    expected = np.minimum(1, 2 * frame["p"])
    np.testing.assert_allclose(frame["p_adjusted"], expected)


def test_the_smallest_difference_is_half_the_width_of_the_interval():
    frame = verdicts_of(draw(seeds=6))
    half_width = frame["high"] - frame["difference"]
    np.testing.assert_allclose(half_width, frame["smallest"])


def test_one_seed_has_a_difference_and_nothing_else():
    frame = verdicts_of(draw(seeds=1))
    assert frame["difference"].notna().all()
    assert frame[NUMBER_COLUMNS[1:]].isna().all(axis=None)
    assert set(frame["verdict"]) == {""}
    assert frame["why"].iloc[0] == "one seed does not show how much scores vary (high, low)"


CASES = [
    {"columns": ["sst2", "mnli_m", "mnli_mm"], "seeds": 2},
    {"columns": ["cola", "stsb", "wnli"], "seeds": 3, "rows": 60},
    {"columns": ["sst2", "cola"], "seeds": 1, "pretrainings": 3, "pretraining": 0.05, "block": 0.1},
    {"columns": ["stsb", "rte"], "seeds": 2, "pretrainings": 2, "pretraining": 0.02},
]


def draw_shifted(seed, case, shift) -> Group:
    accuracies = {"a": 0.75, "b": 0.75 + shift, "c": 0.75 - shift / 3}
    return assess_all(draw(seed, accuracies=accuracies, regime=REGIMES["all three"], **case))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), case=st.sampled_from(CASES), shift=st.floats(-0.25, 0.15))
def test_interval_p_value_and_verdict_are_of_one_test(seed, case, shift):
    frame = verdicts([draw_shifted(seed, case, shift)])
    has_verdict = frame["p_adjusted"] < 0.05
    excludes_zero = (frame["low"] > 0) | (frame["high"] < 0)
    is_large = frame["difference"].abs() > frame["smallest"]
    expected = np.where(frame["difference"] > 0, "better", "worse")
    expected[~has_verdict] = ""
    assert excludes_zero.equals(has_verdict)
    assert excludes_zero.equals(is_large)
    assert frame["verdict"].tolist() == expected.tolist()


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), case=st.sampled_from(CASES), shift=st.floats(-0.25, 0.15))
def test_a_declared_contrast_whose_interval_excludes_zero_has_a_verdict(seed, case, shift):
    """Holm's method may also give a verdict to a contrast whose interval includes 0."""
    group = draw_shifted(seed, case, shift)
    contrasts = [("b", "c"), ("a", "c"), ("a", "x")]
    frame = declared_verdicts([group], contrasts)
    excludes_zero = (frame["low"] > 0) | (frame["high"] < 0)
    by_bonferroni = frame["p"] * frame["family"] < 0.05
    by_holm = frame["p_adjusted"] < 0.05
    is_large = frame["difference"].abs() > frame["smallest"]
    has_verdict = frame["verdict"] != ""
    assert excludes_zero.equals(by_bonferroni)
    assert excludes_zero.equals(is_large)
    assert has_verdict.equals(by_holm)
    assert has_verdict[excludes_zero].all()


def test_intervals_stay_within_the_range_of_the_metric():
    accuracies = {"a": 0.5, "b": 0.99}
    columns = draw(columns=["sst2", "cola"], accuracies=accuracies, rows=8, seeds=2)
    frame = verdicts_of(columns).set_index("column")
    intervals = frame[["low", "high"]]
    ends = intervals.abs().max(axis=1)
    above = frame["high"] - frame["difference"]
    assert above.max() > 0
    assert ends["sst2"] <= 100
    assert ends["cola"] <= 200
    assert ends["average"] <= 150
    assert frame["smallest"].max() > 100


def with_and_without_wnli() -> tuple[pd.DataFrame, pd.DataFrame]:
    *columns, wnli = draw(columns=["sst2", "rte", "wnli"])
    not_averaged = replace(wnli, averaged=False)
    return verdicts_of([*columns, not_averaged]), verdicts_of(columns)


def test_the_average_is_the_mean_over_columns_without_wnli():
    frame, _ = with_and_without_wnli()
    of_high = frame[frame["arm"] == "high"].set_index("column")
    differences = of_high["difference"]
    mean = (differences["sst2"] + differences["rte"]) / 2
    assert differences["average"] == pytest.approx(mean)


def test_wnli_changes_no_number_of_the_average():
    averages = []
    for frame in with_and_without_wnli():
        is_average = frame["column"] == "average"
        averages.append(frame.loc[is_average, NUMBER_COLUMNS])
    np.testing.assert_array_equal(*averages)


def estimates_of_three_seeds(names):
    """Return estimates of the average and of two columns with the same predictions."""
    generator = np.random.default_rng(0)
    predictions: dict[str, np.ndarray] = {}
    for arm in "ab":
        is_right = generator.random((3, 5000)) > [[0.7], [0.8], [0.9]]
        predictions[arm] = is_right.astype(int)
    labels = np.zeros(5000, int)
    columns = [outcomes_of(name, predictions, labels) for name in names]
    return assess_all(columns).estimates


def test_columns_of_mnli_share_their_runs():
    """The variance over seeds of the mean of both columns is the variance of the runs' means."""
    average, column, _ = estimates_of_three_seeds(["mnli_m", "mnli_mm"])
    (spread,) = average.spreads
    (expected,) = column.spreads
    np.testing.assert_allclose(spread.variance, expected.variance)


def test_columns_of_two_tasks_have_independent_runs():
    """A column adds a quarter of its variance to the average of two."""
    average, first, second = estimates_of_three_seeds(["sst2", "rte"])
    examples = (first.examples + second.examples) / 4
    np.testing.assert_allclose(average.examples, examples)
    for spread, column in zip(average.spreads, (first, second), strict=True):
        (of_column,) = column.spreads
        expected = of_column.variance / 4
        np.testing.assert_allclose(spread.variance, expected)


def test_the_family_counts_arms_that_have_not_run():
    """The average needs a run in every column."""
    first, second = draw(columns=["sst2", "rte"], seeds=2)
    owners = second.runs.arms
    is_second_seed = second.runs.seeds == 2
    is_left_out = (owners == 1) & is_second_seed | (owners == 2)
    incomplete = without_runs(second, is_left_out)
    frame = verdicts_of([first, incomplete])
    reasons = frame.set_index(["column", "arm"])["why"]
    assert set(frame["family"]) == {2}
    assert reasons["rte", "high"] == "one seed does not show how much scores vary (high)"
    assert reasons["rte", "higher"] == "no finished run (higher)"
    for arm in ("high", "higher"):
        assert reasons["average", arm] == f"rte: {reasons['rte', arm]}"
    assert reasons["sst2", "high"] == ""


def draw_two_groups() -> tuple[list[ColumnRuns], list[Group]]:
    columns = draw(accuracies={"a": 0.6, "b": 0.8, "c": 0.7, "d": 0.9})
    groups = [Group(arms=("a", "b"), reference="a"), Group(arms=("c", "d"), reference="c")]
    return columns, groups


def test_groups_do_not_touch_each_other():
    columns, groups = draw_two_groups()
    frame = verdicts(assess(columns, groups))
    of_first = [without_runs(column, column.runs.arms > 1) for column in columns]
    expected = verdicts(assess(of_first, groups[:1]))
    pd.testing.assert_frame_equal(frame.query("reference == 'a'"), expected)


def test_no_contrast_goes_from_one_group_to_another():
    columns, groups = draw_two_groups()
    contrasts = [("b", "c"), ("d", "c"), ("c", "never")]
    assessed = assess(columns, groups)
    frame = declared_verdicts(assessed, contrasts)
    by_arm = frame.drop_duplicates("arm").set_index("arm")
    reasons = by_arm["why"].to_dict()
    assert reasons == {"b": NO_COMMON_GROUP, "d": ""}
    assert set(frame["family"]) == {3}


def test_declared_contrasts_are_corrected_for_their_own_number():
    accuracies = {"a": 0.6, "b": 0.9, "c": 0.9, "d": 0.9}
    columns = draw(accuracies=accuracies, columns=["rte"])
    contrasts = [("b", "a"), ("c", "d"), ("a", "never")]
    frame = declared_verdicts([assess_all(columns)], contrasts)
    pairs = list(zip(frame["arm"], frame["reference"], strict=True))
    assert pairs == [("b", "a"), ("c", "d")]
    assert set(frame["family"]) == {3}
    p_b, p_c = frame["p"]
    adjusted_b, adjusted_c = frame["p_adjusted"]
    assert adjusted_b == pytest.approx(3 * p_b)
    expected_c = min(1, 2 * p_c)
    assert adjusted_c == pytest.approx(expected_c)
    assert frame["verdict"].tolist() == ["better", ""]


def test_a_single_column_has_no_average():
    """The average would be the same as the column."""
    frame = verdicts_of(draw(columns=["rte"]))
    assert set(frame["column"]) == {"rte"}


PLANNED = [("b", "a"), ("c", "a"), ("d", "c")]


def draw_eight_arms(case) -> list[ColumnRuns]:
    """Return eight arms; the last four vary more over seeds."""
    return draw(
        1,
        accuracies=dict.fromkeys("abcdefgh", 0.8),
        unstable=dict.fromkeys("efgh", 9.0),
        regime=REGIMES["all three"],
        **case | {"columns": ["rte", "cola"]},
    )


def assess_first_four(columns: list[ColumnRuns]) -> list[Group]:
    """Return one group of the first four arms, without the runs of the others."""
    of_four = [without_runs(column, column.runs.arms > 3) for column in columns]
    group = Group(arms=tuple("abcd"), reference="a")
    return assess(of_four, [group])


@pytest.mark.parametrize(
    "case", [{"seeds": 3}, CASES[2] | {"pretrainings": 4}], ids=["fine-tuning", "pretraining"]
)
def test_arms_that_no_contrast_names_change_no_planned_row(case):
    columns = draw_eight_arms(case)
    frame = declared_verdicts([assess_all(columns)], PLANNED)
    expected = declared_verdicts(assess_first_four(columns), PLANNED)
    assert frame["column"].unique().tolist() == ["average", "rte", "cola"]
    numbers = frame[NUMBER_COLUMNS].to_numpy(float)
    expected_numbers = expected[NUMBER_COLUMNS].to_numpy(float)
    np.testing.assert_allclose(numbers, expected_numbers, rtol=1e-13)


def test_the_families_of_a_reference_pool_over_all_arms_of_their_group():
    """The last four arms vary more, so errors become larger with them."""
    columns = draw_eight_arms({"seeds": 3})
    with_all = verdicts([assess_all(columns)]).iloc[:3]
    with_four = verdicts(assess_first_four(columns)).iloc[:3]
    assert with_all["arm"].tolist() == ["b", "c", "d"]
    assert (with_all["error"] > with_four["error"]).all()


def test_errors_are_the_same_if_all_contrasts_are_declared():
    groups = assess_first_four(draw_eight_arms({"seeds": 3}))
    contrasts = [("b", "a"), ("c", "a"), ("d", "a")]
    frame = declared_verdicts(groups, contrasts)
    expected = verdicts(groups)
    np.testing.assert_allclose(frame["error"], expected["error"])


@pytest.fixture(scope="module")
def two_contrasts() -> pd.DataFrame:
    accuracies = {"a": 0.9, "b": 0.9, "c": 0.7}
    return verdicts_of(draw(accuracies=accuracies, rows=2000, columns=["rte"]))


def test_equivalence_needs_an_interval_within_the_margin(two_contrasts):
    frame = equivalence(two_contrasts, 5.0).set_index("arm")
    assert frame["equivalent"].to_dict() == {"b": True, "c": False}


def test_the_p_value_of_equivalence_is_corrected_for_the_family(two_contrasts):
    of_one = two_contrasts.assign(family=1)
    uncorrected = equivalence(of_one, 0.4)["p_equivalent"]
    corrected = equivalence(two_contrasts, 0.4)["p_equivalent"]
    expected = np.minimum(1, 2 * uncorrected)
    np.testing.assert_allclose(corrected, expected)


@pytest.mark.parametrize("row", [0, 1])
def test_a_margin_at_the_end_of_the_interval_is_at_the_edge(two_contrasts, row):
    ends = two_contrasts[["low", "high"]].iloc[row]
    frame = equivalence(two_contrasts, ends.abs().max())
    assert frame["p_equivalent"][row] == pytest.approx(0.05)


def test_an_arm_alone_is_equivalent_to_nothing():
    frame = verdicts_of(draw(accuracies={"a": 0.9}, columns=["rte"]))
    assert equivalence(frame, 1.0).empty


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan")])
def test_a_margin_that_is_not_above_zero_is_refused(two_contrasts, margin):
    with pytest.raises(UserError, match="give a difference above 0"):
        equivalence(two_contrasts, margin)


@pytest.fixture(scope="module")
def verdicts_on_a_loss() -> pd.DataFrame:
    """Return verdicts on a loss and a task. `low` has 100 nats less in each piece of 512 tokens."""
    generator = np.random.default_rng(0)
    pieces = generator.normal(2000, 300, size=300)
    tokens = np.full(300, 512.0)
    losses: dict[str, np.ndarray] = {}
    for arm, advantage in {"add": 0, "low": 100}.items():
        noise = generator.normal(0, 5, (3, 300))
        losses[arm] = pieces - advantage + noise
    drawn = outcomes_of("validation_loss", losses, tokens, scale=1.0, averaged=False)
    pretraining_seeds = np.tile([1, 2, 3], 2)
    runs = drawn.runs._replace(pretraining_seeds=pretraining_seeds, seeds=np.ones(6, int))
    loss = replace(drawn, runs=runs)
    task = draw_one(accuracies={"add": 0.8, "low": 0.8})
    return verdicts_of([loss, task], "validation_loss")


def test_a_lower_loss_is_better(verdicts_on_a_loss):
    row = verdicts_on_a_loss.iloc[0]
    assert row["difference"] == pytest.approx(-100 / 512, rel=0.1)
    assert row["verdict"] == "better"


def test_a_contrast_of_a_loss_is_over_pretraining_seeds(verdicts_on_a_loss):
    row = verdicts_on_a_loss.iloc[0]
    assert row["seeds"] == "pretraining"
    assert row["n_arm"] == 3


def test_a_loss_has_no_average_with_a_task(verdicts_on_a_loss):
    assert verdicts_on_a_loss["column"].tolist() == ["validation_loss", "rte"]


def test_the_variance_over_pretraining_seeds_is_found():
    """The strengths vary by 0.08 over pretrainings and 0.02 over fine-tunings.

    So the deviations have the ratio 2, whatever the arms of a block share.
    """
    options = {
        "accuracies": dict.fromkeys("abcdef", 0.8),
        "regime": replace(REGIMES["mostly seeds"], seed=0.02),
        "rows": 3000,
        "seeds": 3,
        "pretrainings": 8,
        "pretraining": 0.08,
        "block": 1.0,
    }

    ratios = []
    for seed in range(10):
        column = draw_one(seed=seed, **options)
        (estimate,) = assess_all([column]).estimates
        (runs,) = estimate.tasks.values()
        assert estimate.kind == "pretraining", seed
        assert estimate.seeds == dict.fromkeys("abcdef", 8), seed
        assert runs.finetuning_seeds == 3, seed
        squared_ratio = estimate.pretraining_variance / runs.finetuning_variance
        ratios.append(squared_ratio**0.5)

    mean_ratio = np.mean(ratios)
    assert mean_ratio == pytest.approx(2.0, rel=0.15)


def test_only_pretrainings_that_the_reference_has_count():
    runs = draw_one(seeds=2, pretrainings=3, pretraining=0.05)
    is_third = runs.runs.pretraining_seeds == 3
    is_of_reference = runs.runs.arms == 0
    incomplete = without_runs(runs, is_third & is_of_reference)
    frame = verdicts_of([incomplete])
    expected = verdicts_of([without_runs(runs, is_third)])
    pd.testing.assert_frame_equal(frame[NUMBER_COLUMNS], expected[NUMBER_COLUMNS])
    assert set(frame["n_arm"]) == {2}


def test_an_arm_that_lacks_a_pretraining_takes_none_from_the_others():
    runs = draw_one(seeds=2, pretrainings=3, pretraining=0.05)
    is_third = runs.runs.pretraining_seeds == 3
    is_of_higher = runs.runs.arms == 2
    incomplete = without_runs(runs, is_third & is_of_higher)
    without_higher = without_runs(runs, is_of_higher)
    frame = verdicts_of([incomplete]).set_index("arm")
    expected = verdicts_of([without_higher]).set_index("arm")
    numbers = frame.loc["high", NUMBER_COLUMNS]
    pd.testing.assert_series_equal(numbers, expected.loc["high", NUMBER_COLUMNS])
    assert frame["why"]["higher"] == "1 of 3 pretraining seeds are missing (higher)"


def test_a_contrast_with_the_source_of_a_conversion_is_tested_in_the_group_that_has_both():
    columns = draw(accuracies={"a": 0.6, "b": 0.8, "c": 0.9}, columns=["rte"])
    block = Group(arms=("a", "b"), reference="a")
    conversion = Group(arms=("a", "c"), reference="a", kind="conversion")
    contrasts = [("a", "c"), ("a", "b"), ("b", "c")]
    assessed = assess(columns, [block, conversion])
    frame = declared_verdicts(assessed, contrasts)
    reasons = frame.set_index(["arm", "reference"])["why"]
    expected = {
        ("a", "c"): "",
        ("a", "b"): "",
        ("b", "c"): NO_COMMON_GROUP,
    }
    assert reasons.to_dict() == expected
    tested = frame[frame["why"] == ""]
    assert (tested["difference"] < 0).all()


def test_p_values_without_a_difference_or_without_a_spread_by_hand():
    p_values = two_sided(
        difference=np.array([0.0, 0.0, 1.0, -1.0]),
        error=np.array([0.0, 2.0, 0.0, 0.5]),
        freedom=np.array([4.0, 4.0, 4.0, np.inf]),
    )
    expected = [1.0, 1.0, 0.0, 2 * norm.sf(2.0)]
    assert p_values.tolist() == pytest.approx(expected)


ONE_SEED = "one seed does not show how much scores vary (a)"
DAMAGED = "b.safetensors: damaged (b)"


@pytest.mark.parametrize(
    ("one_seed", "expected"), [(False, DAMAGED), (True, f"{DAMAGED}; {ONE_SEED}")]
)
def test_every_reason_without_a_test_is_given_with_its_arms(one_seed, expected):
    """The first arm has one seed or three, the second a damaged file."""
    runs = draw_one(accuracies={"a": 0.6, "b": 0.8, "c": 0.9})
    if one_seed:
        is_later = runs.runs.seeds > 1
        runs = without_runs(runs, is_later & (runs.runs.arms == 0))
    runs = replace(runs, problems={"b": "b.safetensors: damaged"})
    frame = verdicts_of([runs]).set_index("arm")
    assert frame["why"]["b"] == expected


def test_the_primary_column_comes_first_and_a_measure_without_runs_is_left_out():
    first, second = draw(columns=["sst2", "rte"], accuracies={"a": 0.6, "b": 0.8})
    no_rows = np.zeros(0, int)
    empty = replace(first.subset(no_rows), measure=MEASURES["swap_1"], averaged=False)
    group = assess_all([first, second, empty], "rte")
    columns = [estimate.column for estimate in group.estimates]
    assert columns == ["rte", "average", "sst2"]


def test_a_column_of_the_average_is_there_before_any_of_its_arms_has_run():
    (first, _, last), groups = draw_two_groups()
    later = without_runs(last, last.runs.arms < 2)
    for group in assess([first, later], groups):
        columns = [estimate.column for estimate in group.estimates]
        assert columns == ["average", "sst2", "rte"], group.arms


@pytest.mark.parametrize("seeds", [6, 12])
def test_the_paired_test_equals_scipys(seeds):
    first, second = np.random.default_rng(4).normal(size=(2, seeds))
    expected = ttest_rel(first, second).pvalue
    p = paired_p(first - second)
    assert p == pytest.approx(expected)


def test_below_six_seeds_there_is_no_paired_test():
    differences = np.arange(5.0)
    assert np.isnan(paired_p(differences))


def test_paired_tests_are_corrected_as_their_family_is():
    """Contrasts with the reference are corrected by Bonferroni, declared contrasts by Holm."""
    group = assess_all(draw(columns=["sst2"], seeds=8))
    (estimate,) = group.estimates
    contrasts = [("high", "low"), ("higher", "low")]
    p_values = [paired_p(estimate.differences(*pair)) for pair in contrasts]
    p = np.array(p_values)
    by_bonferroni = np.minimum(1, 2 * p)
    by_holm = np.minimum(1, holm(p, 2) * p)
    frame = verdicts([group], contrasts)
    p_paired = frame.groupby("kind")["p_paired"].apply(list)
    np.testing.assert_allclose(p_paired["reference"], by_bonferroni)
    np.testing.assert_allclose(p_paired["declared"], by_holm)
