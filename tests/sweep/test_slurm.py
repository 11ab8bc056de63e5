"""Slurm: stored records of batches are the truth, whatever becomes of Slurm and of the driver."""

import contextlib
import os
import threading
from functools import partial
from pathlib import Path

import pytest
from helpers import stub

from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Progress
from glue_bench.sweep import drive, slurm
from glue_bench.sweep.executors import Terminated
from glue_bench.sweep.progress import TimeEstimate
from glue_bench.sweep.sent import refuse_live_jobs
from glue_bench.sweep.slurm import MAX_CUTS, JobBatch, Slurm

pytest.importorskip("submitit")
from helpers.fake_slurm import FakeSlurm

CELLS = [stub.cell(seed) for seed in range(8)]


@pytest.fixture
def cluster(store, tmp_path, monkeypatch) -> FakeSlurm:
    """A cluster of which every question is asked at every turn."""
    fake = FakeSlurm(tmp_path / "slurm", store.folder / "slurm")
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.0)
    return fake


@pytest.fixture
def engine(cluster, store):  # noqa: ARG001
    """An executor of these jobs."""
    return partial(stub.engine, "slurm", store)


@pytest.fixture
def sent(engine):
    """Jobs that a driver has sent before something ended it."""

    def send(*jobs, end=Terminated) -> None:
        with contextlib.suppress(end), engine(*jobs) as executor:
            submit(executor, *jobs)
            raise end

    return send


def submit(executor: Slurm, *jobs) -> list:
    """Hand out jobs and send them; what had ended by then."""
    for job in jobs:
        executor.submit(job)
    return ended(executor)


def ended(executor: Slurm) -> list[tuple[str, str]]:
    """Return what has ended, with the error if it was lost or failed."""
    return [(job.id, getattr(result, "error", "")) for job, result in executor.wait(0.0)]


def well(*jobs) -> list[tuple[str, str]]:
    """Return what `ended` says of jobs that have ended well."""
    return [(job.id, "") for job in jobs]


def test_a_pretraining_goes_alone_and_cells_of_a_known_pace_together(engine, store, cluster):
    first = stub.pretraining()
    with engine(first, *CELLS) as executor:
        assert submit(executor, first, *CELLS[:4]) == []
        # An array is no longer than permitted.
        assert cluster.live() == [
            "100_0",
            "100_1",
            "100_2",
            "100_3",
            "200",
        ]

        cluster.run(*cluster.live())
        assert ended(executor) == well(first, *CELLS[:4])

        submit(executor, *CELLS[4:])
        assert cluster.live() == ["300"]
        cluster.run("300")
        assert ended(executor) == well(*CELLS[4:])

    assert {*store.finished(stub.plan(first, *CELLS)).records} == {cell.id for cell in CELLS}
    assert not store.slurm_file.exists()
    assert not cluster.logs.exists()


def test_of_a_batch_that_is_gone_the_job_at_work_is_lost_and_the_others_are_sent_again(
    engine, store, cluster
):
    ground, *jobs = CELLS[:5]
    stub.mishap(store, jobs[0], "raise")

    with engine(ground, *jobs) as executor:
        cluster.say("down")
        assert submit(executor, ground) == []  # it is sent when Slurm answers again
        cluster.say("None")
        (cluster.folder / "live" / "99").touch()  # it was taken, but the answer of sbatch was lost
        ended(executor)

        assert cluster.live() == ["100"]
        cluster.run("100")
        assert ended(executor) == well(ground)

        submit(executor, *jobs)
        cluster.run("200", max_jobs=2)
        # One answer is not enough.
        assert ended(executor) == [
            (jobs[0].id, "ValueError: no"),
            (jobs[1].id, ""),
        ]

        cluster.say("down")
        assert [ended(executor) for _ in range(4)] == [[]] * 4  # and none is no answer

        cluster.say("None")
        log = cluster.logs / "200" / "200_0_log.err"
        log.write_text("it takes too long\nsrun: error: node: task 0: Exited with exit code 1\n\n")
        assert ended(executor) == [(jobs[2].id, f"it takes too long (Slurm job 200, {log})")]

        submit(executor, jobs[2])
        assert cluster.live() == ["300"]
        cluster.run("300")
        assert {*ended(executor)} == {*well(*jobs[2:])}

    assert stub.attempts(store, *jobs) == [1, 1, 1, 1]


