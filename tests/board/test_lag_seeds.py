"""Single seeds of lags, and ratios of tokens: curves with a known ratio, and losses never had."""

import numpy as np
import pytest
from helpers.curves import falling_loss, losses_of
from scipy import stats

from glue_bench.board.lag import lag_frame
from glue_bench.board.lag_seeds import lag_seed_frame, ratio_frame, ratio_seed_frame
from glue_bench.board.results import read_results

FACTORS = {1: 1.25, 2: 1.5, 3: 1.75}


@pytest.fixture
def slower():
    """An arm that needs 1.25 to 1.75 times the tokens of the reference, by seed."""
    arms = {}
    for seed, factor in FACTORS.items():
        arms["reference", seed] = falling_loss
        arms["slow", seed] = lambda tokens, factor=factor: falling_loss(tokens / factor)
    return losses_of(arms)


def test_a_ratio_is_the_factor_of_its_seed_at_every_place(slower):
    frame = ratio_seed_frame(slower, "reference").query("reached != 'never'")
    np.testing.assert_allclose(frame["ratio"], frame["pretraining_seed"].map(FACTORS), rtol=1e-5)
    assert set(frame["at"]) == {"loss", "tokens"}


def test_at_tokens_the_loss_is_that_of_the_reference_there(slower):
    frame = ratio_seed_frame(slower, "reference").query("at == 'tokens'")
    tokens = frame["reference_tokens"].to_numpy(float)
    np.testing.assert_allclose(frame["loss"], falling_loss(tokens / 1e6), rtol=1e-6)


def test_the_interval_of_a_ratio_is_students_over_seeds(slower):
    row = ratio_frame(ratio_seed_frame(slower, "reference")).query("loss == 7.0 and at == 'loss'")
    factors = list(FACTORS.values())
    expected = stats.t.interval(0.95, 2, np.mean(factors), stats.sem(factors))
    assert row[["ratio_low", "ratio_high"]].to_numpy()[0] == pytest.approx(expected)
    assert row["ratio"].item() == pytest.approx(1.5)
    assert row["seeds"].item() == 3


def test_a_loss_that_a_seed_never_had_is_told(slower):
    seeds = ratio_seed_frame(slower, "reference").query("at == 'loss' and loss == 5.5")
    assert seeds["reached"].tolist() == ["yes", "never", "never"]
    assert seeds["tokens"].isna().tolist() == [False, True, True]
    assert seeds["tokens_seen"].tolist() == [10_000_000] * 3


def test_a_mean_in_which_a_seed_never_had_the_loss_is_missing(slower):
    row = ratio_frame(ratio_seed_frame(slower, "reference")).query("loss == 5.5 and at == 'loss'")
    assert row["reached"].item() == "never"
    assert row[["tokens", "ratio", "ratio_low", "ratio_high"]].isna().all(axis=None)
    assert row["reference_tokens"].item() == 7_000_000


def test_a_loss_is_in_decay_if_the_rate_of_one_of_both_fell(slower):
    """In seed 1 one arm has a loss of 6.25 after 6.9 million tokens, the other after 5.5."""
    of_arm = ratio_seed_frame(slower, "reference", decay_share=0.35).query("pretraining_seed == 1")
    answers = of_arm.query("at == 'loss'").set_index("loss")["reached"]
    assert answers[[6.5, 6.25, 5.0, 4.75]].tolist() == ["yes", "in decay", "in decay", "never"]
    faster = ratio_seed_frame(slower, "slow", decay_share=0.35).query("pretraining_seed == 1")
    assert faster.query("at == 'loss'").set_index("loss")["reached"][6.25] == "in decay"


def test_losses_before_the_first_measurement_of_either_have_no_row():
    arms = {("late", 1): lambda tokens: falling_loss(tokens + 2), ("early", 1): falling_loss}
    frame = ratio_seed_frame(losses_of(arms), "early").query("at == 'loss'")
    assert frame["loss"].max() == 7.75


def test_lags_of_seeds_have_the_mean_of_the_lags(slower):
    seeds = lag_seed_frame(slower, "slow")
    means = seeds.groupby("tokens")[["lag", "ratio"]].mean()
    table = lag_frame(slower, "slow").set_index("tokens")
    np.testing.assert_allclose(means.loc[table.index, "lag"], table["lag"], atol=1)
    np.testing.assert_allclose(means.loc[table.index, "ratio"], table["ratio"])


def test_a_lag_behind_a_run_that_never_had_the_loss_is_told(slower):
    last = lag_seed_frame(slower, "slow").query("tokens == 10_000_000")
    assert last["reached"].tolist() == ["never"] * 3
    assert last["lag"].isna().all()


def test_a_lag_is_in_decay_where_the_rate_of_the_reference_fell(slower):
    of_seed = lag_seed_frame(slower, "slow", decay_share=0.3).query("pretraining_seed == 1")
    answers = of_seed.set_index("tokens")["reached"]
    assert answers[[5_000_000, 6_250_000]].tolist() == ["yes", "in decay"]


def test_without_common_seeds_all_are_empty():
    losses = losses_of({("a", 1): falling_loss, ("b", 2): falling_loss})
    seeds = ratio_seed_frame(losses, "a")
    frames = (lag_seed_frame(losses, "a"), seeds, ratio_frame(seeds))
    assert [len(frame) for frame in frames] == [0, 0, 0]


def test_an_arm_of_the_results_that_never_left_the_plateau_says_so():
    losses = read_results("results/study_norm").losses
    frame = ratio_frame(ratio_seed_frame(losses, "add", 0.2))
    row = frame.query("arm == 'add-norm' and at == 'loss' and loss == 5.5")
    assert row[["reached", "seeds"]].to_numpy().tolist() == [["never", 4]]
