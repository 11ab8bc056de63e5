"""The endings of jobs on a real Slurm of two nodes on this machine, which needs root and Debian. Minutes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import stub
from test_drive import Ended, Told

from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import slurm
from glue_bench.sweep.drive import drive
from glue_bench.sweep.progress import Estimate
from glue_bench.sweep.slurm import Slurm

SCRIPT = Path(__file__).parents[3] / "shared" / "slurm" / "slurm_here.sh"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SCRIPT.exists() or os.geteuid() != 0, reason="needs ../shared/slurm and root"),
]
pytest.importorskip("submitit")
DRIVER = """
import sys, stub
from functools import partial
from glue_bench.config import Resources
from glue_bench.records.store import Store
from glue_bench.sweep import slurm
from glue_bench.sweep.drive import drive
from glue_bench.sweep.progress import Estimate

slurm.POLL_SECONDS, slurm.LOOK_SECONDS = 1.0, 0.2
store, jobs = Store(sys.argv[1]), [stub.cell(seed) for seed in range(6)]
plan = stub.plan(*jobs)
executor = slurm.Slurm(partial(stub.StubWorker, store.folder, 4.0), Resources(), store, Estimate(plan), {})
with store.lock():
    print(drive(jobs, executor, store, plan, [])[1])
"""


def told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture(scope="module", params=["yes", "no"], ids=["accounting", "no accounting"])
def cluster(request):
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCOUNTING", request.param)
        patch.setenv("EXTRA", "MaxArraySize=5")
        told("bash", str(SCRIPT), str(folder))
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(slurm.__file__).parents[2]}")
        patch.setattr(slurm, "POLL_SECONDS", 1.0)
        patch.setattr(slurm, "LOOK_SECONDS", 0.2)
        yield folder
        told("bash", str(SCRIPT), str(folder), "stop")
    shutil.rmtree(folder)


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store(tmp_path / "runs")
    made.prepare()
    return made


def run(store: Store, *jobs, seconds=0.5, give_up_after=None, **options):
    plan, seen = stub.plan(*jobs, resources={"give_up_after": give_up_after}), Told()
    engine = Slurm(partial(stub.StubWorker, store.folder, seconds), Resources(), store, Estimate(plan), options)
    return Ended(*drive(jobs, engine, store, plan, [seen])), seen


def when_running(store: Store, job, action) -> threading.Thread:
    """Do something once a job is under way."""

    def wait() -> None:
        while job.id not in (store.folder / "attempts").read_text() if (store.folder / "attempts").exists() else True:
            time.sleep(0.1)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def live(store: Store) -> list[str]:
    return [*slurm.live_jobs(slurm.job_name(store))]


@pytest.mark.usefixtures("cluster")
def test_what_is_well_is_stored_and_mishaps_are_made_good(store):
    jobs = once, always, hangs, fails, *_ = [stub.cell(seed) for seed in range(9)]
    for job, what in ((once, "die"), (always, "die always"), (hangs, "hang"), (fails, "raise")):
        stub.mishap(store, job, what)
    driven, _ = run(store, *jobs, give_up_after=10)
    assert {*driven.failed} == {always.id, fails.id}
    assert [len(stub.attempts(store, job)) for job in (once, always, fails)] == [2, 3, 1]
    assert hangs.id in driven.finished  # scancel wakes it, so that it may end its job before it is killed
    assert live(store) == []


@pytest.mark.usefixtures("cluster")
def test_a_cancelled_job_is_sent_again(store):
    job = stub.cell(1)
    when_running(store, job, lambda: told("scancel", "--name", slurm.job_name(store)))
    driven, _ = run(store, job, seconds=5.0)
    assert (driven.finished, len(stub.attempts(store, job))) == ((job.id,), 2)


@pytest.mark.usefixtures("cluster")
def test_a_preempted_job_goes_back_into_the_queue_and_is_not_lost(store):
    jobs = [stub.cell(seed) for seed in range(4)]
    urgent = ("sbatch", "--partition=urgent", "--exclusive", "--nodes=2", "--output=/dev/null", "--wrap", "sleep 5")
    when_running(store, jobs[0], lambda: told(*urgent))
    driven, seen = run(store, *jobs, seconds=15.0)
    assert (len(driven.finished), seen.lines) == (4, ["end"])


@pytest.mark.usefixtures("cluster")
def test_near_its_time_limit_a_batch_goes_back_into_the_queue_and_runs_nothing_twice(store):
    job = stub.cell(1)
    when_running(store, job, lambda: told("scancel", "--signal=USR2", "--name", slurm.job_name(store)))
    driven, seen = run(store, job, seconds=5.0)
    assert (driven.finished, seen.lines, len(stub.attempts(store, job))) == ((job.id,), ["end"], 2)


@pytest.mark.usefixtures("cluster")
def test_a_cell_that_no_time_limit_is_enough_for_fails(store):
    def cut() -> None:
        for attempt in range(1, slurm.CUTS * 3 + 1):
            while len(stub.attempts(store, job)) < attempt:
                time.sleep(0.2)
            time.sleep(1)
            subprocess.run(["scancel", "--signal=USR2", "--name", slurm.job_name(store)], check=False)

    job = stub.cell(1)
    when_running(store, job, cut)
    driven, _ = run(store, job, seconds=60.0)
    assert "it takes longer than a Slurm job may: give --slurm a larger timeout_min" in driven.failed[job.id]


def test_a_lost_node_costs_its_jobs_one_attempt(store, cluster):
    jobs = [stub.cell(seed) for seed in range(4)]

    def lose() -> None:
        node = int((cluster / "slurmd-n2.pid").read_text())
        os.kill(node, signal.SIGKILL)
        for process in told("pgrep", "-f", "slurmstepd").split():
            if "SLURMD_NODENAME=n2" in Path(f"/proc/{process}/environ").read_text(errors="replace"):
                os.kill(int(process), signal.SIGKILL)

    when_running(store, jobs[0], lose)
    driven, _ = run(store, *jobs, seconds=8.0)
    told("bash", str(SCRIPT), str(cluster))
    assert len(driven.finished) == 4


def test_while_the_controller_is_lost_nothing_is(store, cluster):
    jobs = [stub.cell(seed) for seed in range(2)]

    def lose() -> None:
        os.kill(int((cluster / "slurmctld.pid").read_text()), signal.SIGKILL)
        time.sleep(12)
        told("bash", str(SCRIPT), str(cluster))

    thread = when_running(store, jobs[0], lose)
    driven, seen = run(store, *jobs, seconds=5.0)
    thread.join()
    assert (len(driven.finished), seen.lines) == (2, ["end"])
    assert [len(stub.attempts(store, job)) for job in jobs] == [1, 1]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_jobs_outlive_their_driver_but_for_ctrl_c(store, number):
    command = [sys.executable, "-c", DRIVER, str(store.folder)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not store.recorded() or sum(map(len, slurm.sent_jobs(store).values())) + len(store.recorded()) < 6:
        assert first.poll() is None, first.communicate()
        time.sleep(0.1)
    first.send_signal(number)
    out, err = first.communicate(timeout=60)
    assert (out.strip(), err) == ({signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}.get(number, ""), "")
    deadline = time.monotonic() + 120
    while number == signal.SIGINT and live(store):  # a cancelled job takes a moment to go
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert bool(live(store)) == (number != signal.SIGINT)
    jobs = [stub.cell(seed) for seed in range(6)]
    driven, seen = run(store, *(job for job in jobs if job.id not in store.recorded()), seconds=4.0)
    assert len(store.recorded()) == 6
    assert (driven.failed, seen.lines) == ({}, ["end"])
    if number != signal.SIGINT:
        assert [len(stub.attempts(store, job)) for job in jobs] == [1] * 6


@pytest.mark.usefixtures("cluster")
def test_what_slurm_refuses_is_one_line(store):
    for options, words in (
        ({"partition": "no"}, "invalid partition specified: no"),
        ({"partitoin": "main"}, "unrecognized option"),
        ({"timeout_min": 999}, r"Slurm will never start job \d+ \(Partition"),
        ({"gpus_per_node": 9}, "Requested node configuration is not available"),
    ):
        with pytest.raises(UserError, match=words) as error:
            run(store, stub.cell(1), seconds=60.0, **options)
        assert "\n" not in str(error.value)
    assert live(store) == []
