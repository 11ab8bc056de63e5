"""One file per claim, so that sweeps that share a results folder never work on the same thing.

`<folder>/<name>` says who works on it. A claim ends with its owner's release, or is taken over once it is stale: its
owner, a process of this machine, is gone; or, where that cannot be asked, its heartbeat has stopped. Whoever takes a
claim may also say whose work hangs. Another user's claim, which we may not write, is deleted and made anew.
"""

import contextlib
import errno
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from pydantic import Field

from glue_bench.errors import UserError
from glue_bench.files import check_file, parse_json, read_file, results_written_to
from glue_bench.records.value import StoredValue

try:
    import fcntl
except ImportError:  # Windows; there the moment of taking over is not guarded
    fcntl = None  # type: ignore[assignment]

BEAT_SECONDS = 20.0
STALE_SECONDS = 180.0
LOOK_SECONDS = 1.0
TRIES = 100
_ALIVE: set[str] = set()
"""Tokens of this process's sweeps that have not ended: one that could not write cannot release its claims either."""


class Claims:
    """The claims of one sweep; a context in which they stay alive, and at whose end all are released.

    `denied` are the names of claims of other users that nobody works on, and that we may not take over.
    """

    def __init__(self, folder: Path, beat_seconds: float = BEAT_SECONDS, stale_seconds: float = STALE_SECONDS) -> None:
        self.folder = folder
        self.beat_seconds = beat_seconds
        self.stale_seconds = stale_seconds
        self.own = _Owner(machine=_machine(), pid=os.getpid(), started=_started(os.getpid()), token=uuid.uuid4().hex)
        self.denied: set[str] = set()
        self._held: set[str] = set()
        self._beats: dict[str, tuple[int, float, float]] = {}
        self._end = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True, name="claims")

    def __enter__(self) -> Self:
        _ALIVE.add(self.own.token)
        self._heart.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._heart.join()
        with contextlib.suppress(OSError):  # the user has heard by now that the folder cannot be written
            # Ours, one that a signal has met as it was being taken among them, and what killed sweeps have left behind.
            for path in [*self.folder.iterdir()]:
                with contextlib.suppress(OSError, UserError):
                    self._take_over(path.name)
                    self.release(path.name)
            self.folder.rmdir()
        _ALIVE.discard(self.own.token)

    def take(self, name: str, hanging: str | None = None) -> bool:
        """Whether it is ours now, as it may have been before.

        False while another one works on it, unless that is the one that is `hanging`.

        Raises:
            UserError: the folder cannot be written.
        """
        with results_written_to(self.folder):
            if not (self._create(name) or self._take_over(name, hanging)):
                return False
        self._held.add(name)
        return True

    def take_all(self, names: Collection[str], on_wait: Callable[[list[str]], None]) -> set[str]:
        """Take those that can be taken.

        A claim whose owner cannot be asked after is watched until it beats, and stays, or until it is stale; `on_wait`
        is told which claims these are.

        Raises:
            UserError: as `take`.
        """
        taken = {name for name in names if self.take(name)}
        silent = [name for name in names if name not in taken | self.denied and name in self._beats]
        if silent:
            on_wait(silent)
        give_up = time.monotonic() + 1.5 * self.stale_seconds
        while silent and time.monotonic() < give_up:
            time.sleep(min(LOOK_SECONDS, self.stale_seconds))
            taken |= {name for name in silent if self.take(name)}
            silent = [name for name in silent if name not in taken | self.denied and self._is_silent(name)]
        return taken

    def _is_silent(self, name: str) -> bool:
        """Whether the last look at it has seen no sign of life of an owner that cannot be asked after."""
        return name in self._beats and self._beats[name][2] > 0

    def holds(self, name: str) -> bool:
        """Whether it is still ours: another one may have taken it over while this process was suspended.

        One that cannot be read at the moment is. One that is gone may have been another's in between.
        """
        try:
            with _locked(self.folder / name) as file:
                return file is not None and _parse(file.read()) in (self.own, None)
        except OSError:
            return True

    def owner(self, name: str) -> str | None:
        """The process that works on it (host:pid), if that can be read."""
        claim = _look(self.folder / name)
        return claim.worker if claim else None

    def release(self, name: str) -> None:
        """Give it up, whether or not the work is done."""
        self._held.discard(name)
        with results_written_to(self.folder), _locked(self.folder / name) as file:
            if file and _parse(file.read()) == self.own:
                (self.folder / name).unlink()

    def _create(self, name: str, tries: int = TRIES) -> bool:
        with contextlib.suppress(FileExistsError):  # it was there, and is gone by now
            self.folder.mkdir(parents=True, exist_ok=True)
        try:
            # As the umask has it: whoever shares the folder with us as a group has to take a dead one's claim over.
            handle = os.open(self.folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        except FileNotFoundError:  # another sweep ended in between, and took the empty folder with it
            if not tries:
                raise
            return self._create(name, tries - 1)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.own.dump())
        except BaseException:  # a full disk, a signal: an empty claim would keep everyone out until it is stale
            (self.folder / name).unlink()
            raise
        return True

    def _take_over(self, name: str, hanging: str | None = None) -> bool:
        """Under the lock of the claim's own file, so that of several who find it stale one gets it."""
        self.denied.discard(name)
        with _locked(self.folder / name) as file:
            if file is None:  # gone, or not even to be read: the heartbeat is seen all the same
                with contextlib.suppress(FileNotFoundError):
                    if self._is_stale(name, None, (self.folder / name).stat().st_mtime_ns):
                        self.denied.add(name)
                return False
            owner = _parse(file.read())
            hangs = owner is not None and owner.worker == hanging
            if owner != self.own and not hangs and not self._is_stale(name, owner, os.fstat(file.fileno()).st_mtime_ns):
                return False
            if not file.writable():
                return self._replace(name)
            file.seek(0)
            file.truncate()
            file.write(self.own.dump())
            return True

    def _replace(self, name: str) -> bool:
        """Make anew what we may not write. We have its lock: whoever waits for that one then sees another file."""
        try:
            (self.folder / name).unlink()
        except PermissionError:
            self.denied.add(name)
            return False
        return self._create(name)

    def _is_stale(self, name: str, owner: "_Owner | None", beat: int) -> bool:
        if owner and (lives := _lives(owner)) is not None:
            self._beats.pop(name, None)
            return not lives or (owner.pid == self.own.pid and owner.token not in _ALIVE)
        # Another machine's clock may be wrong, and so may ours: what counts is how long we have seen no new beat. Where
        # we have not looked for longer than a beat, we may have stood still, and the owner with us.
        now = time.monotonic()
        last, looked, silent = self._beats.get(name, (0, now, 0.0))
        silent = silent + min(now - looked, self.beat_seconds) if last == beat else 0.0
        self._beats[name] = (beat, now, silent)
        return silent > self.stale_seconds

    def _beat(self) -> None:
        while not self._end.wait(self.beat_seconds):
            for name in list(self._held):
                # Nobody waits here: one lock that is stuck would stop the heartbeats of all the others, too.
                with contextlib.suppress(OSError), _locked(self.folder / name, waits=False) as file:
                    if file and _parse(file.read()) not in (self.own, None):  # lost: whoever has it keeps it alive
                        self._held.discard(name)
                    elif file:
                        os.utime(self.folder / name)


