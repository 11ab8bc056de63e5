"""Processes for the tests to kill, forked from one that has everything imported: they start in 0.1 s, not in 5."""

import gc
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

CLI = "from glue_bench.cli import main; main()"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["datasets", "glue_bench.cli", "glue_bench.tables.export", "glue_bench.training.pretrain", "rich.live"]
)


def _work(code: str, words: list[str], environment: Mapping[str, str], said: Path) -> None:
    """In the process: as `python -c code *words`."""
    for stream in (1, 2):
        os.dup2(os.open(said / str(stream), os.O_WRONLY), stream)
    os.environ.clear()
    os.environ.update(environment)
    gc.freeze()  # what is imported already is never looked through again
    import glue_bench.api

    glue_bench.api.write_page = os.fsync = lambda *_: None  # as in the tests' own process
    sys.argv = ["-c", *words]
    exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})


class Forked:
    """`python -c code *words`, with what is used of `subprocess.Popen`; it prints into files."""

    def __init__(self, code: str, *words: object, **environment: str) -> None:
        self._said = Path(tempfile.mkdtemp())
        for stream in ("1", "2"):
            (self._said / stream).touch()
        self._process = CONTEXT.Process(
            target=_work, args=(code, [*map(str, words)], {**os.environ, **environment}, self._said), daemon=True
        )
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end: what was printed, and what was said on the error stream."""
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
            raise TimeoutError((self._said / "2").read_text())
        out, err = ((self._said / stream).read_text() for stream in ("1", "2"))
        shutil.rmtree(self._said)
        return out, err
