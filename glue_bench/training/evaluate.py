"""One evaluation of a finished model, from its files to its scores and predictions."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from torch import nn

from glue_bench.data.metrics import is_collapsed, score_logits
from glue_bench.data.tasks import DIAGNOSTICS, find_task
from glue_bench.model.finished import FinishedClassifier, FinishedStart
from glue_bench.model.fresh import on_threads
from glue_bench.model.start import weights_digest
from glue_bench.records.base import Scores
from glue_bench.records.values import Cell, Record
from glue_bench.training.attempts import run_attempts
from glue_bench.training.device import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError, predict
from glue_bench.training.memory import is_out_of_memory
from glue_bench.training.tokens import Batch, TokenisedTask, evaluation_batches
from glue_bench.training.trial import padded_length

EVALUATION_TOKENS = 4_096  # tokens of a batch on a CPU; a GPU takes sixteen times as many
OnRows = Callable[[int, int, None], None]
"""Is called after each batch with how many rows are predicted, how many there are, and no loss."""


def report_no_rows(rows: int, all_rows: int, loss: None) -> None:
    """Report nothing."""


class RowCounter:
    """Reports how many rows of all splits are predicted."""

    def __init__(self, progress: OnRows, all_rows: int) -> None:
        self.progress = progress
        self.all_rows = all_rows
        self.rows = 0

    def watch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield batches, and report each when the next one is asked for."""
        for batch in batches:
            yield batch
            self.rows += len(batch.rows)
            self.progress(self.rows, self.all_rows, None)


@dataclass(frozen=True)
class Evaluated:
    """The outcome of an evaluation.

    - `record`: without the digests of the files beside it.
    - `predictions`: the logits of each split, float32 (rows, labels).
    """

    record: Record
    predictions: dict[str, np.ndarray]


def evaluate(
    cell: Cell, inputs: Inputs, compute: Compute, *, progress: OnRows = report_no_rows
) -> Evaluated:
    """Predict the splits of a task with a finished model, and score them.

    The batches are the same as in the scoring of a fine-tuned model. So a model of this tool gets
    the same bits as in its record. Where memory is short, batches are halved. Predictions that are
    not finite in bf16 are made once more in float32, and the record says so (`precision`).

    Args:
        cell: the arm, the task and the settings.
        inputs: the experiment's arms and tasks.
        compute: where to compute.
        progress: called after each batch.

    Raises:
        NonFiniteLossError: predictions are not finite in float32.
        UserError: the model cannot be read.
    """
    start = cast(FinishedStart, inputs.cell_start(cell))
    evaluation = Evaluation(
        cell=cell,
        start=start,
        tokens=inputs.tokens(cell),
        requested=compute,
        compute=compute,
        batch_tokens=evaluation_tokens(compute),
        progress=progress,
    )
    with on_threads(compute.threads_for(start.hidden_size)):
        outcome = run_attempts(evaluation)
    digest = inputs.tasks.diagnostic_digest(cell.task)
    return replace(outcome, record=outcome.record.model_copy(update={"diagnostic": digest}))


@dataclass(frozen=True)
class Evaluation:
    """One attempt at an evaluation. It computes on `compute`, in place of `requested`."""

    cell: Cell
    start: FinishedStart
    tokens: TokenisedTask
    requested: Compute
    compute: Compute
    batch_tokens: int
    progress: OnRows

    def after(self, error: Exception) -> "Evaluation":
        """Return the next attempt after an error of this one. Raises the error if there is none."""
        if is_out_of_memory(error) and self.batch_tokens > self.cell.settings.max_length:
            return replace(self, batch_tokens=self.batch_tokens // 2)
        if isinstance(error, NonFiniteLossError) and self.compute.bf16:
            return replace(self, compute=replace(self.requested, bf16=False))
        raise error

    def run(self) -> Evaluated:
        """Predict all splits, and score those with labels."""
        began = time.perf_counter()
        task = find_task(self.cell.task)

        model = FinishedClassifier(self.start)
        model.to(self.compute.device)
        counter = RowCounter(self.progress, sum(map(len, self.tokens.splits.values())))
        predictions: dict[str, np.ndarray] = {}
        scores: Scores = {}
        collapsed: list[str] = []

        for name in task.validation_splits:
            if name not in self.tokens.splits:
                continue
            logits = rounded_as_stored(self.predict(model, name, counter), self.cell)
            predictions[name] = logits
            labels = self.tokens.splits[name].labels
            scores[name] = {**score_logits(task.name, logits, labels)}
            if is_collapsed(task.name, logits):
                collapsed.append(name)

        for name in (*task.test_splits, *DIAGNOSTICS.get(task.name, ())):
            if name in self.tokens.splits:
                predictions[name] = self.predict(model, name, counter)

        record = Record(
            cell=self.cell,
            scores=scores,
            history=(),
            collapsed=tuple(collapsed),
            seconds=round(time.perf_counter() - began, 3),
            training_tokens=0,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            started_from=weights_digest(model.model.state_dict()),
            environment=self.requested.environment(),
            precision=None if self.compute == self.requested else self.compute.precision,
        )
        return Evaluated(record, predictions)

    def predict(self, model: nn.Module, name: str, counter: RowCounter) -> np.ndarray:
        """Return the logits of a split, float32 (rows, labels), in its order.

        Raises NonFiniteLossError if one is not finite.
        """
        batches = evaluation_batches(
            self.tokens.splits[name],
            self.tokens.padding_id,
            self.batch_tokens,
            self.padded,
            self.cell.settings.batch_size,
        )
        logits = predict(model, counter.watch(batches), self.compute)
        if not np.isfinite(logits).all():
            raise NonFiniteLossError(f"predictions of {name} are not finite")
        return logits

    def padded(self, length: int) -> int:
        """Return the length that a batch is padded to if its longest example has this length."""
        return padded_length(length, self.start, self.compute, self.cell.settings.max_length)


def evaluation_tokens(compute: Compute) -> int:
    """Return how many tokens a batch for prediction has, with padding."""
    return EVALUATION_TOKENS * (16 if compute.device.type == "cuda" else 1)


def rounded_as_stored(logits: np.ndarray, cell: Cell) -> np.ndarray:
    """Round logits to the type in which they are stored, and return them as float32.

    So anyone who reads the stored predictions computes the same scores.
    """
    stored_type = cell.settings.predictions or "float32"
    return logits.astype(stored_type).astype(np.float32)
