"""Curves for TensorBoard, Weights & Biases, MLflow and trackio: scores by epoch, losses of pretraining by step.

Each job is a run of its own, written by the driver when the job has ended. Nothing of a job depends on it.
"""

import contextlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glue_bench.errors import UserError, unknown
from glue_bench.records.values import Epoch, Failure, Job, LossPoint, PretrainingRecord, Result
from glue_bench.sweep.drive import Observer

Curve = dict[int, dict[str, float]]
"""By epoch or step, values by their names."""


@dataclass(frozen=True)
class Run:
    """One run of a tracker. `settings` are what trackers filter and group by."""

    experiment: str
    folder: Path
    arm: str
    name: str
    kind: str
    settings: dict[str, Any]


def _tensorboard(run: Run, curve: Curve) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(run.folder / "tensorboard" / run.arm / run.name) as writer:
        for step, values in curve.items():
            for name, value in values.items():
                writer.add_scalar(name, value, step)


def _wandb(run: Run, curve: Curve) -> None:
    wandb: Any = import_module("wandb")
    named = {"name": run.name, "group": run.arm, "job_type": run.kind, "config": run.settings}
    with wandb.init(project=run.experiment, **named) as opened:
        for step, values in curve.items():
            opened.log(values, step=step)


def _mlflow(run: Run, curve: Curve) -> None:
    mlflow: Any = import_module("mlflow")
    mlflow.set_experiment(run.experiment)
    with mlflow.start_run(run_name=run.name):
        mlflow.log_params(run.settings)
        for step, values in curve.items():
            mlflow.log_metrics(values, step=step)


def _trackio(run: Run, curve: Curve) -> None:
    trackio: Any = import_module("trackio")
    named = {"name": run.name, "group": run.arm, "config": {**run.settings, "kind": run.kind}}
    quiet = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}  # no dashboard, no measures of the machine
    with contextlib.redirect_stdout(io.StringIO()):  # it would speak in the midst of the table
        opened = trackio.init(project=run.experiment, **named, **quiet)
        for step, values in curve.items():
            opened.log(values, step=step)
        opened.finish()


TRACKERS: dict[str, Callable[[Run, Curve], None]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
}
"""What writes a run, by the names that pip uses."""


def check_trackers(names: Iterable[str]) -> None:
    """That they are known and installed.

    Raises:
        UserError: one is not.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS, "--track")
        if find_spec(name) is None:
            raise UserError(f"--track {name} needs {name}, which is not installed: pip install {name}")


class Tracker(Observer):
    """Hands the curve of each job that ends well to one tracker."""

    def __init__(self, name: str, experiment: str, folder: Path) -> None:
        self.name, self.experiment, self.folder = name, experiment, folder

    def __str__(self) -> str:
        return f"the tracker '{self.name}'"

    def ended(self, job: Job, result: Result) -> None:
        if isinstance(result, Failure):
            return
        if isinstance(result, PretrainingRecord):
            settings = {"arm": job.arm, "pretraining_seed": job.seed, "learning_rate": result.pretraining.learning_rate}
            name, kind, curve = f"pretraining-{job.id}", "pretraining", {p.step: _losses(p) for p in result.losses}
        else:
            settings = {**result.cell.key, **result.cell.settings.model_dump(exclude_none=True), "origin": job.origin}
            name, kind = job.id, result.cell.task
            curve = {point.epoch: _scores(kind, point) for point in result.history}
        run = Run(self.experiment, self.folder, job.arm, name, kind, {**settings, "id": job.id})
        TRACKERS[self.name](run, curve)


def _losses(point: LossPoint) -> dict[str, float]:
    values = {"train_loss": point.train_loss, "validation_loss": point.validation_loss, "tokens": point.tokens}
    return {f"pretraining/{name}": value for name, value in values.items() if value is not None}


def _scores(task: str, point: Epoch) -> dict[str, float]:
    """`cola/validation/matthews_correlation` and the like: a task's charts stand together, and show all arms."""
    by_split = {
        f"{task}/{split}/{metric}": value
        for split, values in point.scores.items()
        for metric, value in values.items()
        if value is not None
    }
    return {f"{task}/train_loss": point.train_loss, **by_split}
