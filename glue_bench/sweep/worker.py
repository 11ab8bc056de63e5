"""One job in one process: training, storing the result, and a file that says how far it is."""

import math
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glue_bench.analysis.held_out import HeldOut
from glue_bench.analysis.word_order import order_sums
from glue_bench.config import Experiment, Resources
from glue_bench.config.machine import AUTO
from glue_bench.config.own_task import add_own_tasks
from glue_bench.errors import DiskError, UserError
from glue_bench.files import GOES_ON, disk_trouble, results_written_to
from glue_bench.model.checks import check_order
from glue_bench.model.fresh import on_threads
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.plugins import load_file
from glue_bench.model.start import weights_digest
from glue_bench.records import values
from glue_bench.records.arrays import Arrays
from glue_bench.records.done import joined_weights
from glue_bench.records.values import (
    Cell,
    Failure,
    Job,
    Pretraining,
    PretrainingRecord,
    Record,
    Result,
)
from glue_bench.sweep.plan import arm_identity
from glue_bench.sweep.weights import leaves_model
from glue_bench.training.device import Compute, choose_compute
from glue_bench.training.evaluate import evaluate
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.kept import save_kept
from glue_bench.training.loop import OnStep
from glue_bench.training.pretrain import DivergedPretrainingError, pretrain
from glue_bench.training.pretraining_folder import OtherComputerError, PretrainingFolder
from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.task_inputs import is_test

Report = Callable[[int, int | None, Callable[[], float] | None], None]
"""Says how far a job is: its step, the number of steps, and a function for its loss, if any."""
MIN_REPORT_SECONDS = 2.0  # between two reports of how far a job is
MAX_LISTING_SECONDS = 60.0  # until a shared disk lists what another machine has written


def make_worker(
    experiment: Experiment,
    folder: Path,
    device: str = AUTO,
    precision: str = AUTO,
    graph: str = AUTO,
) -> "Worker":
    """Make a worker for this process, whose share of the machine it has.

    Raises UserError where the machine lacks a file.
    """
    quiet_transformers()
    add_own_tasks(experiment.own_tasks)
    for path in experiment.plugins:
        load_file(Path(path).expanduser())
    torch.set_num_threads(experiment.resources.cpus)
    return Worker(Inputs(experiment, folder), choose_compute(device, precision, graph))


def room_here(resources: Resources, compute: Compute) -> int | None:
    """How many workers this machine has room for; None if one process does as much.

    That is so on a GPU that is not shared. A worker takes `resources.cpus` of the threads that
    PyTorch takes by itself: one for each core that it may use.
    """
    fits = compute.threads // resources.cpus
    if resources.gpus:
        fits = min(fits, resources.fitting(torch.cuda.device_count()))
    elif compute.device.type != "cpu":
        return None
    return fits if fits > 1 else None


