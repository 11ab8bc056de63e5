"""One cell, from its start to its scores and predictions."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
from transformers import PreTrainedModel

from glue_bench.config import HELD_OUT
from glue_bench.data.metrics import is_collapsed, score_logits
from glue_bench.data.tasks import DIAGNOSTICS, find_task
from glue_bench.model.fresh import on_threads
from glue_bench.model.heads import EncoderForSequenceClassification
from glue_bench.model.native import NativeClassifier
from glue_bench.model.start import Start
from glue_bench.records.values import Cell, Epoch, Record
from glue_bench.training.attempts import run_attempts
from glue_bench.training.device import Compute
from glue_bench.training.evaluate import evaluation_tokens, rounded_as_stored
from glue_bench.training.fixed_steps import (
    SHARED,
    FixedSteps,
    launches_graphs,
    make_ahead,
    shared_steps,
    take_fixed,
    takes_fixed_steps,
)
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import (
    NonFiniteLossError,
    OnStep,
    ProgressReporter,
    predict,
    report_no_steps,
    train,
    used_rows_only,
)
from glue_bench.training.memory import is_out_of_memory, release_memory, return_freed
from glue_bench.training.tokens import (
    Batch,
    TokenisedTask,
    evaluation_batches,
    trained_tokens,
    training_batches,
)
from glue_bench.training.trial import compute_of, padded_length

Classifier = EncoderForSequenceClassification | NativeClassifier


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell.

    - `record`: without the digests of the files beside it.
    - `predictions`: the logits of each split, float32 (rows, labels).
    - `model`: the fine-tuned model.
    - `attempt`: the attempt that succeeded.
    """

    record: Record
    predictions: dict[str, np.ndarray]
    model: PreTrainedModel
    attempt: "Attempt"


def finetune(
    cell: Cell, inputs: Inputs, compute: Compute, *, progress: OnStep = report_no_steps
) -> Outcome:
    """Fine-tune one cell. The same cell on the same CPU gives the same bits, whatever ran before.

    The score is the last epoch's. If memory is short, the cell begins again and computes batches in
    halves, then in quarters, and at last row by row. An update still takes the whole batch. A
    native arm whose model cannot be trained in bf16 computes in float32, and a loss of NaN in bf16
    gets one more try in float32. The record says so (`micro_batch_size`, `precision`).

    Args:
        cell: the arm, the task, the settings and the seed.
        inputs: the experiment's arms and tasks.
        compute: where to compute.
        progress: called after each step.

    Raises:
        NonFiniteLossError: training diverged in float32.
        UserError: the start of the cell is missing, is damaged, or does not belong to the record
            that the cell names.
    """
    start = inputs.cell_start(cell)
    attempt = Attempt(
        cell=cell,
        start=start,
        tokens=inputs.tokens(cell),
        requested=compute,
        compute=compute,
        micro_batch_size=None,
        progress=ProgressReporter(progress),
    )

    with on_threads(compute.threads_for(start.hidden_size)):
        chosen = compute_of(inputs.arms[cell.arm], compute)
        rows = len(attempt.tokens.splits["train"])
        has_graph = chosen.graph and takes_fixed_steps(start, cell.hyperparameters, rows)
        attempt = replace(attempt, compute=replace(chosen, graph=has_graph))
        outcome = run_attempts(attempt, release_shared_memory)

    origins = {
        "started_from": start.digest,
        "diagnostic": inputs.tasks.diagnostic_digest(cell.task),
    }
    return replace(outcome, record=outcome.record.model_copy(update=origins))


def release_shared_memory() -> None:
    """Give back the memory of a failed attempt, and of the steps that cells share."""
    SHARED.clear()
    release_memory()


