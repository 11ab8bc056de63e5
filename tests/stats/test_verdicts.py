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
    NUMBERS,
    Group,
    assess,
    equivalence,
    holm,
    paired_p,
    two_sided,
    verdicts,
)

RATES = {"low": 0.6, "high": 0.9, "higher": 0.9}


def draw(seed=5, **changes) -> list[ColumnRuns]:
    options = {
        "columns": ["sst2", "cola", "rte"],
        "rates": RATES,
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
def test_holm_is_that_of_statsmodels(multipletests, values):
    p_values = np.array(values)
    adjusted = np.minimum(1, holm(p_values, len(p_values)) * p_values)
    expected = multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(adjusted, expected, atol=1e-12)


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=10), missing=st.integers(1, 5))
def test_tests_that_were_not_made_count_as_the_largest_p_values(multipletests, values, missing):
    p_values = np.array(values)
    all_values = np.append(p_values, np.ones(missing))
    expected = multipletests(all_values, method="holm")[1][: len(p_values)]
    with_gaps = np.append(np.full(missing, np.nan), p_values)
    adjusted = np.minimum(1, holm(with_gaps, len(all_values)) * with_gaps)[missing:]
    np.testing.assert_allclose(adjusted, expected, atol=1e-12)


def test_a_row_for_each_arm_but_the_reference_the_average_first():
    frame = verdicts_of(draw())
    assert frame["column"].unique().tolist() == ["average", "sst2", "cola", "rte"]
    expected = ["high", "higher"] * 4
    assert frame["arm"].tolist() == expected
    assert set(frame["reference"]) == {"low"}
    assert set(frame["family"]) == {2}


def test_a_row_has_every_number():
    frame = verdicts_of(draw(seeds=6))
    assert frame[NUMBERS].notna().all(axis=None)
    np.testing.assert_allclose(frame["p_adjusted"], np.minimum(1, 2 * frame["p"]))
    np.testing.assert_allclose(frame["high"] - frame["difference"], frame["smallest"])


def test_one_seed_has_a_difference_and_nothing_else():
    frame = verdicts_of(draw(seeds=1))
    assert frame["difference"].notna().all()
    assert frame[NUMBERS[1:]].isna().all(axis=None)
    assert set(frame["verdict"]) == {""}
    assert frame["why"].iloc[0] == "one seed does not show how much scores vary (high, low)"


CASES = [
    {"columns": ["sst2", "mnli_m", "mnli_mm"], "seeds": 2},
    {"columns": ["cola", "stsb", "wnli"], "seeds": 3, "rows": 60},
    {"columns": ["sst2", "cola"], "seeds": 1, "pretrainings": 3, "pretraining": 0.05, "block": 0.1},
    {"columns": ["stsb", "rte"], "seeds": 2, "pretrainings": 2, "pretraining": 0.02},
]


def draw_shifted(seed, case, shift) -> Group:
    rates = {"a": 0.75, "b": 0.75 + shift, "c": 0.75 - shift / 3}
    return assess_all(draw(seed, rates=rates, regime=REGIMES["all three"], **case))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), case=st.sampled_from(CASES), shift=st.floats(-0.25, 0.15))
def test_interval_p_value_and_verdict_are_of_one_test(seed, case, shift):
    frame = verdicts([draw_shifted(seed, case, shift)])
    has_verdict = frame["p_adjusted"] < 0.05
    excludes_zero = (frame["low"] > 0) | (frame["high"] < 0)
    assert excludes_zero.equals(has_verdict)
    assert excludes_zero.equals(frame["difference"].abs() > frame["smallest"])
    expected = np.where(frame["difference"] > 0, "better", "worse")
    assert frame["verdict"].tolist() == np.where(has_verdict, expected, "").tolist()


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), case=st.sampled_from(CASES), shift=st.floats(-0.25, 0.15))
def test_a_declared_contrast_whose_interval_excludes_zero_has_a_verdict(seed, case, shift):
    """Holm's method may also give one whose interval includes 0."""
    group = draw_shifted(seed, case, shift)
    frame = declared_verdicts([group], [("b", "c"), ("a", "c"), ("a", "x")])
    excludes_zero = (frame["low"] > 0) | (frame["high"] < 0)
    assert excludes_zero.equals(frame["p"] * frame["family"] < 0.05)
    assert excludes_zero.equals(frame["difference"].abs() > frame["smallest"])
    assert ((frame["verdict"] != "") | ~excludes_zero).all()
    assert (frame["verdict"] != "").equals(frame["p_adjusted"] < 0.05)


