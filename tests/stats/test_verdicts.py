"""Verdicts: what the frames hold, what decides, and what they refuse to say."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.simulated import REGIMES, outcomes_of, simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from glue_bench.data.measures import MEASURES
from glue_bench.stats.verdicts import (
    NO_COMMON_GROUP,
    NUMBERS,
    Group,
    assess,
    equivalence,
    holm,
    two_sided,
)
from glue_bench.stats.verdicts import verdicts as judge

RATES = {"low": 0.6, "high": 0.9, "higher": 0.9}


def drawn(seed=5, **given):
    given = {
        "columns": ["sst2", "cola", "rte"],
        "rates": RATES,
        "regime": REGIMES["mostly examples"],
    } | given
    return simulate(np.random.default_rng(seed), **given)


def assessed(outcomes, reference=None, primary="average"):
    arms = outcomes[0].arms
    return assess(outcomes, [Group(arms=arms, reference=reference or arms[0])], primary)


def verdicts_of(outcomes, **more):
    return judge(assessed(outcomes, **more))


def declared(one, contrasts):
    return judge(one, contrasts).query("kind == 'declared'")


@pytest.fixture(scope="module")
def multipletests():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.stats.multitest import multipletests
    return multipletests


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_is_that_of_statsmodels(multipletests, p_values):
    ours, p = holm(np.array(p_values), len(p_values)), np.array(p_values)
    np.testing.assert_allclose(
        np.minimum(1, ours * p), multipletests(p, method="holm")[1], atol=1e-12
    )


def test_a_row_for_each_arm_but_the_reference_the_average_first():
    frame = verdicts_of(drawn())
    assert frame["column"].unique().tolist() == ["average", "sst2", "cola", "rte"]
    assert frame["arm"].tolist() == ["high", "higher"] * 4
    assert set(frame["reference"]) == {"low"}
    assert set(frame["family"]) == {2}
    assert frame[NUMBERS].notna().all(axis=None)
    np.testing.assert_allclose(frame["p_adjusted"], np.minimum(1, 2 * frame["p"]))
    np.testing.assert_allclose(frame["high"] - frame["difference"], frame["smallest"])
    single = verdicts_of(drawn(seeds=1))  # which has a difference and nothing else
    assert single["difference"].notna().all()
    assert single[NUMBERS[1:]].isna().all(axis=None)
    assert set(single["verdict"]) == {""}
    assert single["why"].iloc[0] == "one seed does not show how much scores vary (high, low)"


CASES = [
    {"columns": ["sst2", "mnli_m", "mnli_mm"], "seeds": 2},
    {"columns": ["cola", "stsb", "wnli"], "seeds": 3, "rows": 60},
    {"columns": ["sst2", "cola"], "seeds": 1, "pretrainings": 3, "pretraining": 0.05, "block": 0.1},
    {"columns": ["stsb", "rte"], "seeds": 2, "pretrainings": 2, "pretraining": 0.02},
]


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), case=st.sampled_from(CASES), shift=st.floats(-0.25, 0.15))
def test_interval_p_value_and_verdict_are_of_one_test(seed, case, shift):
    rates = {"a": 0.75, "b": 0.75 + shift, "c": 0.75 - shift / 3}
    one = assessed(drawn(seed, rates=rates, regime=REGIMES["all three"], **case))
    by_reference = judge(one)
    for frame in (by_reference, declared(one, [("b", "c"), ("a", "c"), ("a", "x")])):
        told, without_0 = frame["p_adjusted"] < 0.05, (frame["low"] > 0) | (frame["high"] < 0)
        assert without_0.equals(frame["p"] * frame["family"] < 0.05)
        assert without_0.equals(frame["difference"].abs() > frame["smallest"])
        assert without_0.equals(told) if frame is by_reference else (told | ~without_0).all()
        assert (frame["verdict"] != "").equals(told)
        assert (
            frame.loc[told, "verdict"]
            == np.where(frame.loc[told, "difference"] > 0, "better", "worse")
        ).all()


def test_intervals_stay_within_what_the_metric_can_be():
    outcomes = drawn(columns=["sst2", "cola"], rates={"a": 0.5, "b": 0.99}, rows=8, seeds=2)
    frame = verdicts_of(outcomes).set_index("column")
    assert (frame["high"] - frame["difference"]).max() > 0
    assert frame.loc["sst2", ["low", "high"]].abs().max() <= 100
    assert frame.loc["cola", ["low", "high"]].abs().max() <= 200
    assert frame.loc["average", ["low", "high"]].abs().max() <= 150
    assert frame["smallest"].max() > 100


def test_the_average_is_the_mean_over_columns_without_wnli():
    *outcomes, wnli = drawn(columns=["sst2", "rte", "wnli"])
    frames = [verdicts_of(each) for each in ([*outcomes, replace(wnli, averaged=False)], outcomes)]
    by_column = frames[0][frames[0]["arm"] == "high"].set_index("column")["difference"]
    assert by_column["average"] == pytest.approx((by_column["sst2"] + by_column["rte"]) / 2)
    np.testing.assert_array_equal(
        *(frame.loc[frame["column"] == "average", NUMBERS] for frame in frames)
    )


def test_columns_of_mnli_share_their_runs():
    """The seeds' variance of their mean is that of the runs' means, not half of each column's."""
    generator = np.random.default_rng(0)
    arms = {arm: (generator.random((3, 5000)) > [[0.7], [0.8], [0.9]]).astype(int) for arm in "ab"}
    shared, apart = (
        assessed([outcomes_of(name, arms, np.zeros(5000, int)) for name in names])[0].estimates
        for names in (("mnli_m", "mnli_mm"), ("sst2", "rte"))
    )
    np.testing.assert_allclose(shared[0].spreads[0].variance, shared[1].spreads[0].variance)
    assert (len(shared[0].spreads), len(apart[0].spreads)) == (1, 2)
    np.testing.assert_allclose(apart[0].examples, (apart[1].examples + apart[2].examples) / 4)
    for ours, theirs in zip(apart[0].spreads, apart[1:], strict=True):
        np.testing.assert_allclose(ours.variance, theirs.spreads[0].variance / 4)


