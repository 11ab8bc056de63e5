"""What is seen of a sweep: counts, pace, time left, a table that fits into the window, lines in a log, curves."""

import io
import json
import sys
import time
from unittest.mock import MagicMock

import pytest
import stub
from rich.console import Console
from rich.live_render import LiveRender

from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.records.values import Epoch, Failure, Progress
from glue_bench.sweep import observers
from glue_bench.sweep.observers import TRACKERS, Lines, Table, Tracker, check_trackers, view
from glue_bench.sweep.progress import (
    LIVE_SECONDS,
    Counts,
    Estimate,
    Snapshot,
    Watch,
    describe_counts,
    describe_pace,
    describe_progress,
    describe_result,
    duration,
)

FIRST = stub.pretraining()
CELLS = [stub.cell(seed, pretraining=FIRST.id, steps=10, pretraining_seed=1) for seed in range(6)]
PLAN = stub.plan(FIRST, *CELLS)


@pytest.fixture
def store(tmp_path) -> Store:
    """Three cells of six are done, one is under way, one has failed, and one was under way when its worker died."""
    made, worker = Store(tmp_path), stub.StubWorker(tmp_path, 0.0)
    for job in (FIRST, *CELLS[:3]):
        worker.run(job)
    now = time.time()
    under_way = {"worker": "here:4711", "began": now - 60, "step": 10, "steps": 40, "loss": 0.5}
    made.write_progress(Progress(id=CELLS[3].id, updated=now, **under_way))
    made.write_progress(Progress(id=CELLS[4].id, updated=now - LIVE_SECONDS - 1, **under_way))
    made.write_failure(Failure(id=CELLS[5].id, error="ValueError: no"))
    worker.run(stub.cell(99))  # outside the plan
    return made


def test_a_look_counts_the_jobs_of_the_plan_by_their_state(store):
    snapshot = Watch(store, PLAN).look()
    assert snapshot.arms == {"add": Counts(done=3, running=1, failed=1, missing=1)}
    assert snapshot.pretrainings == Counts(done=1)
    assert snapshot.failed == {CELLS[5].label: "ValueError: no"}
    [line] = snapshot.running
    assert line == f"{CELLS[3].label}, step 10 of 40, loss 0.500 (here:4711)"
    assert describe_counts(snapshot) == "3 of 6 cells done, 1 running, 1 failed, 1 missing; 1 of 1 pretrainings"
    document = json.loads(json.dumps(snapshot.document()))
    assert document["cells"] == {"done": 3, "running": 1, "failed": 1, "missing": 1}
    assert (document["arms"]["add"]["done"], document["failed"]) == (3, snapshot.failed)


def test_a_later_look_sees_what_has_ended_since_and_what_runs_again_is_no_failure(store):
    watch, now = Watch(store, PLAN), time.time()
    watch.look()
    stub.StubWorker(store.folder, 0.0).run(CELLS[4])
    store.write_progress(Progress(id=CELLS[5].id, worker="here:1", began=now, updated=now))
    snapshot = watch.look()
    assert (snapshot.cells, snapshot.failed) == (Counts(done=4, running=2), {})


def test_pace_and_time_left_are_told_while_something_runs(store):
    busy = Watch(store, PLAN).look()
    assert busy.cells_per_hour > 0
    assert busy.seconds_left is not None
    store.drop_progress(CELLS[3].id)
    idle = Watch(store, PLAN).look()
    assert (idle.cells_per_hour, idle.seconds_left, idle.tokens_per_second) == (None, None, None)


