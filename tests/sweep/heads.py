"""Heads of Ray clusters for the tests, started by `ray start` as a user starts them, with a home of their own.

No test runs `ray stop`: it ends every cluster of the machine, those of others, too.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

RAY = str(Path(sys.executable).with_name("ray"))
SMALL = ("--include-dashboard=false", f"--object-store-memory={100 * 2**20}", "--disable-usage-stats")


class Head:
    """The processes of one head, found by their home; its sockets need a short path."""

    def __init__(self, *, asks_for_token: bool = True) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.asks_for_token = asks_for_token
        self.ray("get-auth-token", "--generate")
        self.ray("start", "--head", f"--port={self.port}", "--num-cpus=1", f"--temp-dir={self.home}/ray", *SMALL)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ray(self, *words: str) -> None:
        # Ray's workers would have the lowest priority, and wait for whatever else the machine does.
        environment = os.environ | {"HOME": str(self.home), "RAY_worker_niceness": "0"}
        environment |= {} if self.asks_for_token else {"RAY_AUTH_MODE": "disabled"}
        done = subprocess.run([RAY, *words], env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home):
                    found.append(process)
        return found

    def lose(self, name: str = "gcs_server") -> None:
        """SIGKILL to those of its processes that have this name."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if name in process.name():
                    process.kill()

    def end(self) -> None:
        self.lose("")
        shutil.rmtree(self.home, ignore_errors=True)


@contextlib.contextmanager
def head(*, asks_for_token: bool = True) -> Iterator[Head]:
    """A head that is gone when the block ends."""
    made = Head(asks_for_token=asks_for_token)
    try:
        yield made
    finally:
        made.end()
