"""Drivers for the tests to kill, forked from a process that has everything imported: they start
in 0.1 s, not in 5.
"""

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
IMPORTED = ("glue_bench.cli", "glue_bench.pages.files", "glue_bench.training.pretrain")
CONTEXT.set_forkserver_preload(["datasets", "rich.live", *IMPORTED])


def work(words: list[str], fatal_write: int, environment: Mapping[str, str], output: str) -> None:
    """Call `glue-bench run` in this process, which is killed before a change of the disk.

    `fatal_write` is the number of that change, from 1. With 0 the process is not killed.
    """
    import glue_bench.api.experiments
    from glue_bench import cli
    from glue_bench.training import pretrain

    for stream in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND), stream)
    os.environ.update(environment)
    gc.freeze()  # what is imported already is never looked through again
    # As in the tests' own process.
    glue_bench.api.experiments.write_page = lambda *_: None
    os.fsync = lambda _: None
    pretrain.SAVE_SECONDS = 0  # so that kills hit the writing of a state to continue from, too
    writes = [0]

    def watch(event: str, _: tuple[object, ...]) -> None:
        if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            writes[0] += 1
            if writes[0] == fatal_write:
                os.kill(os.getpid(), signal.SIGKILL)

    if fatal_write:
        sys.addaudithook(watch)
    sys.argv = ["glue-bench", "run", *words]
    cli.main()


class Driver:
    """A process that calls `glue-bench run` with these words after it."""

    def __init__(self, *words: object, fatal_write: int = 0, **environment: str) -> None:
        handle, self.output = tempfile.mkstemp()
        os.close(handle)
        given = ([*map(str, words)], fatal_write, {**os.environ, **environment}, self.output)
        self.process = CONTEXT.Process(target=work, args=given, daemon=True)
        self.process.start()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> tuple[int | None, str]:
        """Wait for the end, and return the exit status and the output; the status is None if it
        had to be killed.
        """
        self.process.join(240)
        status = self.process.exitcode
        self.process.kill()
        self.process.join()
        return status, Path(self.output).read_text()
