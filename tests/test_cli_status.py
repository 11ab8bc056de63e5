"""`glue-bench status`: once, and again and again."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from stored import plan_with, record_of

from glue_bench.records.record import FailureRecord
from glue_bench.records.store import Store
from glue_bench.sweep.claims import Claims

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals and terminals")


@pytest.fixture
def folder(tmp_path) -> Path:
    """An experiment of three cells, one of them done."""
    store = Store(tmp_path / "x")
    store.prepare()
    store.write_plan(plan_with(*({"cell_id": f"c{i}", "seed": i} for i in range(3))))
    end(store.folder, "c0")
    return store.folder


def end(folder: Path, cell_id: str) -> None:
    path = folder / "records" / f"{cell_id}.json"
    record = record_of(cell_id=cell_id, tokens={"training": 10})
    path.with_suffix(".aside").write_text(json.dumps(record.document()))
    path.with_suffix(".aside").replace(path)


@pytest.fixture
def watching(folder):
    """Start `status --watch` on the folder; whatever becomes of the test, it ends."""
    with ExitStack() as started:

        def start(**streams) -> subprocess.Popen:
            program = str(Path(sys.executable).with_name("glue-bench"))
            process = subprocess.Popen([program, "status", str(folder), "--watch", "--interval", "0.1"], **streams)
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start


def test_what_runs_is_said(glue_bench, folder):
    with Claims(folder / "claims") as claims:
        claims.take("c1")
        said = glue_bench("status", folder)
    assert said.status == 0
    lines = said.out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["arm", "done", "running", "failed", "missing"], ["add", "1", "1", "0", "1"],
    ]  # fmt: skip
    assert lines[2].startswith("running: add on rte, rate 0.001, seed 1 (")
    assert lines[-1] == f"1 of 3 cells done in {folder}"


def test_only_failures_of_what_the_plan_asks_for_are_listed(glue_bench, folder):
    for cell_id in ("c1", "of-an-earlier-plan"):
        Store(folder).write_failure(FailureRecord(cell_id=cell_id, error="out of luck"))
    said = glue_bench("status", folder).out
    assert "failed: c1: out of luck" in said
    assert "of-an-earlier-plan" not in said


def test_in_a_pipe_there_is_a_line_a_change_until_nothing_is_missing(folder, watching):
    process = watching(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    first = process.stdout.readline()
    assert first.endswith(" 1 of 3 done, 0 running, 0 failed, 2 missing\n")
    time.sleep(0.3)
    end(folder, "c1")
    assert process.stdout.readline().endswith(" 2 of 3 done, 0 running, 0 failed, 1 missing\n")
    Store(folder).write_failure(FailureRecord(cell_id="c2", error="out of luck"))
    rest, _ = process.communicate(timeout=600)
    assert rest.splitlines()[0].endswith(" 2 of 3 done, 0 running, 1 failed, 0 missing")
    assert "failed: c2: out of luck" in rest
    assert process.returncode == 1


def test_in_a_terminal_ctrl_c_ends_it_with_the_counts_and_no_traceback(watching):
    main, terminal = pty.openpty()
    process = watching(stdout=terminal, stderr=terminal, stdin=terminal)
    os.close(terminal)
    shown = read_until(main, b"1 of 3 done")
    process.send_signal(signal.SIGINT)
    shown += read_until(main, b"cells done in")
    assert process.wait(timeout=600) == 130
    os.close(main)
    assert b"Traceback" not in shown
    assert b"Aborted" not in shown


def read_until(handle: int, words: bytes) -> bytes:
    found, give_up = b"", time.monotonic() + 60
    while words not in found and time.monotonic() < give_up:
        if select.select([handle], [], [], 1)[0]:
            found += os.read(handle, 65536)
    assert words in found
    return found


def test_an_end_is_an_end_at_once(glue_bench, folder):
    for cell in ("c1", "c2"):
        end(folder, cell)
    said = glue_bench("status", folder, "--watch", "--interval", "60")
    assert (said.status, said.out.splitlines()[-1]) == (0, f"3 of 3 cells done in {folder}")