def test_intervals_stay_within_the_range_of_the_metric():
    columns = draw(columns=["sst2", "cola"], rates={"a": 0.5, "b": 0.99}, rows=8, seeds=2)
    frame = verdicts_of(columns).set_index("column")
    ends = frame[["low", "high"]].abs().max(axis=1)
    assert (frame["high"] - frame["difference"]).max() > 0
    assert ends["sst2"] <= 100
    assert ends["cola"] <= 200
    assert ends["average"] <= 150
    assert frame["smallest"].max() > 100


def test_the_average_is_the_mean_over_columns_without_wnli():
    *columns, wnli = draw(columns=["sst2", "rte", "wnli"])
    frame = verdicts_of([*columns, replace(wnli, averaged=False)])
    differences = frame[frame["arm"] == "high"].set_index("column")["difference"]
    assert differences["average"] == pytest.approx((differences["sst2"] + differences["rte"]) / 2)
    without_wnli = verdicts_of(columns)
    numbers = frame.loc[frame["column"] == "average", NUMBERS]
    expected = without_wnli.loc[without_wnli["column"] == "average", NUMBERS]
    np.testing.assert_array_equal(numbers, expected)


def estimates_of_three_seeds(names):
    """Return estimates of the average and of two columns with the same predictions."""
    generator = np.random.default_rng(0)
    predictions: dict[str, np.ndarray] = {}
    for arm in "ab":
        is_right = generator.random((3, 5000)) > [[0.7], [0.8], [0.9]]
        predictions[arm] = is_right.astype(int)
    columns = [outcomes_of(name, predictions, np.zeros(5000, int)) for name in names]
    return assess_all(columns).estimates


def test_columns_of_mnli_share_their_runs():
    """The variance over seeds of their mean is that of the runs' means."""
    average, column, _ = estimates_of_three_seeds(["mnli_m", "mnli_mm"])
    assert len(average.spreads) == 1
    np.testing.assert_allclose(average.spreads[0].variance, column.spreads[0].variance)


def test_columns_of_two_tasks_have_independent_runs():
    """A column adds a quarter of its variance to the average of two."""
    average, *columns = estimates_of_three_seeds(["sst2", "rte"])
    assert len(average.spreads) == 2
    examples = (columns[0].examples + columns[1].examples) / 4
    np.testing.assert_allclose(average.examples, examples)
    for spread, column in zip(average.spreads, columns, strict=True):
        np.testing.assert_allclose(spread.variance, column.spreads[0].variance / 4)


def test_the_family_counts_arms_that_have_not_run():
    """The average needs a run in every column."""
    first, second = draw(columns=["sst2", "rte"], seeds=2)
    one_seed = (second.runs.arms == 1) & (second.runs.seeds == 2)
    incomplete = without_runs(second, one_seed | (second.runs.arms == 2))
    frame = verdicts_of([first, incomplete])
    reasons = frame.set_index(["column", "arm"])["why"]
    assert set(frame["family"]) == {2}
    assert reasons["rte", "high"] == "one seed does not show how much scores vary (high)"
    assert reasons["rte", "higher"] == "no finished run (higher)"
    for arm in ("high", "higher"):
        assert reasons["average", arm] == f"rte: {reasons['rte', arm]}"
    assert reasons["sst2", "high"] == ""


def draw_two_groups() -> tuple[list[ColumnRuns], list[Group]]:
    columns = draw(rates={"a": 0.6, "b": 0.8, "c": 0.7, "d": 0.9})
    groups = [Group(arms=("a", "b"), reference="a"), Group(arms=("c", "d"), reference="c")]
    return columns, groups