def test_the_family_counts_arms_that_have_not_run_and_an_average_needs_a_run_in_every_column():
    first, second = drawn(columns=["sst2", "rte"], seeds=2)
    kept = second.subset(
        np.flatnonzero((second.runs.arms == 0) | (second.runs.seeds == 1) & (second.runs.arms == 1))
    )
    frame = verdicts_of([first, kept])
    whys = frame.set_index(["column", "arm"])["why"]
    assert set(frame["family"]) == {2}
    assert whys["rte", "high"] == "one seed does not show how much scores vary (high)"
    assert whys["rte", "higher"] == "no finished run (higher)"
    assert [whys["average", arm] for arm in ("high", "higher")] == [
        f"rte: {whys['rte', arm]}" for arm in ("high", "higher")
    ]
    assert whys["sst2", "high"] == ""


def test_groups_do_not_touch_each_other_and_no_contrast_goes_from_one_to_the_other():
    outcomes = drawn(rates={"a": 0.6, "b": 0.8, "c": 0.7, "d": 0.9})
    groups = [Group(arms=arms, reference=arms[0]) for arms in (("a", "b"), ("c", "d"))]
    whole = assess(outcomes, groups)
    alone = judge(
        assess([one.subset(np.flatnonzero(one.runs.arms < 2)) for one in outcomes], groups[:1])
    )
    pd.testing.assert_frame_equal(judge(whole).query("reference == 'a'"), alone)
    named = declared(whole, [("b", "c"), ("d", "c"), ("c", "never")]).drop_duplicates(
        ["arm", "reference"]
    )
    assert dict(zip(named["arm"], named["why"], strict=True)) == {"b": NO_COMMON_GROUP, "d": ""}
    assert set(named["family"]) == {3}


def test_contrasts_named_beforehand_are_corrected_for_their_own_number():
    one = assessed(drawn(rates={"a": 0.6, "b": 0.9, "c": 0.9, "d": 0.9}, columns=["rte"]))
    frame = declared(one, [("b", "a"), ("c", "d"), ("a", "never")])
    assert frame[["arm", "reference"]].to_numpy().tolist() == [["b", "a"], ["c", "d"]]
    assert set(frame["family"]) == {3}
    rte = frame.set_index("arm")
    assert rte["column"].unique().tolist() == ["rte"]  # an average of one column would say it twice
    assert rte["p_adjusted"]["b"] == pytest.approx(3 * rte["p"]["b"])
    assert rte["p_adjusted"]["c"] == pytest.approx(min(1, 2 * rte["p"]["c"]))
    assert rte["verdict"].to_dict() == {"b": "better", "c": ""}


