"""Who watches a sweep: a live table in a terminal, lines in a log or a notebook, and trackers of experiments."""

import contextlib
import io
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from glue_bench.errors import UserError, unknown
from glue_bench.records.values import Failure, Job, PretrainingRecord, Result
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.progress import Snapshot, Watch, describe_counts, describe_job, describe_pace, describe_result
from glue_bench.terminal import tell

LINES_OF_JOBS, BAR_WIDTH = 8, 16
MINUTE = 60.0  # seconds between lines about the jobs that run


class Lines(Observer):
    """One line per job that ends, with the local time, and once a minute one per job that runs."""

    def __init__(self, console: Console, watch: Watch, jobs: Sequence[Job]) -> None:
        self.console, self.watch, self.ended_jobs, self.total = console, watch, 0, len(jobs)
        self.over = threading.Event()
        self.minutes = threading.Thread(target=self._say_running, daemon=True)

    def __str__(self) -> str:
        return "the log"

    def begin(self) -> None:
        self.say(f"{self.total:,} jobs to run; {describe_counts(self.watch.look())} in {self.watch.store.folder}")
        self.minutes.start()

    def ended(self, job: Job, result: Result) -> None:
        self.ended_jobs += 1
        self.say(f"[{self.ended_jobs}/{self.total}] {describe_job(job)}: {describe_result(result)}")

    def say(self, line: str) -> None:
        tell(self.console, f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}")

    def end(self) -> None:
        self.over.set()
        self.minutes.join()

    def _say_running(self) -> None:
        while not self.over.wait(MINUTE):
            snapshot = self.watch.look()
            for line in [*(f"running {job}" for job in snapshot.running), describe_pace(snapshot)]:
                if line:
                    self.say(line)


class Table(Observer):
    """Counts, pace, what ended last, and arms, every two seconds. Failures scroll by above it and stay."""

    def __init__(self, console: Console, watch: Watch) -> None:
        self.console, self.latest = console, deque[str](maxlen=LINES_OF_JOBS)
        look = lambda: view(watch.look(), self.latest)  # noqa: E731
        self.live = Live(console=console, get_renderable=look, refresh_per_second=0.5, transient=True)

    def __str__(self) -> str:
        return "the live table"

    def begin(self) -> None:
        self.live.start()

    def ended(self, job: Job, result: Result) -> None:
        self.latest.append(f"{describe_job(job)}: {describe_result(result)}")
        if isinstance(result, Failure):
            tell(self.console, self.latest[-1], "red")

    def say(self, line: str) -> None:
        tell(self.console, line)

    def end(self) -> None:
        self.live.stop()


def view(snapshot: Snapshot, latest: Iterable[str] = ()) -> Group:
    """Counts and pace, the `latest` lines and what runs, then the arms, those first in which something is left.

    A window that is too low cuts off arms, one that is too narrow the ends of lines. They are plain lines, because a
    rich table of 18 arms takes seven times as long, in the process that trains.
    """
    lines = [describe_counts(snapshot), describe_pace(snapshot)]
    lines += [*latest, *(f"running {line}" for line in snapshot.running)][-LINES_OF_JOBS:]
    lines.append(f"{'arm':<24}{'done':>8}{'running':>8}{'failed':>8}{'missing':>8}")
    for name, counts in sorted(snapshot.arms.items(), key=lambda arm: arm[1].done == arm[1].total):
        share = (counts.done + counts.failed) / max(counts.total, 1)
        short = name if len(name) <= 24 else f"{name[:21]}..."
        numbers = "".join(f"{number:>8,}" for number in astuple(counts))
        lines.append(f"{short:<24}{numbers} {int(100 * share):>3}% {'━' * int(BAR_WIDTH * share)}")
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


# Trackers: each job is a run of its own, written by the driver when the job has ended. No job depends on it.

TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")  # as pip names them
Curve = dict[int, dict[str, float]]
"""By epoch or step, values by their names."""


class Tracker(Observer):
    """Writes the curve of each job that ends well for one of TRACKERS: scores by epoch, losses of pretraining by step.

    `cola/validation/matthews_correlation` and the like: a task's charts stand together, and show all arms.
    """

    def __init__(self, name: str, experiment: str, folder: Path) -> None:
        self.name, self.experiment, self.folder = name, experiment, folder

    def __str__(self) -> str:
        return f"the tracker '{self.name}'"

    def ended(self, job: Job, result: Result) -> None:
        if isinstance(result, Failure):
            return
        curve = dict[int, dict[str, float | None]]()
        if isinstance(result, PretrainingRecord):
            settings = {"arm": job.arm, "pretraining_seed": job.seed, "learning_rate": result.pretraining.learning_rate}
            name, kind = f"pretraining-{job.id}", "pretraining"
            for point in result.losses:
                curve[point.step] = point.model_dump(include={"train_loss", "validation_loss", "tokens"})
        else:
            settings = {**result.cell.key, **result.cell.settings.model_dump(exclude_none=True), "origin": job.origin}
            name, kind = job.id, result.cell.task
            for epoch in result.history:
                scores = {f"{split}/{name}": each[name] for split, each in epoch.scores.items() for name in each}
                curve[epoch.epoch] = {"train_loss": epoch.train_loss, **scores}
        known = {
            at: {f"{kind}/{tag}": value for tag, value in values.items() if value is not None}
            for at, values in curve.items()
        }
        self._write(name, {**settings, "id": job.id, "kind": kind}, known)

    def _write(self, name: str, settings: dict[str, Any], curve: Curve) -> None:
        if self.name == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            with SummaryWriter(self.folder / "tensorboard" / settings["arm"] / name) as writer:
                for step, values in curve.items():
                    for tag, value in values.items():
                        writer.add_scalar(tag, value, step)
            return
        module: Any = import_module(self.name)
        if self.name == "mlflow":
            module.set_experiment(self.experiment)
            with module.start_run(run_name=name):
                module.log_params(settings)
                for step, values in curve.items():
                    module.log_metrics(values, step=step)
            return
        quiet = self.name == "trackio"  # no dashboard, no measures of the machine, and no words amidst the table
        options = dict.fromkeys(("embed", "auto_log_cpu", "auto_log_gpu"), False) if quiet else {}
        with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
            named = {"project": self.experiment, "name": name, "group": settings["arm"]}
            run = module.init(**named, config=settings, **options)
            for step, values in curve.items():
                run.log(values, step=step)
            run.finish()


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
