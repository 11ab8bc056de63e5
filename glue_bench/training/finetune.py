"""One cell, from its start to its scores and predictions."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from transformers import PreTrainedModel

from glue_bench.config import HELD_OUT
from glue_bench.data.metrics import is_collapsed, score_logits
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.model.checkpoints import Start
from glue_bench.model.fresh import on_threads
from glue_bench.model.heads import EncoderForSequenceClassification
from glue_bench.model.native import NativeClassifier
from glue_bench.records.values import Cell, Epoch, Record
from glue_bench.training.device import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import (
    NonFiniteLossError,
    OnStep,
    ProgressReporter,
    predict,
    silent,
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

EVALUATION_TOKENS = 4_096  # of a batch on a CPU; a GPU takes sixteen times as many
Classifier = EncoderForSequenceClassification | NativeClassifier


@dataclass(frozen=True)
class Outcome:
    """What a cell leaves: its part of the record, logits float32 (rows, labels) of each split, and the model.

    `attempt` is the one that came through.
    """

    record: Record
    predictions: dict[str, np.ndarray]
    model: PreTrainedModel
    attempt: "Attempt"


def finetune(cell: Cell, inputs: Inputs, compute: Compute, *, progress: OnStep = silent) -> Outcome:
    """Fine-tune one cell. The same cell on the same CPU gives the same bits, whatever ran before.

    The score is the last epoch's. Where memory is short, the cell begins again with batches in halves, in quarters, at
    last row by row; updates stay those of whole batches. A native arm whose model cannot be trained in bf16 computes in
    float32, and a loss of NaN in bf16 gets one more try in float32. The facts say so (`micro_batch_size`, `precision`).
    Raises NonFiniteLossError where training diverged in float32, and UserError where what the cell starts from is not
    there, is damaged, or is not of the record that the cell names.
    """
    start = inputs.cell_start(cell)
    tokens = inputs.tokens(cell)
    reporter = ProgressReporter(progress)
    with on_threads(compute.threads_for(start.hidden_size)):
        run = Attempt(
            cell,
            start,
            tokens,
            compute,
            compute_of(inputs.arms[cell.arm], compute),
            None,
            reporter,
        )
        while True:
            try:
                outcome = run.outcome()
                break
            except Exception as error:
                if is_out_of_memory(error) and run.micro_batch_size != 1:
                    run = replace(
                        run,
                        micro_batch_size=(run.micro_batch_size or cell.settings.batch_size) // 2
                        or 1,
                    )
                elif isinstance(error, NonFiniteLossError) and run.compute.bf16:
                    run = replace(run, compute=replace(compute, bf16=False))
                else:
                    raise
            release_memory()  # the failed attempt's is free only now that its traceback is gone
    diagnostic = inputs.tasks.diagnostic(cell.task)
    last = {"started_from": start.digest, "diagnostic": diagnostic.digest if diagnostic else None}
    return replace(outcome, record=outcome.record.model_copy(update=last))


@dataclass(frozen=True)
class Attempt:
    """One attempt at a cell; `asked` is where it was to compute, `compute` where it does."""

    cell: Cell
    start: Start
    tokens: TokenisedTask
    asked: Compute
    compute: Compute
    micro_batch_size: int | None
    progress: ProgressReporter

    def outcome(self) -> Outcome:
        """Train and predict."""
        began = time.perf_counter()
        if self.compute.keeps_kernels:  # they lie between what the last cell has freed
            return_freed()
        task, splits = self.cell.task, self.tokens.splits
        model = cast(
            Classifier, self.start.classifier(TASKS[task].labels or ("score",), self.cell.seed)
        )
        parameters = sum(parameter.numel() for parameter in model.parameters())
        history, predictions, training_seconds = self.train(model)
        collapsed = [
            name
            for name, logits in predictions.items()
            if name != HELD_OUT and is_collapsed(task, logits)
        ]
        tests = [name for name in (*TASKS[task].test_splits, AX_SPLIT) if name in splits]
        predictions |= {name: self.predict(model, name) for name in tests}
        record = Record(
            cell=self.cell,
            scores={
                name: scores for name, scores in history[-1].scores.items() if name != HELD_OUT
            },
            history=tuple(history),
            collapsed=tuple(collapsed),
            seconds=round(time.perf_counter() - began, 3),
            training_seconds=round(training_seconds, 3),
            training_tokens=trained_tokens(splits["train"], self.cell.settings, self.cell.seed),
            parameters=parameters,
            graft_is_exact=self.start.exact if self.start.origin == "grafted" else None,
            variance_kept=dict(self.start.variance_kept),
            micro_batch_size=self.micro_batch_size,
            environment=self.asked.environment(),
            precision=None if self.compute == self.asked else self.compute.precision,
        )
        return Outcome(
            record, predictions, model.model if isinstance(model, NativeClassifier) else model, self
        )

    def train(self, model: Classifier) -> tuple[list[Epoch], dict[str, np.ndarray], float]:
        """History, the last epoch's logits of all scored splits, and seconds spent training."""
        task, splits, settings = self.cell.task, self.tokens.splits, self.cell.settings
        scored = [name for name in (*TASKS[task].validation_splits, HELD_OUT) if name in splits]
        history, predictions, seconds = [], dict[str, np.ndarray](), 0.0

        def batches(epoch: int) -> Iterator[Batch]:
            padding, seed = self.tokens.padding_id, self.cell.seed
            return training_batches(
                splits["train"], settings.batch_size, padding, seed, epoch, self.padded
            )

        steps = settings.steps_per_epoch(len(splits["train"]))
        began = time.perf_counter()
        with used_rows_only(model, self.tokens):
            epochs = train(
                model, batches, steps, settings, self.compute, self.micro_batch_size, self.progress
            )
            for epoch, loss in enumerate(epochs, start=1):
                seconds += time.perf_counter() - began
                # Scores are of what is stored, so that whoever has the predictions gets the same ones.
                kept = settings.predictions or "float32"
                predictions = {
                    name: self.predict(model, name).astype(kept).astype(np.float32)
                    for name in scored
                }
                if not all(
                    np.isfinite(each).all() for each in predictions.values()
                ):  # an update after the last loss
                    raise NonFiniteLossError(f"predictions are not finite after epoch {epoch}")
                scores = {
                    name: score_logits(task, predictions[name], splits[name].labels)
                    for name in scored
                }
                history.append(Epoch(epoch=epoch, train_loss=loss, scores=scores))
                began = time.perf_counter()
        return history, predictions, seconds

    def predict(self, model: Classifier, name: str) -> np.ndarray:
        """Logits float32 (rows, labels) of a split, in its order; in parts as small as those of training."""
        batch_size = self.cell.settings.batch_size
        most = EVALUATION_TOKENS * (16 if self.compute.device.type == "cuda" else 1)
        tokens = int(most * (self.micro_batch_size or batch_size) / batch_size)
        batches = evaluation_batches(
            self.tokens.splits[name], self.tokens.padding_id, tokens, self.padded
        )
        return predict(model, batches, self.compute, self.progress.repeat_last)

    def padded(self, length: int) -> int:
        """The length that a batch whose longest example has this one is padded to."""
        return padded_length(length, self.start, self.compute, self.cell.settings.max_length)