@dataclass(frozen=True)
class Attempt:
    """One attempt at a cell. It computes on `compute`, in place of `requested`."""

    cell: Cell
    start: Start
    tokens: TokenisedTask
    requested: Compute
    compute: Compute
    micro_batch_size: int | None
    progress: ProgressReporter

    def after(self, error: Exception) -> "Attempt":
        """Return the next attempt after an error of this one. Raises the error if there is none."""
        if is_out_of_memory(error) and self.micro_batch_size != 1:
            rows = self.micro_batch_size or self.cell.hyperparameters.batch_size
            compute = replace(self.compute, graph=False)
            return replace(self, compute=compute, micro_batch_size=max(1, rows // 2))
        if isinstance(error, NonFiniteLossError) and self.compute.bf16:
            return replace(self, compute=replace(self.compute, bf16=False))
        raise error

    def run(self) -> Outcome:
        """Train the model, and predict all splits."""
        began = time.perf_counter()
        if self.compute.keeps_kernels:  # kernels lie between blocks that the last cell has freed
            return_freed()

        task = self.cell.task
        splits = self.tokens.splits
        model = self.new_model()

        fixed_steps = None
        if self.compute.graph:
            fixed_steps = shared_steps(model, self.cell.hyperparameters, self.compute)
            model = fixed_steps.model

        parameters = sum(parameter.numel() for parameter in model.parameters())
        history, predictions, training_seconds = self.train(model, fixed_steps)
        collapsed = [
            name
            for name, logits in predictions.items()
            if name != HELD_OUT and is_collapsed(task, logits)
        ]
        for name in (*find_task(task).test_splits, *DIAGNOSTICS.get(task, ())):
            if name in splits:
                predictions[name] = self.predict(model, name)

        settings = self.cell.hyperparameters
        scores = dict(history[-1].scores)
        scores.pop(HELD_OUT, None)

        record = Record(
            cell=self.cell,
            scores=scores,
            history=tuple(history),
            collapsed=tuple(collapsed),
            seconds=round(time.perf_counter() - began, 3),
            training_seconds=round(training_seconds, 3),
            training_tokens=trained_tokens(splits["train"], settings, self.cell.seed),
            parameters=parameters,
            graft_is_exact=self.start.exact if self.start.origin == "grafted" else None,
            variance_kept=dict(self.start.variance_kept),
            micro_batch_size=self.micro_batch_size,
            environment=self.requested.environment(graphs=launches_graphs(fixed_steps)),
            precision=None if self.compute.bf16 == self.requested.bf16 else self.compute.precision,
        )

        inner_model = model.model if isinstance(model, NativeClassifier) else model
        return Outcome(record, predictions, inner_model, self)

    def new_model(self) -> Classifier:
        """Build the model that the cell starts from."""
        labels = find_task(self.cell.task).labels or ("score",)
        return cast(Classifier, self.start.classifier(labels, self.cell.seed))

    def train(
        self, model: Classifier, fixed_steps: FixedSteps | None
    ) -> tuple[list[Epoch], dict[str, np.ndarray], float]:
        """Train the model, perhaps in fixed steps, and score it after each epoch.

        Returns:
            The epochs, the last epoch's logits of all scored splits, and the seconds of training.
        """
        task = self.cell.task
        settings = self.cell.hyperparameters
        train_split = self.tokens.splits["train"]
        history: list[Epoch] = []
        predictions: dict[str, np.ndarray] = {}
        seconds = 0.0

        def batches(epoch: int) -> Iterator[Batch]:
            made = training_batches(
                train_split,
                settings.batch_size,
                self.tokens.padding_id,
                self.cell.seed,
                epoch,
                self.padded,
            )
            return make_ahead(made) if fixed_steps else made

        steps_per_epoch = settings.steps_per_epoch(len(train_split))
        began = time.perf_counter()
        # A graph holds the whole table, because tasks use different rows.
        with nullcontext() if fixed_steps else used_rows_only(model, self.tokens):
            epochs = train(
                model,
                batches,
                steps_per_epoch,
                settings,
                self.compute,
                self.micro_batch_size,
                self.progress,
                partial(take_fixed, fixed_steps, self.cell.seed) if fixed_steps else None,
            )
            for epoch, loss in enumerate(epochs, start=1):
                seconds += time.perf_counter() - began
                predictions = self.predict_scored(model)
                for logits in predictions.values():
                    if not np.isfinite(logits).all():  # no loss shows the last update
                        raise NonFiniteLossError(f"predictions are not finite after epoch {epoch}")
                scores = {
                    name: score_logits(task, logits, self.tokens.splits[name].labels)
                    for name, logits in predictions.items()
                }
                history.append(Epoch(epoch=epoch, train_loss=loss, scores=scores))
                began = time.perf_counter()
        return history, predictions, seconds

    def predict_scored(self, model: Classifier) -> dict[str, np.ndarray]:
        """Return the logits of all scored splits, float32 (rows, labels).

        They are rounded as they are stored, so that anyone who reads the stored predictions
        computes the same scores.
        """
        predictions = {}
        for name in (*find_task(self.cell.task).validation_splits, HELD_OUT):
            if name in self.tokens.splits:
                logits = self.predict(model, name)
                predictions[name] = rounded_as_stored(logits, self.cell)
        return predictions

    def predict(self, model: Classifier, name: str) -> np.ndarray:
        """Return the logits of a split, float32 (rows, labels), in its order.

        Batches are as small as the parts of training batches.
        """
        batch_size = self.cell.hyperparameters.batch_size
        full_tokens = evaluation_tokens(self.compute)
        tokens = int(full_tokens * (self.micro_batch_size or batch_size) / batch_size)
        split = self.tokens.splits[name]
        batches = evaluation_batches(split, self.tokens.padding_id, tokens, self.padded)
        return predict(model, batches, self.compute, self.progress.repeat_last)

    def padded(self, length: int) -> int:
        """Return the length that a batch is padded to if its longest example has this length."""
        return padded_length(length, self.start, self.compute, self.cell.settings.max_length)
