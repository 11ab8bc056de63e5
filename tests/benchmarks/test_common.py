"""What the benchmarks share: samples, turns, ratios, and workers that live from round to round."""

import os
from functools import partial

import numpy as np
import pytest

import common
from common import OURS, Settings, Worker

MEBIBYTES = 64


def test_a_cells_rows_are_a_sample_of_train_the_same_for_all_and_start_again_past_its_end():
    settings = Settings("demo", "rte", "somewhere", batch_size=4)
    rows = settings.rows(1000, 5)
    assert len(set(rows)) == 20
    assert max(rows) > 200
    assert np.array_equal(rows, settings.rows(1000, 5))
    few = settings.rows(6, 3)
    assert sorted(few[:6]) == list(range(6))
    assert np.array_equal(few[6:], few[:6])


def test_ratios_are_of_one_round_each_and_above_1_where_ours_is_better():
    peer = [{"tokens_per_second": n, "total_seconds": 2 * n, "peak_bytes": 2**21} for n in (10, 20, 30)]
    ours = [{"tokens_per_second": 30, "total_seconds": 10, "peak_bytes": 2**20}] * 3
    rounds = [{"peer": one, OURS: other} for one, other in zip(peer, ours, strict=True)]
    row = [cell.strip() for cell in common.speed_table(rounds).splitlines()[2].split("|")[1:-1]]
    assert row == ["peer", "20 (15 to 25)", "1.50 (1.25 to 2.25)", "40.00 (30.00 to 50.00)", "4.00 (3.00 to 5.00)", "2"]


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


@pytest.mark.slow
def test_a_worker_is_one_process_of_its_own_that_lives_on_and_whose_end_is_noticed():
    worker = Worker(partial(counting, 5))
    first, second = worker.round(3), worker.round(4)
    assert second["seen"] == [5, 9, 12]
    assert first["process"] == second["process"] != os.getpid()
    assert 0.9 * MEBIBYTES <= first["peak_bytes"] / 2**20 < 2 * MEBIBYTES
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        worker.round(0)
    assert worker.round(12)["seen"][-1] > 0
    with pytest.raises(RuntimeError, match="exit code 3"):
        worker.round(-1)
    worker.close()
