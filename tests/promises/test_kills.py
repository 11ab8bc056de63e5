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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from helpers import tiny_runs
from helpers.forked import Driver

import glue_bench
from glue_bench.errors import UserError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")

EXPERIMENT = tiny_runs.experiment(
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
ONE_RUN = [3]
MANY_RUNS = [1, 2, 3, 5, 8, 10] * 5
"""How often each of the runs is killed after a number of jobs."""


def start(config: Path, results: Path, fatal_write: int = 0) -> Driver:
    """Start the experiment in a process, which a `fatal_write` kills before that change on disk."""
    environment = {"GLUE_BENCH_CACHE": str(results / "cache"), "OMP_NUM_THREADS": "1"}
    options = ("--results", results, "--device", "cpu", "--precision", "float32")
    return Driver(config, *options, fatal_write=fatal_write, **environment)


def wait_for_results(driver: Driver, results: Path, count: int) -> None:
    """Wait until `count` jobs have a result, or the process has ended."""
    deadline = time.monotonic() + 240
    while driver.process.is_alive():
        finished = len(tiny_runs.record_stamps(results / "tiny"))
        if finished >= count:
            return
        assert time.monotonic() < deadline, f"{finished} of {count} results in 240 s"
        time.sleep(0.01)


def jobs_left(results: Path) -> list[str]:
    """Return what a dry run says: the ids of the cells to run, and the reasons for its jobs."""
    summary = glue_bench.run(
        EXPERIMENT, results=results, device="cpu", precision="float32", dry_run=True
    )
    return [*summary.waiting, *summary.reasons]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """Return the results folder of a run that was never killed."""
    return tiny_runs.run(EXPERIMENT, tmp_path_factory.mktemp("undisturbed"))


@dataclass(frozen=True)
class Killed:
    """A run that was killed several times.

    Attributes:
        kills: When it was killed.
        stamps: What was finished after each kill: the stamps of the records by id.
        jobs_left: What a dry run would do after the last kill.
        folder: The results, after the same command was left alone.
    """

    kills: list[str]
    stamps: list[dict[str, tiny_runs.Stamp]]
    jobs_left: list[str]
    folder: Path


def kill_after_jobs(config: Path, results: Path, count: int) -> None:
    """Run the experiment, and kill it a moment after `count` of its jobs have a result."""
    driver = start(config, results)
    wait_for_results(driver, results, count)
    time.sleep(random.uniform(0, 0.4))
    driver.signal(signal.SIGKILL)
    status, output = driver.end()
    assert status in (0, -signal.SIGKILL), output  # 0 if it has ended before


def kill_before_write(config: Path, results: Path, number: int) -> None:
    """Run the experiment, and kill it before a change that it makes on disk."""
    status, output = start(config, results, number).end()
    assert status in (0, -signal.SIGKILL), output  # 0 if it makes fewer changes


@pytest.fixture(
    scope="module",
    params=[*ONE_RUN, *(pytest.param(count, marks=pytest.mark.slow) for count in MANY_RUNS)],
)
def killed(request, tmp_path_factory) -> Killed:
    """Kill a run several times, and then leave it alone.

    The kills after a number of jobs are spread from the first search to the last cell. Every second
    one is followed by a kill at a write.
    """
    folder = tmp_path_factory.mktemp("killed")
    config = folder / "experiment.yaml"
    results = folder / "runs"
    config.write_text(json.dumps(EXPERIMENT))
    kills: list[str] = []
    stamps: list[dict[str, tiny_runs.Stamp]] = []

    def note(kill: str) -> None:
        kills.append(kill)
        stamps.append(tiny_runs.record_stamps(results / "tiny"))

    count = request.param
    for number in range(count):
        jobs = random.randrange(JOBS * number // count, JOBS * (number + 1) // count)
        kill_after_jobs(config, results, jobs)
        note(f"after {jobs} jobs")
        if number % 2 == 1:
            write = random.randrange(1, WRITES)
            kill_before_write(config, results, write)
            note(f"before write {write}")

    left = jobs_left(results)
    status, output = start(config, results).end()
    assert status == 0, output
    return Killed(kills, stamps, left, results / "tiny")


def test_no_kill_loses_a_result_or_lets_it_be_stored_twice(killed):
    stamps = [*killed.stamps, tiny_runs.record_stamps(killed.folder)]
    for before, after in pairwise(stamps):
        assert before.items() <= after.items(), killed.kills


def test_what_ended_before_a_kill_does_not_run_again(killed):
    assert not set(killed.jobs_left) & killed.stamps[-1].keys(), killed.kills


def test_the_same_command_finishes_a_run_that_was_killed(killed):
    assert jobs_left(killed.folder.parent) == [], killed.kills


def test_verify_finds_no_fault_in_a_run_that_was_killed(killed):
    (verified,) = glue_bench.verify(killed.folder)
    assert verified.faults == [], killed.kills


def test_a_run_that_was_killed_gives_the_bits_of_an_undisturbed_run(undisturbed, killed):
    different = tiny_runs.differing_files(
        tiny_runs.bits(undisturbed), tiny_runs.bits(killed.folder)
    )
    assert different == [], killed.kills


def test_a_run_that_was_killed_gives_the_tables_of_an_undisturbed_run(undisturbed, killed):
    different = tiny_runs.differing_files(
        tiny_runs.tables(undisturbed), tiny_runs.tables(killed.folder)
    )
    assert different == [], killed.kills


# A second driver


@contextmanager
def stopped_driver(folder: Path) -> Iterator[Driver]:
    """Stop a driver after its first result, in this context; it then goes on to its end."""
    config = folder / "experiment.yaml"
    config.write_text(
        json.dumps(tiny_runs.experiment(pretraining=None, checkpoint="scratch", seeds=[1, 2, 3]))
    )
    driver = Driver(config, "--results", folder / "runs")
    wait_for_results(driver, folder / "runs", 1)
    driver.signal(signal.SIGSTOP)
    try:
        yield driver
    finally:
        driver.signal(signal.SIGCONT)
        driver.end()


@pytest.fixture(scope="module")
def folder_in_use(tmp_path_factory) -> Iterator[Path]:
    """Return a folder with an experiment, and its results, which a stopped driver holds.

    `link` leads to the results.
    """
    folder = tmp_path_factory.mktemp("in_use")
    (folder / "link").symlink_to(folder / "runs")
    with stopped_driver(folder):
        yield folder


@pytest.mark.parametrize(
    ("results", "options"),
    [("runs", []), ("runs", ["--only", "seed=3"]), ("link", [])],
    ids=["same cells", "other cells", "through a link"],
)
def test_a_second_driver_is_refused_and_changes_nothing(folder_in_use, refused, results, options):
    before = tiny_runs.record_stamps(folder_in_use / "runs" / "tiny")
    config = folder_in_use / "experiment.yaml"
    message = refused("run", config, "--results", folder_in_use / results, *options)
    place = re.escape(str(folder_in_use / results / "tiny"))
    assert re.fullmatch(rf"{place} is in use by .+:\d+; wait, or choose .*\n", message)
    assert tiny_runs.record_stamps(folder_in_use / "runs" / "tiny") == before


def test_a_second_driver_from_python_is_refused(folder_in_use):
    results = folder_in_use / "runs"
    with pytest.raises(UserError, match=re.escape(f"{results / 'tiny'} is in use")):
        glue_bench.run(folder_in_use / "experiment.yaml", results=results)


def test_the_first_driver_is_named_and_goes_on_when_a_second_one_was_refused(refused, tmp_path):
    with stopped_driver(tmp_path) as first:
        message = refused("run", tmp_path / "experiment.yaml", "--results", tmp_path / "runs")
    status, output = first.end()
    assert f":{first.process.pid};" in message
    assert status == 0, output
    assert len(tiny_runs.record_stamps(tmp_path / "runs" / "tiny")) == 3
