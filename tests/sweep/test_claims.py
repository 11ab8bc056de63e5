"""Claims: one owner at a time; a dead owner's is taken over, a live one's never."""

import fcntl
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from forked import CONTEXT

from glue_bench.errors import UserError
from glue_bench.sweep import claims as module
from glue_bench.sweep.claims import Claims

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

MANY = 80  # claims that three processes want at once; enough that they meet
OTHER = """
import sys
from pathlib import Path
from glue_bench.sweep.claims import Claims

with Claims(Path(sys.argv[1])) as claims:
    print(claims.take("cell"), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "claims"


@pytest.fixture
def other(folder):
    """Another process that has claimed `cell`."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def owner(folder: Path, **changes) -> None:
    """Write a claim as if another process had made it."""
    own = Claims(folder).own
    folder.mkdir(exist_ok=True)
    (folder / "cell").write_text(json.dumps({**own.__dict__, "token": "another", **changes}))


@pytest.mark.parametrize("interrupted", ["_create", "dump"])
def test_a_signal_that_comes_as_a_claim_is_taken_leaves_none(folder, monkeypatch, interrupted):
    def then_interrupt(function):
        def call(*arguments):
            function(*arguments)
            raise KeyboardInterrupt

        return call

    owner = module.Claims if interrupted == "_create" else module._Owner
    monkeypatch.setattr(owner, interrupted, then_interrupt(getattr(owner, interrupted)))
    with pytest.raises(KeyboardInterrupt), Claims(folder) as claims:
        claims.take("cell")
    assert not folder.exists()


def test_a_claim_has_one_owner_until_it_is_released(folder):
    with Claims(folder) as first, Claims(folder) as second:
        assert first.take("cell")
        assert not second.take("cell")
        assert second.take("another")
        assert (first.holds("cell"), second.holds("cell")) == (True, False)
        first.release("cell")
        assert second.take("cell")
        first.release("cell")  # no longer ours
        assert second.holds("cell")
    assert not folder.exists()


def test_a_live_process_keeps_its_claim_and_a_killed_one_loses_it(folder, other):
    with Claims(folder, stale_seconds=0) as claims:
        os.utime(folder / "cell", (0, 0))  # a clock that jumped: nothing to go by on the same machine
        assert not claims.take("cell")
        other.kill()
        other.wait()
        assert claims.take("cell")


def test_a_process_that_ends_releases_its_claims(folder, other):
    other.communicate("")
    assert not folder.exists()


def test_a_pid_that_came_again_is_not_the_owner(folder):
    owner(folder, started=1)
    with Claims(folder) as claims:
        assert claims.take("cell")


def test_another_machine_keeps_its_claim_while_its_heart_beats(folder):
    owner(folder, machine="elsewhere")
    with Claims(folder, stale_seconds=0.2) as claims:
        for second in (1000, 1, 2000, 3):  # whatever its clock says
            os.utime(folder / "cell", (second, second))
            assert not claims.take("cell")
            time.sleep(0.15)
        assert not claims.take("cell")
        time.sleep(0.25)
        assert claims.take("cell")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"machine": "x"}'])
def test_a_claim_that_cannot_be_read_lives_as_long_as_it_is_young(folder, content):
    folder.mkdir()
    (folder / "cell").write_bytes(content)
    with Claims(folder, stale_seconds=0.1) as claims:
        assert not claims.take("cell")
        time.sleep(0.15)
        assert claims.take("cell")


def test_the_heart_beats(folder):
    with Claims(folder, beat_seconds=0.02) as claims:
        claims.take("cell")
        os.utime(folder / "cell", (0, 0))
        deadline = time.monotonic() + 5
        while (folder / "cell").stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_claim_lost_while_suspended_is_noticed(folder):
    with Claims(folder) as claims:
        claims.take("cell")
        owner(folder, machine="elsewhere")
        assert not claims.holds("cell")
        claims.release("cell")
        assert (folder / "cell").exists()
    (folder / "cell").unlink()


def test_a_claim_that_cannot_be_read_now_is_still_ours_and_one_that_is_gone_is_taken_again(folder, monkeypatch):
    def faulty(*_, **__):
        raise OSError(5, "Input/output error")

    with Claims(folder) as claims:
        claims.take("cell")
        monkeypatch.setattr(module.os, "open", faulty)
        assert claims.holds("cell")
        monkeypatch.undo()
        assert claims.take("cell")  # nothing that is ours is denied to us
        (folder / "cell").unlink()
        assert not claims.holds("cell")
        assert claims.take("cell")


def test_what_killed_sweeps_left_behind_is_cleared_away(folder):
    owner(folder, started=1)
    with Claims(folder) as claims:
        claims.take("another")
    assert not folder.exists()


def test_a_sweep_of_this_process_that_could_not_release_does_not_block_the_next(folder):
    with Claims(folder) as first:
        first.take("cell")
        kept = (folder / "cell").read_bytes()
        with Claims(folder) as second:
            assert not second.take("cell")
    folder.mkdir()
    (folder / "cell").write_bytes(kept)  # as on a disk that was read-only
    with Claims(folder) as again:
        assert again.take("cell")


def test_who_comes_second_to_a_stale_claim_sees_that_it_is_taken(folder):
    owner(folder, started=1)
    with Claims(folder) as claims, ThreadPoolExecutor(1) as pool, (folder / "cell").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another sweep is just taking it over
        second = pool.submit(claims.take, "cell")
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        owner(folder)
        live = json.loads((folder / "cell").read_text())["token"]
        module._ALIVE.add(live)
        fcntl.flock(file, fcntl.LOCK_UN)
        assert second.result(timeout=5) is False
        module._ALIVE.discard(live)


def take_over(folder: Path, barrier, queue) -> None:
    claims = Claims(folder)
    barrier.wait()
    for name in range(MANY):
        if claims.take(str(name)):
            queue.put((name, os.getpid()))
    queue.put(None)
    barrier.wait()  # none is dead before all have tried


@pytest.mark.parametrize("stale", [True, False])
def test_of_many_at_once_exactly_one_gets_each_claim(folder, stale):
    folder.mkdir()
    for name in range(MANY if stale else 0):
        owner(folder, started=1)
        (folder / "cell").rename(folder / str(name))
    barrier, queue = CONTEXT.Barrier(3), CONTEXT.Queue()
    processes = [CONTEXT.Process(target=take_over, args=(folder, barrier, queue)) for _ in range(3)]
    for process in processes:
        process.start()
    taken, ended = [], 0
    while ended < 3:
        item = queue.get(timeout=60)
        ended += item is None
        taken += [item] if item else []
    for process in processes:
        process.join()
    assert sorted(name for name, _ in taken) == list(range(MANY))


def test_a_folder_that_cannot_be_written_is_one_message(folder, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with Claims(folder) as claims:
        monkeypatch.setattr(module.os, "open", full)
        with pytest.raises(UserError, match=r"cannot write to .*claims'.*No space left.*the same command goes on"):
            claims.take("cell")
        monkeypatch.undo()
