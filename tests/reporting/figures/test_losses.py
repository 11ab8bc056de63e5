"""Loss curves and the tokens to a loss."""

import numpy as np
import pytest
from made_up import arm_names, budgets, losses, read

from glue_bench.reporting.figures.losses import loss_curves, tokens_to_loss


def curve(axes, place=0):
    line = axes.lines[place]
    return list(line.get_xdata()), list(line.get_ydata())


def test_a_line_is_the_mean_over_seeds_and_its_band_goes_from_the_lowest_to_the_highest():
    axes = loss_curves(losses(arms=1, seeds=3)).axes[0]
    tokens, loss = curve(axes)
    assert tokens == [1000 * step for step in range(1, 6)]
    assert loss == pytest.approx([10 / step + 0.2 for step in range(1, 6)])
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((2.1, 10.3))


def test_axes_are_named_and_the_legend_begins_with_the_lowest_loss():
    figure = loss_curves(losses(arms=3), arm_names(3), "add")
    texts = read(figure)
    assert {"Loss of pretraining", "tokens seen", "validation loss (nats)"} <= set(texts)
    assert [text for text in texts if text in arm_names(3)] == arm_names(3)


def test_without_seeds_and_without_validation_the_training_loss_is_drawn():
    frame = losses(arms=1).drop(columns="pretraining_seed").assign(validation_loss=np.nan)
    figure = loss_curves(frame)
    assert curve(figure.axes[0])[1] == pytest.approx([9 / step for step in range(1, 6)])
    assert "train loss (nats)" in read(figure)


def test_a_diverged_run_and_an_empty_frame_are_drawn():
    frame = losses(arms=2)
    diverged = frame.assign(validation_loss=frame["validation_loss"].where(frame["arm"] == "add"))
    assert "add" in read(loss_curves(diverged))
    assert "no loss was recorded" in read(loss_curves(frame[:0]))


def test_one_point_is_a_marker():
    axes = loss_curves(losses(arms=1, points=1)).axes[0]
    assert axes.lines[0].get_marker() == "o"


def test_eighteen_arms_fit():
    assert set(arm_names(18)) <= set(read(loss_curves(losses(arms=18, seeds=2), arm_names(18), "add")))


def test_tokens_to_a_loss():
    figure = tokens_to_loss(budgets(arms=4), "add")
    texts = read(figure)
    assert {"Tokens to match add", "tokens until its last validation loss", "not reached", "not by 1 of 2"} <= set(
        texts
    )
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == [arm_names(4)[place] for place in (2, 0, 1, 3)]
    means = [
        line.get_xdata()[0] for line in figure.axes[0].lines if line.get_markersize() > 3 and line.get_marker() == "o"
    ]
    assert means == [5.95e6, 7.95e6]


def test_tokens_to_a_loss_of_eighteen_arms_of_one_and_of_none():
    assert set(arm_names(18)) <= set(read(tokens_to_loss(budgets(arms=18), "add")))
    assert "not reached" in read(tokens_to_loss(budgets(arms=1), "add"))
    assert "no arm was pretrained here" in read(tokens_to_loss(budgets(arms=1).assign(tokens=np.nan), "add"))
