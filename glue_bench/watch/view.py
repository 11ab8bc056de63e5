"""How far a sweep is, for a person: the same table while it runs and from another terminal."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from rich.console import Console, Group
from rich.text import Text

from glue_bench.sweep.progress import Progress
from glue_bench.values import duration

NAME_WIDTH, BAR_WIDTH, NUMBER_WIDTH = 24, 16, 8
NUMBERS_WIDTH = 6 + 4 * NUMBER_WIDTH
AROUND = 4  # totals, pace, the table's header, and the line below the cursor
LINES_BELOW = 8
PACE_SECONDS = 60.0
"""The least time between lines that say how far running jobs are, and how long the sweep will take."""


@dataclass(frozen=True)
class Counts:
    """The cells of an arm, or of all arms, by their state. `failed` ones may still be tried again."""

    done: int = 0
    running: int = 0
    failed: int = 0
    queued: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.done + self.running + self.failed + self.queued

    @classmethod
    def sum(cls, counts: Iterable["Counts"]) -> "Counts":
        """The counts of several arms together."""
        return cls(*map(sum, zip(*map(astuple, counts), strict=True)))


def counts_by_arm(cells: Iterable[tuple[str, str]]) -> dict[str, Counts]:
    """The counts of each arm, from the arm and the state of every cell; arms in the order of their first cells."""
    states: dict[str, Counter[str]] = {}
    for arm, state in cells:
        states.setdefault(arm, Counter())[state] += 1
    return {arm: Counts(**found) for arm, found in states.items()}


@dataclass(frozen=True)
class Snapshot:
    """A sweep at one moment. `running` are lines about cells, `rest` is the name of `queued` ones; None: not known."""

    arms: Mapping[str, Counts]
    running: Sequence[str] = ()
    elapsed: float | None = None
    seconds_left: float | None = None
    cells_per_hour: float | None = None
    tokens_per_second: float | None = None
    rest: str = "queued"

    @property
    def total(self) -> Counts:
        """Of all arms together."""
        return Counts.sum(self.arms.values())


def view(snapshot: Snapshot, console: Console, latest: Sequence[Text] = ()) -> Group:
    """All that fits into the window: totals and pace, then arms, then the latest and the running cells."""
    room = console.height - AROUND
    arms = _folded(snapshot.arms, room)
    below = max(0, min(LINES_BELOW, room - len(arms)))
    for_running = min(len(snapshot.running), below - min(len(latest), below // 2))
    ended = list(latest)[len(latest) - min(len(latest), below - for_running) :]
    running = [Text(f"running {line}", style="dim") for line in _cut(snapshot.running, for_running)]
    lines = [*ended, *running]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    totals = Text(describe_counts(snapshot), style="bold", no_wrap=True, overflow="ellipsis")
    if snapshot.total.failed:
        totals.highlight_words([f"{snapshot.total.failed:,} failed"], "red")
    spent = "" if snapshot.elapsed is None else f"{duration(snapshot.elapsed)} so far"
    pace = Text(", ".join(filter(None, (spent, describe_pace(snapshot)))), no_wrap=True, overflow="ellipsis")
    return Group(totals, pace, *_rows(arms, snapshot.rest, console), *lines)


def describe_pace(snapshot: Snapshot) -> str:
    """`about 12 min left, 120 cells/h, 3,400 tokens/s`, as far as it is known."""
    said = []
    if snapshot.seconds_left is not None:
        said.append(f"about {duration(snapshot.seconds_left)} left")
    if snapshot.cells_per_hour is not None:
        said.append(f"{snapshot.cells_per_hour:,.{1 if snapshot.cells_per_hour < 10 else 0}f} cells/h")
    if snapshot.tokens_per_second:
        said.append(f"{snapshot.tokens_per_second:,.0f} tokens/s")
    return ", ".join(said)


def describe_progress(progress: Progress | None) -> str:
    """`step 120 of 780, loss 0.523, about 3 min left`; empty where nothing is known."""
    if progress is None:
        return ""
    loss = "NaN" if progress.loss is None else f"{progress.loss:.3f}"
    left = "" if progress.seconds_left is None else f", about {duration(progress.seconds_left)} left"
    return f"step {progress.step:,} of {progress.steps:,}, loss {loss}{left}"


def describe_counts(snapshot: Snapshot) -> str:
    """`12 of 80 done, 2 running, 0 failed, 66 queued`."""
    counts = snapshot.total
    said = f"{counts.done:,} of {counts.total:,} done, {counts.running:,} running, {counts.failed:,} failed"
    return f"{said}, {counts.queued:,} {snapshot.rest}"


def _rows(arms: Mapping[str, Counts], rest: str, console: Console) -> list[Text]:
    """A header and one row per arm.

    Plain lines: a rich Table of 18 arms takes seven times as long, in the process that trains.
    """
    drawn = "━" if console.encoding.startswith("utf") else "="
    wide = min(NAME_WIDTH, max(8, console.width - NUMBERS_WIDTH))
    bar = BAR_WIDTH if console.width >= wide + BAR_WIDTH + NUMBERS_WIDTH else 0
    header = ("done", "running", "failed", rest)
    rows = [Text(f"{'arm':<{wide + bar + 6}}{_numbers(header)}", style="bold", no_wrap=True)]
    for name, counts in arms.items():
        short = name if len(name) <= wide else f"{name[: wide - 3]}..."
        ended = (counts.done + counts.failed) / max(counts.total, 1)
        row = Text(f"{short:<{wide}} ", no_wrap=True)
        row.append(f"{drawn * int(bar * ended):<{bar}}", style="green")
        row.append(f"{math.floor(100 * ended):>4}%{_numbers((f'{counts.done:,}', f'{counts.running:,}'))}")
        row.append(_numbers((f"{counts.failed:,}",)), style="red" if counts.failed else "")
        rows.append(row.append(_numbers((f"{counts.queued:,}",))))
    return rows


def _numbers(values: Sequence[str]) -> str:
    return "".join(f"{value:>{NUMBER_WIDTH}}" for value in values)


def _folded(arms: Mapping[str, Counts], room: int) -> dict[str, Counts]:
    """As many arms as there is room for, those first in which something happens; the others in one row."""
    if len(arms) <= room:
        return dict(arms)
    order = sorted(arms, key=lambda name: (not arms[name].running, not arms[name].failed, not arms[name].queued))
    shown = set(order[: max(0, room - 1)])
    rest = [counts for name, counts in arms.items() if name not in shown]
    return {name: counts for name, counts in arms.items() if name in shown} | {f"({len(rest)} more)": Counts.sum(rest)}


def _cut(lines: Sequence[str], room: int) -> list[str]:
    if len(lines) <= room:
        return list(lines)
    if room < 2:
        return [f"{len(lines)} cells"][:room]
    return [*lines[: room - 1], f"{len(lines) - room + 1} more"]
