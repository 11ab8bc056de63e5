"""How far a job is, in a file beside its results: read by whoever watches, in this process or in another.

The file is there only while the job runs. It decides nothing: one that cannot be written is left out.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from glue_bench.files import parse_json, read_file
from glue_bench.records.value import StoredValue, Whole

EVERY = 2.0  # seconds between two writings
FOLDER = "progress"  # in that of the experiment
LARGEST = 4096
"""Bytes of a file, at most; one takes a hundred."""


class Progress(StoredValue):
    """Steps that are done, of how many, the loss of the last of them, and about how many seconds the others take.

    A loss that is not finite is None.
    """

    step: Whole
    steps: Whole
    loss: float | None
    seconds_left: float | None


class _Teller:
    """Writes the file of one job, no more often than EVERY seconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first: tuple[int, float] | None = None
        self.told_at = float("-inf")

    def tell(self, step: int, steps: int, loss: Callable[[], float]) -> None:
        now = time.monotonic()
        # The first step pays for what the others find ready, and a run that goes on from a state begins late.
        if self.first is None or step <= self.first[0]:
            self.first = step, now
        if now - self.told_at < EVERY:
            return
        self.told_at, done = now, step - self.first[0]
        left = (now - self.first[1]) / done * (steps - step) if done else None
        lost = loss()
        progress = Progress(step=step, steps=steps, loss=lost if math.isfinite(lost) else None, seconds_left=left)
        aside = self.path.with_suffix(".part")
        with suppress(OSError):
            # Every time: the last job that ends takes the empty folder away, perhaps just before our first writing.
            aside.parent.mkdir(parents=True, exist_ok=True)
            aside.unlink(missing_ok=True)  # a killed job's; or a link, which is not to be written through
            with aside.open("x") as file:
                file.write(json.dumps(progress.document()))
            aside.replace(self.path)


@contextmanager
def telling(folder: Path, job: str) -> Iterator[Callable[[int, int, Callable[[], float]], None]]:
    """In this block what it gives writes how far the job is into `folder`, an experiment's; after it the file is gone.

    It is called with the number of the step that is done, that of all steps, and the step's loss, which it asks for
    only where it is written.
    """
    path = folder / FOLDER / f"{job}.json"
    try:
        yield _Teller(path).tell
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()  # which fails while another job is in it


def read_progress(folder: Path, job: str) -> Progress | None:
    """How far a job is that runs in an experiment's folder; None where nothing says so, whoever wrote the file."""
    try:
        return Progress.model_validate(parse_json(read_file(folder / FOLDER / f"{job}.json", LARGEST)))
    except (OSError, ValueError):
        return None
