"""All pairs of an experiment: what the frames hold, and what they refuse to say."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import REGIMES, outcomes_of, simulate

from glue_bench.reporting.assessment import NO_LABELS, assess_experiment, read_outcomes
from glue_bench.results.board import make_board
from glue_bench.stats.pairs import COLUMNS_OF_STATISTICS, NUMBERS, assess, compare, holm
from glue_bench.stats.ties import RANK_COLUMNS, of_block, ranks_frame, tied_best
from glue_bench.values import BLOCK

FEW = 200
BLOCK_OF_ALL = ("pretrained", "")
RATES = {"low": 0.6, "high": 0.9, "higher": 0.9}


def found(outcomes):
    blocks = assess(outcomes, FEW)
    pairs = compare(blocks)
    return pairs, ranks_frame(blocks, pairs)


def whys(store):
    return assess_experiment(store, resamples=FEW).pairs["why"]


def simulated(**settings):
    settings = {"columns": ["sst2", "cola", "rte"], "rates": RATES, "regime": REGIMES["mostly examples"]} | settings
    return simulate(np.random.default_rng(5), **settings)


def fill(bench, *, labels=True, seeds=(1, 2), columns=("sst2",), origin="pretrained"):
    """An experiment on disk with predictions; the records' digest is `d`."""
    for outcomes in simulated(columns=columns, seeds=len(seeds)):
        gold = outcomes.labels
        for arm, seed, run, score in zip(outcomes.owners, outcomes.seeds, outcomes.predictions, outcomes.scores,
                                         strict=True):  # fmt: skip
            name = outcomes.arms[arm]
            bench.finish(outcomes.task, seeds[seed - 1], score / 100, arm=name, origin=origin)
            logits = np.stack([1.0 - run, run], axis=1)
            bench.predict(bench.cells[-1]["cell_id"], {"validation": logits})
        if labels:
            bench.store.write_labels(outcomes.task, "d", {"validation": gold})
    bench.plan()
    return bench.store


@pytest.fixture(scope="module")
def multipletests():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.stats.multitest import multipletests
    return multipletests


