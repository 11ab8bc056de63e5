"""Trackers are given the curve of every job that ends well."""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import stub

from glue_bench.errors import UserError
from glue_bench.records.values import Epoch, Failure
from glue_bench.sweep.trackers import TRACKERS, Tracker, check_trackers

FIRST, CELL = stub.pretraining(), stub.cell(3, "mnli")
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


def test_what_is_unknown_or_not_installed_is_one_line(monkeypatch):
    with pytest.raises(UserError, match=r"^unknown tracker 'tensorbord' in --track; did you mean 'tensorboard'\?$"):
        check_trackers(["tensorbord"])
    monkeypatch.setattr("glue_bench.sweep.trackers.find_spec", lambda _: None)
    for name in TRACKERS:
        with pytest.raises(UserError, match=rf"^--track {name} needs {name}, which is not installed: pip install"):
            check_trackers([name])


def test_weights_and_biases(end, monkeypatch):
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    end("wandb")
    pretraining, cell = (call.kwargs for call in wandb.init.call_args_list)
    assert (pretraining["project"], pretraining["group"], pretraining["job_type"]) == ("stub", "add", "pretraining")
    assert (cell["name"], cell["group"], cell["job_type"]) == (CELL.id, "add", "mnli")
    settings = {name: cell["config"][name] for name in ("arm", "task", "seed", "learning_rate", "epochs", "origin")}
    expected = {"arm": "add", "task": "mnli", "seed": 3, "learning_rate": 1e-3, "epochs": 10, "origin": "pretrained"}
    assert settings == expected
    logged = wandb.init.return_value.__enter__.return_value.log.call_args_list
    assert [(call.args[0], call.kwargs["step"]) for call in logged[1:]] == CURVE
    assert logged[0].args[0] == {"pretraining/train_loss": 1.0, "pretraining/tokens": 100}
    assert wandb.init.return_value.__exit__.call_count == 2


def test_mlflow(end, monkeypatch):
    mlflow = MagicMock()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    end("mlflow")
    assert [call.args for call in mlflow.set_experiment.call_args_list] == [("stub",)] * 2
    assert mlflow.start_run.call_args.kwargs == {"run_name": CELL.id}
    assert mlflow.log_params.call_args.args[0]["seed"] == 3
    assert [(call.args[0], call.kwargs["step"]) for call in mlflow.log_metrics.call_args_list[1:]] == CURVE


def test_trackio_does_not_speak_and_opens_no_dashboard(end, monkeypatch, capsys):
    opened = SimpleNamespace(logged=[], finish=lambda: print("* Run finished"))
    opened.log = lambda values, step: opened.logged.append((values, step))
    asked = []

    def init(**named):
        print("* Trackio project initialized")
        asked.append(named)
        return opened

    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=init))
    end("trackio")
    assert capsys.readouterr().out == ""
    assert opened.logged[1:] == CURVE
    assert (asked[1]["project"], asked[1]["name"], asked[1]["group"]) == ("stub", CELL.id, "add")
    assert asked[1]["config"]["kind"] == "mnli"
    assert [asked[1][name] for name in ("embed", "auto_log_cpu", "auto_log_gpu")] == [False] * 3


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
