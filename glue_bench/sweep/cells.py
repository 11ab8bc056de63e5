"""The cells of a sweep under way: each is stored as it ends."""

from collections.abc import Sequence

from glue_bench.files import results_written_to
from glue_bench.sweep.encoders import Done
from glue_bench.sweep.events import CellElsewhere, CellEnded, CellsStarted, CellStarted, SweepInterrupted
from glue_bench.sweep.executors import Executor, Failure
from glue_bench.sweep.plan import PlannedCell
from glue_bench.sweep.records import failure_of, record_of
from glue_bench.sweep.schedule import Schedule
from glue_bench.sweep.shared import Shared
from glue_bench.sweep.stop import Stop
from glue_bench.training.finetune import Outcome


class Cells:
    """Runs cells, stores what comes of each, and counts.

    `failed` maps ids to errors. Cells that a sweep beside this one has finished are counted `elsewhere`.
    """

    def __init__(self, shared: Shared) -> None:
        self.inputs, self.store, self.claims = shared.inputs, shared.store, shared.claims
        self.console, self.observer = shared.console, shared.observer
        self.finished, self.elsewhere, self.interrupted = 0, 0, False
        self.failed: dict[str, str] = {}

    def run(self, executor: Executor, cells: Sequence[PlannedCell], without_start: dict[str, Failure]) -> None:
        """Run the cells to the end, or until Ctrl-C. Those of the arms `without_start` fail as their arm did."""
        self.observer.hear(CellsStarted())
        startable = []
        for planned in cells:
            if planned.cell.arm.name in without_start:
                self._ended(planned, without_start[planned.cell.arm.name])
            else:
                startable.append(planned)
        with Stop(self.console) as stop:
            schedule = Schedule(
                startable,
                store=self.store,
                claims=self.claims,
                stop=stop,
                is_done=Done(startable, self.inputs, self.store),
                ended_elsewhere=self._ended_elsewhere,
                say=lambda line: self.console.print(line, highlight=False),
            )
            try:
                self._run(executor, schedule)
                self.interrupted = stop.asked
            except KeyboardInterrupt:
                self.interrupted = True
        if self.interrupted:
            self.observer.hear(SweepInterrupted())

    def _run(self, executor: Executor, schedule: Schedule) -> None:
        for planned, result in executor.run(schedule, lambda *started: self.observer.hear(CellStarted(*started))):
            if self.claims.holds(planned.id):
                self._ended(planned, result)
                schedule.end(planned)
            else:  # taken over while this process was suspended
                schedule.lost(planned)

    def _ended(self, planned: PlannedCell, result: Outcome | Failure) -> None:
        with results_written_to(self.store.folder):
            if isinstance(result, Failure):
                self.store.write_failure(failure_of(planned, result))
                self.failed[planned.id] = result.error
            else:
                if not self.store.has_record(planned.id):  # an MNLI cell that ran again for its encoder has one
                    self.store.write_record(record_of(planned, result, self.inputs), result.predictions)
                self.finished += 1
        self.observer.hear(CellEnded(planned, result))

    def _ended_elsewhere(self, planned: PlannedCell) -> None:
        error = None if self.store.has_record(planned.id) else self.store.read_failure(planned.id).error
        if error is None:
            self.elsewhere += 1
        else:
            self.failed[planned.id] = error
        self.observer.hear(CellElsewhere(planned, error))
