"""What is left to do of a job, and encoders of MNLI cells, kept for the cells that start from them, and no longer."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from glue_bench.files import set_aside
from glue_bench.records.record import curve_digest
from glue_bench.records.store import Store
from glue_bench.sweep.claims import read_claims
from glue_bench.sweep.jobs import Job, PlannedCell, PlannedPretraining
from glue_bench.training.inputs import Inputs


def is_done(job: Job, jobs: Iterable[Job], inputs: Inputs, store: Store) -> bool:
    """Whether nothing of a job is left to do: it has a record, and what others start from while they wait for it."""
    if isinstance(job, PlannedPretraining):
        return is_pretrained(job, inputs, store)
    if not store.has_record(job.id):
        return False
    waiting = job.is_source and any(job.id in other.after and not store.has_record(other.id) for other in jobs)
    return not waiting or inputs.encoder_folder(job.cell).is_dir()


def is_pretrained(job: PlannedPretraining, inputs: Inputs, store: Store) -> bool:
    """Whether a pretraining has a record, and all checkpoints that cells start from, of the run that it records.

    Where lost weights are made anew and the run was cut off, the record is of the lost ones until the run has ended.

    Raises:
        UserError: the record was edited.
    """
    if job.is_search or not store.has_pretraining(job.id):
        return store.has_pretraining(job.id)
    folder, losses = inputs.pretraining_folder(job.run), store.read_pretraining(job.id).losses
    return all(folder.holds(step, curve_digest(losses, step)) for step in job.run.settings.finetuned_steps)


def drop_encoders(cells: Sequence[PlannedCell], inputs: Inputs, store: Store) -> None:
    """Encoders of MNLI cells take the most room of all that a sweep leaves; none is kept that no cell waits for.

    A cell that has a record may be trained once more: where somebody works on it, its encoder and its start stay. They
    also stay where it is not known whether somebody does: another machine's clock may be wrong.
    """
    claimed = {claim.name for claim in read_claims(store.folder / "claims") if not claim.is_gone}
    needed = {planned.mnli for planned in cells if planned.id in claimed or not store.has_record(planned.id)}
    for planned in cells:
        if planned.is_source and planned.id not in needed | claimed:
            with suppress(OSError):
                set_aside(inputs.encoder_folder(planned.cell))
