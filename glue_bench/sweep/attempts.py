"""One job, in this process. A failing job ends itself, never the sweep; only a full disk ends both."""

import traceback
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from glue_bench.errors import DiskError, UserError
from glue_bench.files import disk_trouble
from glue_bench.records.record import LossPoint, PretrainingRecord
from glue_bench.records.value import SCHEMA_VERSION
from glue_bench.sweep.environment import environment
from glue_bench.sweep.intrinsic import measure_quietly
from glue_bench.sweep.jobs import Failure, FinishedPretraining, Job, PlannedCell, PlannedPretraining, Said
from glue_bench.sweep.kept import keep_model
from glue_bench.training.finetune import Outcome, finetune
from glue_bench.training.identities import pretraining_identity
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError
from glue_bench.training.memory import is_out_of_memory, release_memory
from glue_bench.training.pretrain import PretrainingTask, pretraining
from glue_bench.training.pretrained import OtherComputerError
from glue_bench.training.progress import telling
from glue_bench.training.runtime import in_float32, is_float32
from glue_bench.training.starts import cell_start, encoder_folder, pretraining_folder


def attempt(job: Job, inputs: Inputs) -> Iterator[Said]:
    """Run a job; the last that it says is its result.

    Raises:
        DiskError: the disk is full or cannot be written, which the next job would meet, too.
        UserError: the state that a pretraining would go on from is damaged.
    """
    folder = inputs.folder.parent if inputs.folder else None
    with telling(folder, job.id) if folder else nullcontext():
        if isinstance(job, PlannedPretraining):
            yield from _attempt_pretraining(job, inputs)
        else:
            yield attempt_cell(job, inputs)


def attempt_cell(planned: PlannedCell, inputs: Inputs) -> Outcome | Failure:
    """Run a cell, with what can be done about two kinds of failure.

    Where memory is short, batches go through in halves, in quarters, at last row by row. A loss of NaN in a lower
    precision gets one more try in float32. The record says so (`micro_batch_size`, `precision`).
    """
    cell, rows, full_precision = planned.cell, 0, False
    while True:
        try:
            keep_in = encoder_folder(cell, inputs) if planned.is_source else None
            further: dict[str, Any] = {"rows_at_once": rows} if rows else {}
            if planned.keeps:
                further["keep"] = partial(keep_model, planned, inputs)
            with in_float32() if full_precision else nullcontext():
                outcome = finetune(cell, cell_start(cell, inputs), inputs.tokens(cell), keep_in, **further)
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


def _attempt_pretraining(job: PlannedPretraining, inputs: Inputs) -> Iterator[Said]:
    """Pretrain an arm; where memory is short, from the last state on with half the rows at once, at last row by row.

    A rate at which a run of a search diverges is a result, too: the worst of all.
    """
    task = replace(inputs.pretraining_task(job.run.arm), settings=job.settings)
    while True:
        try:
            finished = yield from _pretrain(job, task, inputs)
            measure_quietly(job, inputs)
            yield finished
            return
        except OtherComputerError as error:  # of a worker that is unlike the others: the sweep goes on without this arm
            yield Failure(str(error), "")
            return
        except UserError:
            raise
        except Exception as error:
            _check_disk(error)
            if job.is_search and isinstance(error, NonFiniteLossError):
                yield FinishedPretraining(_record(job, inputs, **error.spent, stream=""))
                return
            if not (is_out_of_memory(error) and task.settings.rows_at_once > 1):
                yield Failure(f"{type(error).__name__} in pretraining: {error}", traceback.format_exc())
                return
        release_memory()  # the failed attempt's is free only now that its traceback is gone
        less = task.settings.rows_at_once // 2 * task.settings.length
        task = replace(task, settings=task.settings.model_copy(update={"micro_batch_tokens": less}))


def _pretrain(
    job: PlannedPretraining, task: PretrainingTask, inputs: Inputs
) -> Generator[LossPoint, None, FinishedPretraining]:
    folder = pretraining_folder(job.run, inputs)
    folder.prepare()
    left = yield from pretraining(inputs.initial(job.run.arm), task, folder)
    # Fewer than were asked for where memory was too short for these.
    at_once = task.settings.rows_at_once * task.settings.length
    return FinishedPretraining(_record(job, inputs, **left.facts, micro_batch_tokens=at_once), left.validation)


def _record(job: PlannedPretraining, inputs: Inputs, **outcome: Any) -> PretrainingRecord:
    return PretrainingRecord(
        schema_version=SCHEMA_VERSION,
        pretraining_id=job.id,
        recipe=job.recipe,
        arm=job.arm,
        origin=inputs.origin(job.run.arm),
        identity=pretraining_identity(job.run, inputs),
        learning_rate=job.rate,
        searches=job.searches,
        **outcome,
        environment=environment(),
    )
