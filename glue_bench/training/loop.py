"""The one training loop, for cells and pretrainings, on every device; and predictions.

It is not transformers' Trainer, because a cell of a few hundred small steps has to start in
milliseconds, and has to end with the same bits whatever jobs the process ran before.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glue_bench.config import Hyperparameters, PretrainingSettings
from glue_bench.model.heads import EncoderForSequenceClassification, classification_loss
from glue_bench.model.native import NativeClassifier
from glue_bench.model.variants import OURS
from glue_bench.training.device import Compute
from glue_bench.training.tokens import Batch, TokenisedTask

Epochs = Callable[[int], Iterable[Batch]]
OnStep = Callable[[int, int, Callable[[], float]], None]
"""Is called after each step with its number, the number of all steps, and a function for its loss.

The function waits for the device."""
TakeStep = Callable[[Batch, float, int], Tensor]
"""Takes a step with a batch, a learning rate and the step's number from 0, and returns the loss."""


def report_no_steps(step: int, steps: int, loss: Callable[[], float]) -> None:
    """Report nothing."""


class ProgressReporter:
    """Reports the steps of a run.

    `repeat_last` reports the last step again, so that a long prediction does not look dead.
    """

    def __init__(self, progress: OnStep) -> None:
        self.progress = progress
        self.last_step: tuple[int, int, Callable[[], float]] | None = None

    def __call__(self, step: int, steps: int, loss: Callable[[], float]) -> None:
        self.last_step = (step, steps, loss)
        self.progress(step, steps, loss)

    def repeat_last(self) -> None:
        """Report the last step again, if there is one."""
        if self.last_step:
            self.progress(*self.last_step)


class NonFiniteLossError(RuntimeError):
    """A loss or a prediction became NaN or infinite."""


def train(
    model: nn.Module,
    epochs: Epochs,
    steps_per_epoch: int,
    settings: Hyperparameters,
    compute: Compute,
    micro_batch_size: int | None = None,
    progress: OnStep = report_no_steps,
    take_step: TakeStep | None = None,
) -> Iterator[float]:
    """Train in place, and yield the mean training loss after each epoch.

    It uses AdamW (0.9, 0.999), linear warm-up and linear decay to zero, and gradients clipped to a
    total norm (TUPE, table 2). The settings' `max_steps` may cut the last epoch short.

    Args:
        model: on any device.
        epochs: returns the batches of an epoch, which is counted from 1.
        steps_per_epoch: how many batches an epoch has.
        settings: rate, steps, warm-up, decay and clipping.
        compute: where to compute.
        micro_batch_size: how many rows of a batch are computed at once. An update always takes the
            whole batch.
        progress: called after each step.
        take_step: a function that takes each step, in place of the loop's own optimiser.

    Raises:
        NonFiniteLossError: the mean loss of an epoch is NaN or infinite.
    """
    # The model is moved before the optimiser is made, because a move may replace the parameters.
    model.to(compute.device)
    optimizer = make_optimizer(model, settings)
    for module in model.modules():
        if isinstance(module, UsedRows):
            optimizer.register_step_pre_hook(module.decay_others)

    steps = settings.steps(steps_per_epoch)
    step = 0
    epoch = 0

    while step < steps:
        epoch += 1
        model.train()
        losses: list[Tensor] = []
        for batch in islice(epochs(epoch), steps - step):
            rate = settings.learning_rate * linear_factor(step, steps, settings.warmup_ratio)
            if take_step:
                loss = take_step(batch, rate, step)
            else:
                parts = part_losses(model, batch, compute, micro_batch_size)
                loss = update(model, optimizer, rate, settings.clip_norm, parts)
            losses.append(loss)
            step += 1
            progress(step, steps, losses[-1].item)

        mean_loss = float(torch.stack(losses).mean())  # the epoch's one wait for the device
        if not math.isfinite(mean_loss):
            raise NonFiniteLossError(f"loss is {mean_loss} in epoch {epoch}")
        yield mean_loss


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rate: float | Tensor,
    clip_norm: float,
    losses: Iterable[Tensor],
) -> Tensor:
    """Take one step along the gradient of the sum of `losses`.

    Args:
        model: the model to update.
        optimizer: the optimiser of the model.
        rate: the learning rate of the step; a tensor where the step is captured.
        clip_norm: the largest norm of the gradient.
        losses: the losses of the parts. Each is computed when it is asked for, so that one graph is
            in memory at a time.

    Returns:
        The sum of the losses.
    """
    parts: list[Tensor] = []
    for group in optimizer.param_groups:
        group["lr"] = rate
    for loss in losses:
        loss.backward()
        parts.append(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return sum(parts[1:], parts[0])


def part_losses(
    model: nn.Module, batch: Batch, compute: Compute, rows: int | None = None
) -> Iterator[Tensor]:
    """Yield the loss of each part of a batch, as its share of the batch's mean loss.

    Args:
        model: the model, on the device.
        batch: the batch, on the host.
        compute: where to compute.
        rows: how many rows a part has; all of them by default.
    """
    batch_size = len(batch.labels)
    for part in batch.parts(rows or batch_size):
        part = part.to(compute.device)
        with compute.autocast():
            logits = model(part.ids, part.mask, part.segments).logits
        loss = classification_loss(logits, part.labels)
        if len(part.labels) == batch_size:
            yield loss
        else:
            yield loss * (len(part.labels) / batch_size)


def make_optimizer(
    model: nn.Module,
    settings: Hyperparameters | PretrainingSettings,
    *,
    capturable: bool = False,
) -> torch.optim.AdamW:
    """Make AdamW with weight decay on matrices alone. Biases and LayerNorms are vectors.

    Args:
        model: the model, on its device.
        settings: rate, decay and epsilon.
        capturable: whether a CUDA graph may capture its steps.
    """
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            (matrices if parameter.ndim >= 2 else vectors).append(parameter)
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=settings.learning_rate,
        betas=(0.9, 0.999),
        eps=settings.adam_epsilon,
        fused=True,  # one kernel a group, with the arithmetic of the plain implementation
        capturable=capturable,
    )


