"""What the benchmarks share: samples, turns, ratios, and workers that live from round to round."""

import json
import os
from functools import partial

import numpy as np
import pandas as pd
import pytest

import common
from common import OURS, Settings, Worker

MEBIBYTES = 64
ROUNDS = [
    {"peer": {"speed": 10, "peak": None}, OURS: {"speed": 30, "peak": 4}},
    {"peer": {"speed": 20, "peak": 2}, OURS: {"speed": 40, "peak": 4}},
]


def test_a_cells_rows_are_a_sample_of_train_the_same_for_all_and_start_again_past_its_end():
    settings = Settings("demo", "rte", "somewhere", batch_size=4)
    rows = settings.rows(1000, 5)
    assert len(set(rows)) == 20
    assert max(rows) > 200
    assert np.array_equal(rows, settings.rows(1000, 5))
    few = settings.rows(6, 3)
    assert sorted(few[:6]) == list(range(6))
    assert np.array_equal(few[6:], few[:6])


def test_runs_take_turns_and_ratios_are_of_one_round_each():
    order = []
    runs = {name: lambda name=name: order.append(name) or {"n": len(order)} for name in ("a", "b")}
    assert common.in_turns(runs, 2) == [{"a": {"n": 1}, "b": {"n": 2}}, {"a": {"n": 3}, "b": {"n": 4}}]
    assert order == ["a", "b", "a", "b"]
    speed = common.column(ROUNDS, "speed")
    assert common.over_peers(speed)["peer"].tolist() == [3, 2]
    assert common.over_peers(speed, inverse=True)["peer"].tolist() == pytest.approx([1 / 3, 1 / 2])
    assert common.column(ROUNDS, "peak")["peer"].isna().tolist() == [True, False]
    assert common.with_quartiles(pd.DataFrame({"a": [1, 2, 3, 4, 1000]}), 1) == {"a": "3.0 (2.0 to 4.0)"}


def test_every_measurement_is_kept(tmp_path, capsys):
    common.report(["one", "two"], ROUNDS, tmp_path / "all.json")
    assert capsys.readouterr().out == "one\n\ntwo\n"
    assert json.loads((tmp_path / "all.json").read_text())["rounds"] == ROUNDS


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
