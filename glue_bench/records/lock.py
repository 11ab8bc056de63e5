"""One driver for each results folder."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from glue_bench.errors import UserError
from glue_bench.files import write_atomically


@contextlib.contextmanager
def driver_lock(folder: Path) -> Iterator[None]:
    """Hold a folder for one driver. The lock is free as soon as its process has ended.

    Raises UserError where another driver holds it, which is named by host and process.
    """
    lock = FileLock(folder / ".lock", blocking=False)
    holder = folder / ".driver"
    try:
        lock.acquire()
    except Timeout:
        name = "another run"
        with contextlib.suppress(OSError):  # the other driver may be ending now
            name = holder.read_text()
        raise UserError(
            f"{folder} is in use by {name}; wait, or choose another --results"
        ) from None
    except OSError as error:
        raise UserError(
            f"cannot lock '{folder}': {error.strerror}; choose another --results"
        ) from error

    try:
        write_atomically(holder, f"{socket.gethostname()}:{os.getpid()}".encode())
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
