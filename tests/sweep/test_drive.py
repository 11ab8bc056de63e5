"""The loop: jobs in their order, what follows from failures, searches and lost workers, and who watches."""

import re
import threading
import time
from functools import partial

import pytest
import stub

from glue_bench.records.store import Store
from glue_bench.records.values import Job, Result
from glue_bench.sweep import drive
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.executors import Executor, lost
from glue_bench.sweep.jobs import longest_first


@pytest.fixture
def run(store):
    """Run jobs in this process."""
    return partial(stub.drive, store, stub.engine("inline", store))


FIRST = stub.pretraining()
MNLI = stub.cell(1, "mnli", pretraining=FIRST.id, steps=10, pretraining_seed=1)
RTE = stub.cell(1, "rte", pretraining=FIRST.id, steps=10, pretraining_seed=1, mnli=MNLI.id)


def test_the_longest_chain_of_jobs_comes_first():
    other, long = stub.cell(2), stub.cell(3, "mnli")
    plan = stub.plan(FIRST, other, long, MNLI, RTE).model_copy(update={"tokens": {"cola": 90, "mnli": 100, "rte": 90}})
    assert longest_first(plan.jobs, plan) == [FIRST, MNLI, long, other, RTE]


def test_each_job_runs_after_those_that_it_starts_from_and_fails_with_them(run, store):
    driven = run(RTE, MNLI, FIRST)
    assert (driven.finished, driven.failed, driven.cause) == ([FIRST.id, MNLI.id, RTE.id], {}, "")
    other = stub.cell(2)
    stub.mishap(store, FIRST, "raise")
    driven = run(RTE, MNLI, FIRST, other)
    assert driven.failed == dict.fromkeys([FIRST.id, MNLI.id, RTE.id], "ValueError: no")
    assert driven.finished == [other.id]
    assert stub.attempts(store, FIRST, MNLI, RTE, other) == [2, 1, 1, 1]


def test_a_pretraining_takes_the_rate_of_the_lowest_loss_of_its_search_or_of_those_that_have_ended(run, store):
    rates = (1e-3, 2e-3, 4e-3)
    runs = [stub.pretraining([rate], is_search=True) for rate in rates]
    job = stub.pretraining(rates, searches=tuple(each.id for each in runs))
    stub.mishap(store, runs[2], "diverge")
    [line] = run(job, *runs).lines
    assert store.pretraining(job.id).pretraining.rate == 2e-3
    assert "learning rate 0.002, by the loss of its search (0.001: 1000.0000, 0.002: 500.0000, 0.004: diverged)" in line
    run(runs[2])
    run(job)
    assert store.pretraining(job.id).pretraining.rate == 4e-3
    for each in runs:
        stub.mishap(store, each, "diverge")
    [(name, error)] = run(job, *runs).failed.items()
    assert name == job.id
    assert error.startswith("every learning rate of the search diverged (0.001: diverged")


class Forgetful(Executor):
    """It loses the workers of some jobs so often as it is told, and hangs with others until they are given up.

    Of those that are `late` the worker is lost when it has stored what came of the job.
    """

    def __init__(self, store: Store, losses=(), hangs=(), late=()) -> None:
        self.worker, self.losses, self.hangs, self.late = stub.StubWorker(store.folder), dict(losses), {*hangs}, late
        self.jobs: list[Job] = []

    @property
    def free(self) -> int:
        return 2 - len(self.jobs)

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, Result]]:  # noqa: ARG002
        time.sleep(0.05)
        ending = [job for job in self.jobs if job.id not in self.hangs]
        self.jobs = [job for job in self.jobs if job.id in self.hangs]
        return [(job, self._result(job)) for job in ending]

    def _result(self, job: Job) -> Result:
        if self.losses.get(job.id, 0):
            self.losses[job.id] -= 1
            return lost(job, "killed")
        result = self.worker.run(job)
        return lost(job, "killed") if job.id in self.late else result

    def cancel(self, job: Job) -> None:
        self.hangs.discard(job.id)
        self.losses[job.id] = 1


def test_a_lost_job_runs_again_twice_and_then_fails_with_its_followers(store):
    twice, always = stub.cell(1), stub.cell(1, "mnli")
    after = stub.cell(1, "rte", mnli=always.id)
    driven = stub.drive(store, Forgetful(store, {twice.id: 2, always.id: 3}), twice, always, after)
    assert driven.finished == [twice.id]
    assert driven.failed == dict.fromkeys([always.id, after.id], "its worker was lost 3 times: killed")
    assert driven.lines.count(f"{twice.label}: its worker was lost (killed); it runs again") == 2


def test_what_was_stored_before_its_worker_was_lost_does_not_run_again(store):
    jobs = record, failure = stub.cell(1), stub.cell(2)
    stub.mishap(store, failure, "raise")
    driven = stub.drive(store, Forgetful(store, late=[job.id for job in jobs]), *jobs)
    assert (driven.finished, driven.failed, driven.lines) == ([record.id], {failure.id: "ValueError: no"}, [])
    assert stub.attempts(store, *jobs) == [1, 1]


def test_a_job_that_is_silent_for_too_long_is_given_up_and_one_that_waits_for_a_machine_is_not(store, monkeypatch):
    monkeypatch.setattr(drive, "START_SECONDS", 1.0)
    job, other = stub.cell(1), stub.cell(2)
    executor, soon = Forgetful(store, hangs=[job.id]), {"resources": {"give_up_after": 1}}
    driven = stub.drive(store, executor, job, other, **soon)
    assert {*driven.finished} == {job.id, other.id}
    assert re.fullmatch(rf"{re.escape(job.label)}: nothing was heard of it for \d+ s; it is given up", driven.lines[0])
    executor.hangs, executor.queues = {job.id}, True
    threading.Timer(2.5, executor.hangs.clear).start()
    driven = stub.drive(store, executor, job, **soon)
    assert (driven.finished, driven.lines) == ([job.id], [])


def test_an_observer_that_fails_is_left_out_and_costs_nothing(run):
    class Broken(Observer):
        def ended(self, job: Job, _: Result) -> None:
            raise OSError(f"no room for {job.arm}")

    driven = run(stub.cell(1), stub.cell(2), watching=[Broken()])
    assert len(driven.finished) == 2
    assert driven.lines == ["the broken is left out from here on (OSError: no room for add)"]
