"""How long the jobs of a run take: by finished ones, or before any by a few timed steps."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from glue_bench.data.task_data import held_out_rows
from glue_bench.records.values import Cell, Job, Plan, Pretraining, PretrainingRecord, Record
from glue_bench.sweep.jobs import WorkLeft
from glue_bench.training.device import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.step_times import (
    StepTimes,
    time_cell,
    time_evaluation,
    time_pretraining,
)
from glue_bench.training.task_inputs import is_test

TRIAL_SECONDS = 2.6  # of all trials; those of pretrainings have half of them
AnyJob = TypeVar("AnyJob", Cell, Pretraining)


@dataclass(frozen=True)
class ExpectedTime:
    """How long jobs take one after another.

    - `seconds`: of all of them; None where nothing is known.
    - `timed_steps`: how many steps were timed for it; 0 where finished jobs say it.
    """

    seconds: float | None = None
    timed_steps: int = 0


UNKNOWN_TIME = ExpectedTime()


@dataclass(frozen=True, kw_only=True)
class ExpectedTimes:
    """How long the jobs of each kind take: pretrainings, fine-tuning runs and evaluations."""

    pretraining: ExpectedTime = UNKNOWN_TIME
    finetuning: ExpectedTime = UNKNOWN_TIME
    evaluation: ExpectedTime = UNKNOWN_TIME


def time_of_finished(
    jobs: Iterable[Job], records: Iterable[Record | PretrainingRecord], plan: Plan
) -> ExpectedTime:
    """Expect of each operation what it took in finished jobs.

    Args:
        jobs: the jobs to run.
        records: those of finished jobs of the same kind.
        plan: has the operations of all.
    """
    operations = 0.0
    seconds = 0.0
    for record in records:
        operations += plan.cost(record.job)
        seconds += record.seconds
    if not operations:
        return UNKNOWN_TIME
    operations_left = sum(plan.cost(job) for job in jobs)
    return ExpectedTime(seconds * operations_left / operations)


def expected_times(work: WorkLeft, inputs: Inputs, compute: Compute | None) -> ExpectedTimes:
    """Expect how long the jobs that are left take.

    Args:
        work: what is left.
        inputs: the experiment's arms and tasks.
        compute: where steps are timed, if nothing has finished; None to time none.
    """
    finished = work.finished
    plan = work.plan
    cells = [cell for cell in work.cell_jobs if cell.is_trained]
    evaluations = [cell for cell in work.cell_jobs if not cell.is_trained]
    cell_records = [record for record in finished.records.values() if record.cell.is_trained]
    evaluated = [record for record in finished.records.values() if not record.cell.is_trained]
    pretraining = time_of_finished(work.pretrainings, finished.pretrainings.values(), plan)
    finetuning = time_of_finished(cells, cell_records, plan)
    evaluation = time_of_finished(evaluations, evaluated, plan)
    if compute is not None and not compute.graph:  # whose steps are launched in another way
        deadline = time.perf_counter() + TRIAL_SECONDS
        if pretraining.seconds is None:
            earlier = deadline - TRIAL_SECONDS / 2
            pretraining = time_of_pretrainings(work.pretrainings, inputs, compute, plan, earlier)
        if finetuning.seconds is None:
            finetuning = time_of_cells(cells, inputs, compute, plan, deadline)
        if evaluation.seconds is None:
            evaluation = time_of_evaluations(evaluations, inputs, compute, plan, deadline)
    return ExpectedTimes(pretraining=pretraining, finetuning=finetuning, evaluation=evaluation)


def time_of_cells(
    cells: Sequence[Cell], inputs: Inputs, compute: Compute, plan: Plan, deadline: float
) -> ExpectedTime:
    """Expect of fine-tuning runs what timed steps of their arms say.

    Args:
        cells: the runs.
        inputs: the experiment's arms and tasks.
        compute: where they compute.
        plan: has the tokens and operations of all.
        deadline: until when steps are timed, by `time.perf_counter`.
    """
    real_tokens = TokenCount(plan)

    def seconds(cell: Cell, times: StepTimes) -> float:
        rows = rows_trained(cell, inputs)
        tokens = real_tokens.of(cell, rows, times)
        read_tokens = tokens * rows_read(cell, inputs) / rows
        return times.seconds(steps_of(cell, inputs), tokens, read_tokens)

    def trial(cell: Cell) -> StepTimes | None:
        return time_cell(cell, inputs, compute, deadline)

    return time_of_trials(cells, trial, seconds, plan, deadline)


def time_of_evaluations(
    cells: Sequence[Cell], inputs: Inputs, compute: Compute, plan: Plan, deadline: float
) -> ExpectedTime:
    """Expect of evaluations what timed predictions of their arms say; else as `time_of_cells`."""
    real_tokens = TokenCount(plan)

    def seconds(cell: Cell, times: StepTimes) -> float:
        rows = sum(map(len, inputs.tasks.validation_splits(cell.task)))
        tokens = real_tokens.of(cell, rows, times)
        return times.seconds(0, tokens * rows_predicted(cell, inputs) / rows)

    def trial(cell: Cell) -> StepTimes | None:
        return time_evaluation(cell, inputs, compute, deadline)

    return time_of_trials(cells, trial, seconds, plan, deadline)


class TokenCount:
    """Corrects the plan's tokens, which are counted by characters.

    A trial of an arm's first cell has counted tokens. Its other tasks are corrected alike.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.shares: dict[str, float] = {}

    def of(self, cell: Cell, rows: int, times: StepTimes) -> float:
        """Return the tokens of a cell.

        Args:
            cell: the cell.
            rows: the number of rows that the plan's tokens are of.
            times: what the trial of the cell's arm says.
        """
        planned_tokens = self.plan.tokens[cell.task]
        share = self.shares.setdefault(cell.arm, times.row_tokens * rows / planned_tokens)
        return planned_tokens * share