class _Owner(StoredValue):
    """A process. `started` is None where the system does not tell; then only the heartbeat counts."""

    machine: str = Field(pattern=r"^\S")
    pid: int = Field(gt=0, lt=2**31)
    started: int | None
    token: str

    @property
    def worker(self) -> str:
        """host:pid."""
        return f"{self.machine.split()[0]}:{self.pid}"

    def dump(self) -> bytes:
        return json.dumps(self.document()).encode()


@dataclass(frozen=True)
class Claim:
    """What someone works on. `is_alive` is false where the owner is gone, or has long not been heard of.

    `is_gone` says that it is known to be gone, whatever any clock says.
    """

    name: str
    worker: str
    is_alive: bool
    is_gone: bool


def read_claims(folder: Path) -> list[Claim]:
    """All claims in a folder, by name; none where there is no folder. Takes nothing over."""
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [claim for path in paths if (claim := _look(path))]


def _look(path: Path) -> Claim | None:
    try:
        owner, beat = _parse(read_file(path)), path.stat().st_mtime
    except OSError:  # released in between
        return None
    if owner is None:
        return None
    lives = _lives(owner)
    # Only a look: where the owner cannot be asked after, the clocks of both machines may count.
    alive = time.time() - beat < STALE_SECONDS if lives is None else lives
    return Claim(path.name, owner.worker, alive, is_gone=lives is False)


def _machine() -> str:
    """This machine since it was started, and its table of processes: containers of one host have their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        table = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()} {boot} {table}"


def _lives(owner: _Owner) -> bool | None:
    """Whether the owner is there; None where that cannot be asked, so that only the heartbeat counts."""
    if owner.machine != _machine() or owner.started is None:
        return None
    started = _started(owner.pid)
    if started is None:  # gone, or hidden from other users (hidepid)
        try:
            os.kill(owner.pid, 0)
        except PermissionError:
            return None
        except ProcessLookupError:
            pass
    return started == owner.started


def _started(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since the machine did; None if there is none, or no /proc.

    With the pid it names a process: pids come again. A clock that is set changes neither.
    """
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = line.rpartition(")")[2].split()  # the name before it may hold anything
    return None if state in "ZX" else int(fields[18])  # proc(5): field 22


def _parse(content: bytes) -> _Owner | None:
    """The owner; None of a claim that is just being written."""
    try:
        return _Owner.model_validate(parse_json(content))
    except ValueError:
        return None


@contextlib.contextmanager
def _locked(path: Path, *, waits: bool = True) -> Iterator[IO[bytes] | None]:
    """A claim's file, locked; None if there is none, it is released in between, or only another user may read it.

    Of another user's it is read only.

    Raises:
        BlockingIOError: another process has locked it, and this one does not wait.
    """
    try:
        file = _opened(path)
    except (FileNotFoundError, PermissionError):
        yield None
        return
    with file:
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            is_there = path.stat().st_ino == os.fstat(file.fileno()).st_ino
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EBADF):  # EBADF: NFS locks no file that is only read
                raise
            is_there = False
        yield file if is_there else None


def _opened(path: Path) -> IO[bytes]:
    """A plain file, to be written too where we may. Not through a link, which may lead to any file of ours."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} in it is a link; delete it", str(path))
    check_file(path)

    def itself(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))

    try:
        return open(path, "r+b", buffering=0, opener=itself)
    except PermissionError:
        return open(path, "rb", buffering=0, opener=itself)
