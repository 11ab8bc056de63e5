"""Trackers get every curve, change nothing of a cell, and may fail without a cell's harm."""

import io
import sys
from types import SimpleNamespace

import pytest
from accelerate import PartialState
from accelerate.tracking import GeneralTracker
from rich.console import Console
from stored import documents

from glue_bench.api import run
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.watch import trackers

pytestmark = pytest.mark.usefixtures("small_demo")
PRETRAINING = {"corpus": "demo", "steps": 4, "batch_tokens": 128, "length": 32, "validations": 2}


class Fake(GeneralTracker):
    """A tracker as accelerate defines one; runs are kept in `runs`."""

    name = "fake"
    requires_logging_directory = False
    main_process_only = True
    runs: list["Fake"]
    open_runs = 0

    def __init__(self, run: trackers.Run, breaks_at: int) -> None:
        super().__init__()
        assert Fake.open_runs == 0
        Fake.open_runs += 1
        self.run, self.breaks_at, self.logged = run, breaks_at, []
        self.runs.append(self)

    @property
    def tracker(self):
        return self

    def log(self, values, step=None, **_):
        if len(self.runs) == self.breaks_at:
            raise ConnectionError("no route to host")
        self.logged.append((step, values))

    def finish(self):
        Fake.open_runs -= 1


@pytest.fixture
def tracked(tiny, tmp_path, monkeypatch):
    """Run the tiny experiment with the fake tracker, which breaks at that run; its runs, and what was said."""

    def run_it(breaks_at=0, results="runs", **changes):
        Fake.runs, Fake.open_runs = [], 0
        monkeypatch.setitem(trackers.TRACKERS, "fake", (lambda: True, lambda run: Fake(run, breaks_at)))
        console = Console(file=io.StringIO(), width=200)
        summary = run(tiny(**changes), results=tmp_path / results, console=console, track=["fake"])
        return summary, Fake.runs, console.file.getvalue()

    return run_it


def test_each_cell_is_a_run_with_its_curves(tracked):
    summary, runs, _ = tracked(arms=["add"], finetuning={"epochs": 2, "held_out_share": 0.2})
    records = {record["cell_id"]: record for record in documents(Store(summary.folder))}
    assert {tracker.run.name for tracker in runs} == set(records)
    for tracker in runs:
        record = records[tracker.run.name]
        task = record["cell"]["task"]
        assert (tracker.run.experiment, tracker.run.arm, tracker.run.kind) == ("tiny", "add", task)
        settings = tracker.run.settings
        assert (settings["task"], settings["seed"], settings["epochs"], settings["origin"]) == (task, 1, 2, "scratch")
        assert [step for step, _ in tracker.logged] == [1, 2]
        for (_, values), point in zip(tracker.logged, record["history"], strict=True):
            assert values[f"{task}/train_loss"] == point["train_loss"]
            assert {name.split("/")[1] for name in values} == {"train_loss", "validation", "held_out"}
            for metric, value in point["scores"]["validation"].items():
                assert values[f"{task}/validation/{metric}"] == value
    assert Fake.open_runs == 0


def test_pretraining_is_a_run_an_arm(tracked):
    _, runs, _ = tracked(tasks=["cola"], pretraining=PRETRAINING)
    assert [(run.run.arm, run.run.kind) for run in runs] == [
        ("add", "pretraining"), ("none", "pretraining"), ("add", "cola"), ("none", "cola"),
    ]  # fmt: skip
    assert [step for step, _ in runs[0].logged] == [1, 2, 3, 4]
    assert set(runs[0].logged[0][1]) == {"pretraining/train_loss", "pretraining/tokens"}
    assert "pretraining/validation_loss" in runs[0].logged[-1][1]


def test_a_tracker_that_fails_is_left_out_and_the_tables_are_the_same(tracked):
    whole, _, _ = tracked(results="whole", tasks=["cola"])
    summary, runs, said = tracked(breaks_at=2, tasks=["cola"])
    assert (summary.finished, summary.failed, len(runs)) == (2, {}, 2)
    assert said.count("the tracker 'fake' failed and is left out from here on; the sweep goes on") == 1
    assert "ConnectionError: no route to host" in said
    for path in (whole.folder / "predictions").iterdir():
        assert (summary.folder / "predictions" / path.name).read_bytes() == path.read_bytes()


def test_what_is_unknown_or_not_installed_is_refused_before_anything(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "wandb", (lambda: False, None))
    for name, said in {
        "tensorbord": "unknown tracker 'tensorbord' in --track; did you mean 'tensorboard'?",
        "wandb": "--track wandb needs wandb, which is not installed: pip install wandb",
    }.items():
        with pytest.raises(UserError) as error:
            run(tiny(), results=tmp_path / "runs", track=[name])
        assert str(error.value) == said
    assert not (tmp_path / "runs").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_was_written(tiny, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    values = tiny(arms=["add"], tasks=["cola"], pretraining=PRETRAINING)
    summary = run(values, results=tmp_path, console=Console(file=io.StringIO()), track=["tensorboard"])
    found = {}
    for folder in (summary.folder / "tensorboard" / "add").iterdir():
        events = EventAccumulator(str(folder))
        events.Reload()
        found[folder.name] = {tag: len(events.Scalars(tag)) for tag in events.Tags()["scalars"]}
    (record,) = documents(Store(summary.folder))
    assert found.pop(record["cell_id"]) == {"cola/train_loss": 1, "cola/validation/matthews_correlation": 1}
    assert found == {
        "pretraining": {"pretraining/train_loss": 4, "pretraining/tokens": 4, "pretraining/validation_loss": 2}
    }


def test_trackio_reads_what_was_written(tiny, tmp_path, monkeypatch, capsys):
    """On this machine, without a dashboard, and without a word among the lines of the sweep."""
    pytest.importorskip("trackio")
    from trackio import utils
    from trackio.sqlite_storage import SQLiteStorage

    for module in ("trackio.utils", "trackio.sqlite_storage"):
        monkeypatch.setattr(f"{module}.TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.setattr(utils, "MEDIA_DIR", tmp_path / "trackio" / "media")
    values = tiny(arms=["add"], tasks=["cola"], pretraining=PRETRAINING)
    summary = run(values, results=tmp_path, console=Console(file=io.StringIO()), track=["trackio"])
    assert capsys.readouterr().out == ""
    (record,) = documents(Store(summary.folder))
    assert sorted(SQLiteStorage.get_runs("tiny")) == sorted(["pretraining", record["cell_id"]])
    (logged,) = SQLiteStorage.get_logs("tiny", record["cell_id"])
    assert logged["cola/train_loss"] == pytest.approx(record["history"][0]["train_loss"])
    assert len(SQLiteStorage.get_logs("tiny", "pretraining")) == 4


def test_what_trackio_is_asked_for(monkeypatch, tmp_path, capsys):
    asked = {}

    def init(**named):
        print("* Trackio project initialized")
        asked.update(named)
        return SimpleNamespace(finish=lambda: print("* Run finished"))

    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=init))
    PartialState()  # accelerate's trackers ask it which process is the main one
    opened = trackers.TRACKERS["trackio"][1](trackers.Run("tiny", tmp_path, "add", "add-cola-1", "cola", {"seed": 1}))
    opened.finish()
    assert capsys.readouterr().out == ""
    assert (asked["project"], asked["name"], asked["group"]) == ("tiny", "add-cola-1", "add")
    assert asked["config"] == {"seed": 1, "kind": "cola"}
    assert not asked["embed"]
