"""Trackers, which draw the curves of jobs: TensorBoard, Weights & Biases and MLflow."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glue_bench.errors import UserError, unknown
from glue_bench.records.store import Store
from glue_bench.records.values import Job, PretrainingRecord, Record, Result
from glue_bench.sweep.drive import Observer

Curve = dict[int, dict[str, float]]
"""The values by their names, for each epoch or step."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A job as a tracker shows it.

    Attributes:
        name: the name of the run.
        settings: the facts that tell the run from other runs.
        curve: the scores by epoch, or the losses by step.
    """

    name: str
    settings: dict[str, Any]
    curve: Curve


class Tracker(Observer):
    """Writes the curve of each job that ends well: scores by epoch, losses of pretraining by step.

    Values are called `cola/validation/matthews_correlation` and the like: a task's charts stand
    together, and show all arms. Each job is a run of its own, written by the driver when the job
    has ended. No job depends on it.

    Args:
        name: one of TRACKERS.
        folder: the folder of the experiment's results.

    Raises:
        UserError: the tracker is unknown or not installed.
    """

    def __init__(self, name: str, folder: Path) -> None:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS, "--track")
        if find_spec(name) is None:
            raise UserError(
                f"--track {name} needs {name}, which is not installed: pip install {name}"
            )
        make_writer = TRACKERS[name]
        self.writer = make_writer(folder)

    def ended(self, job: Job, result: Result) -> None:  # noqa: ARG002
        if isinstance(result, Record):
            self.writer.write(_tracked_cell(result))
        elif isinstance(result, PretrainingRecord):
            self.writer.write(_tracked_pretraining(result))


def _tracked_cell(record: Record) -> TrackedRun:
    """Return the curve of a fine-tuning run: a point for each epoch."""
    cell = record.cell
    points: dict[int, dict[str, float | None]] = {}
    for epoch in record.history:
        point: dict[str, float | None] = {"train_loss": epoch.train_loss}
        for split, scores in epoch.scores.items():
            for metric, score in scores.items():
                point[f"{split}/{metric}"] = score
        points[epoch.epoch] = point
    settings = {
        **cell.key,
        **cell.settings.model_dump(exclude_none=True),
        "origin": cell.origin,
        "id": cell.id,
        "kind": cell.task,
    }
    curve = _curve(cell.task, points)
    return TrackedRun(name=cell.id, settings=settings, curve=curve)


def _tracked_pretraining(record: PretrainingRecord) -> TrackedRun:
    """Return the curve of a pretraining: a point for each validation."""
    job = record.pretraining
    fields = {"train_loss", "validation_loss", "tokens"}
    points = {point.step: point.model_dump(include=fields) for point in record.losses}
    settings = {
        "arm": job.arm,
        "pretraining_seed": job.seed,
        "learning_rate": job.learning_rate,
        "id": job.id,
        "kind": job.kind_title,
    }
    curve = _curve(job.kind_title, points)
    name = f"pretraining-{job.id}"
    return TrackedRun(name=name, settings=settings, curve=curve)


def _curve(kind: str, points: dict[int, dict[str, float | None]]) -> Curve:
    """Return the values that are known, with names that begin with the kind of the job."""
    curve: Curve = {}
    for step, point in points.items():
        curve[step] = {}
        for name, value in point.items():
            if value is not None:
                curve[step][f"{kind}/{name}"] = value
    return curve


class RunWriter(ABC):
    """Writes runs for one tracker.

    Args:
        folder: the folder of the experiment's results.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def write(self, run: TrackedRun) -> None:
        """Write a run and its curve."""


class TensorBoard(RunWriter):
    """Writes into a folder of the results."""

    def write(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = Store(self.folder).tensorboard / run.settings["arm"] / run.name
        with SummaryWriter(folder) as writer:
            for step, values in run.curve.items():
                for name, value in values.items():
                    writer.add_scalar(name, value, step)


class WeightsAndBiases(RunWriter):
    """Writes into a project with the name of the experiment, a group for each arm."""

    def write(self, run: TrackedRun) -> None:
        wandb: Any = import_module("wandb")
        arm = run.settings["arm"]
        logged = wandb.init(project=self.folder.name, name=run.name, group=arm, config=run.settings)
        for step, values in run.curve.items():
            logged.log(values, step=step)
        logged.finish()


class MLflow(RunWriter):
    """Writes into an experiment of MLflow with the name of ours."""

    def write(self, run: TrackedRun) -> None:
        mlflow: Any = import_module("mlflow")
        mlflow.set_experiment(self.folder.name)
        with mlflow.start_run(run_name=run.name):
            mlflow.log_params(run.settings)
            for step, values in run.curve.items():
                mlflow.log_metrics(values, step=step)


TRACKERS: dict[str, Callable[[Path], RunWriter]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
"""The trackers by the names that pip has for them."""