def test_groups_do_not_touch_each_other():
    columns, groups = draw_two_groups()
    frame = verdicts(assess(columns, groups)).query("reference == 'a'")
    of_first = [without_runs(column, column.runs.arms > 1) for column in columns]
    pd.testing.assert_frame_equal(frame, verdicts(assess(of_first, groups[:1])))


def test_no_contrast_goes_from_one_group_to_another():
    columns, groups = draw_two_groups()
    contrasts = [("b", "c"), ("d", "c"), ("c", "never")]
    frame = declared_verdicts(assess(columns, groups), contrasts)
    reasons = frame.drop_duplicates("arm").set_index("arm")["why"]
    assert reasons.to_dict() == {"b": NO_COMMON_GROUP, "d": ""}
    assert set(frame["family"]) == {3}


def test_declared_contrasts_are_corrected_for_their_own_number():
    rates = {"a": 0.6, "b": 0.9, "c": 0.9, "d": 0.9}
    group = assess_all(draw(rates=rates, columns=["rte"]))
    frame = declared_verdicts([group], [("b", "a"), ("c", "d"), ("a", "never")])
    assert frame[["arm", "reference"]].to_numpy().tolist() == [["b", "a"], ["c", "d"]]
    assert set(frame["family"]) == {3}
    rows = frame.set_index("arm")
    assert rows["p_adjusted"]["b"] == pytest.approx(3 * rows["p"]["b"])
    assert rows["p_adjusted"]["c"] == pytest.approx(min(1, 2 * rows["p"]["c"]))
    assert rows["verdict"].to_dict() == {"b": "better", "c": ""}


def test_a_single_column_has_no_average():
    """It would be the column once more."""
    frame = verdicts_of(draw(columns=["rte"]))
    assert frame["column"].unique().tolist() == ["rte"]


PLANNED = [("b", "a"), ("c", "a"), ("d", "c")]


def draw_eight_arms(case) -> list[ColumnRuns]:
    """Return eight arms, of which the last four vary more over seeds."""
    return draw(
        1,
        rates=dict.fromkeys("abcdefgh", 0.8),
        unstable=dict.fromkeys("efgh", 9.0),
        regime=REGIMES["all three"],
        **case | {"columns": ["rte", "cola"]},
    )


@pytest.mark.parametrize(
    "case", [{"seeds": 3}, CASES[2] | {"pretrainings": 4}], ids=["fine-tuning", "pretraining"]
)
def test_arms_that_no_contrast_names_change_no_planned_row(case):
    """The families of a reference pool over all arms of their group."""
    columns = draw_eight_arms(case)
    four_arms = [without_runs(column, column.runs.arms > 3) for column in columns]
    group = assess_all(columns)
    (small_group,) = assess(four_arms, [Group(arms=tuple("abcd"), reference="a")])
    frame = declared_verdicts([group], PLANNED)
    expected = declared_verdicts([small_group], PLANNED)
    assert frame["column"].unique().tolist() == ["average", "rte", "cola"]
    numbers = frame[NUMBERS].to_numpy(float)
    np.testing.assert_allclose(numbers, expected[NUMBERS].to_numpy(float), rtol=1e-13)
    assert (verdicts([group])["error"][:3] > verdicts([small_group])["error"][:3]).all()


def test_where_all_arms_are_declared_errors_are_those_of_every_contrast():
    columns = draw_eight_arms({"seeds": 3})
    four_arms = [without_runs(column, column.runs.arms > 3) for column in columns]
    groups = assess(four_arms, [Group(arms=tuple("abcd"), reference="a")])
    frame = declared_verdicts(groups, [("b", "a"), ("c", "a"), ("d", "a")])
    np.testing.assert_allclose(frame["error"], verdicts(groups)["error"])


@pytest.fixture(scope="module")
def two_contrasts() -> pd.DataFrame:
    rates = {"a": 0.9, "b": 0.9, "c": 0.7}
    return verdicts_of(draw(rates=rates, rows=2000, columns=["rte"]))


def test_equivalence_needs_an_interval_within_the_margin(two_contrasts):
    frame = equivalence(two_contrasts, 5.0).set_index("arm")
    assert frame["equivalent"].to_dict() == {"b": True, "c": False}