def test_the_estimate_learns_seconds_per_cost_for_each_task():
    cells = [stub.cell(seed, task) for task in ("rte", "mnli") for seed in range(4)]
    plan = stub.plan(*cells).model_copy(update={"tokens": {"rte": 100, "mnli": 1000}})
    estimate = Estimate(plan)
    assert estimate.seconds(cells[0].id) is None
    for cell in cells[:3]:
        assert estimate.seconds_left([cells[3].id], {}, 1) is None  # nothing is said before there is ground
        estimate.learn(cell.id, 2.0)
    assert estimate.seconds(cells[3].id) == 2.0
    assert estimate.seconds(cells[4].id) == 20.0  # as nothing is known of the task
    estimate.learn(cells[4].id, 50.0)
    assert estimate.seconds(cells[5].id) == 50.0
    waiting = [cell.id for cell in cells[5:7]]
    assert estimate.seconds_left(waiting, {cells[7].id: 20.0}, 1) == 130.0
    assert estimate.seconds_left(waiting, {cells[7].id: 20.0}, 2) == 65.0
    assert estimate.seconds_left([], {cells[7].id: 20.0}, 2) == 30.0


def test_words(tmp_path):
    said = [duration(seconds) for seconds in (0.42, 40, 720, 3 * 3600 + 300, 52 * 3600)]
    assert said == ["0.4 s", "40 s", "12 min", "3 h 05 min", "2 d 4 h"]
    assert describe_pace(Snapshot({}, Counts(), seconds_left=720.0, cells_per_hour=4.25)) == (
        "about 12 min left, 4.2 cells/h"
    )
    assert describe_pace(Snapshot({}, Counts())) == ""
    progress, worker = Progress(id="a", worker="here:1", began=0.0, updated=0.0), stub.StubWorker(tmp_path, 0.0)
    assert describe_progress(CELLS[0], progress) == f"{CELLS[0].label} (here:1)"  # it has no steps yet
    assert describe_result(worker.run(CELLS[0])) == "accuracy 50.00, 0.0 s"
    assert describe_result(worker.run(FIRST)) == "validation loss 1000.000, 0.0 s"
    assert describe_result(Failure(id="a", error="ValueError: no")) == "FAILED ValueError: no"


# In a terminal and in a log


@pytest.mark.parametrize(("arms", "height", "width"), [(3, 24, 80), (40, 24, 80), (3, 8, 40), (3, 5, 20)])
def test_the_table_fits_into_the_window_and_what_is_left_to_do_stays_in_it(arms, height, width):
    counts = {f"an-arm-with-a-long-name-{number}": Counts(done=5) for number in range(arms)}
    snapshot = Snapshot(counts | {"busy": Counts(done=5, missing=5)}, Counts(done=1), ["cell 9"] * (arms > 3))
    console = Console(file=io.StringIO(), width=width, height=height)
    screen = LiveRender(view(snapshot, ["a cell"]))
    lines = console.render_lines(screen, console.options.update(height=height), pad=False)
    said = ["".join(part.text for part in line) for line in lines]
    assert len(said) <= height
    assert max(map(len, said)) <= width
    assert any(line.startswith("busy ") for line in said)


def test_a_log_has_a_line_for_each_job_and_each_minute_one_for_each_that_runs(store, monkeypatch):
    monkeypatch.setattr(observers, "MINUTE", 0.05)
    console = Console(file=io.StringIO(), width=300)
    lines = Lines(console, Watch(store, PLAN), CELLS[3:])
    lines.begin()
    result = stub.StubWorker(store.folder, 0.0).run(CELLS[4])
    lines.ended(CELLS[4], result)
    lines.say("a line [in brackets]")
    time.sleep(0.3)
    lines.end()
    text = console.file.getvalue()
    assert (
        f"3 jobs to run; 3 of 6 cells done, 1 running, 1 failed, 1 missing; 1 of 1 pretrainings in {store.folder}"
        in text
    )
    assert f"[1/3] {CELLS[4].label}: accuracy 50.00, 0.0 s" in text
    assert "a line [in brackets]" in text
    assert f"running {CELLS[3].label}, step 10 of 40" in text
    assert all(line[:10].count("-") == 2 for line in text.splitlines())


def test_the_live_table_lets_failures_scroll_by(store):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30)
    table = Table(console, Watch(store, PLAN))
    table.begin()
    table.ended(CELLS[0], Failure(id=CELLS[0].id, error="ValueError: no"))
    table.say("a line")
    table.end()
    text = console.file.getvalue()
    assert f"{CELLS[0].label}: FAILED ValueError: no" in text
    assert "a line" in text
    assert "3 of 6 cells done" in text


