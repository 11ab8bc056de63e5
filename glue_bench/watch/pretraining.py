"""What a person sees of pretrainings: a line at each validation loss."""

from rich.console import Console

from glue_bench.records.record import LossPoint
from glue_bench.sweep.events import Event, JobElsewhere, JobEnded, PretrainingPoint
from glue_bench.sweep.jobs import PlannedPretraining


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
                self._line(job, _describe(point, job.run.settings.steps))
            case JobEnded(PlannedPretraining() as job) if event.error:
                self._line(job, f"FAILED {event.error}")
            case JobElsewhere(PlannedPretraining() as job, error):
                self._line(job, f"FAILED in another sweep: {error}" if error else "finished by another sweep")

    def _line(self, job: PlannedPretraining, what: str) -> None:
        self.console.print(f"pretraining {job.label}: {what}", markup=False, highlight=False, soft_wrap=True)


def _describe(point: LossPoint, steps: int) -> str:
    return (
        f"step {point.step:,} of {steps:,}, {point.tokens:,} tokens, loss {point.train_loss:.3f}, "
        f"validation loss {point.validation_loss:.3f}, {point.tokens / point.seconds:,.0f} tokens/s"
    )
