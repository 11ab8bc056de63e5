"""The benchmark of kills, in short."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")]


@pytest.mark.parametrize("engine", ["inline", "ray"])
def test_mishaps_cost_nothing(engine):
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "kills.py"),
        "--engine",
        engine,
        "--mishaps",
        "6",
        "--seed",
        "1",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3000, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert sum(found["mishaps"].values()) >= 6
    assert [found[name] for name in ("lost", "repeated", "other_tables", "surprises")] == [[], [], [], []]
