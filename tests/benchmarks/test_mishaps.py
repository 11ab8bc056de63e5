"""The benchmarks of kills and of scheduling, in short."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")]


def benchmark(name: str, *options: str) -> dict:
    command = [sys.executable, str(ROOT / "benchmarks" / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3000, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_mishaps_cost_nothing():
    found = benchmark("kills.py", "--mishaps", "8", "--seed", "1", "--inline", "0.5")
    assert found["total"] >= 8
    assert [found[name] for name in ("corrupt", "lost", "repeated", "other_tables", "surprises")] == [0, 0, 0, 0, []]


def test_a_thousand_cells_are_planned_run_and_shown_within_seconds():
    found = benchmark("scheduling.py", "--cells", "1000", "--inline")
    assert found["cells"] == 1000
    assert found["planning_s"] < 10
    assert found["ms_a_cell"] < 50
    assert found["leaderboard_s"] < 10
