"""A run that was killed at any moment can be started again, and gives the same results.

It does no finished job twice. A results folder has one driver: a second driver prints one line,
ends with exit status 2, and changes nothing.
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
"""Each arm has five jobs: two runs that search for its learning rate, a pretraining, a cell on
MNLI, and a cell on RTE that starts from the MNLI cell.
"""
JOBS = 10
WRITES = 150
"""The approximate number of changes that the run makes on disk."""


def start(config: Path, results: Path, write: int = 0) -> Driver:
    environment = {"GLUE_BENCH_CACHE": str(results / "cache"), "OMP_NUM_THREADS": "1"}
    options = ("--results", results, "--device", "cpu", "--precision", "float32")
    return Driver(config, *options, write=write, **environment)


def wait(driver: Driver, results: Path, count: int) -> None:
    """Wait until `count` jobs have ended, or the process has ended."""
    deadline = time.monotonic() + 240
    while len(tiny_runs.results(results / "tiny")) < count and driver.process.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waiting(results: Path) -> list[str]:
    """Return the ids of the cells that a run would do now, and the reasons for its jobs."""
    summary = glue_bench.run(
        ASKED, results=results, device="cpu", precision="float32", dry_run=True
    )
    return [*summary.waiting, *summary.reasons]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """Return the results folder of a run that was never killed."""
    return tiny_runs.run(ASKED, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize(
    "kills",
    [3, *(pytest.param(count, marks=pytest.mark.slow) for count in [1, 2, 3, 5, 8, 10] * 5)],
)
def test_a_run_that_is_killed_often_gives_the_results_of_an_undisturbed_run(
    undisturbed, tmp_path, kills
):
    """Kills are spread from the first search to the last cell. Half of them come at a write."""
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


def test_a_second_driver_is_refused_with_other_cells_or_through_a_link(refused, tmp_path):
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
