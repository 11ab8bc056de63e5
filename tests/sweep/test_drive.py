"""The loop: the longest jobs first, rates that are searched for, and who watches. How jobs end: test_endings.py."""

from functools import partial

import pytest
import stub

from glue_bench.records.values import Job, Result
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.executors import Inline
from glue_bench.sweep.jobs import longest_first


@pytest.fixture
def run(store):
    """Run jobs in this process."""
    return partial(stub.drive, store, Inline(stub.StubWorker(store)))


def test_the_longest_chain_of_jobs_comes_first():
    first, other, long = stub.pretraining(), stub.cell(2), stub.cell(3, "mnli")
    mnli = stub.cell(1, "mnli", pretraining=first.id, steps=10, pretraining_seed=1)
    rte = stub.cell(1, "rte", pretraining=first.id, steps=10, pretraining_seed=1, mnli=mnli.id)
    plan = stub.plan(first, other, long, mnli, rte).model_copy(update={"tokens": {"cola": 90, "mnli": 100, "rte": 90}})
    assert longest_first(plan.jobs, plan) == [first, mnli, long, other, rte]


def test_a_pretraining_takes_the_rate_of_the_lowest_loss_of_its_search(run, store):
    runs = [stub.pretraining([rate], is_search=True) for rate in (1e-3, 2e-3, 4e-3)]
    job = stub.pretraining((1e-3, 2e-3, 4e-3), searches=tuple(each.id for each in runs))
    stub.mishap(store, runs[2], "diverge")
    [line] = run(job, *runs).lines
    assert store.pretraining(job.id).pretraining.rate == 2e-3
    assert "learning rate 0.002, by the loss of its search (0.001: 1000.0000, 0.002: 500.0000, 0.004: diverged)" in line
    for each in runs:
        stub.mishap(store, each, "diverge")
    [(name, error)] = run(job, *runs).failed.items()
    assert name == job.id
    assert error.startswith("every learning rate of the search diverged (0.001: diverged")


def test_an_observer_that_fails_is_left_out_and_costs_nothing(run):
    class Broken(Observer):
        def ended(self, job: Job, _: Result) -> None:
            raise OSError(f"no room for {job.arm}")

    driven = run(stub.cell(1), stub.cell(2), watching=[Broken()])
    assert len(driven.finished) == 2
    assert driven.lines == ["the broken is left out from here on (OSError: no room for add)"]
