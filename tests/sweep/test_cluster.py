"""`--address` with clusters that `ray start` has made, by the recipe of docs/operations.md, and with what is none."""

import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from forked import CLI, Forked
from started import write_rte

pytest.importorskip("ray")
import heads

from glue_bench.errors import UserError
from glue_bench.sweep import cluster as module

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL"), pytest.mark.slow]

OURS = re.compile(r"checking the |computing on |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S|terminated: |error: |the head of ")
CELLS = 30
BUSY_SECONDS = 60.0
"""For what takes 10 seconds (SIGTERM), 20 (no answer), 30 (a lost head) on a machine that does nothing else."""


@pytest.fixture(scope="module")
def head():
    with heads.head() as made:
        yield made


@pytest.fixture
def config(tiny, write_yaml, tmp_path) -> Path:
    write_rte(tmp_path / "glue")
    values = {"data": str(tmp_path / "glue"), "arms": ["add"], "tasks": ["rte"], "seeds": [*range(CELLS)]}
    return write_yaml(tiny(**values, finetuning={"epochs": 4, "batch_size": 4}))


def home_with(folder: Path, token: str) -> Path:
    """A home with this token, if any."""
    (folder / "home" / ".ray").mkdir(parents=True)
    if token:
        (folder / "home" / ".ray" / "auth_token").write_text(token)
    return folder / "home"


def start(config: Path, results: Path, address: str, home: Path, *options: str) -> Forked:
    words = ("run", config, "--results", results, "--address", address, *options)
    return Forked(CLI, *words, GLUE_BENCH_CACHE=str(results / "cache"), HOME=str(home))


def ended(process: Forked) -> tuple[int | None, str, list[str]]:
    """Exit status, output, and the lines on standard error, none of which Ray has written."""
    out, err = process.communicate(timeout=400)
    lines = err.splitlines()
    print(err)  # shown if the test fails
    assert [line for line in lines if not OURS.match(line)] == []
    return process.returncode, out, lines


def wait_for(process: Forked, results: Path, count: int) -> None:
    deadline = time.monotonic() + 300
    while len(list((results / "tiny" / "records").glob("*.json"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_recipe_as_it_is_written(head, config, tmp_path):
    process = start(config, tmp_path / "runs", head.address, head.home, "--only", "seed=1")
    status, out, _ = ended(process)
    assert (status, "1 cells run, 0 were done before, 0 failed, 0 left" in out) == (0, True)


@pytest.mark.parametrize(
    ("token", "why"),
    [("", "it asks for a token, and this machine has none"), ("0123456789abcdef" * 4, "its token is not that of this")],
    ids=["none", "another"],
)
def test_without_the_clusters_token(head, config, tmp_path, token, why):
    status, out, lines = ended(start(config, tmp_path / "runs", head.address, home_with(tmp_path, token)))
    assert (status, out) == (2, "")
    assert lines[-1].startswith(f"error: cannot use the Ray cluster at '{head.address}': {why}")
    assert "copy ~/.ray/auth_token from the machine of its head" in lines[-1]


def test_a_cluster_that_asks_for_no_token_is_used_by_a_machine_that_has_one(config, tmp_path):
    with heads.head(asks_for_token=False) as made:
        status, out, _ = ended(start(config, tmp_path / "runs", made.address, made.home, "--only", "seed=1"))
    assert (status, "1 cells run" in out) == (0, True)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379"])
def test_where_nothing_listens(address):
    began = time.monotonic()
    with pytest.raises(UserError, match=rf"^cannot use the Ray cluster at '{re.escape(address)}': \S.* says how"):
        module._ask(address)
    assert time.monotonic() - began < BUSY_SECONDS


def reply(server: socket.socket, answer: bytes) -> None:
    with server.accept()[0] as client:
        client.sendall(answer)


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "no Ray"])
def test_where_something_else_listens(answer):
    with socket.create_server(("", 0)) as server:  # Ray looks for this machine at its address in the network
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if answer:
            threading.Thread(target=reply, args=(server, answer), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(UserError, match=rf"^cannot use the Ray cluster at '{address}': (?!.*refused)\S") as caught:
            module._ask(address)
    assert time.monotonic() - began < BUSY_SECONDS
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lost", ["gcs_server", ""], ids=["its head process", "its machine"])
def test_a_lost_head_ends_the_sweep_with_one_line(config, tmp_path, lost):
    with heads.head() as made:
        home = home_with(tmp_path, (made.home / ".ray" / "auth_token").read_text())
        process = start(config, tmp_path / "runs", made.address, home)
        wait_for(process, tmp_path / "runs", 1)
        made.lose(lost)
        began = time.monotonic()
        status, out, lines = ended(process)
        assert time.monotonic() - began < BUSY_SECONDS
    kept = len(list((tmp_path / "runs" / "tiny" / "records").glob("*.json")))
    assert (status, f"{kept} cells run, " in out) == (1, True)
    said = "the head of the Ray cluster has not answered for"
    assert [said in line and "finished cells are kept" in line for line in lines].count(True) == 1
    assert 1 <= kept < CELLS
    assert not (tmp_path / "runs" / "tiny" / "claims").exists()


def test_sigterm(head, config, tmp_path):
    process = start(config, tmp_path / "runs", head.address, head.home)
    wait_for(process, tmp_path / "runs", 1)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    status, _, lines = ended(process)
    assert time.monotonic() - began < BUSY_SECONDS
    assert (status, lines[-1].startswith("terminated: finished cells are kept")) == (143, True)
    assert not (tmp_path / "runs" / "tiny" / "claims").exists()