def lost_progress(cell: Cell) -> Progress:
    """Return the progress of a job on a machine that was lost."""
    return Progress(id=cell.id, worker="lost:4711", began=0.0, updated=0.0)


def test_a_job_that_waits_in_the_queue_again_is_not_given_up(engine, store, cluster, monkeypatch):
    """Its machine was lost, so that Slurm has put it back into its queue."""
    monkeypatch.setattr(drive, "START_SECONDS", 1.0)
    observer = stub.Observer()
    timers = (
        threading.Timer(0.5, store.progress.write, [lost_progress(CELLS[2])]),
        threading.Timer(3.0, cluster.run, ["100"]),
    )
    observer.begin = lambda *_: [timer.start() for timer in timers]

    driven = stub.drive(
        store, engine(CELLS[2]), CELLS[2], watching=[observer], resources={"give_up_after": 1}
    )

    assert driven.finished == [CELLS[2].id]
    assert driven.lines == []


def test_the_progress_of_a_job_that_runs_is_kept(engine, store, cluster):
    with engine(*CELLS[:2]) as executor:
        submit(executor, *CELLS[:2])
        cluster.say("None", state="RUNNING")
        store.progress.write(lost_progress(CELLS[1]))
        ended(executor)
        assert [progress.id for progress in store.progress.read()] == [CELLS[1].id]


def test_a_job_that_is_given_up_or_held_is_cancelled(engine, cluster):
    with engine(*CELLS[:2]) as executor:
        submit(executor, *CELLS[:2])
        executor.cancel(CELLS[0])
        assert cluster.live() == ["100_1"]
        cluster.say("launch failed requeued held")
        ended(executor)
        assert cluster.live() == []


def test_near_the_time_limit_a_batch_is_put_back_and_goes_on_and_a_cell_that_needs_more_fails(
    engine, store
):
    jobs = [(job, store.result_version(job.id)) for job in CELLS[:4]]
    batch = JobBatch(lambda: stub.StubWorker(store), store.folder)
    batch(jobs[:2])
    batch.checkpoint(jobs).function(jobs[:3])
    assert stub.attempts(store, *CELLS[:3]) == [1, 1, 1]
    # Asked for again, for what it has not left.
    batch([(job, store.result_version(job.id)) for job in CELLS[:3]])
    assert stub.attempts(store, *CELLS[:3]) == [2, 2, 2]
    with engine(*CELLS[2:4]) as executor:
        submit(executor, *CELLS[2:4])
        for _ in range(MAX_CUTS):
            put_back = batch.checkpoint(jobs)
        [(name, error)] = ended(executor)
        assert name == CELLS[2].id
        assert error.partition(":")[0] == "it takes longer than a Slurm job may"
        put_back.function(jobs)
        assert ended(executor) == well(CELLS[3])
    assert stub.attempts(store, *CELLS[:4]) == [2, 2, 2, 1]


def test_a_batch_that_starts_again_in_another_folder_goes_on(cluster, store, monkeypatch):
    """With sbatch's `chdir`, and with a folder of results relative to the driver's."""
    monkeypatch.chdir(store.folder.parent)
    make = partial(stub.StubWorker, store)
    jobs = [(job, store.result_version(job.id)) for job in CELLS[:2]]
    executor = Slurm(
        make, Resources(), Store(store.folder.name), TimeEstimate(stub.plan(*CELLS)), {}
    )
    monkeypatch.chdir(cluster.folder)
    executor.batch(jobs)
    executor.batch(jobs)
    assert stub.attempts(store, *CELLS[:2]) == [1, 1]


