"""What a person sees of a sweep: a live table in a terminal, lines in a log or a notebook."""

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from glue_bench.records.values import Failure, Job, Result
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.progress import (
    Counts,
    Snapshot,
    Watch,
    describe_counts,
    describe_job,
    describe_pace,
    describe_result,
)
from glue_bench.terminal import tell

NAME_WIDTH, BAR_WIDTH, NUMBER_WIDTH = 24, 16, 8
AROUND = 4
"""Lines of the table that are no arm: counts, pace, header, and the one below the cursor."""
LINES_BELOW = 8
MINUTE = 60.0
"""Seconds between lines about the jobs that run."""


class Lines(Observer):
    """One line per job that ends, with the local time, and once a minute one per job that runs."""

    def __init__(self, console: Console, watch: Watch, jobs: Sequence[Job]) -> None:
        self.console, self.watch, self.left, self.total = console, watch, len(jobs), len(jobs)
        self.over = threading.Event()
        self.minutes = threading.Thread(target=self._say_running, daemon=True)

    def __str__(self) -> str:
        return "the log"

    def begin(self) -> None:
        self.say(f"{self.total:,} jobs to run; {describe_counts(self.watch.look())} in {self.watch.store.folder}")
        self.minutes.start()

    def ended(self, job: Job, result: Result) -> None:
        self.left -= 1
        self.say(f"[{self.total - self.left}/{self.total}] {describe_job(job)}: {describe_result(result)}")

    def say(self, line: str) -> None:
        tell(self.console, f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}")

    def end(self) -> None:
        self.over.set()
        self.minutes.join()

    def _say_running(self) -> None:
        while not self.over.wait(MINUTE):
            snapshot = self.watch.look()
            for line in snapshot.running:
                self.say(f"running {line}")
            if pace := describe_pace(snapshot):
                self.say(pace)


class Table(Observer):
    """Counts, pace, arms and what ended last, every two seconds. Failures scroll by above it and stay."""

    def __init__(self, console: Console, watch: Watch) -> None:
        self.console, self.latest = console, deque[str](maxlen=LINES_BELOW)
        self.live = Live(
            console=console,
            get_renderable=lambda: view(watch.look(), console.width, console.height, list(self.latest)),
            refresh_per_second=0.5,
            transient=True,
        )

    def __str__(self) -> str:
        return "the live table"

    def begin(self) -> None:
        self.live.start()

    def ended(self, job: Job, result: Result) -> None:
        line = f"{describe_job(job)}: {describe_result(result)}"
        self.latest.append(line)
        if isinstance(result, Failure):
            tell(self.console, line, "red")

    def say(self, line: str) -> None:
        tell(self.console, line)

    def end(self) -> None:
        self.live.stop()


def view(snapshot: Snapshot, width: int, height: int, latest: Sequence[str] = ()) -> Group:
    """What fits into a window of so many characters: counts and pace, then arms, then jobs.

    Plain lines: a rich table of 18 arms takes seven times as long, in the process that trains.
    """
    arms = _folded(snapshot.arms, height - AROUND)
    room = max(0, min(LINES_BELOW, height - AROUND - len(arms)))
    below = [*latest, *(f"running {line}" for line in snapshot.running)]
    lines = [
        describe_counts(snapshot),
        describe_pace(snapshot),
        *_rows(arms, width),
        *below[max(0, len(below) - room) :],
    ]
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


def _rows(arms: Mapping[str, Counts], width: int) -> list[str]:
    """A header and one row per arm, with a bar where there is room for it."""
    name_width = max(8, min(NAME_WIDTH, width - 4 * NUMBER_WIDTH - 6))
    bar_width = BAR_WIDTH if width >= name_width + BAR_WIDTH + 4 * NUMBER_WIDTH + 6 else 0
    rows = [f"{'arm':<{name_width + bar_width + 6}}" + _numbers("done", "running", "failed", "missing")]
    for name, counts in arms.items():
        share = (counts.done + counts.failed) / max(counts.total, 1)
        short = name if len(name) <= name_width else f"{name[: name_width - 3]}..."
        bar = f"{'━' * int(bar_width * share):<{bar_width}}"
        numbers = _numbers(f"{counts.done:,}", f"{counts.running:,}", f"{counts.failed:,}", f"{counts.missing:,}")
        rows.append(f"{short:<{name_width}} {bar}{math.floor(100 * share):>4}%{numbers}")
    return rows


def _numbers(*values: str) -> str:
    return "".join(f"{value:>{NUMBER_WIDTH}}" for value in values)


def _folded(arms: Mapping[str, Counts], room: int) -> Mapping[str, Counts]:
    """As many arms as there is room for, those first in which something happens; the others are counted."""
    if len(arms) <= room:
        return arms
    order = sorted(arms, key=lambda name: (not arms[name].running, not arms[name].failed, not arms[name].missing))
    shown = set(order[: max(0, room - 1)])
    return {name: counts for name, counts in arms.items() if name in shown} | {
        f"({len(arms) - len(shown)} more)": Counts()
    }
