"""What a person sees while a sweep runs: a live table in a terminal, plain lines elsewhere, lines about pretraining."""

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

from rich.console import Console
from rich.live import Live
from rich.text import Text

from glue_bench.sweep.events import Event, JobElsewhere, JobEnded, PretrainingPoint, SweepEnded, SweepStarted
from glue_bench.sweep.jobs import PlannedCell, PlannedPretraining
from glue_bench.terminal import tell
from glue_bench.training.finetune import Outcome
from glue_bench.watch.tally import Tally
from glue_bench.watch.view import PACE_SECONDS, describe_pace, view

RECENT = 8
JOIN_SECONDS = 5.0  # the thread that says what runs ends at once, unless its line waits for who reads the output


class PlainLines:
    """One line per finished cell, with the local time, for logs and pipes, and once a minute one per running job.

    Asks a tally that has heard before it.
    """

    def __init__(self, console: Console, tally: Tally, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.tally, self.clock = console, tally, clock
        self._said_at = clock()
        self._end = threading.Event()
        self._running = threading.Thread(target=self._say_running, daemon=True, name="running")

    def __str__(self) -> str:
        return "the lines about cells"

    def hear(self, event: Event) -> None:
        """Print it, if it is one that a log should have."""
        match event:
            case SweepStarted() if event.cells:
                self._line(describe_start(event))
                self._running.start()
            case SweepEnded() if self._running.is_alive():
                self._end.set()
                self._running.join(JOIN_SECONDS)
            case JobEnded(PlannedCell() as planned) | JobElsewhere(PlannedCell() as planned):
                now, pace, ended, total = self.clock(), "", self.tally.ended, self.tally.total
                if now - self._said_at >= PACE_SECONDS and ended < total:
                    self._said_at, pace = now, describe_pace(self.tally.snapshot())
                line = f"[{ended}/{total}] {planned.label}: {describe(event)}"
                self._line(f"{line} ({pace})" if pace else line)

    def _say_running(self) -> None:
        while not self._end.wait(PACE_SECONDS):
            for line in self.tally.snapshot().running:
                self._line(f"running {line}")

    def _line(self, line: str) -> None:
        stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        tell(self.console, f"{stamp} {line}")  # rich flushes it


class LiveTable:
    """Totals, pace, arms and the latest cells, once a second. Failures scroll by above it, and stay."""

    def __init__(self, console: Console, tally: Tally) -> None:
        self.console, self.tally = console, tally
        self.latest: deque[Text] = deque(maxlen=RECENT)
        self.live = Live(
            console=console,
            get_renderable=lambda: view(tally.snapshot(), console, list(self.latest)),
            refresh_per_second=1,
            transient=True,
        )

    def __str__(self) -> str:
        return "the live table"

    def hear(self, event: Event) -> None:
        """Show it from the next second on."""
        match event:
            case SweepStarted() if self.tally.total:
                self.live.start()
            case JobEnded(PlannedCell() as planned) | JobElsewhere(PlannedCell() as planned):
                line = f"{planned.label}: {describe(event)}"
                if event.error is None:
                    self.latest.append(Text(line))
                else:
                    tell(self.console, line, "red")
            case SweepEnded():
                self.live.stop()


class PretrainingLines:
    """A line at each validation loss; the live table shows how far a pretraining is."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __str__(self) -> str:
        return "the lines about pretraining"

    def hear(self, event: Event) -> None:
        """Print what is about pretraining."""
        match event:
            case PretrainingPoint(job, point) if point.validation_loss is not None:
                self._line(
                    job,
                    f"step {point.step:,} of {job.run.settings.steps:,}, {point.tokens:,} tokens, "
                    f"loss {point.train_loss:.3f}, validation loss {point.validation_loss:.3f}, "
                    f"{point.tokens / point.seconds:,.0f} tokens/s",
                )
            case JobEnded(PlannedPretraining() as job) if event.error:
                self._line(job, describe(event))
            case JobElsewhere(PlannedPretraining() as job):
                self._line(job, describe(event))

    def _line(self, job: PlannedPretraining, what: str) -> None:
        tell(self.console, f"pretraining {job.label}: {what}")


def describe_start(begun: SweepStarted) -> str:
    """`80 cells to run, 20 done before, on 2 workers; 4 pretrainings come first`."""
    before = f", {len(begun.before):,} done before" if begun.before else ""
    where = "" if begun.workers == 1 else f", on {begun.workers or 'the'} workers"
    where += "" if begun.workers else " of the cluster"
    count = len(begun.pretraining)
    first = f"; {count} pretraining{'s come' if count > 1 else ' comes'} first" if count else ""
    return f"{len(begun.cells):,} cells to run{before}{where}{first}; results: {begun.folder}"


def describe(event: JobEnded | JobElsewhere) -> str:
    """What came of a job in a few words: the error, or of a cell that ran here main scores x 100 and seconds."""
    if isinstance(event, JobElsewhere):
        return "finished by another sweep" if event.error is None else f"FAILED in another sweep: {event.error}"
    if not isinstance(event.result, Outcome):
        return f"FAILED {event.error}"
    ran, shown = event.result.facts, []
    scores = ran.scores
    for split, values in scores.items():
        metric, value = next(iter(values.items()))
        where = f" {split.removeprefix('validation_')}" if len(scores) > 1 else ""
        shown.append(f"{metric}{where} " + ("NaN" if value is None else f"{100 * value:.2f}"))
    return f"{', '.join(shown)}{' (collapsed)' if ran.collapsed else ''}, {ran.seconds.total:.1f} s"
