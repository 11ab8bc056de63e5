"""Who watches a sweep: a table or lines for a person, a log for machines, trackers."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from glue_bench.sweep.events import Observer, Observers
from glue_bench.watch.json_log import JsonLog, check_log
from glue_bench.watch.progress import make_progress
from glue_bench.watch.tally import Tally


def check_observers(json_log: str | Path | None, track: Iterable[str]) -> None:
    """What is wrong with them shows before anything is read or computed.

    Raises:
        UserError: a log that cannot be written, or a tracker that is not known or not installed.
    """
    if json_log is not None:
        check_log(Path(json_log))
    names = list(track)
    if names:
        from glue_bench.watch.trackers import check_trackers

        check_trackers(names)


def make_observers(console: Console, json_log: str | Path | None, track: Iterable[str]) -> Observers:
    """All of them as one.

    Raises:
        UserError: the log cannot be written.
    """
    tally = Tally()
    made: list[Observer] = [tally, make_progress(console, tally)]
    if json_log is not None:
        made.append(JsonLog(json_log, tally, console))
    names = list(dict.fromkeys(track))
    if names:
        from glue_bench.watch.trackers import Tracker

        made += [Tracker(name) for name in names]
    return Observers(made, console)
