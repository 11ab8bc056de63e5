"""The loop: jobs in their order, what follows from failures and searches, models that go, and early ends."""

import os
import re
import signal
import threading
import time
from functools import partial

import pytest
import stub

from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Job, Result
from glue_bench.sweep import drive as drive_module
from glue_bench.sweep.drive import Observer, drive
from glue_bench.sweep.executors import Executor, Inline, lost


class Ended:
    """What has come of jobs: the ids of those that ended well, errors by the ids of others, and why it ended early."""

    def __init__(self, results: dict[str, Result], cause: str) -> None:
        self.failed = {name: result.error for name, result in results.items() if isinstance(result, Failure)}
        self.finished, self.cause = tuple(name for name in results if name not in self.failed), cause


class Told(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.started_ids: list[str] = []
        self.ended_ids: list[str] = []

    def started(self, job: Job) -> None:
        self.started_ids.append(job.id)

    def ended(self, job: Job, result: Result) -> None:  # noqa: ARG002
        self.ended_ids.append(job.id)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def end(self) -> None:
        self.lines.append("end")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "stub")


@pytest.fixture
def run(store):
    """Run jobs in this process, or with another executor; what came of them, and what was told."""

    def run_them(*jobs: Job, executor: Executor | None = None, **changes) -> tuple[Ended, Told]:
        told, engine = Told(), executor or Inline(partial(stub.StubWorker, store.folder, 0.0))
        return Ended(*drive(jobs, engine, store, stub.plan(*jobs, **changes), [told])), told

    store.prepare()
    return run_them


def test_each_job_runs_after_those_that_it_starts_from(run, store):
    first = stub.pretraining()
    mnli = stub.cell(1, "mnli", pretraining=first.id, steps=10, pretraining_seed=1)
    rte = stub.cell(1, "rte", pretraining=first.id, steps=10, pretraining_seed=1, mnli=mnli.id)
    driven, told = run(rte, mnli, first)
    assert told.started_ids == [first.id, mnli.id, rte.id]
    assert (set(driven.finished), driven.failed, driven.cause) == ({first.id, mnli.id, rte.id}, {}, "")
    assert {*store.finished(stub.plan(first, mnli, rte)).records} == {mnli.id, rte.id}


def test_a_failure_is_that_of_all_that_come_after_it_and_of_no_other(run, store):
    first = stub.pretraining()
    mnli = stub.cell(1, "mnli", pretraining=first.id, steps=10, pretraining_seed=1)
    rte = stub.cell(1, "rte", mnli=mnli.id)
    other = stub.cell(2)
    stub.mishap(store, first, "raise")
    driven, told = run(rte, mnli, first, other)
    assert driven.failed == dict.fromkeys([first.id, mnli.id, rte.id], "ValueError: no")
    assert driven.finished == (other.id,)
    assert {one.id for one in store.failures(stub.plan(first, mnli, rte, other))} == {*driven.failed}
    assert told.started_ids == [first.id, other.id]


@pytest.fixture
def searched():
    runs = [stub.pretraining([rate], is_search=True) for rate in (1e-3, 2e-3, 4e-3)]
    return runs, stub.pretraining((1e-3, 2e-3, 4e-3), searches=tuple(job.id for job in runs))


def test_a_pretraining_takes_the_rate_of_the_lowest_loss_of_its_search_or_of_those_that_have_ended(
    run, store, searched
):
    runs, job = searched
    stub.mishap(store, runs[2], "diverge")
    driven, told = run(job, *runs)
    assert store.pretraining(job.id).pretraining.rate == 2e-3
    assert driven.failed == {}
    assert "learning rate 0.002, by the loss of its search (0.001: 1000.0000, 0.002: 500.0000, 0.004: diverged)" in (
        "\n".join(told.lines)
    )
    run(runs[2])
    run(job)
    assert store.pretraining(job.id).pretraining.rate == 4e-3


def test_a_search_that_diverges_everywhere_is_a_failure(run, store, searched):
    runs, job = searched
    for each in runs:
        stub.mishap(store, each, "diverge")
    driven, _ = run(job, *runs)
    [(name, error)] = driven.failed.items()
    assert name == job.id
    assert error.startswith("every learning rate of the search diverged (0.001: diverged")


