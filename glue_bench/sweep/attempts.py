"""One job, in this process. A failing job ends itself, never the sweep; only a full disk ends both."""

import traceback
from collections.abc import Iterator
from typing import Any

from transformers import PreTrainedModel

from glue_bench.errors import DiskError, UserError
from glue_bench.files import disk_trouble
from glue_bench.records.record import PretrainingRecord, RunFacts
from glue_bench.records.value import SCHEMA_VERSION
from glue_bench.sweep.intrinsic import measure_quietly
from glue_bench.sweep.jobs import Failure, FinishedPretraining, Job, PlannedCell, PlannedPretraining, Said
from glue_bench.sweep.kept import keep_encoder, keep_model
from glue_bench.sweep.progress import telling
from glue_bench.training.compute import Compute
from glue_bench.training.finetune import Keep, finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError, Progress
from glue_bench.training.pretrain import pretrain
from glue_bench.training.pretrained import OtherComputerError


def attempt(job: Job, inputs: Inputs, compute: Compute) -> Iterator[Said]:
    """Run a job; the last that it says is its result.

    Raises:
        DiskError: the disk is full or cannot be written, which the next job would meet, too.
        UserError: the state that a pretraining would go on from is damaged.
    """
    assert inputs.folder is not None, "a sweep has a folder"
    with telling(inputs.folder.parent, job.id) as progress:
        try:
            if isinstance(job, PlannedPretraining):
                yield from _pretrain(job, inputs, compute, progress)
            else:
                yield finetune(job.cell, inputs, compute, keep=keeping(job, inputs), progress=progress)
        except OtherComputerError as error:  # of a worker that is unlike the others: the sweep goes on without this arm
            yield Failure(str(error), "", compute.environment())
        except Exception as error:
            _check_disk(error)
            if isinstance(error, UserError) and isinstance(job, PlannedPretraining):
                raise
            where = " in pretraining" if isinstance(job, PlannedPretraining) else ""
            said = f"{type(error).__name__}{where}: {error}"
            yield Failure(said, traceback.format_exc(), compute.environment())


def keeping(planned: PlannedCell, inputs: Inputs) -> Keep | None:
    """What keeps of a cell's model what others start from, and the model itself where it is to stay."""
    if not (planned.is_source or planned.keeps):
        return None

    def keep(model: PreTrainedModel, _facts: RunFacts) -> None:
        if planned.is_source:
            keep_encoder(planned, inputs, model)
        if planned.keeps:
            keep_model(planned, inputs, model)

    return keep


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


def _pretrain(job: PlannedPretraining, inputs: Inputs, compute: Compute, progress: Progress) -> Iterator[Said]:
    """Pretrain an arm. A rate at which a run of a search diverges is a result, too: the worst of all."""
    try:
        left = yield from pretrain(job.run, inputs, compute, rate=job.rate, progress=progress)
    except NonFiniteLossError as error:
        if not job.is_search:
            raise
        facts = {"origin": inputs.origin(job.run.arm), "environment": compute.environment(), "stream": ""}
        yield FinishedPretraining(_record(job, inputs, facts | error.spent))
        return
    measure_quietly(job, inputs, compute)
    yield FinishedPretraining(_record(job, inputs, left.facts), left.validation)


def _record(job: PlannedPretraining, inputs: Inputs, facts: dict[str, Any]) -> PretrainingRecord:
    return PretrainingRecord(
        schema_version=SCHEMA_VERSION,
        pretraining_id=job.id,
        recipe=job.recipe,
        arm=job.arm,
        identity=inputs.pretraining_identity(job.run),
        learning_rate=job.rate,
        searches=job.searches,
        **facts,
    )