def test_a_batch_runs_in_the_folder_of_the_command(cluster, store, monkeypatch):
    """Whatever `chdir` says: places of data in an experiment may be relative."""
    monkeypatch.chdir(store.folder.parent)
    places: list[Path] = []

    def make() -> stub.StubWorker:
        places.append(Path.cwd())
        return stub.StubWorker(store)

    executor = Slurm(make, Resources(), store, TimeEstimate(stub.plan(*CELLS)), {})
    monkeypatch.chdir(cluster.folder)
    executor.batch([])
    assert places == [store.folder.parent]


@pytest.mark.parametrize("mishap", ["fill", "refuse"])
def test_what_every_job_would_meet_ends_the_sweep_and_its_slurm_jobs(
    engine, store, cluster, mishap
):
    stub.mishap(store, CELLS[0], mishap)

    def meet(executor: Slurm) -> None:
        submit(executor, *CELLS[:2])
        cluster.run("100_0")
        ended(executor), ended(executor)

    with (
        pytest.raises(UserError, match=r"^this machine has other files$"),
        engine(*CELLS[:2]) as executor,
    ):
        meet(executor)
    assert cluster.live() == []


def test_a_new_driver_takes_over_what_runs_and_what_ended_and_another_engine_is_refused(
    sent, engine, store, cluster
):
    jobs = CELLS[:3]

    sent(*jobs)
    with pytest.raises(
        UserError,
        match=r"has 3 jobs in Slurm; go on with --slurm, or end them: scancel --name glue",
    ):
        refuse_live_jobs(store)

    cluster.say("down")
    with pytest.raises(UserError, match=r"if none runs any more, delete '.*/slurm.json'$"):
        refuse_live_jobs(store)

    cluster.say("None")
    cluster.run("100_0")
    with engine(*jobs) as later:
        cluster.run("100_1")
        assert {*submit(later, *jobs)} == {*well(*jobs[:2])}
        assert cluster.live() == ["100_2"]
        cluster.run("100_2")
        refuse_live_jobs(store)
        assert ended(later) == well(jobs[2])

    assert stub.attempts(store, *jobs) == [1, 1, 1]


def test_ctrl_c_cancels_the_jobs_and_so_does_a_driver_those_that_nobody_has_written_down(
    sent, engine, store, cluster
):
    sent(CELLS[0], end=KeyboardInterrupt)
    assert cluster.live() == []
    with contextlib.suppress(KeyboardInterrupt), engine(*CELLS[:2]) as executor:
        submit(executor, CELLS[0])
        executor.sent.batches.clear()  # as if Slurm had just taken them
        executor.sent.write()
        with pytest.raises(UserError, match="has 1 jobs in Slurm"):
            refuse_live_jobs(store)
        raise KeyboardInterrupt
    assert cluster.live() == []
    sent(CELLS[0])
    store.slurm_file.unlink()  # as if the driver had been killed before
    with engine(*CELLS[:2]):
        assert cluster.live() == []


@pytest.mark.parametrize(
    ("options", "answer", "refusal"),
    [
        (
            {"partition": "gpu"},
            "None",
            r"^--slurm: Slurm refuses the jobs: .*invalid partition specified: gpu$",
        ),
        (
            {},
            "PartitionTimeLimit",
            r"^--slurm: Slurm will never start job 100 \(PartitionTimeLimit\)",
        ),
        (
            {"timeout_min": "long"},
            "None",
            r"^--slurm: Parameter \"timeout_min\" expected type <class 'int'>",
        ),
    ],
    ids=["refused", "never started", "an option of another type"],
)
def test_what_slurm_refuses_or_never_starts_is_one_line(engine, cluster, options, answer, refusal):
    cluster.say(answer)
    with pytest.raises(UserError, match=refusal), engine(CELLS[0], **options) as executor:
        submit(executor, CELLS[0])
    assert cluster.live() == []


def test_where_arrays_are_off_each_job_goes_alone(engine, cluster):
    (cluster.bin / "scontrol").write_text("#!/bin/sh\necho MaxArraySize = 0")
    assert engine(CELLS[0]).max_array == 1


