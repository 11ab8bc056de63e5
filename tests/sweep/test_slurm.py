"""Slurm: batches of jobs whose stored records are the truth, whatever becomes of Slurm's jobs and of the driver."""

import contextlib
import json
import os
import time
from functools import partial
from pathlib import Path

import fake_slurm
import pytest
import stub
from test_drive import Told

from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import slurm
from glue_bench.sweep.drive import drive
from glue_bench.sweep.executors import Terminated
from glue_bench.sweep.progress import Estimate
from glue_bench.sweep.slurm import Batch, Slurm, refuse_live_jobs

pytest.importorskip("submitit")

paced = pytest.mark.slow
"""It waits for processes whose pace other work on the machine changes."""


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Path:
    """A folder with what the cluster knows, and commands that act on it."""
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.1)
    monkeypatch.setenv("PATH", f"{fake_slurm.install(tmp_path / 'slurm')}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}")
    yield tmp_path / "slurm"
    fake_slurm.scancel(tmp_path / "slurm" / "jobs", *fake_slurm.live(tmp_path / "slurm" / "jobs"))


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store(tmp_path / "runs")
    made.prepare()
    return made


@pytest.fixture
def engine(cluster, store):  # noqa: ARG001
    """An executor of these jobs."""

    def make(*jobs, seconds=0.1, **options) -> Slurm:
        worker = partial(stub.StubWorker, store.folder, seconds)
        return Slurm(worker, Resources(), store, Estimate(stub.plan(*jobs)), options)

    return make


@pytest.fixture
def terminated(engine):
    """A driver that SIGTERM has ended after it had sent these jobs."""

    def send(*jobs, seconds=0.1) -> None:
        with contextlib.suppress(Terminated), engine(*jobs, seconds=seconds) as executor:
            for job in jobs:
                executor.submit(job)
            executor.wait(0.1)
            raise Terminated

    return send


@pytest.fixture
def run(engine, store):
    def run_them(*jobs, give_up_after=None, **options):
        told = Told()
        watched = {"give_up_after": give_up_after, "choose": set}
        return drive(jobs, engine(*jobs, **options), store, stub.plan(*jobs), [told], **watched), told

    return run_them


