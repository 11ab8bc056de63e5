"""The output of a job: its record and the files beside it. It is computed here, and not stored."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glue_bench.analysis.held_out import HeldOut
from glue_bench.analysis.word_order import order_sums
from glue_bench.errors import UserError
from glue_bench.model.checks import check_order
from glue_bench.model.fresh import on_threads
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import weights_digest
from glue_bench.records.arrays import Arrays
from glue_bench.records.done import joined_weights
from glue_bench.records.values import Cell, Job, Measure, Pretraining, PretrainingRecord, Record
from glue_bench.sweep.weights import leaves_model
from glue_bench.training.device import Compute
from glue_bench.training.evaluate import evaluate
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.kept import save_kept
from glue_bench.training.pretrain import DivergedPretrainingError, pretrain
from glue_bench.training.task_inputs import is_test

Report = Callable[[int, int | None, Callable[[], float] | None], None]
"""Reports the progress of a job: its step, the number of steps, and a function for its loss."""


class FailedCheckError(UserError):
    """A pretrained encoder that fails a check. It concerns one arm; others can run."""


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """The output of a job, as `Store.write` takes it.

    Attributes:
        record: the record of the job, without the digests of the files beside it.
        arrays: the `logits` and `tests` of a cell; the `losses` and `sums` of a pretraining.
        save: writes the files of a cell's model, if the model is kept.
    """

    record: Record | PretrainingRecord
    arrays: Mapping[str, Arrays] = field(default_factory=dict)
    save: Callable[[Path], None] | None = None


def compute_output(job: Job, inputs: Inputs, compute: Compute, report: Report) -> JobOutput:
    """Compute the output of a job: train, or evaluate a finished model.

    Args:
        job: a cell or a pretraining.
        inputs: the inputs of the experiment's jobs.
        compute: where to compute.
        report: called with the progress of the job.

    Raises:
        FailedCheckError: a pretrained encoder cannot be used.
        UserError: the start of the job is missing or damaged.
        NonFiniteLossError: training diverged.
    """
    if isinstance(job, Pretraining):
        return pretraining_output(job, inputs, compute, report)
    return cell_output(job, inputs, compute, report)


def pretraining_output(
    job: Pretraining, inputs: Inputs, compute: Compute, report: Report
) -> JobOutput:
    """Pretrain an arm, measure it, and check that the order of words matters to it.

    All cells of the arm start from the pretraining. If a run of a search diverges, this is a
    result, too. For the arguments and the errors see `compute_output`.
    """
    try:
        outcome = pretrain(job, inputs, compute, progress=report)
    except DivergedPretrainingError as error:
        if not job.is_search:
            raise
        return JobOutput(record=error.record)

    losses = outcome.validation
    if job.is_search:
        return JobOutput(record=outcome.record, arrays={"losses": losses})

    measured, sums = measure_pretrained(job, outcome.model, inputs, compute)
    weights = outcome.record.weights or {}
    arm = inputs.arms[job.arm]
    store = inputs.store

    try:
        for steps in job.settings.finetuned_steps:
            start = arm.read_model(store.checkpoints.at_step(job.id, steps), weights[steps])
            check_order(start, job.arm)
    except UserError as error:
        raise FailedCheckError(str(error)) from error

    earlier = store.pretraining(job.id)
    if earlier and earlier.weights:
        measured["weights"] = joined_weights(weights, earlier.weights)
    record = outcome.record.model_copy(update=measured)
    return JobOutput(record=record, arrays={"losses": losses, "sums": sums})


def measure_pretrained(
    job: Pretraining, model: EncoderForMaskedLM, inputs: Inputs, compute: Compute
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measure how much a pretrained encoder uses the order of words.

    Args:
        job: the pretraining.
        model: the encoder under its masked-LM head.
        inputs: the inputs of the experiment, with the text.
        compute: where to compute.

    Returns:
        The fields of the pretraining's record, and the sums and counts of the measures.
    """
    tokenizer = inputs.arms[job.arm].tokenizer
    validation = inputs.text.packed_text(tokenizer)["validation"]
    text = HeldOut(validation, tokenizer, job.settings.mask_probability)
    with on_threads(compute.threads_for(model.config.hidden_size)):
        sums_by_measure = order_sums(model, text, job.settings.length)
    measures = []
    arrays = {}
    for name, sums in sums_by_measure.items():
        error = sums.standard_error if math.isfinite(sums.standard_error) else None
        measures.append(Measure(name=name, value=sums.value, standard_error=error, n=sums.n))
        arrays[name] = np.stack([sums.sums, sums.counts])
    facts = {
        "measures": tuple(measures),
        "measure_tokens": sum(len(probe.ids) for probe in text.probes),
    }
    return facts, arrays


def cell_output(cell: Cell, inputs: Inputs, compute: Compute, report: Report) -> JobOutput:
    """Fine-tune a cell, or score a finished model, and keep the logits of every split.

    Logits that are scored have the type in which they were scored. A fine-tuned model stays if
    models are kept, or if other cells start from it. No copy of a finished model is kept, because
    it is on disk already. For the arguments and the errors see `compute_output`.
    """
    save = None
    if cell.is_trained:
        outcome = finetune(cell, inputs, compute, progress=report)
        record = outcome.record
        predictions = outcome.predictions
        if leaves_model(cell, inputs.experiment):
            save = partial(save_kept, outcome=outcome, inputs=inputs)
        if save or cell.task == "mnli":  # cells may have started from an earlier run
            weights = weights_digest(outcome.model.base_model.state_dict())
            record = record.model_copy(update={"weights": weights})
    else:
        evaluated = evaluate(cell, inputs, compute, progress=report)
        record = evaluated.record
        predictions = evaluated.predictions

    kind = cell.settings.predictions or "float32"
    logits: dict[str, np.ndarray] = {}
    tests: dict[str, np.ndarray] = {}
    for split, values in predictions.items():
        if is_test(split):
            tests[split] = values
        else:
            logits[split] = values.astype(kind)

    return JobOutput(record=record, arrays={"logits": logits, "tests": tests}, save=save)
