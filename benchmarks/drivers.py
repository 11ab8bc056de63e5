"""`glue-bench run` in processes to be disturbed, forked from one that has everything imported: they start in 0.1 s."""

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path

import psutil

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["datasets", "glue_bench.tables.export", "glue_bench.sweep.run", "sklearn.metrics"])
FLOOR_SECONDS, START_SECONDS, HEAD_SECONDS = 30.0, 60.0, 6.0
"""What a sweep here waits for a worker that hangs, expects of its start, and waits for a head that is lost."""


class Driver:
    """One such process, its output in a file, and the processes that Ray has started for it."""

    def __init__(self, *words: object, cache: Path) -> None:
        self._said = Path(tempfile.mkstemp()[1])
        self.process = CONTEXT.Process(target=_drive, args=([*map(str, words)], str(cache), self._said))
        self.process.start()

    @property
    def runs(self) -> bool:
        return self.process.is_alive()

    def wait(self, seconds: float) -> tuple[int | None, str]:
        """Its exit status and what it has printed; None if it had to be killed after so many seconds."""
        self.process.join(seconds)
        status = self.process.exitcode
        self.process.kill()
        self.process.join()
        said = self._said.read_text(errors="replace")
        self._said.unlink()
        return status, said

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid
        os.kill(self.process.pid, number)

    def below(self, title: str) -> list[psutil.Process]:
        """The processes below it whose command line begins or whose program ends with this."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                command = child.cmdline()
            except psutil.Error:  # it has ended in between
                continue
            if command and (command[0].startswith(title) or command[0].endswith(f"/{title}")):
                found.append(child)
        return found


def _drive(words: list[str], cache: str, said: Path) -> None:
    """In the process."""
    for stream in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), stream)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background ignores it
    os.environ |= {"GLUE_BENCH_CACHE": cache, "OMP_NUM_THREADS": "1"}
    from glue_bench.cli import main
    from glue_bench.sweep import cluster, patience

    patience.FLOOR_SECONDS, patience.START_SECONDS = FLOOR_SECONDS, START_SECONDS
    cluster.HEAD_SECONDS = HEAD_SECONDS
    sys.argv = ["glue-bench", *words]
    main()