class Worker:
    """Runs jobs one after another. A failing job ends itself, never the sweep."""

    def __init__(self, inputs: Inputs, compute: Compute) -> None:
        self.inputs = inputs
        self.store = inputs.store
        self.compute = compute

    def run(self, job: Job) -> Result:
        """Train, and store the record, or why there is none.

        Raises UserError for what every job would meet: a full disk, other files than those that the
        plan was made of, or a model or a state to start from that is damaged.
        """
        with self._reporting(job.id) as report:
            try:
                self._check_files(job)
                self._wait_for_starts(job)
                if isinstance(job, Pretraining):
                    return self._pretrain(job, report)
                if not job.is_trained:
                    return self._evaluate(job, report)
                return self._finetune(job, report)
            except OtherComputerError as error:
                return self._fail(job, str(error))  # the sweep goes on without this worker
            except UserError:
                raise
            except Exception as error:
                trouble = disk_trouble(error)
                if trouble:
                    place = getattr(error, "filename", None) or "the results or the cache folder"
                    raise DiskError(f"cannot write to '{place}': {trouble}; {GOES_ON}") from error
                place = " in pretraining" if isinstance(job, Pretraining) else ""
                return self._fail(job, f"{type(error).__name__}{place}: {error}")

    def _check_files(self, job: Job) -> None:
        """Raise UserError where this machine has other files than the one that planned the job."""
        facts = arm_identity(self.inputs.arm_of(job))
        if isinstance(job, Pretraining):
            facts["corpus"] = self.inputs.text.corpus.digest
        else:
            facts["data"] = self.inputs.tasks.data(job.task).digest
        changed = []
        for name, value in facts.items():
            if getattr(job, name) != value:
                changed.append(name)
        if changed:
            host = socket.gethostname()
            fault = f"{host} has another {', '.join(changed)} for '{job.id}'"
            advice = "all machines must see the same files"
            raise UserError(f"{fault} than the machine that planned it; {advice}")

    def _wait_for_starts(self, job: Job) -> None:
        """Wait for the results of the jobs before it: a shared disk lists files of others late."""
        until = time.monotonic() + MAX_LISTING_SECONDS
        for name in job.after:
            while not self.store.result_version(name) and time.monotonic() < until:
                time.sleep(0.5)

    def _finetune(self, cell: Cell, report: OnStep) -> Record:
        """Fine-tune. The model stays if models are kept, or if other cells start from this one."""
        keeps = leaves_model(cell, self.inputs.experiment)
        outcome = finetune(cell, self.inputs, self.compute, progress=report)
        record = outcome.record
        if keeps or cell.task == "mnli":  # others may have started from an earlier run of this cell
            weights = weights_digest(outcome.model.base_model.state_dict())
            record = record.model_copy(update={"weights": weights})

        save = partial(save_kept, outcome=outcome, inputs=self.inputs) if keeps else None
        return self._store_cell(record, outcome.predictions, save)

    def _evaluate(self, cell: Cell, report: Report) -> Record:
        """Score a finished model. No copy of it is kept: it lies where it was found."""
        outcome = evaluate(cell, self.inputs, self.compute, progress=report)
        return self._store_cell(outcome.record, outcome.predictions)

    def _store_cell(
        self, record: Record, predictions: Arrays, save: Callable[[Path], None] | None = None
    ) -> Record:
        """Store a cell: scored predictions in the type in which they were scored, and the others.

        Args:
            record: of the cell.
            predictions: the logits of each split.
            save: writes the files of its model, if that is kept.
        """
        kind = record.cell.settings.predictions or "float32"
        logits: dict[str, np.ndarray] = {}
        tests: dict[str, np.ndarray] = {}
        for split, values_of_split in predictions.items():
            if is_test(split):
                tests[split] = values_of_split
            else:
                logits[split] = values_of_split.astype(kind)
        return self.store.write(record, save, logits=logits, tests=tests)

    def _pretrain(self, job: Pretraining, report: OnStep) -> PretrainingRecord | Failure:
        """Pretrain an arm, measure it, and check that the order of words matters to it.

        All cells of the arm start from it. A run of a search that diverges is a result, too.
        """
        try:
            outcome = pretrain(job, self.inputs, self.compute, progress=report)
        except DivergedPretrainingError as error:
            if not job.is_search:
                raise
            return self._store_pretraining(error.record)
        if job.is_search:
            return self._store_pretraining(outcome.record, losses=outcome.validation)
        weights = outcome.record.weights or {}
        measured, sums = self._measure(job, outcome.model)
        arm = self.inputs.arms[job.arm]
        try:
            for steps in job.settings.finetuned_steps:
                start = arm.read_model(
                    self.store.checkpoints.at_step(job.id, steps), weights[steps]
                )
                check_order(start, job.arm)
        except UserError as error:
            return self._fail(job, str(error))
        earlier = self.store.pretraining(job.id)
        if earlier and earlier.weights:
            measured["weights"] = joined_weights(weights, earlier.weights)
        record = outcome.record.model_copy(update=measured)
        return self._store_pretraining(record, losses=outcome.validation, sums=sums)

    def _store_pretraining(
        self,
        record: PretrainingRecord,
        losses: Arrays | None = None,
        sums: Arrays | None = None,
    ) -> PretrainingRecord:
        """Store a pretraining; its state to continue from, and the checkpoints of a search, go."""
        job = record.pretraining
        with results_written_to(self.store.folder):
            stored = self.store.write(record, losses=losses, sums=sums)
            PretrainingFolder(self.store, job.id).end(keeps=not job.is_search)
        return stored

    def _measure(
        self, job: Pretraining, model: EncoderForMaskedLM
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measure how much the encoder uses the order of words.

        Returns:
            The fields of its record, and the sums and counts behind the measures.
        """
        arm = self.inputs.arms[job.arm]
        validation = self.inputs.text.packed_text(arm.tokenizer)["validation"]
        text = HeldOut(validation, arm.tokenizer, job.settings.mask_probability)
        with on_threads(self.compute.threads_for(model.config.hidden_size)):
            sums_by_measure = order_sums(model, text, job.settings.length)
        measures = []
        arrays = {}
        for name, sums in sums_by_measure.items():
            error = _finite_or_none(sums.standard_error)
            measure = values.Measure(name=name, value=sums.value, standard_error=error, n=sums.n)
            measures.append(measure)
            arrays[name] = np.stack([sums.sums, sums.counts])
        facts = {
            "measures": tuple(measures),
            "measure_tokens": sum(len(probe.ids) for probe in text.probes),
        }
        return facts, arrays

    def _fail(self, job: Job, error: str) -> Failure:
        failure = Failure(
            id=job.id,
            error=error,
            traceback=traceback.format_exc(),
            environment=self.compute.environment(),
        )
        self.store.write_failure(failure)
        return failure

    @contextmanager
    def _reporting(self, job_id: str) -> Iterator[Report]:
        """In this block a file says how far the job is. If it cannot be written, it is left out."""
        began = time.time()
        worker = f"{socket.gethostname()}:{os.getpid()}"
        written_at = -math.inf

        def report(step: int, steps: int | None, loss: Callable[[], float] | None) -> None:
            nonlocal written_at
            if step and time.monotonic() < written_at + MIN_REPORT_SECONDS:
                return
            written_at = time.monotonic() if step else -math.inf
            progress = values.Progress(
                id=job_id,
                worker=worker,
                began=began,
                updated=time.time(),
                step=step,
                steps=steps,
                loss=None if loss is None else _finite_or_none(loss()),
            )
            with suppress(OSError):
                self.store.progress.write(progress)

        report(0, None, None)
        try:
            yield report
        finally:
            with suppress(OSError):
                self.store.progress.drop(job_id)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
