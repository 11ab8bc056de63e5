"""Sweeps with two of each at once: lost workers, running jobs, searches, arms and batches."""

import os
import socket
import time
from itertools import product

import pytest
from helpers import stub

from glue_bench.config import Resources
from glue_bench.errors import format_duration
from glue_bench.records.store import Store
from glue_bench.records.values import ArmFacts, Failure, Progress
from glue_bench.sweep.drive import MAX_LOST_WORKERS, Observer
from glue_bench.sweep.executors import Inline, lost_failure
from glue_bench.sweep.jobs import longest_first
from glue_bench.sweep.observers import view
from glue_bench.sweep.progress import STATES, Snapshot, TimeEstimate, Watch

FIRST = stub.pretraining()


def after_first(seed: int, task: str = "cola", **facts):
    """Return a cell that starts from the pretraining."""
    return stub.cell(seed, task, pretraining=FIRST.id, steps=10, pretraining_seed=1, **facts)


class Losing(Inline):
    """Runs jobs in this process, and loses their workers before.

    `losses` says how often, by the id of the job.
    """

    def __init__(self, worker, losses: dict[str, int]) -> None:
        super().__init__(worker)
        self.losses = dict(losses)

    def wait(self, seconds):
        job = self.jobs[-1]
        if self.losses.get(job.id, 0):
            self.losses[job.id] -= 1
            return [(self.jobs.pop(), lost_failure(job, "it is gone"))]
        return super().wait(seconds)


class Wide(Inline):
    """Has room for all jobs."""

    free = 10**9


# Ends


def test_each_job_has_its_own_lost_workers(store):
    """Of three jobs one loses as many workers as it may, one fewer, and one more."""
    jobs = [stub.cell(seed) for seed in (1, 2, 3)]
    often = {
        jobs[0].id: MAX_LOST_WORKERS,
        jobs[1].id: MAX_LOST_WORKERS - 1,
        jobs[2].id: MAX_LOST_WORKERS + 1,
    }
    driven = stub.drive(store, Losing(stub.StubWorker(store), often), *jobs)
    assert {*driven.finished} == {jobs[0].id, jobs[1].id}
    assert driven.failed == {
        jobs[2].id: f"its worker was lost {MAX_LOST_WORKERS + 1} times: it is gone"
    }
    assert sum("it runs again" in line for line in driven.lines) == 3 * MAX_LOST_WORKERS - 1


def test_both_of_two_observers_that_fail_are_left_out(store):
    class Broken(Observer):
        def ended(self, job, _):
            raise OSError(job.arm)

    class Silent(Observer):
        def ended(self, *_):
            raise ValueError("no")

    driven = stub.drive(
        store, Inline(stub.StubWorker(store)), stub.cell(1), watching=[Broken(), Silent()]
    )
    assert driven.lines == [
        "the broken is left out from here on (OSError: add)",
        "the silent is left out from here on (ValueError: no)",
    ]


def test_a_cell_waits_for_all_that_it_starts_from(store):
    mnli = after_first(1, "mnli")
    rte = after_first(1, "rte", mnli=mnli.id)
    stub.mishap(store, mnli, "raise")
    driven = stub.drive(store, Wide(stub.StubWorker(store)), rte, mnli, FIRST)
    assert driven.finished == [FIRST.id]
    assert driven.failed == dict.fromkeys([mnli.id, rte.id], "ValueError: no")
    assert stub.attempts(store, rte, mnli, FIRST) == [0, 1, 1]


# Searches


def searched(store, losses: dict[float, tuple[float | None, ...]]):
    """The rate that a pretraining takes after a search of two seeds with these losses by rate."""
    runs = []
    for rate, by_seed in losses.items():
        for seed, loss in enumerate(by_seed, 5):
            run = stub.pretraining([rate], seed=seed, is_search=True)
            store.write(stub.pretrained_of(run, validation_loss=loss))
            runs.append(run)
    job = stub.pretraining(tuple(losses), searches=tuple(run.id for run in runs))
    driven = stub.drive(store, Inline(stub.StubWorker(store)), job)
    assert driven.finished == [job.id], driven.failed
    return store.pretraining(job.id).pretraining.rate


