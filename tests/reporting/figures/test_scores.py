"""Scores against steps and against cost."""

import numpy as np
import pandas as pd
import pytest
from made_up import arm_names, budgets, read, scores

from glue_bench.reporting.figures.scores import COSTS, FEW, cost_against_score, costs_frame, score_by_steps


def test_scores_by_steps():
    figure = score_by_steps(scores(arms=2), "average", arm_names(2), "add")
    axes = figure.axes[0]
    assert list(axes.lines[0].get_xdata()) == [1000, 2000]
    assert list(axes.lines[0].get_ydata()) == [41.0, 42.0]
    texts = read(figure)
    assert {"Average", "steps of pretraining", "score (0 to 100)", "2k"} <= set(texts)
    assert [text for text in texts if text in arm_names(2)] == arm_names(2)[::-1]


@pytest.mark.parametrize(("arms", "bands"), [(FEW, FEW), (18, 0)])
def test_few_arms_have_bands(arms, bands):
    figure = score_by_steps(scores(arms=arms))
    assert len(figure.axes[0].collections) == bands
    assert set(arm_names(arms)) <= set(read(figure))


def test_one_seed_has_no_spread_and_a_missing_score_no_point():
    frame = scores(arms=2).assign(average_std=np.nan)
    frame["average"] = frame["average"].where(frame["arm"] == "add")
    assert [text for text in read(score_by_steps(frame)) if text in arm_names(2)] == ["add"]
    assert "no checkpoint has a score here" in read(score_by_steps(frame.assign(average=np.nan)))


def test_costs_are_means_over_pretrainings():
    table = pd.DataFrame({"arm": ["add", "grafted"], "average": [50.0, 60.0]})
    frame = costs_frame(table, budgets(arms=1)).set_index("arm")
    assert frame.loc["add", "flops"] == 2.5e6 * 8e6
    assert frame.loc["add", "seconds"] == 800
    assert frame.loc["grafted", ["flops", "seconds"]].isna().all()


@pytest.mark.parametrize("cost", COSTS)
def test_every_cost_is_named_with_its_unit(cost):
    table = scores(arms=2, steps=(1,))
    texts = read(cost_against_score(costs_frame(table, budgets()), cost, arms=arm_names(2), reference="add"))
    assert {COSTS[cost], "average (0 to 100)"} <= set(texts)


def test_points_stand_at_the_numbers_and_stairs_join_what_no_cheaper_arm_reaches():
    table = scores(arms=4, steps=(1,)).assign(parameters=[1, 2, 3, 4], average=[50.0, 40.0, 45.0, 60.0])
    axes = cost_against_score(table, "parameters").axes[0]
    stairs, *points = axes.lines
    assert list(stairs.get_xdata()) == [1, 4]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in points] == [
        (1, 50.0),
        (2, 40.0),
        (3, 45.0),
        (4, 60.0),
    ]
    assert axes.get_xscale() == "linear"


def test_a_wide_range_of_costs_is_logarithmic():
    figure = cost_against_score(scores(arms=3, steps=(1,)), "parameters")
    assert figure.axes[0].get_xscale() == "log"
    assert {"1", "10", "100"} <= set(read(figure))


def test_eighteen_arms_one_arm_and_none():
    table = scores(arms=18, steps=(1,)).assign(parameters=range(100, 118), average_std=np.nan)
    assert set(arm_names(18)) <= set(read(cost_against_score(table, "parameters")))
    assert "add" in read(cost_against_score(table[:1], "parameters"))
    assert "no arm has both a score and this cost" in read(cost_against_score(table[:0], "parameters"))
