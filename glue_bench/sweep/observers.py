"""Who watches a sweep: a live table in a terminal, lines in a log or a notebook, and trackers of experiments."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from glue_bench.errors import UserError, unknown
from glue_bench.records.store import Store
from glue_bench.records.values import Job, Plan, PretrainingRecord, Result
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.progress import STATES, Snapshot, Watch
from glue_bench.terminal import tell

LINES_OF_JOBS, BAR_WIDTH = 8, 16
MINUTE = 60.0  # seconds between lines about the jobs that run
TRACKERS = ("tensorboard", "wandb", "mlflow")  # as pip names them


class Display(Observer):
    """In a terminal a table, every two seconds anew, and failures that scroll by above it.

    In a log a line per job that ends, with the local time, and once a minute one per job that runs.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, store: Store, plan: Plan, jobs: Sequence[Job]) -> None:
        self.watch, self.left, self.total = Watch(store, plan), {job.id for job in jobs}, len(jobs)
        self.latest, self.over = deque[str](maxlen=LINES_OF_JOBS), threading.Event()
        look = lambda: view(self.watch.look([*self.left]), self.latest)  # noqa: E731
        self.live = Live(
            console=self.console, get_renderable=look, refresh_per_second=0.5, transient=True
        )
        self.minutes = threading.Thread(target=self._say_running, daemon=True)
        if self.console.is_terminal:
            return self.live.start()
        self.say(f"{self.total:,} jobs to run; {self.watch.look().described} in {store.folder}")
        self.minutes.start()

    def ended(self, job: Job, result: Result) -> None:
        self.left.discard(job.id)
        self.latest.append(f"{job.describe()}: {result.describe()}")
        if not self.console.is_terminal:
            self.say(f"[{self.total - len(self.left)}/{self.total}] {self.latest[-1]}")
        elif not result.ok:
            tell(self.console, self.latest[-1], "red")

    def say(self, line: str) -> None:
        tell(
            self.console,
            line if self.console.is_terminal else f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}",
        )

    def end(self) -> None:
        self.live.stop()
        self.over.set()
        if self.minutes.is_alive():
            self.minutes.join()

    def _say_running(self) -> None:
        while not self.over.wait(MINUTE):
            snapshot = self.watch.look([*self.left])
            for line in filter(
                None, [*(f"running {job}" for job in snapshot.running), snapshot.left]
            ):
                self.say(line)


def view(snapshot: Snapshot, latest: Iterable[str] = ()) -> Group:
    """Counts and time left, the `latest` lines and what runs, then the arms, those first in which something is left.

    They are plain lines: a rich table of 18 arms takes seven times as long, in the process that trains.
    """
    lines = [snapshot.described, snapshot.left]
    lines += [*latest, *(f"running {line}" for line in snapshot.running)][-LINES_OF_JOBS:]
    lines.append(f"{'arm':<24}" + "".join(f"{state:>8}" for state in STATES))
    for name, counts in sorted(
        snapshot.arms.items(), key=lambda arm: arm[1]["done"] == sum(arm[1].values())
    ):
        share = (counts["done"] + counts["failed"]) / max(sum(counts.values()), 1)
        short = name if len(name) <= 24 else f"{name[:21]}..."
        numbers = "".join(f"{number:>8,}" for number in counts.values())
        lines.append(f"{short:<24}{numbers} {int(100 * share):>3}% {'━' * int(BAR_WIDTH * share)}")
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


class Tracker(Observer):
    """Writes the curve of each job that ends well for one of TRACKERS: scores by epoch, losses of pretraining by step.

    `cola/validation/matthews_correlation` and the like: a task's charts stand together, and show all arms. Each job is
    a run of its own, written by the driver when the job has ended. No job depends on it.
    """

    def __init__(self, name: str, folder: Path) -> None:
        """Of the experiment whose results are in a folder. Raises UserError where the tracker is not installed."""
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS, "--track")
        if find_spec(name) is None:
            raise UserError(
                f"--track {name} needs {name}, which is not installed: pip install {name}"
            )
        self.name, self.folder = name, folder

    def ended(self, job: Job, result: Result) -> None:
        if not result.ok:
            return
        points = dict[int, dict[str, float | None]]()
        if isinstance(result, PretrainingRecord):
            settings = {
                "arm": job.arm,
                "pretraining_seed": job.seed,
                "learning_rate": result.pretraining.learning_rate,
            }
            name = f"pretraining-{job.id}"
            kind = "pretraining"
            tags = {"train_loss", "validation_loss", "tokens"}
            points = {point.step: point.model_dump(include=tags) for point in result.losses}
        else:
            settings = {
                **result.cell.key,
                **result.cell.settings.model_dump(exclude_none=True),
                "origin": job.origin,
            }
            name, kind = job.id, result.cell.task
            for epoch in result.history:
                scores = {
                    f"{split}/{metric}": each[metric]
                    for split, each in epoch.scores.items()
                    for metric in each
                }
                points[epoch.epoch] = {"train_loss": epoch.train_loss, **scores}
        curve = {
            at: {f"{kind}/{tag}": one for tag, one in each.items() if one is not None}
            for at, each in points.items()
        }
        self._write(name, {**settings, "id": job.id, "kind": kind}, curve)

    def _write(
        self, name: str, settings: dict[str, Any], curve: dict[int, dict[str, float]]
    ) -> None:
        """The `curve` has by epoch or step the values by their names."""
        if self.name == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            with SummaryWriter(Store(self.folder).tensorboard / settings["arm"] / name) as writer:
                for step, values in curve.items():
                    for tag, value in values.items():
                        writer.add_scalar(tag, value, step)
            return
        module: Any = import_module(self.name)
        if self.name == "mlflow":
            module.set_experiment(self.folder.name)
            with module.start_run(run_name=name):
                module.log_params(settings)
                for step, values in curve.items():
                    module.log_metrics(values, step=step)
            return
        run = module.init(
            project=self.folder.name, name=name, group=settings["arm"], config=settings
        )
        for step, values in curve.items():
            run.log(values, step=step)
        run.finish()
