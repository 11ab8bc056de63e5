"""Where cells run. A failing cell ends itself, never the sweep; only a full disk ends both."""

import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Protocol, Self

from glue_bench.errors import DiskError
from glue_bench.files import disk_trouble
from glue_bench.records.record import Environment
from glue_bench.sweep.environment import environment
from glue_bench.sweep.plan import PlannedCell
from glue_bench.sweep.schedule import Schedule
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.memory import freeze_imports, is_out_of_memory, release_memory
from glue_bench.training.runtime import in_float32, is_float32
from glue_bench.training.starts import cell_start, encoder_folder

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Failure:
    """Why a cell or an arm's pretraining did not end, and where: in this process, unless another is given."""

    error: str
    traceback: str
    environment: Environment = field(default_factory=environment)


Results = Iterator[tuple[PlannedCell, Outcome | Failure]]
OnStart = Callable[[PlannedCell, str], None]


class Executor(Protocol):
    """Runs what a schedule hands out."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def check(self) -> None:
        """What entering would refuse, without starting anything."""

    def run(self, schedule: Schedule, on_start: OnStart) -> Results:
        """Each cell with what came of it. The caller stores it and tells the schedule, then asks for the next.

        `on_start` is called with each cell that starts, and the worker (host:pid) that runs it.
        """


class InlineExecutor:
    """One cell after another, in this process."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def check(self) -> None:
        """This process is there."""

    def run(self, schedule: Schedule, on_start: OnStart) -> Results:
        """Each cell with what came of it, in the schedule's order."""
        freeze_imports()
        while schedule.open:
            planned = schedule.take()
            if planned is None:
                time.sleep(POLL_SECONDS)
                continue
            on_start(planned, this_process())
            yield planned, attempt(planned, self.inputs)


def this_process() -> str:
    """Where a cell runs, as logs name it: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def attempt(planned: PlannedCell, inputs: Inputs) -> Outcome | Failure:
    """Run a cell, with what can be done about two kinds of failure.

    Where memory is short, batches go through in halves, in quarters, at last row by row. A loss of NaN in a lower
    precision gets one more try in float32. The record says so (`micro_batch_size`, `precision`).

    Raises:
        DiskError: the disk is full or cannot be written, which the next cell would meet, too.
    """
    cell, rows, full_precision = planned.cell, 0, False
    while True:
        try:
            keep_in = encoder_folder(cell, inputs) if planned.is_source else None
            at_once = {"rows_at_once": rows} if rows else {}
            with in_float32() if full_precision else nullcontext():
                outcome = finetune(cell, cell_start(cell, inputs), inputs.tokens(cell), keep_in, **at_once)
            notes = {"environment": environment()} | ({"precision": "float32"} if full_precision else {})
            return replace(outcome, record=outcome.record.model_copy(update=notes))
        except Exception as error:
            _check_disk(error)
            if is_out_of_memory(error) and rows != 1:
                rows = (rows or cell.hyperparameters.batch_size) // 2 or 1
            elif isinstance(error, NonFiniteLossError) and not (full_precision or is_float32()):
                full_precision = True
            else:
                return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
        release_memory()  # the failed attempt's is free only now that its traceback is gone


def _check_disk(error: Exception) -> None:
    if isinstance(error, DiskError):
        raise error
    said = disk_trouble(error)
    if said:
        where = getattr(error, "filename", None)
        place = f" '{where}'" if where else ", to the results or the cache folder"
        raise DiskError(
            f"cannot write{place}: {said}; earlier cells are kept, the same command goes on from there"
        ) from error