@pytest.mark.parametrize(("number", "cause"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_ends_the_sweep_at_once(run, store, number, cause):
    jobs = [stub.cell(seed) for seed in (1, 2, 3)]
    worker = stub.StubWorker(store.folder, 0.0)

    class Busy:
        def run(self, job: Job) -> Result:
            if job == jobs[1]:
                threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
                try:
                    time.sleep(60)
                except KeyboardInterrupt as error:
                    raise KeyboardInterrupt from error  # as Ray does
            return worker.run(job)

    before, began = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)], time.monotonic()
    driven, told = run(*jobs, executor=Inline(Busy))
    assert time.monotonic() - began < 30
    assert (driven.finished, driven.failed, driven.cause) == ((jobs[0].id,), {}, cause)
    assert told.lines[-1] == "end"
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


class Forgetful(Executor):
    """It loses the workers of some jobs so often as it is told, and hangs with others until they are given up.

    Of those that are `late` the worker is lost when it has stored what came of the job.
    """

    def __init__(self, worker: stub.StubWorker, losses=(), hangs=(), late=()) -> None:
        self.worker, self.losses, self.hangs, self.late = worker, dict(losses), {*hangs}, late
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


def test_a_lost_job_runs_again_twice_and_then_fails_with_its_followers(run, store):
    twice, always = stub.cell(1), stub.cell(1, "mnli")
    after = stub.cell(1, "rte", mnli=always.id)
    executor = Forgetful(stub.StubWorker(store.folder, 0.0), {twice.id: 2, always.id: 3})
    driven, told = run(twice, always, after, executor=executor)
    assert driven.finished == (twice.id,)
    assert driven.failed == dict.fromkeys([always.id, after.id], "its worker was lost 3 times: killed")
    assert told.lines.count(f"{twice.label}: its worker was lost (killed); it runs again") == 2


def test_what_was_stored_before_its_worker_was_lost_does_not_run_again(run, store):
    jobs = record, failure = stub.cell(1), stub.cell(2)
    stub.mishap(store, failure, "raise")
    worker = stub.StubWorker(store.folder, 0.0)
    driven, told = run(*jobs, executor=Forgetful(worker, late=[job.id for job in jobs]))
    assert (driven.finished, driven.failed) == ((record.id,), {failure.id: "ValueError: no"})
    assert [len(stub.attempts(store, job)) for job in jobs] == [1, 1]
    assert told.lines == ["end"]


def test_a_job_that_is_silent_for_too_long_is_given_up_and_one_that_waits_for_a_machine_is_not(run, store, monkeypatch):
    monkeypatch.setattr(drive_module, "START_SECONDS", 1.0)
    job, other = stub.cell(1), stub.cell(2)
    executor = Forgetful(stub.StubWorker(store.folder, 0.0), hangs=[job.id])
    driven, told = run(job, other, executor=executor, resources={"give_up_after": 1})
    assert set(driven.finished) == {job.id, other.id}
    assert re.fullmatch(rf"{re.escape(job.label)}: nothing was heard of it for \d+ s; it is given up", told.lines[0])
    executor.hangs, executor.queues = {job.id}, True
    threading.Timer(2.5, executor.hangs.clear).start()
    driven, told = run(job, executor=executor, resources={"give_up_after": 1})
    assert (driven.finished, told.lines) == ((job.id,), ["end"])


def test_an_observer_that_fails_is_left_out_and_costs_nothing(store):
    class Broken(Observer):
        def __str__(self) -> str:
            return "the screen"

        def started(self, job: Job) -> None:
            raise OSError(f"no room for {job.arm}")

    store.prepare()
    told, jobs = Told(), [stub.cell(1), stub.cell(2)]
    engine = Inline(partial(stub.StubWorker, store.folder, 0.0))
    watching = [Broken(), told]
    results, _ = drive(jobs, engine, store, stub.plan(*jobs), watching)
    assert len(results) == 2
    assert told.lines == ["the screen is left out from here on (OSError: no room for add)", "end"]
