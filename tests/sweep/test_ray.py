"""Ray: jobs in processes of this machine or of a cluster, whatever becomes of a process, of the driver or of a head."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import heads
import psutil
import pytest
import stub
from test_drive import Told

from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.drive import drive
from glue_bench.sweep.executors import Ray

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
DRIVER = """
import sys, pathlib, stub
from functools import partial
from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import executors
from glue_bench.sweep.drive import drive

executors.CONNECT_SECONDS = 10.0
folder, workers, address, cells, cpus = pathlib.Path(sys.argv[1]), *sys.argv[2:]
store, jobs = Store(folder), [stub.cell(seed) for seed in range(int(cells))]
made = partial(stub.StubWorker, folder, 0.2), Resources(cpus=int(cpus))
executor = executors.Ray(*made, workers=int(workers) or None, address=address or None)
store.prepare()
with store.lock():
    try:
        driven = drive(jobs, executor, store, stub.plan(*jobs), [], give_up_after=None, choose=set)
    except UserError as error:
        sys.exit(f"error: {error}")
print(driven.cause or len(driven.finished))
"""


@pytest.fixture(scope="module", autouse=True)
def _workers_find_the_stub():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}")
        yield


def below(process: int) -> dict[psutil.Process, str]:
    """The commands of the processes below one."""
    found = {}
    for child in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found[child] = " ".join(child.cmdline())
    return found


@pytest.fixture(scope="module")
def mishaps(tmp_path_factory):
    """Everything that may befall a job, in one run on two workers."""
    store = Store(tmp_path_factory.mktemp("runs"))
    first = stub.pretraining()
    mnli = stub.cell(1, "mnli", pretraining=first.id, steps=10, pretraining_seed=1)
    jobs = {
        "pretraining": first,
        "mnli": mnli,
        "rte": stub.cell(1, "rte", pretraining=first.id, steps=10, pretraining_seed=1, mnli=mnli.id),
        **{name: stub.cell(seed) for seed, name in enumerate(("once", "always", "hangs", "fails", "good", "better"))},
    }
    for name, what in {"once": "die", "always": "die always", "hangs": "hang", "fails": "raise"}.items():
        stub.mishap(store, jobs[name], what)
    told, plan = Told(), stub.plan(*jobs.values())
    executor = Ray(partial(stub.StubWorker, store.folder, 0.1), Resources(), workers=2, address=None)
    watched = {"give_up_after": 10, "choose": set}
    driven = drive([*jobs.values()], executor, store, plan, [told], **watched)
    return store, jobs, driven, told


def test_what_is_well_is_stored_and_what_fails_is_said(mishaps):
    store, jobs, driven, _ = mishaps
    names = {job.id: name for name, job in jobs.items()}
    assert {names[name] for name in driven.finished} == {*jobs} - {"always", "fails"}
    assert {*store.finished(stub.plan(*jobs.values())).records} == {*driven.finished} - {jobs["pretraining"].id}
    assert driven.failed[jobs["fails"].id] == "ValueError: no"


def test_a_killed_worker_is_replaced_and_its_job_runs_again_twice(mishaps):
    store, jobs, driven, told = mishaps
    assert driven.failed[jobs["always"].id].startswith("its worker was lost 3 times: The actor died unexpectedly")
    assert [len({*stub.attempts(store, jobs[name])}) for name in ("once", "always", "fails")] == [2, 3, 1]
    assert sum(jobs["once"].label in line and "it runs again" in line for line in told.lines) == 1


def test_a_worker_that_hangs_is_ended_and_its_job_runs_again(mishaps):
    store, jobs, _, told = mishaps
    hung, other = stub.attempts(store, jobs["hangs"])
    assert hung != other
    assert not psutil.pid_exists(hung)
    assert any(f"here:{hung}: nothing was heard of it for " in line for line in told.lines)


def test_a_process_takes_one_job_after_another(mishaps):
    store, jobs, _, _ = mishaps
    processes = [process for job in jobs.values() for process in stub.attempts(store, job)]
    assert len(processes) == len(jobs) + 4
    assert len({*processes}) <= 2 + 5  # the two of the beginning, and one in place of each lost one


def test_nothing_of_ray_is_left(mishaps):  # noqa: ARG001
    titles = ("raylet", "gcs_server", "ray::")
    assert ended([one for one, command in below(os.getpid()).items() if any(map(command.__contains__, titles))], 60)


def test_what_every_job_would_meet_ends_the_sweep(tmp_path):
    store, jobs = Store(tmp_path), [stub.cell(seed) for seed in range(3)]
    stub.mishap(store, jobs[0], "refuse")
    executor = Ray(partial(stub.StubWorker, tmp_path, 0.1), Resources(), workers=1, address=None)
    with pytest.raises(UserError, match=r"^this machine has other files$"):
        drive(jobs, executor, store, stub.plan(*jobs), [], give_up_after=None, choose=set)


@pytest.fixture
def start(tmp_path):
    """Start a driver in a process of its own."""
    started = []

    def begin(
        workers: int = 2, address: str = "", cells: int = 200, cpus: int = 1, place: str = "", **environment: str
    ):
        words = [sys.executable, "-c", DRIVER, *map(str, (tmp_path / place, workers, address, cells, cpus))]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(words, env={**os.environ, **environment}, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def driver(start, tmp_path):
    """A driver that has stored a few cells of many."""

    def begin(*words, **environment: str):
        process, deadline = start(*words, **environment), time.monotonic() + 120
        while len(Store(tmp_path).recorded()) < 3:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return process

    return begin


def ended(workers: list[psutil.Process], seconds: float) -> bool:
    return not psutil.wait_procs(workers, timeout=seconds)[1]


def ours(process: subprocess.Popen) -> list[psutil.Process]:
    """The workers of a driver."""
    return [one for one, command in below(process.pid).items() if "ray::Slot" in command]


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGINT, "interrupted"), pytest.param(signal.SIGTERM, "terminated", marks=pytest.mark.slow)],
)
def test_a_signal_ends_the_driver_and_its_workers_without_a_word_of_ray(driver, tmp_path, number, said):
    process = driver()
    ours(process)[0].kill()
    while len(ours(process)) < 2:
        time.sleep(0.2)
    workers, began = ours(process), time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, f"{said}\n", "")
    print(f"{said} after {time.monotonic() - began:.1f} s")
    assert len(workers) == 2
    assert ended(workers, 10)
    with Store(tmp_path).lock():
        pass


def test_workers_of_a_killed_driver_end_and_the_folder_is_free(driver, tmp_path):
    process = driver()
    workers = ours(process)
    process.kill()
    process.wait()
    with Store(tmp_path).lock():
        pass
    assert len(workers) == 2
    assert ended(workers, 20)


@pytest.fixture(scope="module")
def head():
    with heads.head() as made:
        yield made


@pytest.fixture(scope="module")
def token(head) -> dict[str, str]:
    """The environment of a user who may use the cluster."""
    return {"HOME": str(head.home), "RAY_AUTH_MODE": "token"}


@pytest.mark.slow
def test_jobs_run_on_a_cluster(start, head, token, tmp_path):
    out, err = start(0, head.address, 3, **token).communicate(timeout=120)
    assert (out, err) == ("3\n", "")
    assert len({process for seed in range(3) for process in stub.attempts(Store(tmp_path), stub.cell(seed))}) == 1


@pytest.mark.slow
def test_a_cluster_that_cannot_be_used_is_one_line(start, head, token):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        nothing = f"127.0.0.1:{stranger.getsockname()[1]}"
        drivers = {
            "no machine has room for a job, which takes 2 CPUs and 0 GPUs (resources)": start(
                0, head.address, 3, 2, "room", **token
            ),
            f"cannot use the Ray cluster at {head.address}: ": start(
                0, head.address, place="token", **{**token, "HOME": "/nowhere"}
            ),
            f"no Ray cluster answers at {nothing} within 10 s": start(0, nothing, place="stranger", **token),
        }
        for line, process in drivers.items():
            out, err = process.communicate(timeout=120)
            print(err)
            assert (process.returncode, out, err.count("\n")) == (1, "", 1)
            assert err.startswith(f"error: {line}")


@pytest.mark.slow
def test_a_lost_head_ends_the_driver_and_the_folder_stays_whole(driver, head, token, tmp_path):
    process = driver(0, head.address, **token)
    head.lose()
    out, err = process.communicate(timeout=240)
    print(process.returncode, out, err)
    assert process.returncode == 1
    assert "Traceback" not in err
    finished = Store(tmp_path).finished(stub.plan(*(stub.cell(seed) for seed in range(200))))
    assert len(finished.records) >= 3
    assert finished.problems == ()