@pytest.mark.parametrize(
    ("losses", "rate"),
    [
        ({1e-3: (3.0, 3.4), 2e-3: (3.3, 3.0)}, 2e-3),
        ({1e-3: (3.0, 3.4), 2e-3: (3.5, 3.0)}, 1e-3),
        ({2e-3: (3.0, 3.5), 1e-3: (3.5, 3.0)}, 1e-3),
        ({1e-3: (3.0, 3.4), 2e-3: (1.0, None)}, 1e-3),
    ],
    ids=["mean", "not the last seed", "the lower of equals", "one seed diverged"],
)
def test_the_rate_of_a_search_is_that_of_the_lowest_mean_over_all_its_seeds(store, losses, rate):
    assert searched(store, losses) == rate


# Order and time


@pytest.mark.parametrize("tokens", [(10, 90), (90, 10)])
def test_a_job_that_two_wait_for_counts_with_the_longer_of_their_chains(tokens):
    mnli = stub.cell(1, "mnli")
    long = stub.cell(2, "qqp")
    longer = stub.cell(3, "qnli")
    followers = [stub.cell(1, task, mnli=mnli.id) for task in ("rte", "stsb")]
    sizes = {"mnli": 100, "rte": tokens[0], "stsb": tokens[1], "qqp": 150, "qnli": 195}
    plan = stub.plan(mnli, long, longer, *followers).model_copy(update={"tokens": sizes})
    expected = [longer, mnli, long]
    assert longest_first(plan.jobs, plan)[:3] == expected


def test_costs_are_of_each_arms_operations_and_of_all_steps_of_a_pretraining():
    cells = [stub.cell(1, arm=arm) for arm in ("add", "none")]
    job = stub.pretraining(arm="none")
    arms = {
        "add": ArmFacts(summary="", flops_per_token=2),
        "none": ArmFacts(summary="", flops_per_token=5),
    }
    plan = stub.plan(*cells, job).model_copy(update={"arms": arms})
    batch = job.settings.batch_tokens
    assert plan.cost(cells[0]) == 100 * 2
    assert plan.cost(cells[1]) == 100 * 5
    expected = 10 * batch * 5
    assert plan.cost(job) == expected


TO_COME = {task: stub.cell(3, task).id for task in ("rte", "mnli", "cola")}
"""By their tasks the cells of which the fixture `estimate` knows no run."""


@pytest.fixture
def estimate() -> TimeEstimate:
    """An estimate after runs of unequal length.

    RTE takes 0.02 s for each operation, MNLI 0.05 s, both together 104 s for 2,200.
    """
    cells = [stub.cell(seed, task) for task in ("rte", "mnli", "cola") for seed in (1, 2, 3)]
    plan = stub.plan(*cells).model_copy(update={"tokens": {"rte": 100, "mnli": 1000, "cola": 200}})
    time_estimate = TimeEstimate(plan)
    time_estimate.learn(stub.cell(1, "rte").id, 1.0)
    time_estimate.learn(stub.cell(2, "rte").id, 3.0)
    time_estimate.learn(stub.cell(1, "mnli").id, 20.0)
    time_estimate.learn(stub.cell(2, "mnli").id, 80.0)
    return time_estimate


def test_a_task_takes_what_its_own_runs_took_and_an_unknown_one_what_all_took(estimate):
    seconds = {task: estimate.seconds(name) for task, name in TO_COME.items()}
    expected = {"rte": 2.0, "mnli": 50.0, "cola": 200 * 104 / 2200}
    assert seconds == pytest.approx(expected)


def test_the_time_left_is_that_of_the_longest_of_two_jobs_under_way(estimate):
    rte, mnli, cola = TO_COME.values()
    assert estimate.seconds_left([], {rte: 1.0, mnli: 10.0}, 2) == pytest.approx(40.0)
    assert estimate.seconds_left([], {mnli: 10.0, rte: 1.0}, 2) == pytest.approx(40.0)
    waiting = 200 * 104 / 2200
    expected = (waiting + 0.5 + 1.0) / 2
    assert estimate.seconds_left([cola], {rte: 1.5, mnli: 49.0}, 2) == pytest.approx(expected)


def test_a_job_that_takes_longer_than_expected_takes_no_time_from_the_others(estimate):
    rte, mnli, cola = TO_COME.values()
    waiting = 200 * 104 / 2200
    assert estimate.seconds_left([cola], {rte: 500.0, mnli: 500.0}, 1) == pytest.approx(waiting)


# What is seen