@given(p_values=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_is_that_of_statsmodels(multipletests, p_values):
    theirs = multipletests(p_values, method="holm")[1]
    np.testing.assert_allclose(holm(np.array(p_values)), theirs, atol=1e-12)


def test_holm_counts_only_tests_that_were_made():
    adjusted = holm(np.array([0.01, np.nan, 0.02]))
    np.testing.assert_allclose(adjusted, [0.02, np.nan, 0.02])


def test_a_row_for_every_pair_and_column_and_the_average():
    pairs, ranks = found(simulated())
    assert list(pairs.columns) == COLUMNS_OF_STATISTICS
    assert list(ranks.columns) == RANK_COLUMNS
    assert pairs["column"].unique().tolist() == ["sst2", "cola", "rte", "average"]
    assert len(pairs) == 3 * 4
    assert len(ranks) == 3 * 4
    assert pairs[NUMBERS].notna().all(axis=None)
    assert (pairs["low"] < pairs["difference"]).all()
    assert (pairs["difference"] < pairs["high"]).all()
    assert (pairs["p_holm"] >= pairs[["p_bootstrap", "p_pooled", "p_permutation"]].max(axis=1) - 1e-12).all()


def test_what_differs_much_is_told_apart_and_what_is_equal_is_not():
    pairs, ranks = found(simulated())
    verdicts = {(row.column, row.arm_a, row.arm_b): row.verdict for row in pairs.itertuples()}
    for column in ("sst2", "cola", "rte", "average"):
        assert verdicts[column, "low", "high"] == verdicts[column, "low", "higher"] == "b"
        assert verdicts[column, "high", "higher"] == "tied"
        mine = ranks[ranks["column"] == column].set_index("arm")
        assert mine["rank"].to_dict() == {"high": 1, "higher": 1, "low": 3}
        assert mine["group"].to_dict() == {"high": "a", "higher": "a", "low": "b"}
        assert tied_best(ranks, pairs, BLOCK_OF_ALL, column) == {"high", "higher"}


def test_the_average_is_the_mean_over_columns_without_wnli():
    outcomes = simulated(columns=["sst2", "rte", "wnli"])
    pairs, _ = found(outcomes)
    by_column = pairs[pairs["arm_b"] == "high"].set_index("column")["difference"]
    assert by_column["average"] == pytest.approx((by_column["sst2"] + by_column["rte"]) / 2)
    without, _ = found(outcomes[:2])
    tests = ["difference", "low", "high", "p_bootstrap", "p_pooled", "p_permutation"]
    both = (frame.loc[frame["column"] == "average", tests].to_numpy() for frame in (pairs, without))
    np.testing.assert_array_equal(*both)


def test_variances_of_an_average_are_those_of_its_columns_by_their_weight():
    one, other, average = assess(simulated(columns=["sst2", "rte"]), FEW)[0].assessed
    for arm in RATES:
        parts = [assessed.measure.interaction(arm) for assessed in (one, other)]
        assert average.measure.interaction(arm) == pytest.approx(sum(parts) / 4)
        assert average.measure.mean(arm) == pytest.approx(average.means[arm])
    spreads = [assessed.measure.example_variance("low", "high") for assessed in (one, other)]
    assert average.measure.example_variance("low", "high") == pytest.approx(sum(spreads) / 4)


def test_one_seed_has_neither_interval_nor_test_nor_rank():
    pairs, ranks = found(simulated(seeds=1))
    assert pairs["difference"].notna().all()
    assert pairs[NUMBERS[1:]].isna().all(axis=None)
    assert set(pairs["verdict"]) == {""}
    assert pairs["why"].iloc[0] == "one seed shows no spread (low, high)"
    assert ranks["rank"].isna().all()
    assert set(ranks["group"]) == {""}


def test_an_average_needs_the_same_seeds_in_all_columns():
    first, second = simulated(columns=["sst2", "rte"])
    pairs, _ = found([first, replace(second, seeds=second.seeds + (second.owners == 0))])
    mine = pairs[pairs["column"] == "average"].set_index(["arm_a", "arm_b"])
    assert mine["why"]["low", "high"] == "seeds differ between its columns (low)"
    assert mine["verdict"].to_dict() == {("low", "high"): "", ("low", "higher"): "", ("high", "higher"): "tied"}
    assert mine["difference"].notna().all()


@pytest.mark.parametrize("block", [("grafted", ""), ("pretrained", "larger")])
def test_arms_of_two_blocks_are_never_compared(block):
    first = simulated(columns=["sst2"])
    second = [replace(outcomes, block=block) for outcomes in first]
    pairs, _ = found([*first, *second])
    assert pairs.groupby(BLOCK, sort=False).size().to_dict() == {("pretrained", ""): 6, block: 6}
    one, two = (of_block(pairs, one)[NUMBERS].to_numpy() for one in (("pretrained", ""), block))
    np.testing.assert_array_equal(one, two)


def test_a_lone_arm_has_no_pair_and_is_best_of_nothing():
    pairs, ranks = found(simulated(rates={"only": 0.8}))
    assert pairs.empty
    assert tied_best(ranks, pairs, BLOCK_OF_ALL, "sst2") == frozenset()


def test_columns_of_mnli_share_their_runs():
    """The seeds' variance of their mean is that of the runs' means, not half of each column's."""
    seeds = np.array([[0.7], [0.8], [0.9]])
    generator = np.random.default_rng(0)
    labels = np.zeros(20_000, int)
    arms = {arm: (generator.random((3, 20_000)) > seeds).astype(int) for arm in "ab"}
    columns = [outcomes_of(column, arms, labels) for column in ("mnli_m", "mnli_mm")]
    blocks = assess(columns, FEW)
    one, other, average = blocks[0].assessed
    assert len(average.measure.parts) == 1
    assert average.measure.parts[0].variance("a") == pytest.approx(one.measure.parts[0].variance("a"))
    apart = assess([outcomes_of(column, arms, labels) for column in ("sst2", "rte")], FEW)[0].assessed[-1]
    assert sum(p.variance("a") for p in apart.measure.parts) == pytest.approx(other.measure.parts[0].variance("a") / 2)


def test_an_experiment_on_disk(bench):
    store = fill(bench, columns=("sst2", "rte"))
    pairs = assess_experiment(store, resamples=FEW).pairs
    expected, _ = found(simulated(columns=["sst2", "rte"], seeds=2))
    assert set(pairs["verdict"]) <= {"a", "b", "tied"}
    low = pairs[
        (pairs["column"] == "rte") & pairs["arm_a"].isin(["low", "high"]) & pairs["arm_b"].isin(["low", "high"])
    ]
    theirs = expected[(expected["column"] == "rte") & (expected["arm_b"] == "high")]
    assert abs(low["difference"].item()) == pytest.approx(abs(theirs["difference"].item()))
    assert low["p_bootstrap"].item() == pytest.approx(theirs["p_bootstrap"].item())


def test_missing_labels_are_said_with_what_to_do(bench):
    pairs = assess_experiment(fill(bench, labels=False), resamples=FEW).pairs
    assert pairs["difference"].notna().all()
    assert pairs["why"].str.startswith(NO_LABELS).all()
    assert set(pairs["verdict"]) == {""}


def test_runs_on_different_data_are_not_paired(bench):
    store = fill(bench)
    path = next((store.folder / "records").glob("*.json"))
    path.write_text(path.read_text().replace('"digest": "d"', '"digest": "e"'))
    assert whys(store).str.startswith("its runs were made on different data").all()


def test_missing_and_diverged_predictions_are_said(bench):
    store = fill(bench)
    path = next((store.folder / "predictions").glob("*.safetensors"))
    logits = store.read_predictions(path.stem)["validation"]
    bench.predict(path.stem, {"validation": np.full_like(logits, np.nan)})
    assert whys(store).str.startswith("a run has diverged").all()
    path.unlink()
    assert whys(store).str.startswith("the predictions of a run are missing").all()


def test_only_runs_at_the_chosen_rate_count(bench):
    fill(bench)
    for seed in (1, 2):
        bench.finish("sst2", seed, 0.1, arm="low", rate=9e-5)
    bench.plan()
    (outcomes,) = read_outcomes(bench.store, make_board(bench.store))
    assert outcomes.seeds_of("low") == (1, 2)
    assert outcomes.scores[outcomes.runs["low"]].min() > 50


def test_the_same_numbers_again(bench):
    store = fill(bench, columns=("sst2", "cola"))
    assert assess_experiment(store, resamples=FEW).pairs.equals(assess_experiment(store, resamples=FEW).pairs)