@pytest.mark.parametrize(
    "case", [{"seeds": 3}, CASES[2] | {"pretrainings": 4}], ids=["fine-tuning", "pretraining"]
)
def test_arms_that_no_contrast_names_change_no_planned_row(case):
    """Of eight arms the last four vary more. Where all arms are named, variances are those of every contrast."""
    rates, wild = dict.fromkeys("abcdefgh", 0.8), dict.fromkeys("efgh", 9.0)
    columns, planned = ["rte", "cola"], [("b", "a"), ("c", "a"), ("d", "c")]
    eight = drawn(
        1, rates=rates, unstable=wild, regime=REGIMES["all three"], **case | {"columns": columns}
    )
    four = [one.subset(np.flatnonzero(one.runs.arms < 4)) for one in eight]
    whole, named = assessed(eight), assess(four, [Group(arms=tuple("abcd"), reference="a")])
    frames = [declared(one, planned) for one in (whole, named)]
    assert frames[0]["column"].unique().tolist() == ["average", *columns]
    np.testing.assert_allclose(
        frames[0][NUMBERS].to_numpy(float), frames[1][NUMBERS].to_numpy(float), rtol=1e-13
    )
    assert (
        judge(whole)["error"][:3] > judge(named)["error"][:3]
    ).all()  # other families look at all arms
    every = declared(named, [(arm, "a") for arm in "bcd"])
    np.testing.assert_allclose(every["error"], judge(named)["error"])


def test_equivalence_needs_an_interval_within_the_margin():
    frame = verdicts_of(drawn(rates={"a": 0.9, "b": 0.9, "c": 0.7}, rows=2000, columns=["rte"]))
    assert equivalence(frame, 5.0).set_index("arm")["equivalent"].to_dict() == {
        "b": True,
        "c": False,
    }
    single = equivalence(frame.assign(family=1), 0.4)["p_equivalent"]
    np.testing.assert_allclose(equivalence(frame, 0.4)["p_equivalent"], np.minimum(1, 2 * single))
    edges = frame[["low", "high"]].abs().max(axis=1)
    assert [
        equivalence(frame, edge)["p_equivalent"][i] for i, edge in edges.items()
    ] == pytest.approx([0.05, 0.05])
    assert equivalence(
        verdicts_of(drawn(rates={"a": 0.9}, columns=["rte"])), 1.0
    ).empty  # an arm alone has no contrast


def test_of_a_loss_the_lower_one_is_better():
    generator = np.random.default_rng(0)
    counts = np.full(300, 512.0)
    piece = generator.normal(2000, 300, size=300)
    losses = {
        arm: piece - less + generator.normal(0, 5, (3, 300))
        for arm, less in (("add", 0), ("low", 100))
    }
    facts = {"task": "validation_loss", "averaged": False}
    loss = outcomes_of("validation_loss", losses, counts, scale=1.0, **facts)
    runs = loss.runs._replace(pretraining_seeds=np.tile([1, 2, 3], 2), seeds=np.ones(6, int))
    loss = replace(loss, runs=runs)
    frame = verdicts_of(
        [loss, *drawn(columns=["rte"], rates={"add": 0.8, "low": 0.8})], primary="validation_loss"
    )
    assert frame["column"].tolist() == [
        "validation_loss",
        "rte",
    ]  # an average of one column would say it twice
    first = frame.iloc[0]
    assert first["difference"] == pytest.approx(-100 / 512, rel=0.1)
    assert (first["verdict"], first["seeds"], first["n_arm"]) == ("better", "pretraining", 3)


def test_several_pretraining_seeds_are_blocks_and_their_components_are_said():
    rates = dict.fromkeys("abcdef", 0.8)
    regime = replace(REGIMES["mostly seeds"], seed=0.02)
    deviations = []
    for seed in range(10):
        (one,) = assessed(drawn(seed, rates=rates, columns=["rte"], regime=regime, rows=3000, seeds=3, pretrainings=8,
                                pretraining=0.08, block=1.0))  # fmt: skip
        (estimate,) = one.estimates
        (scores,) = estimate.tasks.values()
        assert (estimate.kind, set(estimate.seeds.values()), scores.finetuning_seeds) == (
            "pretraining",
            {8},
            3,
        )
        deviations.append((estimate.pretraining_variance / scores.finetuning_variance) ** 0.5)
    # Variances of a strength of 0.08 and 0.02: the deviations have the ratio 2, whatever the blocks share.
    assert np.mean(deviations) == pytest.approx(2.0, rel=0.15)


