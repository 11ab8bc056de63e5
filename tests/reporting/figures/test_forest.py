"""Forest plots: each arm's difference, its interval and its verdict stand where the numbers say."""

import numpy as np
import pandas as pd
import pytest
from made_up import arm_names, contrasts, read

from glue_bench.reporting.figures.forest import arms_in_order, forest, forest_of_pairs, forests
from glue_bench.reporting.figures.style import COLUMN, SMALL, WIDE


def test_one_panel_names_everything():
    figure = forest(contrasts(), ["average"])
    texts = read(figure)
    assert {"Average", "difference from add (points)", *arm_names(4)[1:]} <= set(texts)
    assert figure.get_figwidth() == COLUMN


def test_a_loss_is_in_nats_and_its_lowest_difference_is_the_best():
    frame = contrasts(columns=1).assign(column="validation_loss", difference=[1.0, -2.0, np.nan])
    assert "difference from add (nats, lower is better)" in read(forest(frame))
    assert arms_in_order(frame) == [arm_names(4)[place] for place in (2, 1, 3)]


def test_arms_keep_the_order_of_the_first_column_in_every_panel():
    frame = contrasts(arms=7, columns=2)
    for columns in (None, ["cola"]):
        labels = forest(frame, columns).axes[0].get_yticklabels()
        assert [label.get_text() for label in labels] == arms_in_order(frame)


def test_a_point_and_its_line_stand_at_the_numbers():
    frame = contrasts(arms=2, columns=1).assign(difference=1.5, low=-2.5, high=3.5, verdict="")
    axes = forest(frame).axes[0]
    ends = [segment for bars in axes.collections for segment in bars.get_segments()]
    assert [(x, y) for x, y in ends[0]] == [(-2.5, 0), (3.5, 0)]
    assert any(list(line.get_xdata()) == [1.5] and line.get_marker() == "o" for line in axes.lines)


@pytest.mark.parametrize(("verdict", "marker"), [("better", "^"), ("worse", "v"), ("", "o")])
def test_a_verdict_is_told_by_its_marker(verdict, marker):
    frame = contrasts(arms=2, columns=1).assign(difference=1.0, low=0.5, high=1.5, verdict=verdict)
    figure = forest(frame)
    assert marker in [line.get_marker() for line in figure.axes[0].lines if len(line.get_xdata()) == 1]
    assert (verdict or "not told apart") in read(figure)


def test_arms_without_interval_or_run_say_so():
    frame = contrasts(arms=3, columns=1).assign(difference=[1.0, np.nan], low=np.nan, high=np.nan, verdict="")
    texts = read(forest(frame))
    assert {"no interval", "not run"} <= set(texts)
    assert "not told apart" not in texts


def test_eighteen_arms_and_eleven_columns_fit_and_stay_readable():
    figure = forest(contrasts(arms=18, columns=11))
    assert len(figure.axes) == 11
    assert figure.get_figwidth() == WIDE
    assert figure.get_figheight() < 11
    assert len([text for text in read(figure) if text == "sinusoidal-tables"]) == 3
    assert min(label.get_fontsize() for axes in figure.axes for label in axes.get_yticklabels()) >= SMALL


def test_panels_apart_have_one_layout_and_room_for_large_numbers():
    one = contrasts(arms=9, columns=1)
    large = one.assign(**{name: 1e4 * one[name] for name in ("difference", "low", "high")}, column="sst2")
    figures = list(forests(pd.concat([one, one.assign(column="cola"), large]), ["average", "cola", "sst2"]))
    assert [figure.axes[0].get_title("left") for figure in figures] == ["Average", "CoLA", "SST-2"]
    assert all(read(figure) for figure in figures)
    assert len({str(figure.axes[0].get_position()) for figure in figures}) == 1


def test_pairs_of_arms_are_named_in_full():
    frame = contrasts(arms=3, columns=1).assign(arm=["untied-relative - add-relative", "none - add"])
    texts = read(forest_of_pairs(frame, "average"))
    assert {"untied-relative - add-relative", "none - add", "Contrasts: Average", "points"} <= set(texts)
    assert "Average" not in texts


def test_long_names_are_cut_in_the_middle():
    frame = contrasts(arms=2, columns=1, reference="r" * 80).assign(arm="a" * 80 + "1")
    assert any("…" in text and text.endswith("a1") for text in read(forest(frame)))


def test_two_references_are_refused():
    with pytest.raises(ValueError, match="too many values"):
        forest(contrasts().assign(reference=["a", "b"] * 3))