@pytest.fixture
def two_arms(store) -> tuple[Store, list]:
    """Two arms with two cells each: the first cell is done, the second runs on another host."""
    cells = [stub.cell(seed, arm=arm) for arm, seed in product(("add", "none"), (1, 2))]
    worker = stub.StubWorker(store)
    now = time.time()
    for cell in (cells[0], cells[2]):
        worker.run(cell)
    for place, cell in enumerate((cells[1], cells[3])):
        facts = {
            "worker": f"host-{place}:7",
            "began": now - 10,
            "updated": now,
            "step": 1,
            "steps": 4,
        }
        store.progress.write(Progress(id=cell.id, **facts))
    return store, cells


def plan_of(cells):
    arms = dict.fromkeys(("add", "none"), ArmFacts(summary="", flops_per_token=1))
    return stub.plan(*cells).model_copy(update={"arms": arms})


def test_the_cells_of_all_arms_are_counted_and_both_jobs_under_way_are_named(two_arms):
    store, cells = two_arms
    snapshot = Watch(store, plan_of(cells)).look()
    one_each = dict(zip(STATES, (1, 1, 0, 0), strict=True))
    expected = {"add": one_each, "none": one_each}
    assert snapshot.arms == expected
    assert snapshot.described == "2 of 4 cells done, 2 running, 0 failed, 0 missing"
    assert sorted(line.rpartition(" ")[2] for line in snapshot.running) == [
        "(host-0:7)",
        "(host-1:7)",
    ]


def test_two_processes_of_one_machine_are_named_and_one_alone_is_not(store):
    now = time.time()
    host = socket.gethostname()
    first = stub.cell(1)
    second = stub.cell(2)
    watch = Watch(store, stub.plan(first, second))
    worker = f"{host}:{os.getpid()}"
    store.progress.write(Progress(id=first.id, worker=worker, began=now, updated=now))
    assert watch.look().running == [first.label]
    parent = f"{host}:{os.getppid()}"
    store.progress.write(Progress(id=second.id, worker=parent, began=now, updated=now))
    running = sorted(watch.look().running)
    expected = [f"{first.label} ({worker})", f"{second.label} ({parent})"]
    assert running == expected


def test_a_later_look_learns_only_from_what_is_new(two_arms):
    store, cells = two_arms
    watch = Watch(store, plan_of(cells))
    learnt = []
    for _ in range(2):
        watch.look()
        learnt.append(watch.estimate.ended)
    stub.StubWorker(store).run(cells[1])
    watch.look()
    assert [*learnt, watch.estimate.ended] == [2, 2, 3]


def test_failures_count_as_ended_in_the_bar_of_an_arm():
    snapshot = Snapshot(
        {"add": dict(zip(STATES, (1, 0, 1, 2), strict=True))}, dict.fromkeys(STATES, 0)
    )
    (line,) = [text.plain for text in view(snapshot).renderables if text.plain.startswith("add ")]
    assert " 50% " in f"{line} ", line


def test_both_validation_sets_of_a_result_are_described():
    scores = {"validation_matched": {"accuracy": 0.5}, "validation_mismatched": {"accuracy": None}}
    record = stub.record_of(
        stub.cell(1, "mnli"), scores=scores, seconds=120.0, collapsed=("validation_matched",)
    )
    expected = "accuracy matched 50.00, accuracy mismatched NaN (one answer to everything), 2 min"
    assert record.describe() == expected


@pytest.mark.parametrize("loss", [None, 2.5])
def test_a_pretraining_is_described_by_its_loss(loss):
    record = stub.pretrained_of(FIRST, validation_loss=loss, seconds=40.0)
    assert record.describe() == (
        "diverged, 40 s" if loss is None else "validation loss 2.500, 40 s"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.5, "4.5 s"),
        (40.4, "40 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (59.4 * 60, "59 min"),
        (60 * 60, "1 h 00 min"),
        (185 * 60, "3 h 05 min"),
        (47.9 * 3600, "47 h 54 min"),
        (52 * 3600, "2 d 4 h"),
        (100 * 3600, "4 d 4 h"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds, text):
    assert format_duration(seconds) == text


# Room


@pytest.mark.parametrize(
    ("gpus", "available", "jobs"),
    [(0.4, 1, 2), (0.4, 3, 6), (0.7, 2, 2), (1.0, 3, 3), (2.0, 5, 2), (0.25, 2, 8)],
)
def test_a_share_of_a_gpu_is_of_a_single_one(gpus, available, jobs):
    assert Resources(gpus=gpus).jobs_on(available) == jobs


def test_a_failure_before_it_has_a_record_is_told_with_its_error():
    assert Failure(id="a", error="ValueError: no").describe() == "FAILED ValueError: no"
