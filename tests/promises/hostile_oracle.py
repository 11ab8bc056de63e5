"""One verdict on any input: a verb ends with 0 or 2, or with 1 if it looks for faults; in one line; soon; harmless."""

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
from pathlib import Path
from typing import Any

FINDING = ("verify", "submit", "export")
"""Verbs that end with 1 where they find faults."""
SAID = 1024  # bytes of a refusal, and of any line of a report
RESIDENT = 300 * 2**20  # bytes by which a verb may grow the process
ALLOCATED = 2 * 2**30  # bytes beyond which the system gives it no more, so that no input can stop the machine
BUSY, WAITING = 20.0, 20.0  # seconds of the processor, and on the wall without any of the processor
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


def complaints(words: Sequence[object], writes: Path | None = None) -> str:
    """Call a verb in this process; what is wrong with how it took it. It may write below `writes` alone."""
    given = [str(word).replace("\0", "").replace("\ud800", "\udcff") for word in words]
    status, out, err, crash, touched = _call(given)
    found = [crash] if crash else []
    if not crash and status not in ((0, 1, 2) if given[0] in FINDING else (0, 2)):
        found.append(f"exit status {status}")
    allowed = (
        os.environ["GLUE_BENCH_CACHE"],
        tempfile.gettempdir(),
        "/dev/null",
        "/proc/self/",
        *[str(writes)] * bool(writes),
    )
    found += [f"touched {place}" for place in touched if not place.startswith(allowed)]
    found += _of_what_is_said(status, out, PROGRESS.sub("", err))
    return "\n".join([*found, f"glue-bench {given}: {status}", err[:2000], out[:2000]]) if found else ""


def _of_what_is_said(status: int | None, out: str, err: str) -> Iterator[str]:
    if UNSHOWN.search(out + err):
        yield f"control characters: {sorted(set(UNSHOWN.findall(out + err)))}"
    if "Traceback" in out + err or "panicked" in out + err:
        yield "a traceback"
    if status == 2 and (out or not err.startswith("error: ") or err.count("\n") != 1):
        yield "the refusal is not one line"
    longest = max((len(line.encode(errors="replace")) for line in (out + err).splitlines()), default=0)
    if longest > SAID:
        yield f"a line of {longest} bytes"


def _call(words: list[str]) -> tuple[int | None, str, str, str, list[str]]:
    """Exit status, what reached the two descriptors, a crash if there was one, and changes."""
    from glue_bench import cli

    global _touched
    status, crash, argv = None, "", sys.argv
    with _captured() as texts:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, _touched = _memory("VmRSS"), []
        try:
            sys.argv = ["glue-bench", *words]
            with _bounded():
                cli.main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            crash = traceback.format_exc(limit=-6)
        finally:
            touched, _touched, sys.argv = _touched, None, argv
        grown = _memory("VmHWM") - before
    crash = crash or (f"grew by {grown >> 20} MiB" if grown > RESIDENT else "")
    return status, *texts, crash, touched


def _memory(kind: str) -> int:
    """Bytes of this process, from /proc/self/status."""
    return int(re.findall(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024


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
    """No input stops the machine: so much time, of the processor and of waiting, and so much memory."""

    seen = time.process_time()

    def stop(number: int, _frame: Any) -> None:
        nonlocal seen
        used, seen = time.process_time() - seen, time.process_time()
        if number == signal.SIGPROF or used < 0.1:  # else it does not wait, but a busy machine gives it little
            raise TooLongError(f"more than {BUSY if number == signal.SIGPROF else WAITING} s")
        signal.setitimer(signal.ITIMER_REAL, WAITING)

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    handlers = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_DATA, (_memory("VmData") + ALLOCATED, hard))
    signal.setitimer(signal.ITIMER_PROF, BUSY)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        for number, handler in handlers.items():
            signal.signal(number, handler)


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
