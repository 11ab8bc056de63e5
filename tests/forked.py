"""Processes for the tests to kill, forked from one that has everything imported: they start in 0.1 s, not in 5."""

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

CLI = "from glue_bench.cli import main; main()"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "datasets",
        "glue_bench.cli.sweeps",
        "glue_bench.reporting.export",
        "glue_bench.sweep.run",
        "glue_bench.training.pretrain",
        "rich.live",
        "sklearn.metrics",
    ]
)


def _work(code: str, words: list[str], environment: Mapping[str, str], said: str) -> None:
    """In the process: as `python -c code *words`."""
    handle = os.open(said, os.O_WRONLY)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ.clear()
    os.environ.update(environment)
    gc.freeze()  # what is imported already is never looked through again
    sys.argv = ["-c", *words]
    exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})


class Forked:
    """`python -c code *words`, with what is used of `subprocess.Popen`; it prints into one file."""

    def __init__(self, code: str, *words: object, **environment: str) -> None:
        handle, name = tempfile.mkstemp()
        os.close(handle)
        self._said = Path(name)
        self._process = _CONTEXT.Process(
            target=_work, args=(code, [*map(str, words)], {**os.environ, **environment}, name)
        )
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end: everything that was printed."""
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            raise TimeoutError(self._said.read_text())
        said = self._said.read_text()
        self._said.unlink()
        return said, None
