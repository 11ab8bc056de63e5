"""How jobs and drivers end, caused in earnest: on Ray, and on a Slurm of two nodes of this machine (root, Debian)."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import stub

from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import slurm

pytest.importorskip("ray")
pytest.importorskip("submitit")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
SCRIPT = Path(__file__).parents[3] / "shared" / "slurm" / "slurm_here.sh"
HAS_SLURM = pytest.mark.skipif(not SCRIPT.exists() or os.geteuid() != 0, reason="needs ../shared/slurm and root")
SLURM = pytest.param("slurm", marks=[pytest.mark.slow, HAS_SLURM])
CELLS = {"ray": (200, 0.2), "slurm": (6, 4.0)}
"""By engine how many cells a driver has, and how many seconds each takes."""
DRIVER = """
import sys, stub
from glue_bench.config import Resources
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import executors, slurm

executors.CONNECT_SECONDS, slurm.POLL_SECONDS, slurm.LOOK_SECONDS = 10.0, 1.0, 0.2
folder, engine, cells, seconds, address, cpus = sys.argv[1:]
store, jobs = Store(folder), [stub.cell(seed) for seed in range(int(cells))]
ray = {"workers": None, "address": address, "resources": Resources(cpus=int(cpus))} if address else {}
store.prepare()
with store.lock():
    try:
        print(stub.drive(store, stub.engine(engine, store, *jobs, seconds=float(seconds), **ray), *jobs).cause)
    except UserError as error:
        sys.exit(f"error: {error}")
"""


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def ended(processes: list[psutil.Process], seconds: float) -> bool:
    return not psutil.wait_procs(processes, timeout=seconds)[1]


def below(process: int, *titles: str) -> list[psutil.Process]:
    """The processes below one whose commands hold one of these words."""
    found = []
    for child in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(title in " ".join(child.cmdline()) for title in titles):
                found.append(child)
    return found


def until(done, process: subprocess.Popen | None = None) -> None:
    """Wait for it, as long as the process runs."""
    deadline = time.monotonic() + 120
    while not done():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def live(store: Store) -> list[str]:
    return [*slurm.live_jobs(slurm.job_name(store))]


@pytest.fixture(scope="module")
def cluster():
    """Slurm's commands speak to it."""
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCOUNTING", "no")
        patch.setattr(slurm, "POLL_SECONDS", 1.0)
        patch.setattr(slurm, "LOOK_SECONDS", 0.2)
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        said("bash", str(SCRIPT), str(folder))
        yield
        said("bash", str(SCRIPT), str(folder), "stop")
    shutil.rmtree(folder)


@pytest.fixture(params=["ray", SLURM])
def engine(request, monkeypatch) -> str:
    if request.param == "slurm":
        request.getfixturevalue("cluster")
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(slurm.__file__).parents[2]}")
    return request.param


@pytest.fixture
def run(engine, store):
    """Run jobs on two workers, or in Slurm."""

    def run_them(*jobs, seconds=0.5, give_up_after=None, **options):
        executor = stub.engine(engine, store, *jobs, seconds=seconds, **options)
        return stub.drive(store, executor, *jobs, resources={"give_up_after": give_up_after})

    return run_them


def test_what_is_well_is_stored_and_mishaps_are_made_good(run, store, engine):
    jobs = once, always, hangs, fails, *_ = [*(stub.cell(seed) for seed in range(8)), stub.pretraining()]
    for job, what in ((once, "die"), (always, "die always"), (hangs, "hang"), (fails, "raise")):
        stub.mishap(store, job, what)
    driven = run(*jobs, give_up_after=10)
    assert {*driven.failed} == {always.id, fails.id}
    assert driven.failed[fails.id] == "ValueError: no"
    assert stub.attempts(store, once, always, fails) == [2, 3, 1]
    assert {*driven.finished} == {job.id for job in jobs} - {*driven.failed} == store.recorded()
    if engine == "slurm":
        until(lambda: not live(store))  # it takes a moment to go
    else:
        assert ended(below(os.getpid(), "raylet", "gcs_server", "ray::"), 60)


def test_what_every_job_would_meet_ends_the_sweep(run, store):
    jobs = [stub.cell(seed) for seed in range(3)]
    stub.mishap(store, jobs[0], "refuse")
    with pytest.raises(UserError, match=r"^this machine has other files$"):
        run(*jobs)


def when_running(store: Store, job, action) -> None:
    """Do something once a job is under way."""

    def wait() -> None:
        until(lambda: any(stub.attempts(store, job)))
        action()

    threading.Thread(target=wait).start()


