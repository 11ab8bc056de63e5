"""The jobs of a sweep under way: what comes of each is stored as it ends."""

import shutil
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from rich.console import Console

from glue_bench.errors import UserError
from glue_bench.files import results_written_to
from glue_bench.model.checks import check_order
from glue_bench.records.record import LossPoint
from glue_bench.records.store import Store
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.encoders import is_done
from glue_bench.sweep.events import JobElsewhere, JobEnded, JobStarted, Observer, PretrainingPoint, SweepInterrupted
from glue_bench.sweep.executors import ClusterLostError, Executor
from glue_bench.sweep.jobs import Failure, FinishedPretraining, Job, PlannedCell, PlannedPretraining, Result
from glue_bench.sweep.kept import Kept
from glue_bench.sweep.patience import Patience
from glue_bench.sweep.records import failure_of, store_outcome
from glue_bench.sweep.schedule import Schedule
from glue_bench.sweep.stop import Stop
from glue_bench.terminal import tell
from glue_bench.training.inputs import Inputs


@dataclass(kw_only=True, eq=False)
class Running:
    """Runs jobs, stores what comes of each, and counts cells.

    Cells and arms start from `inputs`, results go to `store`, `claims` has what this sweep runs, `observer` is told,
    and `kept` says which models stay. `costs` are the operations that jobs are expected to take, by id.
    `failed` maps ids of cells to errors. Cells that a sweep beside this one has finished are counted `elsewhere`.
    `finished` are the ids of those that have run here, and `cause` is what has ended the sweep early.
    """

    inputs: Inputs
    store: Store
    claims: Claims
    console: Console
    observer: Observer
    kept: Kept
    jobs: Sequence[Job]
    costs: Mapping[str, float]
    finished: list[str] = field(default_factory=list, init=False)
    failed: dict[str, str] = field(default_factory=dict, init=False)
    elsewhere: int = field(default=0, init=False)
    cause: str = field(default="", init=False)

    def __post_init__(self) -> None:
        # No method of this object: with itself in a circle, it would keep data open until the next collection.
        self._say = partial(tell, self.console)
        self.patience = Patience(self.costs, self.inputs.experiment.resources.give_up_after, self._say)
        self._stamps = {job.id: self.store.failure_stamp(job.id) for job in self.jobs}
        # Why cells cannot start from a pretraining, as far as it is known.
        self._without: dict[str, Failure | None] = {}

    def run(self, executor: Executor, jobs: Sequence[Job]) -> None:
        """Run the jobs to the end, or until they are interrupted."""
        with Stop(self.console) as stop:
            try:
                schedule = Schedule(
                    jobs, claims=self.claims, stop=stop, ready=self._ready, say=self._say, patience=self.patience
                )
                self._run(executor, schedule)
                self.cause = stop.cause if stop.asked else ""
            except KeyboardInterrupt:
                self.cause = stop.cause
            except ClusterLostError as error:
                self.cause = str(error)
        if self.cause:
            self.observer.hear(SweepInterrupted())

    def _run(self, executor: Executor, schedule: Schedule) -> None:
        for job, said in executor.run(schedule, lambda *started: self.observer.hear(JobStarted(*started))):
            if isinstance(said, LossPoint):
                assert isinstance(job, PlannedPretraining), "cells have no such points"
                self.patience.sign(job)
                self.observer.hear(PretrainingPoint(job, said))
            elif self.claims.holds(job.id) or (self.claims.take(job.id) and not self._is_done(job)):
                self._ended(job, said)
                schedule.end(job)
            else:  # taken over while this process was suspended
                schedule.lost(job)

    def _is_done(self, job: Job) -> bool:
        return is_done(job, self.jobs, self.inputs, self.store)

    def _ready(self, job: Job) -> Job | None:
        """The job as it is to be run. None where another sweep has run it, or what it starts from is not to be had."""
        failed_at = self.store.failure_stamp(job.id)
        if failed_at not in (None, self._stamps[job.id]) or self._is_done(job):
            self._ended_elsewhere(job)
            return None
        # What comes of a pretraining decides for all after it.
        if isinstance(job, PlannedCell) and job.pretraining and job.pretraining not in self._without:
            self._without[job.pretraining] = self._dead_positions(job)
        failure = next(filter(None, map(self._without.get, job.after)), None)
        if failure is None and isinstance(job, PlannedPretraining) and job.searches:
            job, failure = self._at_best_rate(job)
        if failure:
            self._ended(job, failure)
            return None
        with results_written_to(self.store.folder):  # an earlier one: while it runs, the job has not ended
            self.store.drop_failure(job.id)
        if isinstance(job, PlannedCell):  # one that runs again for its encoder has a record, perhaps of other weights
            keeps = self.inputs.experiment.finetuning.keep is not None and not self.store.has_record(job.id)
            return replace(job, keeps=keeps)
        return job

    def _ended(self, job: Job, result: Result) -> None:
        with results_written_to(self.store.folder):
            if isinstance(result, Failure):
                self.store.write_failure(failure_of(job, result))
                self._note_failure(job, result)
            elif isinstance(result, FinishedPretraining):
                assert isinstance(job, PlannedPretraining), "a cell has another record"
                self._keep_pretraining(job, result)
            elif isinstance(job, PlannedCell):
                if not self.store.has_record(job.id):  # an MNLI cell that ran again for its encoder has one
                    store_outcome(self.store, job, result, self.inputs)
                self.finished.append(job.id)
                self.patience.learn(job, result.facts.seconds.total)
            if isinstance(job, PlannedCell):
                self.kept.settle(job)
        self.observer.hear(JobEnded(job, result))

    def _keep_pretraining(self, job: PlannedPretraining, result: FinishedPretraining) -> None:
        """The record, after which the state to go on from is of no use, nor are weights of a search."""
        self.store.write_pretraining(result.record, result.validation)
        self.patience.learn(job, result.record.seconds)
        folder = self.inputs.pretraining_folder(job.run)
        folder.drop_state()
        if job.is_search:
            shutil.rmtree(folder.folder)

    def _note_failure(self, job: Job, failure: Failure) -> None:
        if isinstance(job, PlannedCell):
            self.failed[job.id] = failure.error
        else:
            self._without[job.id] = failure

    def _ended_elsewhere(self, job: Job) -> None:
        is_cell = isinstance(job, PlannedCell)
        has_record = self.store.has_record(job.id) if is_cell else self.store.has_pretraining(job.id)
        failed = None if has_record else self.store.read_failure(job.id)
        if failed:
            self._note_failure(job, Failure(failed.error, failed.traceback))
        else:
            self.elsewhere += is_cell
        self.observer.hear(JobElsewhere(job, failed.error if failed else None))

    def _dead_positions(self, planned: PlannedCell) -> Failure | None:
        """What `check_order` says of what pretraining has made of the cell's arm."""
        run = self.inputs.experiment.pretraining_of(planned.cell)
        assert run is not None, "the cell starts from a pretraining"
        try:
            for steps in run.settings.finetuned_steps:
                check_order(self.inputs.pretrained(run, steps), planned.arm)
        except UserError as error:
            return Failure(str(error), traceback.format_exc())
        return None

    def _at_best_rate(self, job: PlannedPretraining) -> tuple[PlannedPretraining, Failure | None]:
        """The pretraining at the rate of the lowest validation loss of its search; of equals, the lower rate."""
        records = [self.store.read_pretraining(name) for name in job.searches]
        found = {record.identity.learning_rate: record.validation_loss for record in records}
        losses = {rate: loss for rate, loss in found.items() if loss is not None}
        shown = ", ".join(f"{rate:g}: {'diverged' if loss is None else f'{loss:.4f}'}" for rate, loss in found.items())
        if not losses:
            return job, Failure(f"every learning rate of the search diverged ({shown}); add lower ones", "")
        rate = min(losses, key=lambda rate: (losses[rate], rate))
        self._say(f"pretraining {job.label}: learning rate {rate:g}, by the validation loss of its search ({shown})")
        return replace(job, rate=rate), None
