"""The lag in tokens: curves with a known lag, and figures of an independent computation.

A curve of `losses_of` ends after 10 million tokens. Its function takes millions of tokens.
"""

import numpy as np
import pandas as pd
import pytest
from helpers.curves import falling_loss, losses_of
from scipy import stats

from glue_bench.board.lag import (
    curves,
    lag_curves,
    lag_frame,
    reached_frame,
    student_interval,
    tokens_until,
)
from glue_bench.board.results import read_results


def test_a_curve_that_starts_later_has_a_constant_lag():
    arms = {}
    for seed in (1, 2):
        arms["fast", seed] = falling_loss
        arms["slow", seed] = lambda tokens: falling_loss(tokens - 1.5)
    frame = lag_frame(losses_of(arms), "slow")
    assert frame["arm"].unique().tolist() == ["fast"]
    np.testing.assert_allclose(frame["lag"], 1.5e6, rtol=1e-6)


def test_a_curve_that_needs_half_more_tokens_has_a_constant_ratio():
    arms = {}
    for seed in (1, 2):
        arms["fast", seed] = falling_loss
        arms["slow", seed] = lambda tokens: falling_loss(tokens / 1.5)
    frame = lag_frame(losses_of(arms), "slow")
    np.testing.assert_allclose(frame["ratio"], 1.5, rtol=1e-6)
    assert frame["lag"].is_monotonic_increasing


def test_a_reference_that_is_earlier_has_a_negative_lag():
    arms = {("late", 1): lambda tokens: falling_loss(tokens - 1), ("early", 1): falling_loss}
    frame = lag_frame(losses_of(arms), "early")
    assert frame["lag"].iloc[-1] == pytest.approx(-1e6)


def test_a_loss_that_the_reference_never_has_gives_no_row():
    arms = {("fast", 1): falling_loss, ("slow", 1): lambda tokens: falling_loss(tokens / 2)}
    frame = lag_frame(losses_of(arms), "slow")
    # The reference ends with the loss that the other arm has after half of the tokens.
    assert frame["tokens"].max() == pytest.approx(5e6)


def test_intervals_are_students_over_seeds():
    shifts = {1: 1.0, 2: 1.4, 3: 1.1}
    arms = {("fast", seed): falling_loss for seed in shifts}
    for seed, shift in shifts.items():
        arms["slow", seed] = lambda tokens, shift=shift: falling_loss(tokens - shift)
    row = lag_frame(losses_of(arms), "slow").iloc[0]
    values = 1e6 * np.array(list(shifts.values()))
    expected = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (row["lag_low"], row["lag_high"]) == pytest.approx(expected)
    assert row["seeds"] == 3


def test_a_single_seed_has_no_interval():
    assert np.isnan(student_interval(np.array([1.0]))).all()


def test_only_seeds_that_both_arms_have_count():
    arms = {("fast", 1): falling_loss, ("fast", 2): falling_loss, ("slow", 2): falling_loss}
    frame = lag_frame(losses_of(arms), "slow")
    assert set(frame["seeds"]) == {1}


def test_rows_in_which_the_rate_fell_are_marked():
    arms = {("fast", 1): falling_loss, ("slow", 1): lambda tokens: falling_loss(tokens - 1)}
    frame = lag_frame(losses_of(arms), "slow", decay_share=0.3)
    # The rate falls in the last 30% of the tokens; the reference reaches a loss later by the lag.
    is_late = frame["tokens"] + frame["lag"] > 7e6
    assert frame["in_decay"].tolist() == is_late.tolist()
    assert 0 < is_late.sum() < len(frame)


@pytest.mark.parametrize(
    ("loss", "tokens"), [(4.0, 1.0), (3.5, 1.5), (3.0, 2.0), (2.0, 4.0), (1.0, float("nan"))]
)
def test_a_loss_is_reached_on_the_line_between_two_measurements(loss, tokens):
    curve = pd.Series([4.0, 3.0, 3.4, 2.0], index=[1.0, 2.0, 3.0, 4.0])
    assert tokens_until(curve, loss) == pytest.approx(tokens, nan_ok=True)


def test_every_quarter_of_a_nat_between_the_first_and_the_lowest_loss_has_a_row():
    frame = reached_frame(losses_of({("a", 1): falling_loss}))
    levels = np.arange(8.75, 3.99, -0.25)
    assert frame["loss"].tolist() == levels.tolist()
    # The loss falls from 9 by half a nat a million tokens.
    tokens = (9 - frame["loss"]) / 0.5 * 1e6
    np.testing.assert_allclose(frame["tokens"], tokens, rtol=1e-6)


def test_runs_without_validation_have_no_curve():
    losses = losses_of({("a", 1): falling_loss}).assign(validation_loss=np.nan)
    assert curves(losses) == {}


def test_the_lags_of_the_long_study_are_those_of_independent_code():
    """Independent code computed the lags after 4, 8 and 12 million tokens."""
    losses = read_results("results/study_long").losses
    frame = lag_frame(losses, "add").query("arm == 'untied'")
    lag = np.interp([4e6, 8e6, 12e6], frame["tokens"], frame["lag"] / 1e6)
    np.testing.assert_allclose(lag, [2.1, 4.0, 5.7], atol=0.25)


@pytest.mark.parametrize(
    ("experiment", "arm", "tokens"),
    [("study_eight", "add", 2.54), ("study_eight", "untied", 0.96), ("modern", "rotary", 0.85)],
)
def test_the_end_of_the_plateau_is_that_of_independent_code(experiment, arm, tokens):
    """Independent code computed the mean of the million tokens until the loss is 5.5."""
    frame = reached_frame(read_results(f"results/{experiment}").losses)
    of_arm = frame[frame["arm"] == arm].query("loss == 5.5")
    mean = of_arm["tokens"].mean()
    assert mean / 1e6 == pytest.approx(tokens, abs=0.006)


def test_curves_of_lags_stop_where_the_rate_of_the_reference_fell():
    arms = {("fast", 1): falling_loss, ("slow", 1): lambda tokens: falling_loss(tokens - 1)}
    table = lag_curves(losses_of(arms), "slow", "validation_loss", decay_share=0.3)["fast"]
    # The rate falls after 7 million tokens, where the reference has a lag of 1 million.
    assert table.index.max() == pytest.approx(6e6)
    lags_of_seed_1 = table[1]
    np.testing.assert_allclose(lags_of_seed_1, 1e6, rtol=1e-6)


def test_curves_of_lags_take_the_training_loss_where_that_is_named():
    losses = losses_of(
        {("fast", 1): falling_loss, ("slow", 1): lambda tokens: falling_loss(tokens - 1)}
    )
    losses = losses.rename(columns={"validation_loss": "train_loss"})
    assert list(lag_curves(losses, "slow", "train_loss")) == ["fast"]
