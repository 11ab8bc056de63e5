"""What a person sees while a sweep runs: a live table in a terminal, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from glue_bench.sweep.executors import Failure
from glue_bench.sweep.plan import PlannedCell
from glue_bench.training.finetune import Outcome

RECENT = 8


class PlainProgress:
    """One line a finished cell, for logs and pipes."""

    def __init__(self, console: Console, cells: list[PlannedCell]) -> None:
        self.console = console
        self.total = len(cells)
        self.done = 0
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def started(self, planned: PlannedCell) -> None:
        """Called before a cell runs."""

    def finished(self, planned: PlannedCell, result: Outcome | Failure) -> None:
        """Called after a cell has been stored."""
        self._line(planned, describe(result))

    def elsewhere(self, planned: PlannedCell, error: str | None) -> None:
        """Called when a cell has ended in another sweep."""
        self._line(planned, _ended_elsewhere(error))

    def _line(self, planned: PlannedCell, what: str) -> None:
        self.done += 1
        line = f"[{self.done}/{self.total}] {_label(planned)}: {what}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveProgress(PlainProgress):
    """Arms' counts, an overall bar with the time left, and the latest cells."""

    def __init__(self, console: Console, cells: list[PlannedCell]) -> None:
        super().__init__(console, cells)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self.overall = self.bar.add_task("cells", total=self.total)
        arms = list(dict.fromkeys(planned.cell.arm.name for planned in cells))
        self.counts = {arm: {"done": 0, "failed": 0} for arm in arms}
        self.planned = {arm: sum(p.cell.arm.name == arm for p in cells) for arm in arms}
        self.recent: list[Text] = []
        self.running: dict[str, str] = {}
        self.live = Live(console=console, get_renderable=self._view, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.stop()

    def started(self, planned: PlannedCell) -> None:
        self.running[planned.id] = _label(planned)

    def finished(self, planned: PlannedCell, result: Outcome | Failure) -> None:
        self._show(planned, describe(result), isinstance(result, Failure))

    def elsewhere(self, planned: PlannedCell, error: str | None) -> None:
        self._show(planned, _ended_elsewhere(error), error is not None)

    def _show(self, planned: PlannedCell, what: str, failed: bool) -> None:
        self.running.pop(planned.id, None)
        self.counts[planned.cell.arm.name]["failed" if failed else "done"] += 1
        line = Text(f"{_label(planned)}: {what}", style="red" if failed else "")
        self.recent = [*self.recent, line][-RECENT:]
        self.bar.advance(self.overall)

    def _view(self) -> Group:
        table = Table("arm", "done", "failed", "queued", box=None, pad_edge=False)
        for arm, counts in self.counts.items():
            queued = self.planned[arm] - counts["done"] - counts["failed"]
            failed = Text(str(counts["failed"]), style="red" if counts["failed"] else "dim")
            table.add_row(arm, str(counts["done"]), failed, str(queued))
        running = [Text(f"running {label}", style="dim") for label in list(self.running.values())[:RECENT]]
        return Group(*self.recent, *running, table, self.bar)


def make_progress(console: Console, cells: list[PlannedCell]) -> PlainProgress:
    """Live in a terminal, plain elsewhere."""
    return LiveProgress(console, cells) if console.is_terminal else PlainProgress(console, cells)


def describe(result: Outcome | Failure) -> str:
    """A finished cell in a few words: main scores x 100 and seconds, or the error."""
    if isinstance(result, Failure):
        return f"FAILED {result.error}"
    scores = result.record["scores"]
    shown = []
    for split, values in scores.items():
        metric, value = next(iter(values.items()))
        where = f" {split.removeprefix('validation_')}" if len(scores) > 1 else ""
        shown.append(f"{metric}{where} {100 * value:.2f}")
    note = " (collapsed)" if result.record["collapsed"] else ""
    return f"{', '.join(shown)}{note}, {result.record['seconds']['total']:.1f} s"


def _ended_elsewhere(error: str | None) -> str:
    return "finished by another sweep" if error is None else f"FAILED in another sweep: {error}"


def _label(planned: PlannedCell) -> str:
    cell = planned.cell
    steps = "" if cell.steps is None else f" after {cell.steps} steps"
    return f"{cell.arm.name}{steps} on {cell.task}, rate {cell.hyperparameters.learning_rate:g}, seed {cell.seed}"
