"""What happens in a sweep, told to whoever watches: a table, lines, a log for machines, trackers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console

from glue_bench.records.record import LossPoint
from glue_bench.sweep.jobs import Failure, Job, PlannedCell, PlannedPretraining, Result
from glue_bench.terminal import tell


@dataclass(frozen=True)
class SweepStarted:
    """Everything is checked, nothing runs yet.

    `before` are chosen cells that are done already, `cells` those that will run, `pretraining` those that some of them
    wait for; `costs` of both are in operations. `arms` are in the experiment's order. `workers` is None where only the
    cluster knows how many there are.
    """

    experiment: str
    folder: Path
    before: Sequence[PlannedCell]
    cells: Sequence[PlannedCell]
    arms: Sequence[str]
    costs: dict[str, float] = field(default_factory=dict)
    pretraining: Sequence[PlannedPretraining] = ()
    workers: int | None = 1


@dataclass(frozen=True)
class JobStarted:
    """A cell or a pretraining runs. It is told again if its `worker` (host:pid) is lost and another one goes on."""

    job: Job
    worker: str


@dataclass(frozen=True)
class PretrainingPoint:
    """A point of a pretraining's loss curve."""

    job: PlannedPretraining
    point: LossPoint


@dataclass(frozen=True)
class JobEnded:
    """A job's record or failure is stored."""

    job: Job
    result: Result

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return self.result.error if isinstance(self.result, Failure) else None


@dataclass(frozen=True)
class JobElsewhere:
    """Another sweep has finished a job, or failed at it."""

    job: Job
    error: str | None


@dataclass(frozen=True)
class SweepInterrupted:
    """Nothing runs any more: Ctrl-C, SIGTERM, or the cluster was lost."""


@dataclass(frozen=True)
class SweepEnded:
    """Always the last."""


Event = SweepStarted | JobStarted | PretrainingPoint | JobEnded | JobElsewhere | SweepInterrupted | SweepEnded


class Observer(Protocol):
    """Hears of a sweep. The next job waits until it has heard."""

    def hear(self, event: Event) -> None:
        """Events that mean nothing to it are passed over."""


class Observers:
    """Several as one. One that fails is left out from then on, with a line about it: watching costs no cell."""

    def __init__(self, observers: Sequence[Observer], console: Console) -> None:
        self.observers, self.console = list(observers), console

    def hear(self, event: Event) -> None:
        """Tell each of them."""
        for observer in list(self.observers):
            try:
                observer.hear(event)
            except Exception as error:
                self.observers.remove(observer)
                said = " ".join(f"{type(error).__name__}: {error}".split())
                line = f"{observer} failed and is left out from here on; the sweep goes on ({said})"
                tell(self.console, line)


@contextmanager
def told(begun: SweepStarted, observer: Observer) -> Iterator[None]:
    """The observer hears of the beginning and, whatever happens, of the end."""
    observer.hear(begun)
    try:
        yield
    finally:
        observer.hear(SweepEnded())
