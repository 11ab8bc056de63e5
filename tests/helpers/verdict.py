"""One verdict on how a verb takes an input.

It ends with 0 or 2, or with 1 if it looks for faults; it says why in one line, soon, and changes
nothing elsewhere.
"""

import contextlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FINDING = ("verify", "submit", "export")
"""Verbs that end with 1 where they find faults."""
MAX_LINE_BYTES = 1024
"""Bytes of a refusal, and of any line of a report."""
MAX_GROWTH = 300 * 2**20
"""Bytes by which a verb may grow the process."""
MAX_ALLOCATED = 2 * 2**30
"""Bytes beyond which the system gives it no more, so that no input can stop the machine."""
MAX_SECONDS = 20
"""Seconds of the processor, and on the wall without any of the processor."""
UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
PROGRESS = re.compile(r"(?m)^(checking|reading|asking) [^\n]* \.\.\.\n")
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGE_EVENTS = {
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "os.mkdir",
    "os.chmod",
    "os.rename",
    "os.link",
    "os.symlink",
}
FOREIGN_EVENTS = {
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "socket.connect",
    "socket.getaddrinfo",
}
_touched: list[str] | None = None


@dataclass(frozen=True)
class Outcome:
    """The end of a verb: its exit status (None after a crash), what it printed, and what it
    touched.
    """

    status: int | None
    crash: str
    out: str
    err: str
    grown: int
    touched: list[str]


def complaints(capfd: Any, world: Path, words: Sequence[object]) -> str:
    """Call a verb in this process, and return what is wrong with how it took its input.

    Args:
        capfd: pytest's fixture of this name.
        world: the folder whose `work` may be written into.
        words: the verb and the words after it.

    Returns:
        Nothing if all is well; otherwise a line per complaint, the call, and what it printed.
    """
    # No program can be given NUL, and Python reads bytes that are no text as surrogates of this
    # kind.
    given = [str(word).replace("\0", "").replace("\ud800", "\udcff") for word in words]
    outcome = call_verb(capfd, given)
    faults = faults_of(outcome, given[0], str(world / "work"))
    if not faults:
        return ""
    call = f"glue-bench {given}: {outcome.status}"
    return "\n".join([*faults, call, outcome.err[:2000], outcome.out[:2000]])


def call_verb(capfd: Any, words: list[str]) -> Outcome:
    """Call `glue-bench` with these words, with bounds on time and memory."""
    from glue_bench import cli

    global _touched
    capfd.readouterr()
    sys.stdout.reconfigure(errors="strict")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    status, crash = None, ""
    argv = sys.argv
    before = memory("VmRSS")
    sys.argv = ["glue-bench", *words]
    _touched = []
    try:
        with bounded():
            cli.main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        crash = traceback.format_exc(limit=-6)
    finally:
        touched, _touched = _touched, None
        sys.argv = argv
    grown = memory("VmHWM") - before
    out, err = capfd.readouterr()
    return Outcome(status, crash, out, err, grown, touched)


def faults_of(outcome: Outcome, verb: str, work: str) -> list[str]:
    """Return what is wrong with an outcome; only files in `work` may be written."""
    lines = PROGRESS.sub("", outcome.err)
    printed = f"{outcome.out}{lines}"
    longest = max((len(line.encode(errors="replace")) for line in printed.splitlines()), default=0)
    is_one_line = lines.startswith("error: ") and lines.count("\n") == 1
    statuses = (0, 1, 2) if verb in FINDING else (0, 2)

    faults: list[str] = []
    if outcome.crash:
        faults.append(outcome.crash)
    elif outcome.status not in statuses:
        faults.append(f"exit status {outcome.status}")

    if outcome.grown > MAX_GROWTH:
        faults.append(f"grew by {outcome.grown >> 20} MiB")
    if UNSHOWN.search(printed):
        faults.append("control characters")
    if "Traceback" in printed or "panicked" in printed:
        faults.append("a traceback")
    if outcome.status == 2 and (outcome.out or not is_one_line):
        faults.append("the refusal is not one line")

    if longest > MAX_LINE_BYTES:
        faults.append(f"a line of {longest} bytes")

    cache = os.environ["GLUE_BENCH_CACHE"]
    allowed = (cache, tempfile.gettempdir(), "/dev/null", "/proc/self/", work)
    faults += [f"touched {path}" for path in outcome.touched if not path.startswith(allowed)]
    return faults


def memory(kind: str) -> int:
    """Return bytes of this process, from /proc/self/status."""
    kilobytes = re.findall(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes[0]) * 1024


class TooLongError(BaseException):
    """Raised when a verb took too long; no `except Exception` catches it."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Bound the seconds of the processor and of waiting, and the memory: no input stops the
    machine.
    """
    start = time.process_time()
    last = start

    def stop(*_: Any) -> None:
        nonlocal last
        now = time.process_time()
        is_waiting = now - last < 0.1
        last = now
        # It waits, or it works too long. A busy machine is neither.
        if is_waiting or now - start > MAX_SECONDS:
            raise TooLongError

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    handler = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_DATA, (memory("VmData") + MAX_ALLOCATED, hard))
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        signal.signal(signal.SIGALRM, handler)


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what the verb under test changes, and what it starts; an audit hook of Python."""
    if _touched is None:
        return
    is_open_to_write = event == "open" and (arguments[2] or 0) & WRITE_FLAGS
    if is_open_to_write or event in CHANGE_EVENTS:
        for argument in arguments[: 1 if is_open_to_write else 2]:
            if not isinstance(argument, str | bytes):
                continue
            path = os.fsdecode(argument)
            if not (is_open_to_write and Path(path).is_dir()):
                _touched.append(os.path.abspath(path))  # noqa: PTH100
    elif event in FOREIGN_EVENTS or is_foreign_process(event, arguments):
        _touched.append(f"{event} {arguments}"[:200])


def is_foreign_process(event: str, arguments: tuple[Any, ...]) -> bool:
    """Return whether another program than git is started."""
    return event == "subprocess.Popen" and "git" not in str(arguments[0])


sys.addaudithook(watch)