def test_the_p_value_of_equivalence_is_corrected_for_the_family(two_contrasts):
    uncorrected = equivalence(two_contrasts.assign(family=1), 0.4)["p_equivalent"]
    corrected = equivalence(two_contrasts, 0.4)["p_equivalent"]
    np.testing.assert_allclose(corrected, np.minimum(1, 2 * uncorrected))


@pytest.mark.parametrize("row", [0, 1])
def test_a_margin_at_the_end_of_the_interval_is_at_the_edge(two_contrasts, row):
    margin = two_contrasts[["low", "high"]].abs().max(axis=1)[row]
    assert equivalence(two_contrasts, margin)["p_equivalent"][row] == pytest.approx(0.05)


def test_an_arm_alone_is_equivalent_to_nothing():
    assert equivalence(verdicts_of(draw(rates={"a": 0.9}, columns=["rte"])), 1.0).empty


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan")])
def test_a_margin_that_is_not_above_zero_is_refused(two_contrasts, margin):
    with pytest.raises(UserError, match="give a difference above 0"):
        equivalence(two_contrasts, margin)


def test_a_lower_loss_is_better():
    generator = np.random.default_rng(0)
    pieces = generator.normal(2000, 300, size=300)
    losses = {
        "add": pieces + generator.normal(0, 5, (3, 300)),
        "low": pieces - 100 + generator.normal(0, 5, (3, 300)),
    }
    facts = {"task": "validation_loss", "averaged": False}
    loss = outcomes_of("validation_loss", losses, np.full(300, 512.0), scale=1.0, **facts)
    runs = loss.runs._replace(pretraining_seeds=np.tile([1, 2, 3], 2), seeds=np.ones(6, int))
    columns = [replace(loss, runs=runs), draw_one(rates={"add": 0.8, "low": 0.8})]
    frame = verdicts_of(columns, "validation_loss")
    assert frame["column"].tolist() == ["validation_loss", "rte"]
    row = frame.iloc[0]
    assert row["difference"] == pytest.approx(-100 / 512, rel=0.1)
    assert row["verdict"] == "better"
    assert row["seeds"] == "pretraining"
    assert row["n_arm"] == 3


def test_pretraining_seeds_are_blocks_whose_variance_is_found():
    """The strengths vary by 0.08 over pretrainings and 0.02 over fine-tunings.

    So the deviations have the ratio 2, whatever the arms of a block share.
    """
    options = {
        "rates": dict.fromkeys("abcdef", 0.8),
        "regime": replace(REGIMES["mostly seeds"], seed=0.02),
        "rows": 3000,
        "seeds": 3,
        "pretrainings": 8,
        "pretraining": 0.08,
        "block": 1.0,
    }
    ratios = []
    for seed in range(10):
        (estimate,) = assess_all([draw_one(seed=seed, **options)]).estimates
        (runs,) = estimate.tasks.values()
        assert estimate.kind == "pretraining"
        assert set(estimate.seeds.values()) == {8}
        assert runs.finetuning_seeds == 3
        ratios.append((estimate.pretraining_variance / runs.finetuning_variance) ** 0.5)
    assert np.mean(ratios) == pytest.approx(2.0, rel=0.15)


def test_only_pretrainings_that_the_reference_has_count():
    runs = draw_one(seeds=2, pretrainings=3, pretraining=0.05)
    is_third = runs.runs.pretraining_seeds == 3
    frame = verdicts_of([without_runs(runs, is_third & (runs.runs.arms == 0))])
    expected = verdicts_of([without_runs(runs, is_third)])
    pd.testing.assert_frame_equal(frame[NUMBERS], expected[NUMBERS])
    assert set(frame["n_arm"]) == {2}


def test_an_arm_that_lacks_a_pretraining_takes_none_from_the_others():
    runs = draw_one(seeds=2, pretrainings=3, pretraining=0.05)
    is_third = runs.runs.pretraining_seeds == 3
    frame = verdicts_of([without_runs(runs, is_third & (runs.runs.arms == 2))]).set_index("arm")
    expected = verdicts_of([without_runs(runs, runs.runs.arms == 2)]).set_index("arm")
    pd.testing.assert_frame_equal(frame.loc[["high"], NUMBERS], expected.loc[["high"], NUMBERS])
    assert frame["why"]["higher"] == "1 of 3 pretraining seeds are missing (higher)"