def time_of_pretrainings(
    jobs: Sequence[Pretraining], inputs: Inputs, compute: Compute, plan: Plan, deadline: float
) -> ExpectedTime:
    """Expect of pretrainings what timed steps say, without validation; else as `time_of_cells`."""

    def seconds(job: Pretraining, times: StepTimes) -> float:
        return times.seconds(job.settings.steps, job.tokens(plan.tokens))

    def trial(job: Pretraining) -> StepTimes | None:
        return time_pretraining(job, inputs, compute, deadline)

    return time_of_trials(jobs, trial, seconds, plan, deadline)


def time_of_trials(
    jobs: Sequence[AnyJob],
    trial: Callable[[AnyJob], StepTimes | None],
    seconds: Callable[[AnyJob, StepTimes], float],
    plan: Plan,
    deadline: float,
) -> ExpectedTime:
    """Time a job of each arm while there is time, and expect the same of its other jobs.

    An arm without times is expected to take as long for each operation as the others.

    Args:
        jobs: the jobs.
        trial: times steps of a job; None if they say too little.
        seconds: says how long a job takes whose arm has these times.
        plan: has the operations of all.
        deadline: when no further trial may end, by `time.perf_counter`; the first one may.
    """
    times_by_arm: dict[str, StepTimes] = {}
    longest_trial = 0.0

    for job in jobs:
        began = time.perf_counter()
        if job.arm in times_by_arm:
            continue
        if times_by_arm and began + longest_trial > deadline:
            break
        try:
            times = trial(job)
        except Exception:  # whatever it is, the run will say it; here a number is missing
            times = None
        if times is None:
            break
        times_by_arm[job.arm] = times
        longest_trial = max(longest_trial, time.perf_counter() - began)

    total = 0.0
    operations = 0.0
    untimed_operations = 0.0
    for job in jobs:
        if job.arm in times_by_arm:
            total += seconds(job, times_by_arm[job.arm])
            operations += plan.cost(job)
        else:
            untimed_operations += plan.cost(job)

    if untimed_operations and not operations:
        return UNKNOWN_TIME
    if untimed_operations:
        total += total / operations * untimed_operations

    timed_steps = sum(times.steps for times in times_by_arm.values())
    return ExpectedTime(total or None, timed_steps)


def steps_of(cell: Cell, inputs: Inputs) -> int:
    """Count the updates of a fine-tuning run."""
    settings = cell.hyperparameters
    rows = len(inputs.tasks.train_split(cell.task))
    if settings.held_out_share:
        _, kept_rows = held_out_rows(rows, settings.held_out_share)
        rows = len(kept_rows)
    return settings.steps(settings.steps_per_epoch(rows))


def rows_trained(cell: Cell, inputs: Inputs) -> int:
    """Count the rows of all updates of a fine-tuning run."""
    settings = cell.hyperparameters
    rows = len(inputs.tasks.train_split(cell.task))
    return min(steps_of(cell, inputs) * settings.batch_size, rows * settings.epochs)


def rows_read(cell: Cell, inputs: Inputs) -> int:
    """Count the rows that a fine-tuning run only predicts: after each epoch, and in the end."""
    train_rows = len(inputs.tasks.train_split(cell.task))
    epochs = -(-rows_trained(cell, inputs) // train_rows)
    return rows_predicted(cell, inputs, epochs)


def rows_predicted(cell: Cell, inputs: Inputs, times: int = 1) -> int:
    """Count the rows of scored splits, so many `times`, and of test splits if they are asked."""
    scored = 0
    tested = 0
    for name, frame in inputs.tasks.data(cell.task).splits.items():
        if is_test(name):
            tested += len(frame)
        elif name != "train":
            scored += len(frame)
    return scored * times + (tested if inputs.tasks.predicts_test else 0)
