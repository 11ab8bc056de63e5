"""TensorBoard, Weights & Biases, MLflow and trackio, through accelerate's tracker classes.

Each cell is a run of its own, written from its record when it has ended, in the process that stores it: nothing of a
cell depends on it, wherever the cell ran. An arm's pretraining is a run that grows while it is pretrained. One run is
open at a time; more than one in a process is not what these classes are made for.
"""

import io
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.tracking import GeneralTracker, MLflowTracker, TensorBoardTracker, TrackioTracker, WandBTracker
from accelerate.utils import is_mlflow_available, is_tensorboard_available, is_trackio_available, is_wandb_available

from glue_bench.errors import UserError, unknown
from glue_bench.records.record import Epoch, LossPoint
from glue_bench.sweep.events import Event, JobEnded, JobStarted, PretrainingPoint, SweepEnded, SweepStarted
from glue_bench.sweep.jobs import PlannedCell, PlannedPretraining
from glue_bench.training.finetune import Outcome


@dataclass(frozen=True)
class Run:
    """One run of a tracker. `settings` are what trackers filter and group by."""

    experiment: str
    folder: Path
    arm: str
    name: str
    kind: str
    settings: dict[str, Any]


Open = Callable[[Run], GeneralTracker]


def _tensorboard(run: Run) -> GeneralTracker:
    # No hyperparameters: accelerate would write them as one more run beside each.
    return _begun(TensorBoardTracker(f"{run.arm}/{run.name}", run.folder / "tensorboard"))


def _wandb(run: Run) -> GeneralTracker:
    return _begun(WandBTracker(run.experiment, name=run.name, group=run.arm, job_type=run.kind, config=run.settings))


def _mlflow(run: Run) -> GeneralTracker:
    tracker = _begun(MLflowTracker(run.experiment, run_name=run.name))
    tracker.store_init_configuration(run.settings)
    return tracker


def _trackio(run: Run) -> GeneralTracker:
    named = {"name": run.name, "group": run.arm, "config": {**run.settings, "kind": run.kind}}
    quiet = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}  # no dashboard, no measures of the machine
    return _begun(_Trackio(run.experiment, **named, **quiet))


class _Trackio(TrackioTracker):
    """One that says nothing on standard output, in the middle of the table."""

    def start(self) -> None:
        """Open the run."""
        with redirect_stdout(io.StringIO()):
            super().start()

    def finish(self) -> None:
        """Close it."""
        with redirect_stdout(io.StringIO()):
            super().finish()


def _begun(tracker: GeneralTracker) -> GeneralTracker:
    PartialState()  # accelerate's logger, which every tracker writes to, refuses to work before there is one
    tracker.start()
    return tracker


TRACKERS: dict[str, tuple[Callable[[], bool], Open]] = {
    "tensorboard": (is_tensorboard_available, _tensorboard),
    "wandb": (is_wandb_available, _wandb),
    "mlflow": (is_mlflow_available, _mlflow),
    "trackio": (is_trackio_available, _trackio),
}
"""Whether it is installed, and what opens a run, by the names that accelerate, transformers and pip use."""


def check_trackers(names: Iterable[str]) -> None:
    """That they are known and installed.

    Raises:
        UserError: one is not.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS, "--track")
        is_installed, _ = TRACKERS[name]
        if not is_installed():
            raise UserError(f"--track {name} needs {name}, which is not installed: pip install {name}")


class Tracker:
    """An observer that hands curves to one tracker: losses and scores by epoch, losses of pretraining by step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._open = TRACKERS[name][1]
        self._experiment, self._folder = "", Path()
        self._growing: tuple[str, GeneralTracker] | None = None
        self._waiting: dict[str, list[LossPoint]] = {}

    def __str__(self) -> str:
        return f"the tracker '{self.name}'"

    def hear(self, event: Event) -> None:
        """Write what has a curve."""
        match event:
            case SweepStarted():
                self._experiment, self._folder = event.experiment, event.folder
            case JobStarted(PlannedPretraining() as job):
                self._waiting[job.id] = []
                self._growing = self._growing or (job.id, self._curve(job))
            case PretrainingPoint(job, point) if self._growing and self._growing[0] == job.id:
                self._growing[1].log(_losses(point), step=point.step)
            case PretrainingPoint(job, point):  # one beside the open run is written when it has ended
                self._waiting[job.id].append(point)
            case JobEnded(PlannedPretraining() as job):
                points = self._waiting.pop(job.id, [])
                if self._growing and self._growing[0] == job.id:
                    self._growing[1].finish()
                    self._growing = None
                elif points:
                    _write(self._curve(job), {point.step: _losses(point) for point in points})
            case SweepEnded() if self._growing:
                self._growing[1].finish()
            case JobEnded(PlannedCell(cell=cell) as planned, Outcome() as outcome) if outcome.facts.history:
                settings = {**cell.key, **cell.hyperparameters.model_dump(exclude_none=True), "cell": planned.id}
                run = self._run(cell.arm.name, planned.id, cell.task, settings | {"origin": planned.origin})
                _write(run, {epoch.epoch: _scores(cell.task, epoch) for epoch in outcome.facts.history})

    def _curve(self, job: PlannedPretraining) -> GeneralTracker:
        settings = job.settings
        said = {"arm": job.arm, "pretraining_seed": settings.seed}
        if settings.rate_search is None:
            said["learning_rate"] = settings.learning_rate
        which = f"-lr{settings.learning_rate:g}" if job.is_search else f"-p{settings.seed}" * (settings.seed != 1)
        return self._run(job.arm, f"pretraining{which}", "pretraining", said)

    def _run(self, arm: str, name: str, kind: str, settings: dict[str, Any]) -> GeneralTracker:
        return self._open(Run(self._experiment, self._folder, arm, name, kind, settings))


def _write(run: GeneralTracker, curve: dict[int, dict[str, float]]) -> None:
    """A whole run: its values by step."""
    for step, values in curve.items():
        run.log(values, step=step)
    run.finish()


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