def test_a_machine_without_slurm_is_refused_before_anything_is_run(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no Slurm answers here"):
        engine(CELLS[0])


def submitted(cluster: FakeSlurm, number: str) -> set[str]:
    """Return what sbatch was told about a job, by lines of its script."""
    (script,) = cluster.logs.glob(f"{number}*/{number}*_submission.sh")
    return {
        line.removeprefix("#SBATCH ")
        for line in script.read_text().splitlines()
        if line.startswith("#SBATCH")
    }


def test_batches_hold_the_minutes_that_are_asked_for_and_arrays_are_split_at_an_odd_number(
    engine, cluster
):
    """Two cells of 300 s fill ten minutes: nine cells are five batches, too many for an array."""
    cells = [stub.cell(seed) for seed in range(10)]
    with engine(*cells, minutes=10) as executor:
        submit(executor, cells[0])
        cluster.run("100")
        ended(executor)
        executor.estimate.learn(cells[0].id, 600.0)  # the run itself took no time
        assert executor.estimate.seconds(cells[1].id) == pytest.approx(300.0)
        submit(executor, *cells[1:])
        expected = ["200_0", "200_1", "200_2", "200_3", "300"]
        assert cluster.live() == expected
        cluster.run("200_0")
        assert ended(executor) == well(*cells[1:3])
        cluster.run("300")
        assert ended(executor) == well(cells[9])


@pytest.mark.parametrize(("minutes", "limit"), [(5, 30), (90, 190)])
def test_a_batch_may_take_twice_its_minutes_and_ten_more_and_what_resources_say(
    cluster, store, minutes, limit
):
    resources = Resources(cpus=3, gpus=0.5)
    estimate = TimeEstimate(stub.plan(CELLS[0]))
    make = partial(stub.StubWorker, store)
    with Slurm(make, resources, store, estimate, {"minutes": minutes}) as executor:
        submit(executor, CELLS[0])
        options = submitted(cluster, "100")
    assert {f"--time={limit}", "--cpus-per-task=3", "--gpus-per-node=1"} <= options


def test_each_cell_of_a_batch_may_be_cut_off_as_often_and_a_pretraining_more_often(store):
    """Each cell is cut off as often as it may be, the pretraining more often than any cell."""
    first = stub.pretraining()
    batch = JobBatch(lambda: stub.StubWorker(store), store.folder)
    jobs = [*CELLS[:2], first]
    for job in jobs:
        batch([(job, store.result_version(job.id))])
        for _ in range(MAX_CUTS - 1 if job in CELLS else MAX_CUTS + 1):
            batch.checkpoint([])
    assert store.failures(stub.plan(first, *CELLS), set()) == []


def test_a_job_is_gone_only_if_two_answers_in_a_row_do_not_name_it(engine, cluster):
    with engine(CELLS[0]) as executor:
        submit(executor, CELLS[0])
        for _ in range(2):
            cluster.end("100")
            assert ended(executor) == []
            (cluster.folder / "live" / "100").touch()
            assert ended(executor) == []
        cluster.end("100")
        assert ended(executor) == []
        ((name, error),) = ended(executor)
    assert name == CELLS[0].id
    assert error.partition(" (")[0] == "it was never started"


def test_all_that_follows_the_job_at_work_in_a_lost_batch_is_sent_again(engine, cluster):
    with engine(*CELLS) as executor:
        submit(executor, CELLS[0])
        cluster.run("100")
        ended(executor)
        submit(executor, *CELLS[1:6])
        assert cluster.live() == ["200"]
        cluster.run("200", max_jobs=1)
        assert ended(executor) == well(CELLS[1])
        ((name, _),) = ended(executor)
        assert name == CELLS[2].id
        ended(executor)
        cluster.run(*cluster.live())
        assert {*ended(executor)} == {*well(*CELLS[3:6])}


def test_two_jobs_that_no_driver_has_written_down_are_both_ended(engine, cluster):
    with engine(CELLS[0]) as executor:
        submit(executor, CELLS[0])
        for number in ("98", "99"):
            (cluster.folder / "live" / number).touch()
        ended(executor)
        assert cluster.live() == ["100"]


def test_of_jobs_of_unknown_pace_so_many_are_taken_as_there_is_room_for(engine):
    with engine(*CELLS) as executor:
        room = executor.free
        submit(executor, *CELLS[:3])
        assert executor.free == room - 3
