"""The loop, and what is seen of it: counts, time left, a table in the window, a log, curves.

How jobs and drivers end: test_endings.py.
"""

import io
import os
import socket
import subprocess
import sys
import time
from functools import partial
from unittest.mock import MagicMock

import pytest
from helpers import stub
from rich.console import Console
from rich.live_render import LiveRender

from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Epoch, Failure, Pretraining, Progress
from glue_bench.sweep import drive, observers
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.executors import Inline
from glue_bench.sweep.jobs import longest_first
from glue_bench.sweep.observers import Display, view
from glue_bench.sweep.progress import (
    LIVE_SECONDS,
    STATES,
    Snapshot,
    TimeEstimate,
    Watch,
    running_jobs,
)
from glue_bench.sweep.trackers import TRACKERS, Tracker

FIRST = stub.pretraining()
CELLS = [stub.cell(seed, pretraining=FIRST.id, steps=10, pretraining_seed=1) for seed in range(6)]
PLAN = stub.plan(FIRST, *CELLS)


def counts(*numbers: int) -> dict[str, int]:
    """Return jobs that are done, running, failed and missing."""
    return dict(zip(STATES, (*numbers, 0, 0, 0, 0), strict=False))


@pytest.fixture
def worker(store) -> stub.StubWorker:
    return stub.StubWorker(store)


@pytest.fixture
def run(store, worker):
    """Run jobs in this process."""
    return partial(stub.drive, store, Inline(worker))


@pytest.fixture
def busy(store, worker) -> Store:
    """Of six cells three are done, one runs, one has failed, and the worker of one has died."""
    for job in (FIRST, *CELLS[:3]):
        worker.run(job)
    now = time.time()
    facts = {"worker": "here:4711", "began": now - 60, "step": 10, "steps": 40, "loss": 0.5}
    store.progress.write(Progress(id=CELLS[3].id, updated=now, **facts))
    store.progress.write(Progress(id=CELLS[4].id, updated=now - LIVE_SECONDS - 1, **facts))
    store.write_failure(Failure(id=CELLS[5].id, error="ValueError: no"))
    worker.run(stub.cell(99))  # outside the plan
    (store.folder / "progress" / "damaged.json").write_text("{")
    return store


def test_the_longest_chain_of_jobs_comes_first():
    first = stub.pretraining()
    short = stub.cell(2)
    long = stub.cell(3, "mnli")
    mnli = stub.cell(1, "mnli", pretraining=first.id, steps=10, pretraining_seed=1)
    rte = stub.cell(1, "rte", pretraining=first.id, steps=10, pretraining_seed=1, mnli=mnli.id)
    sizes = {"cola": 90, "mnli": 100, "rte": 90}
    plan = stub.plan(first, short, long, mnli, rte).model_copy(update={"tokens": sizes})
    assert longest_first(plan.jobs, plan) == [first, mnli, long, short, rte]


def search() -> tuple[Pretraining, list[Pretraining]]:
    """Return a pretraining, and the runs of the search for its rate."""
    rates = (1e-3, 2e-3, 4e-3)
    searches = [stub.pretraining([rate], is_search=True) for rate in rates]
    job = stub.pretraining(rates, searches=tuple(job.id for job in searches))
    return job, searches


def test_a_pretraining_takes_the_rate_of_the_lowest_loss_of_its_search(run, store):
    job, searches = search()
    stub.mishap(store, searches[2], "diverge")
    [line] = run(job, *searches).lines
    assert store.pretraining(job.id).pretraining.rate == 2e-3
    losses = "0.001: 1000.0000, 0.002: 500.0000, 0.004: diverged"
    assert f"learning rate 0.002, by the loss of its search ({losses})" in line


def test_a_pretraining_fails_where_every_rate_of_its_search_diverges(run, store):
    job, searches = search()
    for search_job in searches:
        stub.mishap(store, search_job, "diverge")
    [(name, error)] = run(job, *searches).failed.items()
    assert name == job.id
    assert error.startswith("every learning rate of the search diverged (0.001: diverged")


def test_an_observer_that_fails_is_left_out_and_costs_nothing(run):
    class Broken(Observer):
        def ended(self, job, _):
            raise OSError(f"no room for {job.arm}")

    driven = run(stub.cell(1), stub.cell(2), watching=[Broken()])
    assert len(driven.finished) == 2
    assert driven.lines == ["the broken is left out from here on (OSError: no room for add)"]


