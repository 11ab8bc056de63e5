"""One verdict on any input: a verb ends as documented, in one line, soon, in little memory, and harms nothing."""

import contextlib
import io
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCUMENTED = (0, 1, 2)
SAID = 1024  # bytes of a refusal, and of any line of a report
RESIDENT = 300 * 2**20  # bytes by which a verb may grow the process
ALLOCATED = 2 * 2**30  # bytes beyond which the system gives it no more, so that no input can stop the machine
BUSY, ELAPSED = 20.0, 300.0  # seconds of the processor, and on the wall without any of the processor
UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
PROGRESS = re.compile(r"(?m)^(checking|reading|asking) [^\n]* \.\.\.\n")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.remove": 1, "os.rmdir": 1, "os.truncate": 9} | dict.fromkeys(
    ("os.mkdir", "os.chmod", "os.rename", "os.link", "os.symlink"), 2
)
"""Audit events, and which of their arguments is the folder that the path is relative to."""
_FOREIGN = {"os.exec", "os.fork", "os.posix_spawn", "os.system", "socket.connect", "socket.getaddrinfo"}
_touched: list[str] | None = None


class TooLongError(BaseException):
    """No `except Exception` catches it."""


@dataclass
class Outcome:
    """What a verb did; `complaints` is empty where it behaved."""

    words: tuple[str, ...]
    status: int | None
    out: str
    err: str
    seconds: float
    grown: int
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        said = f"status {self.status}, {self.seconds:.1f} s, {self.grown >> 20} MiB"
        words = " ".join(ascii(word) for word in self.words)
        return "\n".join([f"glue-bench {words}: {said}", *self.complaints, self.err[:3000], self.out[:3000]])


def judge(words: Sequence[object], writes: Sequence[Path] = ()) -> Outcome:
    """Call a verb in this process, and say what is wrong with how it took it; it may write below `writes` alone."""
    given = tuple(map(str, words))
    status, out, err, seconds, grown, crash, touched = _call(given)
    complaints = [*crash]
    if not crash and status not in DOCUMENTED:
        complaints.append(f"exit status {status}")
    allowed = (*(str(place) for place in writes), os.environ["GLUE_BENCH_CACHE"], tempfile.gettempdir(), "/dev/null")
    complaints += [f"touched {place}" for place in touched if not place.startswith(allowed)]
    if grown > RESIDENT:
        complaints.append(f"grew by {grown >> 20} MiB")
    complaints += _of_what_is_said(status, out, PROGRESS.sub("", err))
    return Outcome(given, status, out, err, seconds, grown, complaints)


def _of_what_is_said(status: int | None, out: str, err: str) -> Iterator[str]:
    if UNSHOWN.search(out + err):
        yield f"control characters: {sorted(set(UNSHOWN.findall(out + err)))}"
    if "Traceback" in out + err or "panicked" in out + err:
        yield "a traceback"
    if status == 2:
        if out or not err.startswith("error: ") or err.count("\n") != 1:
            yield "the refusal is not one line"
        if len(err.encode(errors="replace")) > SAID:
            yield f"a refusal of {len(err)} characters"
    longest = max((len(line.encode(errors="replace")) for line in (out + err).splitlines()), default=0)
    if longest > SAID:
        yield f"a line of {longest} bytes"


def _call(words: tuple[str, ...]) -> tuple[int | None, str, str, float, int, list[str], list[str]]:
    """Exit status, what reached the two descriptors, seconds, bytes grown, a crash if there was one, and changes."""
    from glue_bench import cli

    global _touched
    status, crash, argv = None, list[str](), sys.argv
    with _captured() as texts:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, begun = _resident("VmRSS"), time.monotonic()
        _touched = []
        try:
            sys.argv = ["glue-bench", *words]
            with _bounded():
                cli.main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            crash = [traceback.format_exc(limit=-6)]
        finally:
            touched, _touched, sys.argv = _touched, None, argv
        seconds, grown = time.monotonic() - begun, _resident("VmHWM") - before
    return status, *texts, seconds, grown, crash, touched


@contextlib.contextmanager
def _captured() -> Iterator[list[str]]:
    """What reaches the descriptors 1 and 2, as a pipe would hear it: libraries in Rust write past Python's streams."""
    texts: list[str] = []
    streams, kept = (sys.stdout, sys.stderr), (os.dup(1), os.dup(2))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", "strict", write_through=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
        try:
            yield texts
        finally:
            sys.stdout, sys.stderr = streams
            for number, descriptor in enumerate(kept, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="surrogateescape"))


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    seen = time.process_time()

    def stop(number: int, _frame: Any) -> None:
        nonlocal seen
        used, seen = time.process_time() - seen, time.process_time()
        if number == signal.SIGALRM and used > 0.1:  # it does not wait, but a busy machine gives it little
            signal.setitimer(signal.ITIMER_REAL, ELAPSED)
            return
        raise TooLongError(f"more than {BUSY if number == signal.SIGPROF else ELAPSED} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    handlers = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_DATA, (_resident("VmData") + ALLOCATED, hard))
    signal.setitimer(signal.ITIMER_PROF, BUSY)
    signal.setitimer(signal.ITIMER_REAL, ELAPSED)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _resident(key: str) -> int:
    """Bytes, from /proc/self/status."""
    found = re.search(rf"(?m)^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _touched is None:
        return
    flags = (arguments[2] or 0) if event == "open" else 0
    if flags & _WRITING and isinstance(arguments[0], str | bytes):
        if not os.path.isdir(arguments[0]):  # noqa: PTH112 (a file without a name, which leaves no trace)
            _touched.append(_path(arguments[0]))
    elif event in _CHANGES:
        folder = next(iter(arguments[_CHANGES[event] :]), -1)
        base = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else ""  # noqa: PTH115
        _touched.extend(_path(one, base) for one in arguments[:2] if isinstance(one, str | bytes))
    elif event in _FOREIGN or (event == "subprocess.Popen" and "git" not in str(arguments[0])):
        _touched.append(f"{event} {arguments}"[:200])


def _path(given: str | bytes, base: str = "") -> str:
    return os.path.abspath(Path(base, os.fsdecode(given)))  # noqa: PTH100 (a link is not to be followed)


sys.addaudithook(_watch)
