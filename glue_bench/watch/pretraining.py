"""What a person sees while arms are pretrained."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from glue_bench.records.record import LossPoint
from glue_bench.sweep.events import Event, PretrainingEnded, PretrainingPoint, PretrainingStarted, SweepEnded


class PretrainingProgress:
    """A line at each validation loss; in a terminal a bar, too."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._arm, self._steps = TaskID(0), 0

    def __str__(self) -> str:
        return "the progress of pretraining"

    def hear(self, event: Event) -> None:
        """Show what is about pretraining."""
        match event:
            case PretrainingStarted(arm, steps):
                self._arm, self._steps = self._bar.add_task(f"pretraining {arm}", total=steps), steps
                self._bar.start()
            case PretrainingPoint(arm, point):
                self._bar.update(self._arm, completed=point.step)
                if point.validation_loss is not None:
                    self._line(f"pretraining {arm}: {self._describe(point)}")
            case PretrainingEnded(arm, error):
                self._bar.remove_task(self._arm)
                self._bar.stop()
                if error:
                    self._line(f"pretraining {arm}: FAILED {error}")
            case SweepEnded():
                self._bar.stop()

    def _line(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _describe(self, point: LossPoint) -> str:
        return (
            f"step {point.step:,} of {self._steps:,}, {point.tokens:,} tokens, loss {point.train_loss:.3f}, "
            f"validation loss {point.validation_loss:.3f}, {point.tokens / point.seconds:,.0f} tokens/s"
        )
