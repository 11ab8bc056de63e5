"""Ray: jobs in processes of this machine or of a cluster, whatever becomes of a process, of the driver or of a head."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import stub

from glue_bench.config import Resources
from glue_bench.records.store import Store
from glue_bench.sweep.executors import Ray

RAY = str(Path(sys.executable).with_name("ray"))
SMALL = ("--include-dashboard=false", f"--object-store-memory={100 * 2**20}", "--disable-usage-stats")


class Head:
    """The processes of a cluster's head, started as a user starts it, in a home of its own, by which they are found.

    Its sockets need a short path. No test runs `ray stop`: it ends every cluster of the machine, those of others, too.
    """

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.ray("get-auth-token", "--generate")
        self.ray("start", "--head", f"--port={self.port}", "--num-cpus=1", f"--temp-dir={self.home}/ray", *SMALL)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ray(self, *words: str) -> None:
        # Ray's workers would have the lowest priority, and wait for whatever else the machine does.
        environment = os.environ | {"HOME": str(self.home), "RAY_worker_niceness": "0"}
        done = subprocess.run([RAY, *words], env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home):
                    found.append(process)
        return found

    def lose(self, name: str = "gcs_server") -> None:
        """SIGKILL to those of its processes that have this name."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if name in process.name():
                    process.kill()

    def end(self) -> None:
        self.lose("")
        shutil.rmtree(self.home, ignore_errors=True)


# Jobs

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
        results, cause = drive(jobs, executor, store, stub.plan(*jobs), [])
    except UserError as error:
        sys.exit(f"error: {error}")
print(cause or len(results))
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
def store(tmp_path_factory) -> Store:
    made = Store(tmp_path_factory.mktemp("runs"))
    made.prepare()
    return made


@pytest.fixture(scope="module")
def run(store):
    """Run jobs on two workers: what came of them by their ids. Nothing of Ray is left when the executor has ended."""
    with Ray(partial(stub.StubWorker, store.folder, 0.1), Resources(), workers=2, address=None) as executor:

        def run_them(*jobs, watch=lambda _: None) -> dict:
            waiting, found = [*jobs], {}
            while len(found) < len(jobs):
                while waiting and executor.free:
                    executor.submit(waiting.pop(0))
                watch(executor)
                found |= {job.id: result for job, result in executor.wait(0.2)}
            return found

        yield run_them
    titles = ("raylet", "gcs_server", "ray::")
    assert ended([one for one, command in below(os.getpid()).items() if any(map(command.__contains__, titles))], 60)


def test_a_process_takes_one_job_after_another_and_what_fails_is_said(run, store):
    jobs = stub.pretraining(), *(stub.cell(seed) for seed in range(4))
    stub.mishap(store, jobs[1], "raise")
    found = run(*jobs)
    assert [getattr(found[job.id], "error", "") for job in jobs] == ["", "ValueError: no", "", "", ""]
    assert store.recorded() >= {job.id for job in jobs} - {jobs[1].id}
    assert len({process for job in jobs for process in stub.attempts(store, job)}) <= 2


def test_the_job_of_a_killed_worker_is_lost_and_another_process_runs_it(run, store):
    job, other = stub.cell(10), stub.cell(11)
    stub.mishap(store, job, "die")
    found = run(job, other)
    assert (found[job.id].lost, found[other.id].cell) == (True, other)
    assert found[job.id].error.startswith("The actor died unexpectedly")
    assert run(job)[job.id].cell == job
    assert len({*stub.attempts(store, job)}) == 2


def test_a_worker_that_hangs_is_ended_when_its_job_is_cancelled(run, store):
    job = stub.cell(20)
    stub.mishap(store, job, "hang")

    def cancel(executor: Ray) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            if psutil.Process(stub.attempts(store, job)[0]).status() == psutil.STATUS_STOPPED:
                executor.cancel(job)

    assert run(job, watch=cancel)[job.id].lost
    assert ended([psutil.Process(one) for one in stub.attempts(store, job) if psutil.pid_exists(one)], 60)
    assert run(job)[job.id].cell == job


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


def test_what_every_job_would_meet_ends_the_sweep(start, tmp_path):
    stub.mishap(Store(tmp_path), stub.cell(0), "refuse")
    process = start(1, cells=3)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (1, "", "error: this machine has other files\n")


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
    workers = ours(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err, len(workers)) == (0, f"{said}\n", "", 2)
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
def head() -> Iterator[Head]:
    made = Head()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def token(head) -> dict[str, str]:
    """The environment of a user who may use the cluster."""
    return {"HOME": str(head.home), "RAY_AUTH_MODE": "token"}


@pytest.mark.slow
def test_a_cluster_that_cannot_be_used_is_one_line(start, head, token):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        nothing = f"127.0.0.1:{stranger.getsockname()[1]}"
        room = "no machine has room for a job, which takes 2 CPUs and 0 GPUs (resources)"
        drivers = {
            room: start(0, head.address, 3, 2, "room", **token),
            f"cannot use the Ray cluster at {head.address}: ": start(
                0, head.address, place="token", **{**token, "HOME": "/nowhere"}
            ),
            f"no Ray cluster answers at {nothing} within 10 s": start(0, nothing, place="stranger", **token),
        }
        for line, process in drivers.items():
            out, err = process.communicate(timeout=120)
            assert (process.returncode, out, err.count("\n")) == (1, "", 1)
            assert err.startswith(f"error: {line}")


@pytest.mark.slow
def test_jobs_run_on_a_cluster_and_a_lost_head_ends_the_driver_and_the_folder_stays_whole(
    driver, head, token, tmp_path
):
    process = driver(0, head.address, **token)
    head.lose()
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "Traceback" not in err
    finished = Store(tmp_path).finished(stub.plan(*(stub.cell(seed) for seed in range(200))))
    assert len(finished.records) >= 3
    assert finished.problems == ()
