"""Ctrl-C as a terminal sends it: to every process of the foreground, the sweep's helpers among them. SIGTERM, too."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from started import finish, write_rte

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="needs SIGINT"), pytest.mark.slow]

CELLS = 8


@pytest.fixture
def config(tiny, write_yaml, tmp_path) -> Path:
    """Cells of a second or so each."""
    write_rte(tmp_path / "glue")
    finetuning = {"epochs": 12, "batch_size": 4}
    return write_yaml(
        tiny(data=str(tmp_path / "glue"), arms=["add"], tasks=["rte"], seeds=[*range(CELLS)], finetuning=finetuning)
    )


@pytest.fixture
def start(config):
    """Start a sweep; none is left where the test fails."""
    with ExitStack() as ending:

        def begin(results: Path, *options: str) -> subprocess.Popen:
            command = [sys.executable, "-m", "glue_bench.cli", "run", str(config), "--results", str(results), *options]
            environment = os.environ | {"GLUE_BENCH_CACHE": str(results / "cache"), "OMP_NUM_THREADS": "1"}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
            ending.enter_context(process)
            ending.callback(process.kill)
            return process

        yield begin


def records(results: Path) -> int:
    return len(list((results / "tiny" / "records").glob("*.json")))


def wait_for(process: subprocess.Popen, results: Path, count: int) -> None:
    deadline = time.monotonic() + 900
    while records(results) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(process: subprocess.Popen, status: int = 130, cause: str = "interrupted") -> str:
    output, _ = process.communicate(timeout=900)
    assert process.returncode == status, output
    assert "Traceback" not in output, output
    assert output.count(f"{cause}: finished cells are kept; the same command goes on from here") == 1, output
    return output


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["inline", "workers"])
def test_ctrl_c_once_and_twice(start, tmp_path, options):
    if options:
        pytest.importorskip("ray")
    results = tmp_path / "runs"
    once = start(results, *options)
    wait_for(once, results, 1)
    os.killpg(once.pid, signal.SIGINT)
    output = ended(once)
    assert output.count("stopping: nothing is started any more; Ctrl-C again gives up those that run") == 1
    ran = int(re.search(r"(\d+) cells run, ", output)[1])
    assert (records(results), "0 failed" in output) == (ran, True), output
    assert 1 <= ran < CELLS
    assert not (results / "tiny" / "claims").exists()

    twice = start(results, *options)
    wait_for(twice, results, ran + 1)
    time.sleep(0.4)  # the next cell runs
    os.killpg(twice.pid, signal.SIGINT)
    time.sleep(0.05)
    os.killpg(twice.pid, signal.SIGINT)
    output = ended(twice)
    kept = records(results)
    assert f" {ran} were done before, 0 failed, " in output
    assert kept < CELLS
    assert not (results / "tiny" / "claims").exists()

    last = start(results, *options)
    assert f"{CELLS - kept} cells run, {kept} were done before, 0 failed, 0 left" in finish(last)


def test_sigterm_to_all_of_them(start, tmp_path):
    pytest.importorskip("ray")
    results = tmp_path / "runs"
    process = start(results, "--workers", "2")
    wait_for(process, results, 1)
    os.killpg(process.pid, signal.SIGTERM)
    output = ended(process, 143, "terminated")
    assert "***" not in output  # Ray's own handler would write where it was
    assert not (results / "tiny" / "claims").exists()
    assert 1 <= records(results) < CELLS
