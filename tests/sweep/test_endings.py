"""How jobs and drivers end on Ray, caused in earnest. Slurm is in test_slurm.py."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from helpers import stub

import glue_bench
from glue_bench.errors import UserError
from glue_bench.sweep import executors

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
CELLS = [stub.cell(seed) for seed in range(200)]
DRIVER = """
import sys
from helpers import stub
from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store

folder, address, cpus = sys.argv[1:]
store = Store(folder)
cluster = {"workers": None, "address": address, "resources": Resources(cpus=int(cpus))}
with store.lock():
    try:
        ray = stub.engine("ray", store, seconds=0.2, **cluster if address else {})
        print(stub.drive(store, ray, *(stub.cell(seed) for seed in range(200))).cause)
    except UserError as error:
        sys.exit(f"error: {error}")
"""


def ended(processes: list[psutil.Process], seconds: float) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def below(process: int, *titles: str) -> list[psutil.Process]:
    """Return the processes below one whose commands hold one of these words."""
    processes = []
    for child in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = " ".join(child.cmdline())
            if any(title in command for title in titles):
                processes.append(child)
    return processes


def until(done, process: subprocess.Popen) -> None:
    """Wait for it, as long as the process runs."""
    deadline = time.monotonic() + 120
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    """What workers and drivers import."""
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tests}:{Path(glue_bench.__file__).parents[1]}")


def test_what_is_well_is_stored_mishaps_are_made_good_and_what_follows_a_failure_fails_with_it(
    store,
):
    for number, mishap in enumerate(("die", "hang", "raise", "late", "raise late"), start=1):
        stub.mishap(store, CELLS[number], mishap)

    after = stub.cell(1, "rte", mnli=CELLS[1].id)
    jobs = [after, *CELLS[:6], stub.pretraining()]
    ray = stub.engine("ray", store, seconds=0.3)
    driven = stub.drive(store, ray, *jobs, resources={"give_up_after": 5})

    lost = driven.failed[CELLS[1].id]
    assert lost.startswith("its worker was lost 3 times: ")
    assert driven.failed == {
        CELLS[1].id: lost,
        after.id: lost,
        CELLS[3].id: "ValueError: no",
        CELLS[5].id: "ValueError: no",
    }

    assert stub.attempts(store, *CELLS[:6], after) == [1, 3, 2, 1, 1, 1, 0]
    assert {*driven.finished} == {job.id for job in jobs} - {*driven.failed}
    assert {*driven.finished} == store.recorded()

    lost_lines = [line for line in driven.lines if "its worker was lost (" in line]
    assert len(lost_lines) == 3
    assert [line for line in lost_lines if not line.endswith("; it runs again")] == []
    assert sum("nothing was heard of it for " in line for line in driven.lines) == 1
    assert ended(below(os.getpid(), "raylet", "gcs_server", "ray::"), 60)


@pytest.mark.slow
def test_what_every_job_would_meet_ends_the_sweep(store):
    stub.mishap(store, CELLS[0], "refuse")
    with pytest.raises(UserError, match=r"^this machine has other files$"):
        stub.drive(store, stub.engine("ray", store), CELLS[0])


@pytest.fixture
def start(store):
    """Start a driver in a process of its own."""
    started = []

    def begin(address: str = "", cpus: int = 1):
        command = [sys.executable, "-c", DRIVER, str(store.folder), address, str(cpus)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


ENDS = {signal.SIGINT: "interrupted", signal.SIGKILL: "", signal.SIGTERM: "terminated"}


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_driver_ends_without_a_word_and_its_workers_with_it(start, store, number):
    """A signal that it hears even after one of them was lost."""
    process = start()
    until(lambda: len(store.recorded()) >= 3, process)
    if number != signal.SIGKILL:
        below(process.pid, "ray::Slot")[0].kill()
    until(lambda: len(below(process.pid, "ray::Slot")) == 2, process)
    workers = below(process.pid, "ray::Slot")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert out.strip() == ENDS[number]
    assert err == ""
    assert ended(workers, 20)
    with store.lock():
        pass


def with_a_job_that_raises(error: Exception) -> executors.Ray:
    """Return an engine without a cluster: one actor is idle, and the job of another ends with an
    error.
    """
    engine = object.__new__(executors.Ray)
    engine.ray = Mock(exceptions=ray.exceptions)
    engine.idle = [Mock()]
    engine.running = {"stream": (Mock(), CELLS[0])}
    engine.ray.get.side_effect = error
    engine.ray.wait.return_value = (["stream"], [])
    return engine


def test_what_a_worker_raises_is_raised_by_the_engine():
    cause = UserError("this machine has other files")
    error = ray.exceptions.RayTaskError("run", "its traceback", cause)
    with pytest.raises(UserError, match=r"^this machine has other files$"):
        with_a_job_that_raises(error.as_instanceof_cause()).wait(0.0)


def test_idle_actors_that_may_be_gone_with_a_lost_one_get_no_job():
    engine = with_a_job_that_raises(ray.exceptions.ActorDiedError())
    [(job, result)] = engine.wait(0.0)
    assert job == CELLS[0]
    assert result.lost
    assert engine.idle == []


def test_what_answers_and_is_no_cluster_is_one_line(store, monkeypatch):
    monkeypatch.setattr(executors, "RAY_CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        with pytest.raises(UserError, match=f"^no Ray cluster answers at {address} within 1 s$"):
            stub.engine("ray", store, address=address)


@pytest.fixture
def head(monkeypatch):
    """The process and the address of a cluster's head. Its sockets need a short path."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    # Workers would wait for whatever else the machine does.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = free.getsockname()

    def answers() -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(place) == 0

    memory = f"--object-store-memory={100 * 2**20}"
    small = f"--num-cpus=1 {memory} --disable-usage-stats --include-dashboard=false"
    with tempfile.TemporaryDirectory(
        prefix="ray", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        words = f"start --head --block --port={place[1]} --temp-dir={folder} {small}".split()
        command = [Path(sys.executable).with_name("ray"), *words]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(answers, process)
        yield process, f"127.0.0.1:{place[1]}"
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_a_cluster_without_room_is_one_line_and_a_lost_head_ends_the_driver(start, head, store):
    cluster, address = head
    _, err = start(address, cpus=2).communicate(timeout=120)
    assert (
        err == "error: no machine has room for a job, which takes 2 CPUs and 0 GPUs (resources)\n"
    )
    process = start(address)
    until(lambda: len(store.recorded()) >= 3, process)
    below(cluster.pid, "gcs_server")[0].kill()
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "Traceback" not in err
    finished = store.finished(stub.plan(*CELLS))
    assert len(finished.records) >= 3
    assert finished.problems == {}
