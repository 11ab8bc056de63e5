"""Claims that others have left, lost, hidden or replaced: taken over where that is right, and never harmed."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glue_bench.errors import UserError
from glue_bench.sweep import claims as module
from glue_bench.sweep.claims import Claims, read_claims

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "claims"


def write(folder: Path, **changes) -> Path:
    """A claim on `cell` as if another process of this machine had made it."""
    folder.mkdir(exist_ok=True)
    (folder / "cell").write_text(json.dumps({**Claims(folder).own.__dict__, "token": "another", **changes}))
    return folder / "cell"


@pytest.fixture
def ended():
    """The pid of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def of_another_user(monkeypatch):
    """Claims that were there before may be read and not written; with `unlink` or `read` not that either."""

    def make(path: Path, *, unlink=False, read=False) -> None:
        number, opened, unlinked = path.stat().st_ino, os.open, Path.unlink

        def is_theirs(name) -> bool:
            return os.path.exists(name) and os.stat(name).st_ino == number  # noqa: PTH110, PTH116

        def open_(name, flags, *more, **others):
            if is_theirs(name) and not flags & os.O_EXCL and (read or flags & os.O_RDWR):
                raise PermissionError(13, "Permission denied")
            return opened(name, flags, *more, **others)

        def unlink_(name, *more, **others):
            if unlink and is_theirs(name):
                raise PermissionError(1, "Operation not permitted")
            unlinked(name, *more, **others)

        monkeypatch.setattr(module.os, "open", open_)
        monkeypatch.setattr(Path, "unlink", unlink_)

    return make


def test_a_heart_does_not_beat_for_a_claim_that_was_lost(folder):
    with Claims(folder, beat_seconds=0.02) as claims:
        claims.take("cell")
        path = write(folder, machine="elsewhere")  # taken over while this process was suspended
        os.utime(path, (1, 1))
        time.sleep(0.3)
        assert path.stat().st_mtime == 1
        path.unlink()
        assert claims.take("cell")  # and it beats again for one that is ours again
        os.utime(path, (1, 1))
        give_up = time.monotonic() + 5
        while path.stat().st_mtime == 1:
            assert time.monotonic() < give_up
            time.sleep(0.01)


def test_a_lock_that_is_stuck_stops_no_heart_of_another_claim(folder):
    with Claims(folder, beat_seconds=0.02) as claims:
        claims.take("cell")
        with (folder / "cell").open("r+b") as stuck:
            fcntl.flock(stuck, fcntl.LOCK_EX)
            claims.take("another")
            path = folder / "another"
            for at in (1, 2):
                os.utime(path, (at, at))
                give_up = time.monotonic() + 5
                while path.stat().st_mtime == at:
                    assert time.monotonic() < give_up
                    time.sleep(0.01)


def test_a_dead_claim_of_another_user_is_deleted_and_made_anew(folder, of_another_user, ended):
    path = write(folder, pid=ended)
    of_another_user(path)
    before = path.stat().st_ino
    with Claims(folder) as claims, path.open():
        assert claims.take("cell")
        assert claims.holds("cell")
        assert path.stat().st_ino != before
    assert not folder.exists()


def test_a_live_claim_of_another_user_stays(folder, of_another_user):
    path = write(folder, pid=os.getppid(), started=module._started(os.getppid()))
    of_another_user(path)
    with Claims(folder) as claims:
        assert not claims.take("cell")
        assert claims.denied == set()
        assert path.exists()


@pytest.mark.parametrize("read", [False, True])
def test_a_dead_claim_that_nobody_may_delete_is_noted(folder, of_another_user, ended, read):
    path = write(folder, pid=ended)
    of_another_user(path, unlink=True, read=read)
    with Claims(folder, stale_seconds=0.1) as claims:
        assert not claims.take("cell")
        if read:
            assert claims.denied == set()
            time.sleep(0.15)
            assert not claims.take("cell")
        assert claims.denied == {"cell"}
        assert not claims.holds("cell")


def test_a_claim_is_not_written_through_a_link(folder, tmp_path, ended):
    precious = write(folder, pid=ended).rename(tmp_path / "precious")
    before = precious.read_bytes()
    for target in (precious, tmp_path / "nowhere"):
        (folder / "cell").unlink(missing_ok=True)
        (folder / "cell").symlink_to(target)
        with Claims(folder) as claims, pytest.raises(UserError, match=r"claims': cell in it is a link; delete it"):
            claims.take("cell")
    assert precious.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()


