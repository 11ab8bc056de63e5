"""What a notebook shows while a sweep runs: one bar, drawn anew in its place."""

from html import escape
from typing import Any

from rich.console import Console

from glue_bench.errors import plain
from glue_bench.sweep import events
from glue_bench.terminal import tell
from glue_bench.watch.progress import describe
from glue_bench.watch.tally import Tally
from glue_bench.watch.view import describe_counts, describe_pace


class NotebookBar:
    """Cells done of all, the time left and the jobs under way; a failure is a line of its own, and stays.

    Asks a tally that has heard before it. IPython shows `_repr_html_`, or the text where there is no HTML.
    """

    def __init__(self, console: Console, tally: Tally) -> None:
        self.console, self.tally = console, tally
        self._shown: Any = None

    def __str__(self) -> str:
        return "the notebook's bar"

    def hear(self, event: events.Event) -> None:
        """Draw it anew."""
        match event:
            case events.SweepStarted() if self.tally.total:
                from IPython.display import display  # a notebook has it

                self._shown = display(self, display_id=True)
            case events.SweepInterrupted():
                pass  # the end of the sweep follows
            case _ if self._shown:
                self._shown.update(self)
        if isinstance(event, events.JobEnded | events.JobElsewhere) and event.error:
            tell(self.console, f"{event.job.label}: {describe(event)}", "red")

    def __repr__(self) -> str:
        snapshot = self.tally.snapshot()
        pace = describe_pace(snapshot) if snapshot.total.running + snapshot.total.queued else ""
        said = [describe_counts(snapshot), pace, *(f"running {line}" for line in snapshot.running)]
        return plain("\n".join(filter(None, said)))

    def _repr_html_(self) -> str:
        counts = self.tally.snapshot().total
        bar = f'<progress value="{counts.done + counts.failed}" max="{counts.total}" style="width: 20em"></progress>'
        return f'{bar}<pre style="margin: 0">{escape(repr(self))}</pre>'
