"""A few timed steps say how long a job takes, and change nothing."""

import math
import time

import pytest
import torch
from helpers import tiny_runs
from helpers.classifiers import save_classifier

from glue_bench.config import load_experiment
from glue_bench.sweep.plan import make_plan
from glue_bench.training.device import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.step_times import (
    MOST_STEPS,
    StepTimes,
    TimedStep,
    growing_parts,
    step_times,
    time_cell,
    time_evaluation,
    time_pretraining,
)
from glue_bench.training.tokens import Batch

CPU = Compute(torch.device("cpu"), bf16=False, threads=1)
LATE = -math.inf
"""A deadline that has passed."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    """The inputs of an experiment with a pretraining."""
    pretraining = {"corpus": ["demo"], "steps": 4, "batch_tokens": 64, "length": 16}
    values = tiny_runs.experiment(arms=["add"], tasks=["cola"], limit=24, pretraining=pretraining)
    return Inputs(load_experiment(values), tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def jobs(inputs):
    """A pretraining and a cell of the experiment."""
    plan = make_plan(inputs)
    return plan.pretrainings[0], plan.cells[0]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Inputs:
    """The inputs of an experiment with a finished classifier."""
    place = tmp_path_factory.mktemp("finished")
    folder = save_classifier(place / "rte", ("entailment", "not_entailment"))
    arm = {"name": "mine", "variant": "finished", "checkpoint": str(folder)}
    values = {"name": "mine", "data": "demo", "limit": 24, "arms": [arm], "tasks": ["rte"]}
    values["finetuning"] = {"max_length": 32}
    return Inputs(load_experiment(values), place / "results")


def soon() -> float:
    """Return a deadline in a minute."""
    return time.perf_counter() + 60


def batch_of(rows: int, tokens: int = 4) -> Batch:
    """Return a batch without padding."""
    ids = torch.zeros(rows, tokens, dtype=torch.int64)
    return Batch(ids, ids, None, ids[:, 0], rows=ids[:, 0].numpy())


def test_steps_of_a_cell_are_timed_on_its_rows(inputs, jobs):
    cell = jobs[1]
    times = time_cell(cell, inputs, CPU, soon())
    assert 1 <= times.steps <= MOST_STEPS
    assert min(times.token, times.update, times.build) > 0
    lengths = inputs.tokens(cell).splits["train"].lengths
    assert times.row_tokens == lengths.mean()


def test_steps_of_a_pretraining_are_timed_in_its_shapes(inputs, jobs):
    times = time_pretraining(jobs[0], inputs, CPU, soon())
    assert times.steps == MOST_STEPS
    assert times.row_tokens == 16
    assert min(times.token, times.update, times.build) > 0


def test_an_evaluation_is_timed_on_its_scored_rows(finished):
    (cell,) = make_plan(finished).cells
    times = time_evaluation(cell, finished, CPU, soon())
    assert times.steps == 1  # 24 rows are one batch
    assert times.update == 0
    assert min(times.token, times.build) > 0
    assert times.row_tokens == finished.tokens(cell).splits["validation"].lengths.mean()
    assert time_evaluation(cell, finished, CPU, LATE) is None


@pytest.mark.parametrize("job", [0, 1], ids=["pretraining", "cell"])
def test_nothing_is_said_where_the_time_is_too_short(inputs, jobs, job):
    trial = (time_pretraining, time_cell)[job]
    assert trial(jobs[job], inputs, CPU, LATE) is None


@pytest.mark.parametrize("job", [0, 1], ids=["pretraining", "cell"])
def test_a_trial_draws_none_of_its_callers_numbers(inputs, jobs, job):
    before = torch.get_rng_state()
    trial = (time_pretraining, time_cell)[job]
    trial(jobs[job], inputs, CPU, soon())
    assert torch.equal(torch.get_rng_state(), before)


def test_parts_of_the_first_batch_come_before_whole_batches():
    parts = growing_parts(iter([batch_of(20), batch_of(20)]))
    assert [len(part.ids) for part in parts] == [1, 4, 16, 20, 20]


def test_a_job_takes_its_steps_its_tokens_and_a_third_for_those_that_it_reads():
    times = StepTimes(build=1.0, token=0.5, update=2.0, row_tokens=3.0, steps=1)
    assert times.seconds(10, 100, 60) == 1.0 + 10 * 2.0 + 100 * 0.5 + 60 * 0.5 / 3


@pytest.mark.parametrize(("device", "is_known"), [("cpu", True), ("cuda", False)])
def test_a_part_of_a_batch_says_something_on_a_cpu_alone(device, is_known):
    timed = [TimedStep(rows=4, tokens=40, passes=1.0, update=0.1)]
    times = step_times(timed, 0.0, 10.0, 32, torch.device(device))
    assert (times is not None) == is_known


def test_a_smaller_batch_after_a_whole_one_does_not_count_as_a_part():
    timed = [TimedStep(rows=32, tokens=40, passes=1.0, update=0.1)]
    timed.append(TimedStep(rows=3, tokens=4, passes=0.1, update=0.1))
    assert step_times(timed, 0.0, 10.0, 32, torch.device("cuda")) is not None


def test_times_are_those_of_a_token_and_of_an_update():
    timed = [
        TimedStep(rows=4, tokens=40, passes=1.0, update=0.1),
        TimedStep(rows=4, tokens=60, passes=1.5, update=0.3),
        TimedStep(rows=4, tokens=50, passes=1.25, update=0.2),
    ]
    times = step_times(timed, 7.0, 10.0, 4, torch.device("cpu"))
    assert times == StepTimes(build=7.0, token=0.025, update=0.2, row_tokens=10.0, steps=3)
