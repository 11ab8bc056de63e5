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
from dataclasses import dataclass
from itertools import pairwise
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


@dataclass(frozen=True)
class Killed:
    """A run that was killed several times.

    Attributes:
        kills: When it was killed.
        results: What was finished after each kill.
        waiting: What a dry run would do after the last kill.
        folder: The results, after the same command was left alone.
    """

    kills: list[str]
    results: list[dict[str, tuple[int, bytes]]]
    waiting: list[str]
    folder: Path


def run_until_killed(config: Path, results: Path, jobs: int, write: int) -> None:
    """Start a driver that is killed before a write, or else a moment after some jobs have ended."""
    driver = start(config, results, write)
    if not write:
        wait(driver, results, jobs)
        time.sleep(random.uniform(0, 0.4))
        driver.signal(signal.SIGKILL)
    status, output = driver.end()
    assert status in (0, -signal.SIGKILL), output


@pytest.fixture(
    scope="module",
    params=[3, *(pytest.param(count, marks=pytest.mark.slow) for count in [1, 2, 3, 5, 8, 10] * 5)],
)
def killed(request, tmp_path_factory) -> Killed:
    """Kill a run often, and then leave it alone.

    Kills are spread from the first search to the last cell. Half of them come at a write.
    """
    place = tmp_path_factory.mktemp("killed")
    config = place / "experiment.yaml"
    results = place / "runs"
    config.write_text(json.dumps(ASKED))
    kills: list[str] = []
    results_after_kills: list[dict[str, tuple[int, bytes]]] = []
    for number in range(request.param):
        jobs = random.randrange(
            JOBS * number // request.param, JOBS * (number + 1) // request.param
        )
        for write in (0, random.randrange(1, WRITES))[: 1 + number % 2]:
            kills.append(f"before write {write}" if write else f"after {jobs} jobs")
            run_until_killed(config, results, jobs, write)
            results_after_kills.append(tiny_runs.results(results / "tiny"))
    waiting_jobs = waiting(results)
    status, output = start(config, results).end()
    assert status == 0, output
    return Killed(kills, results_after_kills, waiting_jobs, results / "tiny")


def test_no_kill_loses_a_result_or_lets_it_be_stored_twice(killed):
    results = [*killed.results, tiny_runs.results(killed.folder)]
    for before, after in pairwise(results):
        assert before.items() <= after.items(), killed.kills


def test_what_ended_before_a_kill_does_not_run_again(killed):
    assert not set(killed.waiting) & killed.results[-1].keys(), killed.kills


def test_the_same_command_finishes_a_run_that_was_killed(killed):
    assert waiting(killed.folder.parent) == [], killed.kills


def test_verify_finds_no_fault_in_a_run_that_was_killed(killed):
    (verified,) = glue_bench.verify(killed.folder)
    assert verified.faults == [], killed.kills


def test_a_run_that_was_killed_gives_the_bits_of_an_undisturbed_run(undisturbed, killed):
    different = tiny_runs.unlike(tiny_runs.bits(undisturbed), tiny_runs.bits(killed.folder))
    assert different == [], killed.kills


def test_a_run_that_was_killed_gives_the_tables_of_an_undisturbed_run(undisturbed, killed):
    different = tiny_runs.unlike(tiny_runs.tables(undisturbed), tiny_runs.tables(killed.folder))
    assert different == [], killed.kills


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
