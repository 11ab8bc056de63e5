"""The harness's own cost grows with the number of cells and no faster: benchmarks/scheduling.py in short."""

import sys
from pathlib import Path

import pytest

from glue_bench.sweep import executors, run

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """Seconds of planning, of running and of the tables of so many cells that compute nothing."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(run, "make_executor", run.make_executor)  # the benchmark changes both
    monkeypatch.setattr(executors, "attempt", executors.attempt)
    import scheduling

    yield lambda cells: scheduling.measure(cells, None, tmp_path / str(cells))
    sys.modules.pop("scheduling", None)


@pytest.mark.usefixtures("small_demo")
def test_three_times_the_cells_take_no_more_than_eight_times_as_long(measure):
    few, many = measure(200), measure(600)
    assert (few["cells"], many["cells"]) == (200, 600)
    for part in ("planning_s", "leaderboard_s"):
        assert many[part] < 8 * few[part] + 2, (few, many)
    assert many["ms_a_cell"] < 2.5 * few["ms_a_cell"] + 20, (few, many)
