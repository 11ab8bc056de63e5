"""Trials of a few arms say how long all jobs take."""

import math

import pytest
from helpers.stored import cell_with, plan_with

from glue_bench.records.values import ArmFacts
from glue_bench.sweep.expected_time import UNKNOWN_TIME, time_of_trials
from glue_bench.training.step_times import StepTimes

NEVER = math.inf
"""A deadline that leaves time for all trials."""
TIMES = StepTimes(build=1.0, token=0.0, update=1.0, row_tokens=1.0, steps=5)
CELLS = [cell_with(arm=arm, seed=seed) for arm in ("add", "none", "untied") for seed in (1, 2)]


@pytest.fixture
def plan():
    """A plan of the cells, in which each token of an arm takes twice the operations of the last."""
    planned = plan_with(*CELLS)
    arms = {}
    for number, arm in enumerate(planned.arms):
        arms[arm] = ArmFacts(summary="", flops_per_token=2**number)
    return planned.model_copy(update={"arms": arms})


def seconds_of(cell, times: StepTimes) -> float:
    """Return the seconds of ten steps, whatever the cell is."""
    del cell
    return times.seconds(10, 0)


def test_each_arm_is_timed_once(plan):
    timed = []

    def trial(cell):
        timed.append(cell.arm)
        return TIMES

    expected = time_of_trials(CELLS, trial, seconds_of, plan, NEVER)
    assert timed == ["add", "none", "untied"]
    assert expected.seconds == 6 * 11.0
    assert expected.timed_steps == 15


def test_an_arm_that_there_was_no_time_for_takes_as_long_for_its_operations(plan):
    expected = time_of_trials(CELLS, lambda _: TIMES, seconds_of, plan, -math.inf)
    assert expected.seconds == 2 * 11.0 * (1 + 2 + 4)
    assert expected.timed_steps == 5


def test_an_arm_that_cannot_be_timed_takes_as_long_for_its_operations(plan):
    def trial(cell):
        return TIMES if cell.arm == "add" else None

    expected = time_of_trials(CELLS, trial, seconds_of, plan, NEVER)
    assert expected.seconds == 2 * 11.0 * (1 + 2 + 4)


def test_nothing_is_said_if_no_arm_can_be_timed(plan):
    assert time_of_trials(CELLS, lambda _: None, seconds_of, plan, NEVER) == UNKNOWN_TIME


def test_an_arm_that_fails_in_its_trial_refuses_nothing(plan):
    def trial(_):
        raise RuntimeError("out of memory")

    assert time_of_trials(CELLS, trial, seconds_of, plan, NEVER) == UNKNOWN_TIME
