"""The display of a sweep: a live table in a terminal, or lines in a log or a notebook."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from glue_bench.records.store import Store
from glue_bench.records.values import Job, Plan, Result
from glue_bench.sweep.drive import Observer
from glue_bench.sweep.progress import STATES, Snapshot, Watch
from glue_bench.terminal import print_line

LINES_OF_JOBS = 8
BAR_WIDTH = 16
NAME_WIDTH = 24
COUNT_WIDTH = 8
MINUTE = 60.0  # seconds between lines about the jobs that run


class Display(Observer):
    """Shows in a terminal a table, new every two seconds, and failures that scroll by above it.

    In a log there is a line for each job that ends, with the local time. Once a minute there is a
    line for each job that runs.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, store: Store, plan: Plan, jobs: Sequence[Job]) -> None:
        self.watch = Watch(store, plan)
        self.pending = {job.id for job in jobs}
        self.total = len(jobs)
        self.latest: deque[str] = deque(maxlen=LINES_OF_JOBS)
        self.is_over = threading.Event()
        self.live = Live(
            console=self.console,
            get_renderable=self._view,
            refresh_per_second=0.5,
            transient=True,
        )
        self.minutes = threading.Thread(target=self._say_running, daemon=True)
        if self.console.is_terminal:
            self.live.start()
            return
        self.say(f"jobs to run: {self.total:,}; {self.watch.look().described} in {store.folder}")
        self.minutes.start()

    def ended(self, job: Job, result: Result) -> None:
        self.pending.discard(job.id)
        line = f"{job.describe()}: {result.describe()}"
        self.latest.append(line)
        if not self.console.is_terminal:
            self.say(f"[{self.total - len(self.pending)}/{self.total}] {line}")
        elif not result.ok:
            print_line(self.console, line, "red")

    def say(self, line: str) -> None:
        time = "" if self.console.is_terminal else f"{datetime.now():%Y-%m-%d %H:%M:%S} "
        print_line(self.console, f"{time}{line}")

    def end(self) -> None:
        self.live.stop()
        self.is_over.set()
        if self.minutes.is_alive():
            self.minutes.join()

    def _view(self) -> Group:
        return view(self.watch.look([*self.pending]), self.latest)

    def _say_running(self) -> None:
        while not self.is_over.wait(MINUTE):
            snapshot = self.watch.look([*self.pending])
            for job in snapshot.running:
                self.say(f"running {job}")
            if snapshot.time_left:
                self.say(snapshot.time_left)


def view(snapshot: Snapshot, latest: Iterable[str] = ()) -> Group:
    """Show counts, time left, `latest` lines, running jobs, and arms, unfinished ones first.

    The view has plain lines: a rich table of 18 arms takes seven times as long, in the process that
    trains.
    """
    job_lines = [*latest]
    job_lines += [f"running {line}" for line in snapshot.running]
    lines = [snapshot.described, snapshot.time_left, *job_lines[-LINES_OF_JOBS:]]
    headings = "".join(f"{state:>{COUNT_WIDTH}}" for state in STATES)
    lines.append(f"{'arm':<{NAME_WIDTH}}{headings}")
    arm_lines = []
    for name, counts in snapshot.arms.items():
        total = sum(counts.values())
        share = (counts["done"] + counts["failed"]) / max(total, 1)
        short = name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 3]}..."
        numbers = "".join(f"{number:>{COUNT_WIDTH},}" for number in counts.values())
        bar = "━" * int(BAR_WIDTH * share)
        line = f"{short:<{NAME_WIDTH}}{numbers} {int(100 * share):>3}% {bar}"
        arm_lines.append((counts["done"] == total, line))
    arm_lines.sort(key=lambda pair: pair[0])  # this sort keeps the order of equal arms
    lines += [line for _, line in arm_lines]
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))
