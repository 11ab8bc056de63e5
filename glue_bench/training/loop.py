"""The optimisation loop of a cell, and AdamW for every loop.

Why not transformers' Trainer: a cell of a few hundred small steps has to start in milliseconds, and has to
end with the same bits whatever the process ran before.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from glue_bench.config import Cell, Hyperparameters, Pretraining
from glue_bench.model.heads import EncoderForSequenceClassification, classification_loss
from glue_bench.model.native import NativeClassifier
from glue_bench.training.batches import (
    EVALUATION_TOKENS,
    Batch,
    evaluation_batches,
    training_batches,
)
from glue_bench.training.progress import tell
from glue_bench.training.runtime import accelerator, few_sizes
from glue_bench.training.tokens import TokenisedTask
from glue_bench.training.used_rows import UsedRows, used_rows_only

Epochs = Callable[[int], Iterable[Batch]]


class NonFiniteLossError(RuntimeError):
    """Training diverged: a loss or a prediction became NaN or infinite.

    Of a pretraining `spent` has what its record says of the run up to then: steps, tokens, seconds and losses.
    """

    def __init__(self, said: str, spent: Mapping[str, Any] | None = None) -> None:
        super().__init__(said)
        self.spent = dict(spent or {})


class HostTraining:
    """The training and the predictions of one cell, in place."""

    def __init__(
        self,
        model: EncoderForSequenceClassification | NativeClassifier,
        cell: Cell,
        tokens: TokenisedTask,
        rows_at_once: int | None,
    ) -> None:
        self.model, self.cell, self.tokens, self.rows_at_once = model, cell, tokens, rows_at_once

    def epochs(self) -> Iterator[float]:
        """Train; yields the mean training loss after each epoch.

        Raises:
            NonFiniteLossError: an epoch's loss is NaN or infinite.
        """
        settings, seed, padding = self.cell.hyperparameters, self.cell.seed, self.tokens.padding_id
        split = self.tokens.splits["train"]
        steps = -(-len(split) // settings.batch_size)

        def batches(epoch: int) -> Iterator[Batch]:
            return training_batches(split, settings.batch_size, padding, seed, epoch, self._padded)

        with used_rows_only(self.model, split.ids):
            yield from train(self.model, batches, steps, settings, self.rows_at_once)

    def predict(self, name: str) -> np.ndarray:
        """Logits float32 (rows, labels) of a split, in its order; in parts as small as those of training."""
        split = self.tokens.splits[name]
        batch_size = self.cell.hyperparameters.batch_size
        tokens = int(EVALUATION_TOKENS * ((self.rows_at_once or batch_size) / batch_size))
        return predict(self.model, evaluation_batches(split, self.tokens.padding_id, tokens, self._padded), len(split))

    def _padded(self, length: int) -> int:
        return min(few_sizes(length), self.cell.hyperparameters.max_length)


def train(
    model: nn.Module, epochs: Epochs, steps_per_epoch: int, settings: Hyperparameters, rows_at_once: int | None = None
) -> Iterator[float]:
    """Train in place; yields the mean training loss after each epoch. `epochs(e)` gives epoch e's batches.

    The last epoch is cut short where the settings' `max_steps` end it.

    A batch goes through in parts of `rows_at_once` rows, if given; the update is that of the whole.
    AdamW (0.9, 0.999), linear warm-up and linear decay to zero, gradients clipped to a total norm (TUPE, table 2).

    Raises:
        NonFiniteLossError: an epoch's loss is NaN or infinite.
    """
    runtime = accelerator()
    # accelerate's own preparation of a model leaves a reference cycle in it under mixed precision, and so keeps a
    # finished cell's weights for the garbage collector.
    # The model is moved before the optimiser is made, because a move may replace the parameters.
    model.to(runtime.device)
    optimizer = make_optimizer(model, settings)
    for module in model.modules():
        if isinstance(module, UsedRows):
            optimizer.register_step_pre_hook(module.decay_others)
    optimizer = runtime.prepare_optimizer(optimizer)
    steps, done, epoch = settings.steps(steps_per_epoch), 0, 0
    try:
        while done < steps:
            epoch += 1
            model.train()
            losses = []
            for batch in islice(epochs(epoch), steps - done):
                losses.append(backward(model, batch, rows_at_once))
                runtime.clip_grad_norm_(model.parameters(), settings.clip_norm)
                set_rate(optimizer, settings.learning_rate * linear_factor(done, steps, settings.warmup_ratio))
                optimizer.step()
                optimizer.zero_grad()
                done += 1
                tell(done, steps, losses[-1].item)
            loss = float(torch.stack(losses).mean())  # the epoch's one wait for the device
            if not math.isfinite(loss):
                raise NonFiniteLossError(f"loss is {loss} in epoch {epoch}")
            yield loss
    finally:
        runtime.free_memory()  # accelerate holds on to what it prepared


def backward(model: nn.Module, batch: Batch, rows: int | None) -> torch.Tensor:
    """Add the gradients of the batch's mean loss, at most `rows` rows at a time; returns that loss.

    Each part's mean counts by its share of the rows, so that the sum is the whole batch's, up to rounding.
    """
    runtime = accelerator()
    total = torch.zeros((), device=runtime.device)
    for part in batch.parts(rows or len(batch.labels)):
        part = part.to(runtime.device)
        with runtime.autocast():
            logits = model(part.ids, part.mask, part.segments).logits
        loss = classification_loss(logits, part.labels)
        if len(part.labels) < len(batch.labels):
            loss = loss * (len(part.labels) / len(batch.labels))
        runtime.backward(loss)
        total += loss.detach()
    return total


def make_optimizer(model: nn.Module, settings: Hyperparameters | Pretraining) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only: biases and LayerNorms are the vectors."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in learning if parameter.ndim >= 2]
    vectors = [parameter for parameter in learning if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    # Fused: one kernel a parameter group; its arithmetic is that of the plain implementation.
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=(0.9, 0.999),
        eps=settings.adam_epsilon,
        fused=True,
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def linear_factor(step: int, steps: int, warmup_ratio: float) -> float:
    """The part of the rate at `step` (from 0): up over ceil(ratio * steps) steps, then down to zero at `steps`, both
    linear, as transformers'.
    """
    warmup = math.ceil(warmup_ratio * steps)
    if step < warmup:
        return step / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


@torch.inference_mode()
def predict(model: nn.Module, batches: Iterable[Batch], rows: int) -> np.ndarray:
    """Logits float32 (rows, labels), in the split's order whatever the order of batches."""
    model.eval()
    runtime = accelerator()
    logits: np.ndarray | None = None
    for batch in batches:
        moved = batch.to(runtime.device)
        with runtime.autocast():
            found = model(moved.ids, moved.mask, moved.segments).logits
        values = found.float().cpu().numpy()
        if logits is None:
            logits = np.zeros((rows, values.shape[1]), dtype=np.float32)
        logits[batch.rows] = values
    assert logits is not None, "a split has at least one row"
    return logits
