"""The verb that says how far an experiment is, once or again and again."""

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glue_bench.cli.app import FAILED, INTERRUPTED, Folder, app
from glue_bench.cli.printing import echo_some, new_table, print_table
from glue_bench.terminal import Screen, echo

if TYPE_CHECKING:
    from rich.console import Console

    from glue_bench.watch.status import Watch
    from glue_bench.watch.view import Snapshot


@app.command()
def status(
    folder: Folder,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until nothing is missing or Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Seconds between two looks of --watch.")
    ] = 5.0,
) -> None:
    """Say which cells are done, running, failed or missing, at what pace, and for how long still."""
    from glue_bench.records.store import open_store
    from glue_bench.watch.status import Watch

    looking = Watch(open_store(folder))
    snapshot = looking.look()
    interrupted = False
    if watch:
        try:
            console = Screen()
            if console.is_terminal:
                _watch_table(looking, snapshot, interval, console)
            else:
                _watch_lines(looking, snapshot, interval)
        except KeyboardInterrupt:
            interrupted = True
        snapshot = looking.look()
    _print(looking, snapshot, folder)
    if watch:
        raise typer.Exit(INTERRUPTED if interrupted else FAILED if snapshot.total.failed else 0)


def _watch_table(looking: "Watch", snapshot: "Snapshot", interval: float, console: "Console") -> None:
    from rich.live import Live

    from glue_bench.watch.view import view

    with Live(view(snapshot, console), console=console, auto_refresh=False, transient=True) as live:
        while _is_open(snapshot):
            time.sleep(interval)
            snapshot = looking.look()
            live.update(view(snapshot, console), refresh=True)


def _watch_lines(looking: "Watch", snapshot: "Snapshot", interval: float) -> None:
    from glue_bench.watch.view import PACE_SECONDS, describe_counts, describe_pace

    said, said_at = "", 0.0
    while True:
        counts, now = describe_counts(snapshot), time.monotonic()
        stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        if counts != said:
            said, said_at, pace = counts, now, describe_pace(snapshot)
            echo(f"{stamp} {counts}" + (f"; {pace}" if pace else ""))
        elif now - said_at >= PACE_SECONDS:
            said_at = now
            echo_some(snapshot.running, f"{stamp} running ")
        if not _is_open(snapshot):
            return
        time.sleep(interval)
        snapshot = looking.look()


def _is_open(snapshot: "Snapshot") -> bool:
    return bool(snapshot.total.queued or snapshot.running)


def _print(looking: "Watch", snapshot: "Snapshot", folder: Path) -> None:
    from glue_bench.watch.view import describe_pace

    pretrained = looking.store.pretrained_arms()
    table = new_table("arm", *(["pretraining"] if pretrained else []), "done", "running", "failed", "missing")
    for arm, counts in snapshot.arms.items():
        ended = pretrained.get(arm, [])
        begun = f"{sum(ended)} of {len(ended)}" if len(ended) > 1 else "done" if all(ended) else "missing"
        table.add_row(
            arm, *[begun] * bool(ended), *map(str, (counts.done, counts.running, counts.failed, counts.queued))
        )
    print_table(table)
    echo_some(snapshot.running, "running: ")
    echo_some([f"{failure.cell_id}: {failure.error}" for failure in looking.failures()], "failed: ")
    pace = describe_pace(snapshot)
    if pace:
        echo(f"at the last hour's pace: {pace}")
    echo(f"{snapshot.total.done} of {snapshot.total.total} cells done in {folder}")