@pytest.mark.parametrize("engine", [SLURM], indirect=True)
def test_near_its_time_limit_a_batch_goes_back_into_the_queue_and_a_cell_that_needs_more_fails(run, store):
    def cut() -> None:
        for attempt in range(1, slurm.CUTS * 3 + 1):
            while stub.attempts(store, long) < [attempt]:
                time.sleep(0.2)
            time.sleep(1)
            subprocess.run(["scancel", "--signal=USR2", "--name", slurm.job_name(store)], check=False)

    job, long = stub.cell(1), stub.cell(2)
    when_running(store, job, lambda: said("scancel", "--signal=USR2", "--name", slurm.job_name(store)))
    driven = run(job, seconds=5.0)
    assert (driven.finished, driven.lines, stub.attempts(store, job)) == ([job.id], [], [2])
    when_running(store, long, cut)
    assert "it takes longer than a Slurm job may: give --slurm a larger" in run(long, seconds=60.0).failed[long.id]


# Drivers


@pytest.fixture
def start(store):
    """Start a driver in a process of its own."""
    started = []

    def begin(engine: str, address: str = "", cpus: int = 1, folder: Path | None = None, **environment: str):
        words = [DRIVER, str(folder or store.folder), engine, *map(str, CELLS[engine]), address, str(cpus)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, "-c", *words], env={**os.environ, **environment}, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGKILL, ""),
        pytest.param(signal.SIGTERM, "terminated", marks=pytest.mark.slow),
    ],
)
def test_a_driver_ends_without_a_word_and_another_goes_on(run, start, store, engine, number, cause):
    """Ray's workers end with it, even after one of them was lost. Slurm's jobs outlive it but for Ctrl-C."""
    process, workers = start(engine), []
    if engine == "ray":
        until(lambda: len(store.recorded()) >= 3, process)
        below(process.pid, "ray::Slot")[0].kill()
        until(lambda: len(below(process.pid, "ray::Slot")) == 2, process)
        workers = below(process.pid, "ray::Slot")
    else:
        sent = lambda: sum(map(len, slurm.sent_jobs(store).values())) + len(store.recorded())  # noqa: E731
        until(lambda: store.recorded() and sent() >= 6, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (out.strip(), err) == (cause, "")
    assert ended(workers, 20)
    jobs = [stub.cell(seed) for seed in range(6)]
    if engine == "slurm":
        until(lambda: bool(live(store)) == (number != signal.SIGINT))
        driven = run(*(job for job in jobs if job.id not in store.recorded()), seconds=4.0)
        assert (len(store.recorded()), driven.failed, driven.lines) == (6, {}, [])
        assert number == signal.SIGINT or stub.attempts(store, *jobs) == [1] * 6
    with store.lock():
        pass


@pytest.fixture
def head(engine):  # noqa: ARG001 - whose environment its workers have
    """A cluster's head, started as a user starts it, in a home of its own, by which its processes are found.

    Its sockets need a short path. No test runs `ray stop`: it ends every cluster of the machine, those of others, too.
    """
    home = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Ray's workers would have the lowest priority, and wait for whatever else the machine does.
    environment = os.environ | {"HOME": str(home), "RAY_worker_niceness": "0"}
    small = f"--num-cpus=1 --object-store-memory={100 * 2**20} --disable-usage-stats --include-dashboard=false"
    for words in ("get-auth-token --generate", f"start --head --port={port} --temp-dir={home}/ray {small}"):
        program = str(Path(sys.executable).with_name("ray"))
        subprocess.run([program, *words.split()], env=environment, capture_output=True, check=True)

    def lose(name: str) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(home) and name in process.name():
                    process.kill()

    token = {"HOME": str(home), "RAY_AUTH_MODE": "token"}
    yield SimpleNamespace(address=f"127.0.0.1:{port}", token=token, lose=lose)
    lose("")
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray"], indirect=True)
def test_an_unusable_cluster_is_one_line_and_a_lost_head_ends_the_driver(start, head, store, engine, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        nothing = f"127.0.0.1:{stranger.getsockname()[1]}"
        for number, (line, address, cpus, environment) in enumerate((
            ("no machine has room for a job, which takes 2 CPUs and 0 GPUs (resources)", head.address, 2, head.token),
            (f"cannot use the Ray cluster at {head.address}: ", head.address, 1, head.token | {"HOME": "/nowhere"}),
            (f"no Ray cluster answers at {nothing} within 10 s", nothing, 1, head.token),
        )):  # fmt: skip
            process = start(engine, address, cpus, tmp_path / str(number), **environment)
            out, err = process.communicate(timeout=120)
            assert (process.returncode, out, err.count("\n")) == (1, "", 1)
            assert err.startswith(f"error: {line}")
    process = start(engine, head.address, **head.token)
    until(lambda: len(store.recorded()) >= 3, process)
    head.lose("gcs_server")
    _, err = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in err) == (1, False)
    finished = store.finished(stub.plan(*(stub.cell(seed) for seed in range(200))))
    assert (len(finished.records) >= 3, finished.problems) == (True, ())