def test_a_turn_looks_once_at_each_job_that_waits(store, worker, monkeypatch):
    looks = []
    prerequisites = Cell.prerequisites.fget

    def noted_prerequisites(cell: Cell) -> tuple[str, ...]:
        looks.append(cell)
        return prerequisites(cell)

    class Wide(Inline):
        """Has room for all jobs, and runs first what it was given last."""

        free = 10**9

    monkeypatch.setattr(Cell, "prerequisites", property(noted_prerequisites))
    independent = [stub.cell(seed, "rte") for seed in range(6)]
    driven = stub.drive(store, Wide(worker), *CELLS, *independent, FIRST)
    assert len(driven.finished) == 13
    assert len(looks) == 12 + 6 + 12  # and once more when it starts


def test_where_no_machine_is_left_the_sweep_waits_for_one_and_says_so_once(
    store, worker, monkeypatch
):
    monkeypatch.setattr(drive, "TURN_SECONDS", 0.01)
    room = iter([0, 0, 0])

    class Away(Inline):
        """Has no room at first."""

        @property
        def free(self) -> int:
            return next(room, 1 - len(self.jobs))

    driven = stub.drive(store, Away(worker), stub.cell(1))
    assert len(driven.finished) == 1
    expected = "no machine has room for a job now; the sweep goes on when there is room"
    assert driven.lines == [expected]


def test_a_look_counts_the_jobs_of_the_plan_by_their_state(busy):
    watch = Watch(busy, PLAN)
    snapshot = watch.look()
    assert snapshot.arms == {"add": counts(3, 1, 1, 1)}
    assert snapshot.pretrainings == counts(1)
    assert snapshot.failed == {CELLS[5].label: "ValueError: no"}
    assert snapshot.running == [f"{CELLS[3].label}, step 10 of 40, loss 0.500 (here:4711)"]
    assert snapshot.cells == counts(3, 1, 1, 1)


def test_a_later_look_sees_what_has_ended_since(busy, worker):
    watch = Watch(busy, PLAN)
    assert watch.look().seconds_left is not None
    watch.estimate.learn(CELLS[0].id, 90.0)
    assert watch.look().seconds_left > watch.look([CELLS[3].id]).seconds_left  # of what was chosen
    worker.run(CELLS[4])
    now = time.time()
    busy.progress.write(Progress(id=CELLS[5].id, worker="here:1", began=now, updated=now))
    snapshot = watch.look()
    assert snapshot.cells == counts(4, 2)
    assert snapshot.failed == {}  # what runs again is no failure
    for cell in CELLS[3:]:
        busy.progress.drop(cell.id)
    assert watch.look().seconds_left is None


def test_a_job_whose_process_has_ended_is_not_running_jobs(store):
    host = socket.gethostname()
    now = time.time()
    ended = subprocess.Popen("true")
    ended.wait()
    workers = {
        f"{host}:{os.getpid()}": True,
        f"{host}:{ended.pid}": False,
        f"elsewhere:{ended.pid}": True,
    }
    for worker, lives in workers.items():
        store.progress.write(Progress(id=CELLS[3].id, worker=worker, began=now, updated=now))
        assert (CELLS[3].id in running_jobs(store)) == lives


ESTIMATED = [stub.cell(seed, task) for task in ("rte", "mnli") for seed in range(4)]
"""Four cells of RTE, then four of MNLI, which cost ten times as much."""


@pytest.fixture
def estimate() -> TimeEstimate:
    tokens = {"rte": 100, "mnli": 1000}
    return TimeEstimate(stub.plan(*ESTIMATED).model_copy(update={"tokens": tokens}))


def test_no_time_is_estimated_before_enough_cells_have_ended(estimate):
    assert estimate.seconds(ESTIMATED[0].id) is None
    for cell in ESTIMATED[:3]:
        assert estimate.seconds_left([ESTIMATED[3].id], {}, 1) is None
        estimate.learn(cell.id, 2.0)
    assert estimate.seconds_left([ESTIMATED[3].id], {}, 1) == 2.0


def test_the_estimate_learns_seconds_per_cost_for_each_task(estimate):
    for cell in ESTIMATED[:3]:
        estimate.learn(cell.id, 2.0)
    assert estimate.seconds(ESTIMATED[3].id) == 2.0
    assert estimate.seconds(ESTIMATED[4].id) == 20.0  # no cell of its task has ended
    estimate.learn(ESTIMATED[4].id, 50.0)
    assert estimate.seconds(ESTIMATED[5].id) == 50.0


def test_the_time_left_is_that_of_waiting_and_running_cells_over_all_workers(estimate):
    for cell, seconds in zip(ESTIMATED[:5], (2.0, 2.0, 2.0, 2.0, 50.0), strict=True):
        estimate.learn(cell.id, seconds)
    waiting = [cell.id for cell in ESTIMATED[5:7]]
    running = {ESTIMATED[7].id: 20.0}  # seconds since it began
    assert estimate.seconds_left(waiting, running, 1) == 130.0
    assert estimate.seconds_left(waiting, running, 2) == 65.0
    assert estimate.seconds_left([], running, 2) == 30.0


