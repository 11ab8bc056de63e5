"""How long a job may be silent: what is expected of it, what is said, and when it is given up."""

from dataclasses import dataclass

import pytest

from glue_bench.sweep import patience as module
from glue_bench.sweep.patience import SLOW, START_SECONDS, Patience, Start

HOUR = 3600.0


@dataclass(frozen=True)
class Job:
    id: str
    kind: str = "cell"

    @property
    def label(self) -> str:
        return f"job {self.id}"


COSTS = {"short": 0.1 * SLOW, "long": 100 * SLOW, "other": 100 * SLOW}


class Looking:
    """A patience of ten times the estimate whose clock goes only while it is looked at, once a second."""

    def __init__(self, give_up_after: float | None = 10.0) -> None:
        self.now, self.said = 0.0, []
        self.patience = Patience(COSTS, give_up_after, self.said.append, lambda: self.now)

    def seconds(self, job: Job, at_most: float, worker: str = "here:1", every: float = 1.0) -> float | None:
        """How long it takes until the job is given up; None if it is not."""
        began = self.now
        while self.now - began < at_most:
            if self.patience.is_over(job, worker):
                return self.now - began
            self.now += every
        return None


def test_a_job_is_said_to_take_long_and_then_given_up():
    looking = Looking()
    looking.patience.learn(Job("other"), 50.0)
    assert looking.seconds(Job("long"), HOUR) == 501  # as expensive as the other: 10 x 50 s
    assert looking.said == [
        "cell job long on here:1: nothing heard for 2 min where 50 s were expected; it is given up after 8 min",
        "cell job long on here:1: nothing heard for 8 min; it is given up there, and run again",
    ]


def test_no_job_is_given_up_before_the_floor():
    looking = Looking()
    looking.patience.learn(Job("other"), 0.1)
    assert looking.seconds(Job("short"), HOUR) == module.FLOOR_SECONDS + 1


def test_before_any_job_has_ended_a_slow_core_is_expected():
    assert Looking().seconds(Job("long"), HOUR) == 10 * COSTS["long"] / SLOW + 1


def test_of_unlike_machines_the_slowest_counts():
    looking = Looking()
    for seconds in (1.0, 60.0, 1.0):
        looking.patience.learn(Job("other"), seconds)
    assert looking.seconds(Job("long"), HOUR) == 601


def test_a_job_that_gives_signs_is_measured_by_them():
    looking, job = Looking(), Job("long", "pretraining")
    looking.patience.learn(Job("other", "pretraining"), 1.0)
    for _ in range(5):
        assert looking.seconds(job, 250) is None
        looking.patience.sign(job)
    assert looking.seconds(job, HOUR) == 2500  # the longest time between two signs was 250 s


def test_a_job_whose_steps_go_on_is_alive_and_may_be_slower_than_any_of_ours():
    looking, job = Looking(), Job("long")
    looking.patience.learn(Job("other"), 1.0)
    for step in range(10):
        assert looking.seconds(job, 250) is None
        looking.patience.step(job, step)
    assert looking.seconds(job, 2 * HOUR, every=5.0) is None  # its steps went on for 2500 s: ten times that
    assert looking.seconds(job, 10 * HOUR, every=5.0) == pytest.approx(25_000 - 2 * HOUR, abs=10)


def test_a_job_without_a_cost_is_never_given_up_whatever_its_steps():
    looking, job = Looking(), Job("without a cost")
    assert looking.seconds(job, 100) is None
    looking.patience.step(job, 1)
    assert looking.seconds(job, 2 * HOUR, every=5.0) is None


def test_a_start_is_given_up_whatever_jobs_have_taken():
    looking = Looking(20.0)
    looking.patience.learn(Job("other"), HOUR)
    assert looking.seconds(Start("here:1"), HOUR) == 20 * START_SECONDS + 1
    assert looking.said == [
        "start of a worker on here:1: nothing heard for 3 min where 30 s were expected; it is given up after 10 min",
        "start of a worker on here:1: nothing heard for 10 min; it is given up there, and run again",
    ]


def test_another_worker_begins_anew_and_other_jobs_do_not_matter():
    looking = Looking()
    looking.patience.learn(Job("other"), 1.0)
    assert looking.seconds(Job("long"), 200) is None
    assert looking.seconds(Job("other"), 200) is None
    assert looking.seconds(Job("long"), 200, "here:2") is None
    assert looking.seconds(Job("long"), 200, "here:2") == 101


def test_time_in_which_this_process_was_suspended_does_not_count():
    looking = Looking()
    looking.patience.learn(Job("other"), 1.0)
    assert looking.seconds(Job("long"), 10 * HOUR, every=HOUR) is None
    assert looking.said == []


@pytest.mark.parametrize(("job", "after"), [(Job("without a cost"), 10.0), (Job("long"), None)])
def test_patience_without_end(job, after):
    looking = Looking(after)
    assert looking.seconds(job, 20 * HOUR) is None
    assert looking.said == []