# Trackers

CELL = stub.cell(3, "mnli")
EPOCHS = tuple(
    Epoch(epoch=epoch, train_loss=1 / epoch, scores={"validation": {"accuracy": 0.5, "f1": None}}) for epoch in (1, 2)
)
CURVE = [
    ({"mnli/train_loss": 1.0, "mnli/validation/accuracy": 0.5}, 1),
    ({"mnli/train_loss": 0.5, "mnli/validation/accuracy": 0.5}, 2),
]


@pytest.fixture
def end(tmp_path):
    """Tell a tracker that a pretraining and a cell have ended, and that another one has failed."""

    def tell(name: str) -> None:
        worker, tracker = stub.StubWorker(tmp_path, 0.0), Tracker(name, "stub", tmp_path)
        tracker.ended(FIRST, worker.run(FIRST))
        tracker.ended(CELL, worker.run(CELL).model_copy(update={"history": EPOCHS}))
        tracker.ended(stub.cell(4), Failure(id="failed", error="ValueError: no"))

    return tell


def test_a_tracker_that_is_unknown_or_not_installed_is_one_line(monkeypatch):
    with pytest.raises(UserError, match=r"^unknown tracker 'tensorbord' in --track; did you mean 'tensorboard'\?$"):
        check_trackers(["tensorbord"])
    monkeypatch.setattr(sys, "path", [])
    for name in {*TRACKERS} - {*sys.modules}:
        with pytest.raises(UserError, match=rf"^--track {name} needs {name}, which is not installed: pip install"):
            check_trackers([name])


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_weights_and_biases_and_trackio(end, monkeypatch, capsys, name):
    module = MagicMock()
    module.init.return_value.finish.side_effect = lambda: print("* Run finished") if name == "trackio" else None
    monkeypatch.setitem(sys.modules, name, module)
    end(name)
    assert capsys.readouterr().out == ""
    pretraining, cell = (call.kwargs for call in module.init.call_args_list)
    assert (pretraining["project"], pretraining["group"], cell["name"]) == ("stub", "add", CELL.id)
    assert (pretraining["config"]["kind"], cell["config"]["kind"]) == ("pretraining", "mnli")
    settings = {name: cell["config"][name] for name in ("arm", "task", "seed", "learning_rate", "epochs", "origin")}
    expected = {"arm": "add", "task": "mnli", "seed": 3, "learning_rate": 1e-3, "epochs": 10, "origin": "pretrained"}
    assert settings == expected
    logged = module.init.return_value.log.call_args_list
    assert [(call.args[0], call.kwargs["step"]) for call in logged[1:]] == CURVE
    assert logged[0].args[0] == {"pretraining/train_loss": 1.0, "pretraining/tokens": 100}
    assert module.init.return_value.finish.call_count == 2


def test_mlflow(end, monkeypatch):
    mlflow = MagicMock()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    end("mlflow")
    assert [call.args for call in mlflow.set_experiment.call_args_list] == [("stub",)] * 2
    assert mlflow.start_run.call_args.kwargs == {"run_name": CELL.id}
    assert mlflow.log_params.call_args.args[0]["seed"] == 3
    assert [(call.args[0], call.kwargs["step"]) for call in mlflow.log_metrics.call_args_list[1:]] == CURVE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_was_written(end, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    end("tensorboard")
    found = {}
    for folder in (tmp_path / "tensorboard" / "add").iterdir():
        events = EventAccumulator(str(folder))
        events.Reload()
        found[folder.name] = {tag: len(events.Scalars(tag)) for tag in events.Tags()["scalars"]}
    assert found == {
        CELL.id: {"mnli/train_loss": 2, "mnli/validation/accuracy": 2},
        f"pretraining-{FIRST.id}": {"pretraining/train_loss": 1, "pretraining/tokens": 1},
    }
