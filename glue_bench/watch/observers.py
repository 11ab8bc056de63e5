"""Who watches a sweep: a table or lines for a person, trackers."""

from rich.console import Console

from glue_bench.sweep.events import Observer, Observers
from glue_bench.sweep.options import RunOptions
from glue_bench.watch.progress import LiveTable, PlainLines, PretrainingLines
from glue_bench.watch.tally import Tally


def check_observers(options: RunOptions) -> None:
    """What is wrong with them shows before anything is read or computed.

    Raises:
        UserError: a tracker that is not known or not installed.
    """
    if options.track:
        from glue_bench.watch.trackers import check_trackers

        check_trackers(options.track)


def make_observers(console: Console, options: RunOptions) -> Observers:
    """All of them as one: for a person a live table in a terminal, plain lines elsewhere."""
    tally = Tally()
    lines = LiveTable(console, tally) if console.is_terminal else PlainLines(console, tally)
    made: list[Observer] = [tally, PretrainingLines(console), lines]
    if options.track:
        from glue_bench.watch.trackers import Tracker

        made += [Tracker(name) for name in dict.fromkeys(options.track)]
    return Observers(made, console)