def linear_factor(step: int, steps: int, warmup_ratio: float) -> float:
    """Return the part of the learning rate at `step` (from 0), as transformers does.

    It rises over ceil(warmup_ratio * steps) steps, and then falls to zero.
    """
    warmup = math.ceil(warmup_ratio * steps)
    if step < warmup:
        return step / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


def rate_factor(settings: PretrainingSettings, step: int) -> float:
    """Return the part of a pretraining's learning rate at `step` (from 0).

    It is linear as in fine-tuning, or a trapezoid if `decay_share` is given: 1 between the warm-up
    and a linear decay to zero over the last ceil(decay_share * steps) steps (Hägele et al. 2024,
    arXiv 2405.18392).
    """
    if settings.decay_share is None:
        return linear_factor(step, settings.steps, settings.warmup_ratio)
    warmup = math.ceil(settings.warmup_ratio * settings.steps)
    decay = math.ceil(settings.decay_share * settings.steps)
    rising = step / max(1, warmup) if step < warmup else 1.0
    falling = (settings.steps - step) / decay
    return min(1.0, rising, falling)


@torch.inference_mode()
def predict(
    model: nn.Module,
    batches: Iterable[Batch],
    compute: Compute,
    after: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """Return the logits of all batches, float32 (rows, labels), in the order of the split.

    Args:
        model: the model, on the device.
        batches: batches of all rows of a split, in any order.
        compute: where to compute.
        after: called after each batch.
    """
    model.eval()
    rows: list[np.ndarray] = []
    logits: list[Tensor] = []
    for batch in batches:
        moved = batch.to(compute.device)
        with compute.autocast():
            logits.append(model(moved.ids, moved.mask, moved.segments).logits.float())
        rows.append(batch.rows)
        after()
    unordered = torch.cat(logits).cpu().numpy()  # the one wait for the device
    ordered = np.empty_like(unordered)
    ordered[np.concatenate(rows)] = unordered
    return ordered


class UsedRows(nn.Module):
    """A token table that trains some of its rows alone.

    - `used` (u,): the sorted ids of these rows.
    - `weight` (u, d): their weights.

    In evaluation the table has all rows, as AdamW would have left them. The table itself stays a
    part of the model, without a gradient, so that it goes wherever training moves the model. In
    training an id that is not among `used` has no row, and looking it up is an error: any other row
    in its place would be a wrong number that nobody notices.
    """

    lookup: Tensor
    used: Tensor

    def __init__(self, table: nn.Embedding, used: Int[Tensor, " u"]) -> None:
        super().__init__()
        self.weight = nn.Parameter(table.weight.detach()[used])
        self.padding: int | None = None
        if table.padding_idx is not None:
            self.padding = int(torch.searchsorted(used, table.padding_idx))
        self.decay = 1.0
        no_row = len(used)
        lookup = torch.full((table.num_embeddings,), no_row)
        lookup[used] = torch.arange(len(used))
        self.register_buffer("lookup", lookup, persistent=False)
        self.register_buffer("used", used, persistent=False)
        self.table = table.requires_grad_(False)

    def forward(self, ids: Int[Tensor, "b l"]) -> Float[Tensor, "b l d"]:
        if not self.training:
            return F.embedding(ids, self.table.weight)
        return F.embedding(self.lookup[ids], self.weight, padding_idx=self.padding)

    def train(self, mode: bool = True) -> "UsedRows":
        """Switch to training or evaluation. Evaluation first brings the whole table up to date."""
        if self.training and not mode:
            with torch.no_grad():
                self.table.weight.mul_(self.decay)
                self.table.weight[self.used] = self.weight
            self.decay = 1.0
        return super().train(mode)

    def decay_others(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Note before each step how AdamW decays the rows that are not used.

        p <- p * (1 - lr * weight_decay), equation 12 of Loshchilov & Hutter 2019. The product is
        kept in double precision and applied once, which differs from AdamW's own rounding by some
        1e-7 of a weight.
        """
        for group in optimizer.param_groups:
            if any(parameter is self.weight for parameter in group["params"]):
                self.decay *= 1 - float(group["lr"]) * group["weight_decay"]


@contextmanager
def used_rows_only(
    model: EncoderForSequenceClassification | NativeClassifier, tokens: TokenisedTask
) -> Iterator[None]:
    """Let the model train the token rows alone that its training batches look up, in this block.

    After the block the whole table is up to date and trainable. The token table is half of a small
    encoder, and a task uses a part of its rows. The gradients and moments of the other rows are
    zero, so AdamW only decays them. A model looks up the ids of the texts, the id of padding, and
    special ids that it adds by itself, such as the one that a decoder starts with; its
    configuration names these. Nothing is changed in models that may use their table in other ways:
    variants of the user's own, tables of a class of their own, shared tables.
    """
    table = token_table(model)
    if table is None:
        yield
        return
    ids = tokens.splits["train"].ids
    special = [tokens.padding_id, *special_ids(model, table)]
    used = torch.from_numpy(np.union1d(ids, special).astype(np.int64))
    rows = UsedRows(table, used.to(table.weight.device))
    model.base.set_input_embeddings(rows)
    try:
        yield
    finally:
        rows.eval()
        table.requires_grad_(True)
        model.base.set_input_embeddings(table)


def token_table(model: EncoderForSequenceClassification | NativeClassifier) -> nn.Embedding | None:
    """Return the model's table of tokens, if the model only looks rows up in it."""
    try:
        table = model.base.get_input_embeddings()
    except NotImplementedError:  # CANINE, which hashes characters
        return None
    if type(table) is not nn.Embedding or table.max_norm is not None:
        return None
    if isinstance(model, EncoderForSequenceClassification):
        return table if type(model.base.variant) in OURS else None
    places = [part for _, part in model.named_modules(remove_duplicate=False) if part is table]
    return table if len(places) == 1 else None


def special_ids(
    model: EncoderForSequenceClassification | NativeClassifier, table: nn.Embedding
) -> list[int]:
    """Return the ids that the model may look up although no text contains them.

    They are the id of padding, and the ids that a native model's configuration names.
    """
    ids: list[Any] = [table.padding_idx]
    if isinstance(model, NativeClassifier):
        config = model.base.config
        for settings in (config.to_dict(), config.get_text_config().to_dict()):
            for name, value in settings.items():
                if name.endswith("_token_id"):
                    ids += value if isinstance(value, list) else [value]
    return [
        token_id
        for token_id in ids
        if isinstance(token_id, int) and 0 <= token_id < table.num_embeddings
    ]