def nothing_lives(cluster: Path) -> None:
    """A process that was killed takes a moment to go."""
    deadline = time.monotonic() + 30
    while fake_slurm.live(cluster / "jobs"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_jobs_run_in_arrays_each_after_those_that_it_starts_from(run, store, cluster):
    first = stub.pretraining()
    cells = [stub.cell(seed, pretraining=first.id, steps=10, pretraining_seed=1) for seed in range(6)]
    driven, _ = run(first, *cells)
    assert {*driven.finished} == {first.id, *(cell.id for cell in cells)}
    assert {*store.finished(stub.plan(first, *cells)).records} == {cell.id for cell in cells}
    sent = sorted(path.name for path in (cluster / "jobs").iterdir())
    assert sent[0] == "100"
    assert all(name.startswith("200") or name.startswith("300") for name in sent[1:])
    assert not store.slurm.exists()
    assert not (store.folder / "slurm").exists()


@paced
def test_cells_of_a_known_pace_share_a_slurm_job(run, store, cluster):
    first, cells = stub.pretraining(), [stub.cell(seed) for seed in range(6)]
    after = [stub.cell(10 + seed, pretraining=first.id, steps=10, pretraining_seed=1) for seed in range(6)]
    run(first, *cells, *after)
    assert len([*(cluster / "jobs").iterdir()]) < 1 + 6 + 6
    assert len({process for cell in after for process in stub.attempts(store, cell)}) < 6


@paced
def test_a_killed_job_runs_again_twice_and_a_hanging_one_is_given_up(run, store):
    jobs = once, always, hangs, fails = [stub.cell(seed) for seed in range(4)]
    for job, what in zip(jobs, ("die", "die always", "hang", "raise"), strict=True):
        stub.mishap(store, job, what)
    driven, told = run(*jobs, give_up_after=10)
    assert {*driven.finished} == {once.id, hangs.id}
    assert driven.failed[fails.id] == "ValueError: no"
    assert driven.failed[always.id].startswith("its worker was lost 3 times: ")
    assert [len(stub.attempts(store, job)) for job in jobs] == [2, 3, 2, 1]
    assert any("nothing was heard of it for " in line for line in told.lines)
    assert any("Slurm job" in line and "_log.err" in line for line in told.lines)


@paced
def test_of_a_batch_that_is_lost_the_job_at_work_alone_counts_as_lost(run, store):
    first, ground = stub.pretraining(), stub.cell(0)
    batch = [stub.cell(seed, pretraining=first.id, steps=10, pretraining_seed=1) for seed in range(1, 5)]
    stub.mishap(store, batch[1], "die")
    driven, told = run(ground, first, *batch)
    assert len(driven.finished) == 6
    assert sum("it runs again" in line for line in told.lines) == 1
    assert [len(stub.attempts(store, cell)) for cell in batch] == [1, 2, 1, 1]


def test_a_batch_that_is_started_again_goes_on_after_what_is_stored(store):
    jobs = [(stub.cell(seed), store.stamp(stub.cell(seed).id)) for seed in range(3)]
    batch = Batch(partial(stub.StubWorker, store.folder, 0.0), store.folder)
    batch(jobs[:2])
    batch.checkpoint(jobs).function(jobs)
    assert [len(stub.attempts(store, job)) for job, _ in jobs] == [1, 1, 1]
    batch([(job, store.stamp(job.id)) for job, _ in jobs])  # asked for again, for what it has not left
    assert [len(stub.attempts(store, job)) for job, _ in jobs] == [2, 2, 2]


def test_what_every_job_would_meet_ends_the_sweep_and_its_slurm_jobs(run, store, cluster):
    jobs = [stub.cell(seed) for seed in range(3)]
    stub.mishap(store, jobs[0], "refuse")
    stub.mishap(store, jobs[1], "hang")
    with pytest.raises(UserError, match=r"^this machine has other files$"):
        run(*jobs)
    nothing_lives(cluster)


@paced
def test_a_new_driver_takes_over_what_runs_and_repeats_nothing(terminated, run, store, cluster):
    jobs = [stub.cell(seed) for seed in range(3)]
    terminated(*jobs, seconds=4.0)
    driven, told = run(*jobs)
    assert len(driven.finished) == 3
    assert told.lines == ["end"]
    assert [len(stub.attempts(store, job)) for job in jobs] == [1, 1, 1]
    assert len([*(cluster / "jobs").iterdir()]) == 3


@paced
def test_what_ended_while_nobody_looked_is_not_run_again(terminated, engine, store, cluster):
    jobs = [stub.cell(seed) for seed in range(2)]
    terminated(*jobs)
    while fake_slurm.live(cluster / "jobs"):
        time.sleep(0.1)
    with engine(*jobs) as later:
        for job in jobs:
            later.submit(job)
        assert {job.id for job, _ in later.wait(0.1)} == {job.id for job in jobs}
    assert [len(stub.attempts(store, job)) for job in jobs] == [1, 1]


@paced
def test_slurm_jobs_that_nobody_has_written_down_are_cancelled(terminated, run, store, cluster):
    jobs = [stub.cell(seed) for seed in range(2)]
    terminated(jobs[0], seconds=60.0)
    store.slurm.unlink()  # as if the driver had been killed before
    driven, _ = run(*jobs)
    assert len(driven.finished) == 2
    nothing_lives(cluster)


def test_another_engine_is_refused_while_slurm_jobs_live(terminated, store, cluster):
    terminated(stub.cell(1), seconds=60.0)
    with pytest.raises(UserError, match=r"has 1 jobs in Slurm; go on with --slurm, or end them: scancel --name glue"):
        refuse_live_jobs(store)
    (cluster / "broken").touch()
    with pytest.raises(UserError, match="squeue could not be asked"):
        refuse_live_jobs(store)
    (cluster / "broken").unlink()
    fake_slurm.scancel(cluster / "jobs", *json.loads(store.slurm.read_text()))
    refuse_live_jobs(store)


@paced
def test_while_squeue_does_not_answer_nothing_is_lost(engine, store, cluster):
    job = stub.cell(1)
    with engine(job, seconds=3.0) as executor:
        executor.submit(job)
        executor.wait(0.1)
        (cluster / "broken").touch()
        results = []
        while not results:
            results = executor.wait(0.2)
        (cluster / "broken").unlink()
    assert [result.cell.id for _, result in results] == [job.id]
    assert len(stub.attempts(store, job)) == 1


def test_what_slurm_refuses_or_never_starts_is_one_line(run, cluster):
    with pytest.raises(UserError, match=r"^--slurm: Slurm refuses the jobs: .*invalid partition specified: gpu$"):
        run(stub.cell(1), partition="gpu")
    (cluster / "reason").write_text("PartitionTimeLimit")
    with pytest.raises(UserError, match=r"^--slurm: Slurm will never start job 100 \(PartitionTimeLimit\)"):
        run(stub.cell(1), seconds=30.0)
    nothing_lives(cluster)


def test_without_slurm_one_line_says_so(store, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    job = stub.cell(1)
    executor = Slurm(partial(stub.StubWorker, store.folder), Resources(), store, Estimate(stub.plan(job)), {})
    with pytest.raises(UserError, match="no Slurm answers here"), executor:
        pass