def test_only_blocks_that_the_reference_has_count_and_an_arm_that_lacks_one_takes_none_from_the_others():
    (one,) = drawn(columns=["rte"], seeds=2, pretrainings=3, pretraining=0.05)
    lacking = one.subset(np.flatnonzero((one.runs.arms != 0) | (one.runs.pretraining_seeds != 3)))
    complete = one.subset(np.flatnonzero(one.runs.pretraining_seeds != 3))
    pd.testing.assert_frame_equal(*(verdicts_of([o])[NUMBERS] for o in (lacking, complete)))
    assert set(verdicts_of([lacking])["n_arm"]) == {2}
    lacking = one.subset(np.flatnonzero((one.runs.arms != 2) | (one.runs.pretraining_seeds != 3)))
    two = one.subset(np.flatnonzero(one.runs.arms < 2))
    ours, without = (verdicts_of([each]).set_index("arm") for each in (lacking, two))
    pd.testing.assert_frame_equal(ours.loc[["high"], NUMBERS], without.loc[["high"], NUMBERS])
    assert ours["why"]["higher"] == "1 of 3 pretraining seeds are missing (higher)"


def test_a_contrast_with_the_source_of_a_conversion_is_tested_in_the_group_that_has_both():
    outcomes = drawn(rates={"a": 0.6, "b": 0.8, "c": 0.9}, columns=["rte"])
    groups = [
        Group(arms=("a", "b"), reference="a"),
        Group(arms=("a", "c"), reference="a", kind="conversion"),
    ]
    frame = declared(assess(outcomes, groups), [("a", "c"), ("a", "b"), ("b", "c")])
    assert dict(
        zip(zip(frame["arm"], frame["reference"], strict=True), frame["why"], strict=True)
    ) == {
        ("a", "c"): "",
        ("a", "b"): "",
        ("b", "c"): NO_COMMON_GROUP,
    }
    assert (frame.loc[frame["why"] == "", "difference"] < 0).all()


def test_a_contrast_without_a_difference_or_without_a_spread_has_a_p_value_by_hand():
    found = two_sided(
        np.array([0.0, 0.0, 1.0, -1.0]),
        np.array([0.0, 2.0, 0.0, 0.5]),
        np.array([4.0, 4, 4, np.inf]),
    )
    assert found.tolist() == pytest.approx([1.0, 1.0, 0.0, 2 * norm.sf(2.0)])


@pytest.mark.parametrize("lacking", [("b",), ("a", "b")], ids=str)
def test_every_reason_why_there_is_no_test_is_said_with_its_arms(lacking):
    """Of `a` one seed, of `b` a damaged file: each has its own reason."""
    (one,) = drawn(rates={"a": 0.6, "b": 0.8, "c": 0.9}, columns=["rte"])
    whys = {"b": "b.safetensors: damaged"}
    kept = (
        one.subset(np.flatnonzero((one.runs.arms != 0) | (one.runs.seeds == 1)))
        if "a" in lacking
        else one
    )
    frame = judge(
        assess([replace(kept, problems=whys)], [Group(arms=("a", "b", "c"), reference="a")])
    )
    reasons = {
        "a": "one seed does not show how much scores vary (a)",
        "b": "b.safetensors: damaged (b)",
    }
    expected = "; ".join(reasons[arm] for arm in ("b", "a") if arm in lacking)
    assert frame.set_index("arm")["why"]["b"] == expected


def test_of_two_measures_the_column_that_is_asked_for_comes_first_and_one_without_runs_is_left_out():
    first, second = drawn(columns=["sst2", "rte"], rates={"a": 0.6, "b": 0.8})
    empty = replace(first.subset(np.zeros(0, int)), measure=MEASURES["swap_1"], averaged=False)
    group = assess([first, second, empty], [Group(arms=("a", "b"), reference="a")], "rte")[0]
    assert [one.column for one in group.estimates] == ["rte", "average", "sst2"]


def test_a_column_that_counts_in_the_average_is_there_before_any_of_its_arms_has_run():
    first, second = drawn(columns=["sst2", "rte"], rates={"a": 0.6, "b": 0.8, "c": 0.7, "d": 0.7})
    later = second.subset(np.flatnonzero(second.runs.arms > 1))
    groups = [Group(arms=arms, reference=arms[0]) for arms in (("a", "b"), ("c", "d"))]
    found = [[one.column for one in group.estimates] for group in assess([first, later], groups)]
    assert found == [["average", "sst2", "rte"]] * 2