def test_a_contrast_with_the_source_of_a_conversion_is_tested_in_the_group_that_has_both():
    columns = draw(rates={"a": 0.6, "b": 0.8, "c": 0.9}, columns=["rte"])
    block = Group(arms=("a", "b"), reference="a")
    conversion = Group(arms=("a", "c"), reference="a", kind="conversion")
    contrasts = [("a", "c"), ("a", "b"), ("b", "c")]
    frame = declared_verdicts(assess(columns, [block, conversion]), contrasts)
    reasons = frame.set_index(["arm", "reference"])["why"]
    expected = {
        ("a", "c"): "",
        ("a", "b"): "",
        ("b", "c"): NO_COMMON_GROUP,
    }
    assert reasons.to_dict() == expected
    assert (frame.loc[frame["why"] == "", "difference"] < 0).all()


def test_p_values_without_a_difference_or_without_a_spread_by_hand():
    p_values = two_sided(
        difference=np.array([0.0, 0.0, 1.0, -1.0]),
        error=np.array([0.0, 2.0, 0.0, 0.5]),
        freedom=np.array([4.0, 4.0, 4.0, np.inf]),
    )
    assert p_values.tolist() == pytest.approx([1.0, 1.0, 0.0, 2 * norm.sf(2.0)])


ONE_SEED = "one seed does not show how much scores vary (a)"
DAMAGED = "b.safetensors: damaged (b)"


@pytest.mark.parametrize(
    ("one_seed", "expected"), [(False, DAMAGED), (True, f"{DAMAGED}; {ONE_SEED}")]
)
def test_every_reason_without_a_test_is_given_with_its_arms(one_seed, expected):
    """The first arm has one seed or three, the second a damaged file."""
    runs = draw_one(rates={"a": 0.6, "b": 0.8, "c": 0.9})
    if one_seed:
        runs = without_runs(runs, (runs.runs.arms == 0) & (runs.runs.seeds > 1))
    runs = replace(runs, problems={"b": "b.safetensors: damaged"})
    frame = verdicts_of([runs]).set_index("arm")
    assert frame["why"]["b"] == expected


def test_the_primary_column_comes_first_and_a_measure_without_runs_is_left_out():
    first, second = draw(columns=["sst2", "rte"], rates={"a": 0.6, "b": 0.8})
    empty = replace(first.subset(np.zeros(0, int)), measure=MEASURES["swap_1"], averaged=False)
    group = assess_all([first, second, empty], "rte")
    assert [estimate.column for estimate in group.estimates] == ["rte", "average", "sst2"]


def test_a_column_of_the_average_is_there_before_any_of_its_arms_has_run():
    columns, groups = draw_two_groups()
    later = without_runs(columns[2], columns[2].runs.arms < 2)
    for group in assess([columns[0], later], groups):
        assert [estimate.column for estimate in group.estimates] == ["average", "sst2", "rte"]


@pytest.mark.parametrize("seeds", [6, 12])
def test_the_paired_test_is_that_of_scipy(seeds):
    first, second = np.random.default_rng(4).normal(size=(2, seeds))
    assert paired_p(first - second) == pytest.approx(ttest_rel(first, second).pvalue)


def test_below_six_seeds_there_is_no_paired_test():
    assert np.isnan(paired_p(np.arange(5.0)))


def test_paired_tests_are_corrected_as_their_family_is():
    """Bonferroni from the reference, Holm for declared contrasts."""
    group = assess_all(draw(columns=["sst2"], seeds=8))
    others = [arm for arm in group.arms if arm != group.reference]
    differences = [group.estimates[0].differences(arm, group.reference) for arm in others]
    p = np.array([paired_p(values) for values in differences])
    frame = verdicts([group], [(arm, group.reference) for arm in others])
    p_paired = frame.groupby("kind")["p_paired"].apply(list)
    np.testing.assert_allclose(p_paired["reference"], np.minimum(1, 2 * p))
    np.testing.assert_allclose(p_paired["declared"], np.minimum(1, holm(p, 2) * p))
