"""Workers are processes of their own that live from round to round."""

import os
from functools import partial

import pytest

from workers import Worker

pytestmark = pytest.mark.slow

MEBIBYTES = 64


def counting(start):
    """A worker's work: remembers its rounds, fails at zero steps, ends its process at -1."""
    seen = [start]

    def work(steps):
        if steps < 0:
            os._exit(3)
        seen.append(seen[-1] + 12 // steps)
        bytearray(MEBIBYTES * 2**20)
        return {"seen": list(seen), "process": os.getpid()}

    return work


@pytest.fixture(scope="module")
def worker():
    worker = Worker(partial(counting, 5))
    yield worker
    worker.close()


def test_a_worker_is_one_process_of_its_own_that_lives_on(worker):
    first, second = worker.round(3), worker.round(4)
    assert second["seen"] == [5, 9, 12]
    assert first["process"] == second["process"] != os.getpid()
    assert 0.9 * MEBIBYTES <= first["peak_bytes"] / 2**20 < 2 * MEBIBYTES


def test_a_failed_round_says_why_and_the_next_goes_on(worker):
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        worker.round(0)
    assert worker.round(12)["seen"][-1] > 0


def test_a_worker_that_died_is_noticed(worker):
    """The last test: the worker that the others share ends here."""
    with pytest.raises(RuntimeError, match="exit code 3"):
        worker.round(-1)