def test_no_time_is_left_where_a_job_takes_longer_than_was_expected():
    assert Snapshot({}, dict.fromkeys(STATES, 0), seconds_left=0.0).time_left == ""


@pytest.mark.parametrize(
    ("arms", "height", "width"), [(3, 24, 80), (40, 24, 80), (3, 8, 40), (3, 5, 20)]
)
def test_the_table_fits_into_the_window_and_what_is_left_to_do_stays_in_it(arms, height, width):
    counts_by_arm = {f"an-arm-with-a-long-name-{number}": counts(5) for number in range(arms)}
    counts_by_arm["busy"] = counts(5, 0, 0, 5)
    running = ["cell 9"] if arms > 3 else []
    snapshot = Snapshot(counts_by_arm, counts(1), running)
    console = Console(file=io.StringIO(), width=width, height=height)
    screen = LiveRender(view(snapshot, ["a cell"]))
    lines = console.render_lines(screen, console.options.update(height=height), pad=False)
    texts = ["".join(part.text for part in line) for line in lines]
    assert len(texts) <= height
    assert max(map(len, texts)) <= width
    assert any(text.startswith("busy ") for text in texts)


@pytest.mark.parametrize("is_terminal", [False, True], ids=["log", "terminal"])
def test_what_a_display_shows(busy, worker, monkeypatch, is_terminal):
    monkeypatch.setattr(observers, "MINUTE", 0.05)
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=300, height=30)
    display = Display(console)

    display.begin(busy, PLAN, CELLS[3:])
    display.ended(CELLS[4], worker.run(CELLS[4]))
    display.ended(CELLS[5], Failure(id=CELLS[5].id, error="ValueError: no"))
    display.say("a line [in brackets]")
    time.sleep(0.3)
    display.end()

    text = console.file.getvalue()
    for line in (
        "3 of 6 cells done, 1 running, 1 failed, 1 missing; 1 of 1 pretrainings",
        f"{CELLS[5].label}: FAILED ValueError: no",
        "a line [in brackets]",
        f"running {CELLS[3].label}, step 10 of 40",
    ):
        assert line in text
    if not is_terminal:
        assert f"[1/3] {CELLS[4].label}: accuracy 50.00, 0.0 s" in text
        assert all(line[:10].count("-") == 2 for line in text.splitlines())  # the local time


def curve(name: str, module: MagicMock) -> dict[int, dict[str, float]]:
    """The values with which a tracker was called, by step; TensorBoard takes one at a time."""
    values_by_step: dict[int, dict[str, float]] = {}
    writer = module.SummaryWriter.return_value.__enter__.return_value
    for call in writer.add_scalar.call_args_list:
        tag, value, step = call.args
        values_by_step.setdefault(step, {})[tag] = value
    log = module.log_metrics if name == "mlflow" else module.init.return_value.log
    for call in log.call_args_list:
        values_by_step[call.kwargs["step"]] = call.args[0]
    return values_by_step


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_has_the_curve_of_each_job_that_ends_well(name, worker, tmp_path, monkeypatch):
    module = MagicMock()
    module.__spec__ = module  # it is installed
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tracker = Tracker(name, tmp_path / "stub")

    cell = stub.cell(3, "mnli")
    scores = {"validation": {"accuracy": 0.5, "f1": None}}
    history = tuple(Epoch(epoch=epoch, train_loss=1 / epoch, scores=scores) for epoch in (3, 4))

    tracker.ended(FIRST, worker.run(FIRST))
    tracker.ended(cell, worker.run(cell).model_copy(update={"history": history}))
    tracker.ended(stub.cell(4), Failure(id="failed", error="ValueError: no"))

    settings = (
        "'arm': 'add'",
        "'seed': 3",
        "'learning_rate': 2e-05",
        "'epochs': 3",
        "'origin': 'pretrained'",
    )
    for words in ("stub", cell.id, *(settings if name != "tensorboard" else ())):
        assert words in str(module.mock_calls)

    expected = {
        10: {"pretraining/train_loss": 1.0, "pretraining/tokens": 100},
        3: {"mnli/train_loss": 1 / 3, "mnli/validation/accuracy": 0.5},
        4: {"mnli/train_loss": 0.25, "mnli/validation/accuracy": 0.5},
    }
    assert curve(name, module) == expected


def test_a_tracker_that_is_not_installed_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [])
    for name in {*TRACKERS} - {*sys.modules}:
        with pytest.raises(
            UserError, match=rf"^--track {name} needs {name}, which is not installed: pip install"
        ):
            Tracker(name, tmp_path)
