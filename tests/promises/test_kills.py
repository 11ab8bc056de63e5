"""Killed at any moment, a run that is started again ends as if nothing had happened, and does
nothing twice.

And one driver on one results folder: a second one is one line and exit status 2, and touches
nothing.
"""

import json
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from helpers import tiny_runs
from helpers.forked import Driver

import glue_bench
from glue_bench.errors import UserError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")

ASKED = tiny_runs.experiment(
    arms=["add", "untied"],
    tasks=["mnli", "rte"],
    pretraining={"steps": 30, "learning_rates": [1e-3, 2e-3], "rate_search": {"steps": 10}},
    finetuning={"from_mnli": ["rte"], "predict": ["validation", "test"], "keep": "all"},
)
"""Of each arm two runs of a search for its rate, a pretraining, a cell on MNLI, and one that
starts from that.
"""
JOBS, WRITES = 10, 150
"""About as many changes of the disk as the run makes."""


def start(config: Path, results: Path, write: int = 0) -> Driver:
    environment = {"GLUE_BENCH_CACHE": str(results / "cache"), "OMP_NUM_THREADS": "1"}
    options = ("--results", results, "--device", "cpu", "--precision", "float32")
    return Driver(config, *options, write=write, **environment)


def wait(driver: Driver, results: Path, count: int) -> None:
    """Until so many jobs have ended, or the process has."""
    deadline = time.monotonic() + 240
    while len(tiny_runs.results(results / "tiny")) < count and driver.process.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waiting(results: Path) -> list[str]:
    """What a run would do now: the ids of cells, and why there are jobs to run."""
    summary = glue_bench.run(
        ASKED, results=results, device="cpu", precision="float32", dry_run=True
    )
    return [*summary.waiting, *summary.reasons]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The folder of a run that nothing has disturbed."""
    return tiny_runs.run(ASKED, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize(
    "kills",
    [3, *(pytest.param(count, marks=pytest.mark.slow) for count in [1, 2, 3, 5, 8, 10] * 5)],
)
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_was_not(
    undisturbed, tmp_path, kills
):
    """Kills come from the first search to the last cell, half of them at a write."""
    config = tmp_path / "experiment.yaml"
    results = tmp_path / "runs"
    config.write_text(json.dumps(ASKED))
    killed = results / "tiny"
    kept: dict[str, tuple[int, bytes]] = {}
    for number in range(kills):
        done = random.randrange(JOBS * number // kills, JOBS * (number + 1) // kills)
        for write in (0, random.randrange(1, WRITES))[: 1 + number % 2]:
            print(
                "killed", f"before write {write}" if write else f"after {done} jobs"
            )  # shown if the test fails
            driver = start(config, results, write)
            if not write:
                wait(driver, results, done)
                time.sleep(random.uniform(0, 0.4))
                driver.signal(signal.SIGKILL)
            status, output = driver.end()
            assert status in (0, -signal.SIGKILL), output
            results_now = tiny_runs.results(killed)
            assert kept.items() <= results_now.items(), "a result was lost, or stored twice"
            kept = results_now
    assert not set(waiting(results)) & kept.keys(), "what has ended would run again"
    status, output = start(config, results).end()
    assert status == 0, output
    assert kept.items() <= tiny_runs.results(killed).items()
    assert waiting(results) == []
    assert [verified.faults for verified in glue_bench.verify(killed)] == [[]]
    assert tiny_runs.unlike(tiny_runs.bits(undisturbed), tiny_runs.bits(killed)) == []
    assert tiny_runs.unlike(tiny_runs.tables(undisturbed), tiny_runs.tables(killed)) == []


# A second driver


def test_a_second_driver_is_refused_however_it_comes(refused, tmp_path):
    config = tmp_path / "experiment.yaml"
    results = tmp_path / "runs"
    link = tmp_path / "link"
    config.write_text(
        json.dumps(tiny_runs.experiment(pretraining=None, checkpoint="scratch", seeds=[1, 2, 3]))
    )
    first = Driver(config, "--results", results)
    wait(first, results, 1)
    first.signal(signal.SIGSTOP)
    try:
        link.symlink_to(results)
        before = tiny_runs.results(results / "tiny")
        for place, *words in [(results, "--only", "seed=3"), (link,)]:
            output = refused("run", config, "--results", place, *words)
            assert re.fullmatch(
                rf"{place}/tiny is in use by .+:{first.process.pid}; wait, or choose .*\n", output
            )
        with pytest.raises(UserError, match=str(results / "tiny")):
            glue_bench.run(config, results=results)
        assert tiny_runs.results(results / "tiny") == before
    finally:
        first.signal(signal.SIGCONT)
        status, output = first.end()
    assert status == 0, output
    assert len(tiny_runs.results(results / "tiny")) == 3