def test_a_link_that_comes_at_the_last_moment_is_not_followed_either(folder, tmp_path, ended, monkeypatch):
    precious = write(folder, pid=ended).rename(tmp_path / "precious")
    before = precious.read_bytes()
    (folder / "cell").symlink_to(precious)
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    with Claims(folder) as claims, pytest.raises(UserError, match="cannot write to"):
        claims.take("cell")
    assert precious.read_bytes() == before


@pytest.fixture
def hidden(monkeypatch):
    """A system that shows a user no processes but his own (hidepid), and his own are not those of the claims."""
    own = os.getpid()
    started = module._started
    monkeypatch.setattr(module, "_started", lambda pid: started(pid) if pid == own else None)

    def kill(pid, number):
        assert number == 0
        if pid == 2:
            raise ProcessLookupError
        raise PermissionError

    monkeypatch.setattr(module.os, "kill", kill)


@pytest.mark.usefixtures("hidden")
def test_an_owner_that_is_hidden_lives_as_long_as_its_heart_beats(folder):
    path = write(folder, pid=1, started=5)
    with Claims(folder, stale_seconds=0.2) as claims:
        assert not claims.take("cell")
        assert [claim.is_alive for claim in read_claims(folder)] == [True]
        time.sleep(0.3)
        os.utime(path, (5, 5))
        assert not claims.take("cell")
        time.sleep(0.3)
        assert claims.take("cell")


@pytest.mark.usefixtures("hidden")
def test_an_owner_that_is_not_even_hidden_is_dead(folder):
    write(folder, pid=2, started=5)
    assert [claim.is_alive for claim in read_claims(folder)] == [False]
    with Claims(folder) as claims:
        assert claims.take("cell")


@pytest.mark.parametrize("pid", [0, -1, 2**31, 10**30])
def test_a_claim_of_what_can_be_no_process_cannot_be_read(folder, pid):
    write(folder, pid=pid)
    assert read_claims(folder) == []
    with Claims(folder) as claims:
        assert not claims.take("cell")


def test_time_in_which_nobody_looked_hardly_counts(folder, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    path = write(folder, machine="elsewhere")
    claims = Claims(folder)
    for _ in range(3):  # suspended together with the owner, or a server that did not answer
        assert not claims.take("cell")
        now[0] += 3600
    os.utime(path, (7, 7))
    for _ in range(10):
        assert not claims.take("cell")
        now[0] += 20
    assert claims.take("cell")


def test_a_folder_that_goes_as_it_is_made_is_made_again(folder, monkeypatch):
    mkdir, left = Path.mkdir, [3]

    def make(path, *more, **others):
        mkdir(path, *more, **others)
        if path == folder and left[0]:
            left[0] -= 1
            folder.rmdir()  # another sweep ends
            if left[0]:
                raise FileExistsError(17, "File exists")

    monkeypatch.setattr(Path, "mkdir", make)
    with Claims(folder) as claims:
        assert claims.take("cell")


def test_a_folder_that_cannot_be_is_no_reason_to_try_for_ever(folder):
    folder.symlink_to("nowhere")
    with Claims(folder) as claims, pytest.raises(UserError, match="cannot write to"):
        claims.take("cell")
    with contextlib.suppress(FileNotFoundError):
        folder.unlink()


def test_dead_claims_of_another_boot_are_taken_after_a_while_and_live_ones_left(folder):
    own = write(folder, machine="elsewhere").rename(folder / "live")
    write(folder, pid=os.getppid(), started=module._started(os.getppid())).rename(folder / "here")
    write(folder, machine="elsewhere").rename(folder / "dead")
    waited, end = [], threading.Event()
    heart = threading.Thread(target=lambda: [os.utime(own) for _ in iter(lambda: end.wait(0.02), True)])
    heart.start()
    with Claims(folder, stale_seconds=0.2) as claims:
        taken = claims.take_all(["live", "here", "dead", "free"], waited.append)
        end.set()
        heart.join()
        assert taken == {"dead", "free"}
        assert waited == [["live", "dead"]]
        assert claims.holds("dead")
