"""One driver on one results folder: a second one is one line and exit status 2, and touches nothing."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_runs
from forked import CLI, Forked

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")
ASKED = tiny_runs.experiment(pretraining=None, checkpoint="scratch", seeds=[1, 2, 3])
LIBRARY = """
import sys, yaml, glue_bench
config, results = sys.argv[2], sys.argv[4]
try:
    glue_bench.run(config, results=results)
except glue_bench.errors.UserError as error:
    print("error:", error, file=sys.stderr)
    sys.exit(2)
"""


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(json.dumps(ASKED))
    return path


@pytest.fixture
def busy(config, tmp_path) -> Iterator[Path]:
    """A results folder whose driver lives, but does nothing for now."""
    results, deadline = tmp_path / "runs", time.monotonic() + 240
    first = Forked(CLI, "run", config, "--results", results)
    while not (results / "tiny").is_dir() or not tiny_runs.results(results / "tiny"):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    try:
        yield results
    finally:
        first.send_signal(signal.SIGCONT)
        _, err = first.communicate(timeout=240)
    assert first.returncode == 0, err
    assert len(tiny_runs.results(results / "tiny")) == 3


@pytest.mark.parametrize("how", ["run", "run of a part", "run through a link", "function"])
def test_a_second_driver_is_refused(busy, config, tmp_path, how):
    (tmp_path / "link").symlink_to(busy)
    folder, before = busy / "tiny", tiny_runs.results(busy / "tiny")
    only = ("--only", "seed=3") if how == "run of a part" else ()
    place = tmp_path / "link" if how == "run through a link" else busy
    second = Forked(LIBRARY if how == "function" else CLI, "run", config, "--results", place, *only)
    deadline = time.monotonic() + 60
    while second.poll() is None and tiny_runs.results(folder) == before and time.monotonic() < deadline:
        time.sleep(0.05)
    if second.poll() is None:
        second.send_signal(signal.SIGKILL)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 2, out + err
    assert out == ""
    assert err.count("error: ") == 1
    assert str(place / "tiny") in err.partition("error: ")[2]
    assert "Traceback" not in err
    assert tiny_runs.results(folder) == before
