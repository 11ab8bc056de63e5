"""What each pretrained arm has learnt, measured once its last checkpoint is there. No part of any id."""

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from rich.console import Console

from glue_bench.analysis.held_out import HeldOut
from glue_bench.analysis.word_order import order_sums
from glue_bench.config import ArmPretraining
from glue_bench.errors import DiskError
from glue_bench.files import results_written_to
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import masked_lm
from glue_bench.records.intrinsic import IntrinsicRecord, Measure
from glue_bench.records.store import Store
from glue_bench.records.value import SCHEMA_VERSION
from glue_bench.sweep.jobs import PlannedCell, PlannedPretraining
from glue_bench.sweep.plan import pretrainings_of
from glue_bench.terminal import tell
from glue_bench.training.compute import Compute, on_threads
from glue_bench.training.inputs import Inputs


def measure_missing(
    cells: Sequence[PlannedCell], inputs: Inputs, store: Store, compute: Compute, console: Console
) -> None:
    """Measure the pretrainings that these cells start from, where a checkpoint is there and no measures are.

    Measures are a by-product: where they fail, a line says so, and nothing else does.

    Raises:
        DiskError: the results cannot be written.
    """
    for job in pretrainings_of(cells, inputs):
        if job.is_search or store.intrinsic.has(job.id):
            continue
        try:
            measure(job.id, job.run, inputs, store, compute)
        except DiskError:
            raise
        except Exception as error:  # what the code of a plugin raises is anything
            line = f"pretraining {job.label}: its measures failed, and are left out: {type(error).__name__}: {error}"
            tell(console, line)


def measure_quietly(job: PlannedPretraining, inputs: Inputs, compute: Compute) -> None:
    """Measure a pretraining where it has just ended. What fails here is tried again, and said, by `measure_missing`.

    Measures of weights that were lost go first: the new weights need not be the same.
    """
    if job.is_search:
        return
    assert inputs.folder is not None, "a sweep has a folder"
    store = Store(inputs.folder.parent)
    with suppress(Exception):
        store.intrinsic.drop(job.id)
        measure(job.id, job.run, inputs, store, compute)


def measure(pretraining_id: str, run: ArmPretraining, inputs: Inputs, store: Store, compute: Compute) -> None:
    """Store the measures of a pretraining's last checkpoint, if that is there."""
    settings = run.settings
    checkpoint = inputs.pretraining_folder(run).checkpoint(settings.steps)
    if not checkpoint.is_dir():
        return
    text = HeldOut(inputs.text(run.arm)["validation"], inputs.tokenizer(run.arm), settings.mask_probability)
    model: EncoderForMaskedLM = masked_lm(read_checkpoint(str(checkpoint))).eval().to(compute.device)
    with on_threads(compute.threads_for(model.config.hidden_size)):
        sums = order_sums(model, text, settings.length)
    errors = {name: one.standard_error for name, one in sums.items()}
    measures = tuple(
        Measure(name=name, value=one.value, standard_error=None if math.isnan(errors[name]) else errors[name], n=one.n)
        for name, one in sums.items()
    )
    record = IntrinsicRecord(
        schema_version=SCHEMA_VERSION,
        pretraining_id=pretraining_id,
        arm=run.arm.name,
        pretraining_seed=settings.seed,
        step=settings.steps,
        tokens=sum(len(probe.ids) for probe in text.probes),
        measures=measures,
    )
    with results_written_to(store.folder):
        store.intrinsic.write(record, {name: np.stack([one.sums, one.counts]) for name, one in sums.items()})
