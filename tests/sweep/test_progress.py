"""The loop, and what is seen of it: counts, pace, time left, a table that fits into the window, a log, curves.

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
from glue_bench.records.values import Cell, Epoch, Failure, Progress
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
    """Jobs that are done, running, failed and missing."""
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
    """Three cells of six are done, one is under way, one has failed, and one was under way when its worker died."""
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
    first, other, long = stub.pretraining(), stub.cell(2), stub.cell(3, "mnli")
    mnli = stub.cell(1, "mnli", pretraining=first.id, steps=10, pretraining_seed=1)
    rte = stub.cell(1, "rte", pretraining=first.id, steps=10, pretraining_seed=1, mnli=mnli.id)
    plan = stub.plan(first, other, long, mnli, rte).model_copy(
        update={"tokens": {"cola": 90, "mnli": 100, "rte": 90}}
    )
    assert longest_first(plan.jobs, plan) == [first, mnli, long, other, rte]


def test_a_pretraining_takes_the_rate_of_the_lowest_loss_of_its_search(run, store):
    runs = [stub.pretraining([rate], is_search=True) for rate in (1e-3, 2e-3, 4e-3)]
    job = stub.pretraining((1e-3, 2e-3, 4e-3), searches=tuple(each.id for each in runs))
    stub.mishap(store, runs[2], "diverge")
    [line] = run(job, *runs).lines
    assert store.pretraining(job.id).pretraining.rate == 2e-3
    assert (
        "learning rate 0.002, by the loss of its search (0.001: 1000.0000, 0.002: 500.0000, 0.004: diverged)"
        in line
    )
    for each in runs:
        stub.mishap(store, each, "diverge")
    [(name, error)] = run(job, *runs).failed.items()
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
    looks, after = [], Cell.after.fget
    monkeypatch.setattr(Cell, "after", property(lambda cell: looks.append(cell) or after(cell)))
    wide = type("Wide", (Inline,), {"free": 10**9})(
        worker
    )  # which runs first what it was given last
    driven = stub.drive(store, wide, *CELLS, *(stub.cell(seed, "rte") for seed in range(6)), FIRST)
    assert (len(driven.finished), len(looks)) == (13, 12 + 6 + 12)  # and once more when it starts


def test_where_no_machine_is_left_the_sweep_waits_for_one_and_says_so_once(
    store, worker, monkeypatch
):
    monkeypatch.setattr(drive, "TURN_SECONDS", 0.01)
    room = iter([0, 0, 0])
    away = type("Away", (Inline,), {"free": property(lambda self: next(room, 1 - len(self.jobs)))})
    driven = stub.drive(store, away(worker), stub.cell(1))
    assert len(driven.finished) == 1
    assert driven.lines == ["no machine has room for a job now; the sweep goes on when one has"]


def test_a_look_counts_the_jobs_of_the_plan_by_their_state_and_a_later_one_sees_what_has_ended_since(
    busy, worker
):
    watch = Watch(busy, PLAN)
    snapshot = watch.look()
    assert (snapshot.arms, snapshot.pretrainings) == ({"add": counts(3, 1, 1, 1)}, counts(1))
    assert snapshot.failed == {CELLS[5].label: "ValueError: no"}
    assert snapshot.running == [f"{CELLS[3].label}, step 10 of 40, loss 0.500 (here:4711)"]
    assert snapshot.cells == snapshot.arms["add"] == counts(3, 1, 1, 1)
    assert snapshot.seconds_left is not None
    watch.estimate.learn(CELLS[0].id, 90.0)
    assert watch.look().seconds_left > watch.look([CELLS[3].id]).seconds_left  # of what was chosen
    worker.run(CELLS[4])
    busy.progress.write(
        Progress(id=CELLS[5].id, worker="here:1", began=time.time(), updated=time.time())
    )
    later = watch.look()
    assert (later.cells, later.failed) == (counts(4, 2), {})  # what runs again is no failure
    for cell in CELLS[3:]:
        busy.progress.drop(cell.id)
    assert watch.look().seconds_left is None


def test_a_job_whose_process_has_ended_is_not_running_jobs(store):
    ended, here, now = subprocess.Popen("true"), socket.gethostname(), time.time()
    ended.wait()
    places = {
        f"{here}:{os.getpid()}": True,
        f"{here}:{ended.pid}": False,
        f"elsewhere:{ended.pid}": True,
    }
    for worker, lives in places.items():
        store.progress.write(Progress(id=CELLS[3].id, worker=worker, began=now, updated=now))
        assert (CELLS[3].id in running_jobs(store)) == lives


def test_the_estimate_learns_seconds_per_cost_for_each_task():
    cells = [stub.cell(seed, task) for task in ("rte", "mnli") for seed in range(4)]
    plan = stub.plan(*cells).model_copy(update={"tokens": {"rte": 100, "mnli": 1000}})
    estimate = TimeEstimate(plan)
    assert estimate.seconds(cells[0].id) is None
    for cell in cells[:3]:
        assert (
            estimate.seconds_left([cells[3].id], {}, 1) is None
        )  # nothing is said before there is ground
        estimate.learn(cell.id, 2.0)
    assert [estimate.seconds(cell.id) for cell in cells[3:5]] == [
        2.0,
        20.0,
    ]  # of a task not seen yet as of all
    estimate.learn(cells[4].id, 50.0)
    waiting, running = [cell.id for cell in cells[5:7]], {cells[7].id: 20.0}
    assert [estimate.seconds_left(waiting, running, at_once) for at_once in (1, 2)] == [130.0, 65.0]
    assert estimate.seconds_left([], running, 2) == 30.0


@pytest.mark.parametrize(
    ("arms", "height", "width"), [(3, 24, 80), (40, 24, 80), (3, 8, 40), (3, 5, 20)]
)
def test_the_table_fits_into_the_window_and_what_is_left_to_do_stays_in_it(arms, height, width):
    found = {f"an-arm-with-a-long-name-{number}": counts(5) for number in range(arms)}
    snapshot = Snapshot(found | {"busy": counts(5, 0, 0, 5)}, counts(1), ["cell 9"] * (arms > 3))
    console = Console(file=io.StringIO(), width=width, height=height)
    screen = LiveRender(view(snapshot, ["a cell"]))
    lines = console.render_lines(screen, console.options.update(height=height), pad=False)
    said = ["".join(part.text for part in line) for line in lines]
    assert len(said) <= height
    assert max(map(len, said)) <= width
    assert any(line.startswith("busy ") for line in said)


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
    """By step the values with which a tracker was called; TensorBoard takes one at a time."""
    found: dict[int, dict[str, float]] = {}
    writer = module.SummaryWriter.return_value.__enter__.return_value
    for tag, value, step in (call.args for call in writer.add_scalar.call_args_list):
        found.setdefault(step, {})[tag] = value
    log = module.log_metrics if name == "mlflow" else module.init.return_value.log
    return found | {call.kwargs["step"]: call.args[0] for call in log.call_args_list}


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_has_the_curve_of_each_job_that_ends_well(name, worker, tmp_path, monkeypatch):
    module, cell = MagicMock(), stub.cell(3, "mnli")
    module.__spec__ = module  # it is installed
    for each in {name, "torch.utils.tensorboard"}:
        monkeypatch.setitem(sys.modules, each, module)
    scores, tracker = (
        {"validation": {"accuracy": 0.5, "f1": None}},
        Tracker(name, tmp_path / "stub"),
    )
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
    assert curve(name, module) == {
        10: {"pretraining/train_loss": 1.0, "pretraining/tokens": 100},
        3: {"mnli/train_loss": 1 / 3, "mnli/validation/accuracy": 0.5},
        4: {"mnli/train_loss": 0.25, "mnli/validation/accuracy": 0.5},
    }


def test_a_tracker_that_is_not_installed_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [])
    for name in {*TRACKERS} - {*sys.modules}:
        with pytest.raises(
            UserError, match=rf"^--track {name} needs {name}, which is not installed: pip install"
        ):
            Tracker(name, tmp_path)
