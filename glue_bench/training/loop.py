"""The one training loop, for cells and pretrainings, on every device; and predictions.

Why not transformers' Trainer: a cell of a few hundred small steps has to start in milliseconds, and has to end with the
same bits whatever the process ran before.
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
"""Called after each step with its number, that of all steps, and its loss, which waits for the device if asked for."""


def silent(step: int, steps: int, loss: Callable[[], float]) -> None:
    """Tell nobody."""


class ProgressReporter:
    """Reports the steps of a run.

    `repeat_last` reports the last step again, so that a long prediction does not look dead.
    """

    def __init__(self, progress: OnStep) -> None:
        self.progress, self.last = progress, tuple[Any, ...]()

    def __call__(self, step: int, steps: int, loss: Callable[[], float]) -> None:
        self.last = step, steps, loss
        self.progress(*self.last)

    def repeat_last(self) -> None:
        """So that a driver hears that the run goes on."""
        if self.last:
            self.progress(*self.last)


class NonFiniteLossError(RuntimeError):
    """A loss or a prediction became NaN or infinite."""


def train(
    model: nn.Module,
    epochs: Epochs,
    steps_per_epoch: int,
    settings: Hyperparameters,
    compute: Compute,
    micro_batch_size: int | None = None,
    progress: OnStep = silent,
) -> Iterator[float]:
    """Train in place; yields the mean training loss after each epoch. `epochs(e)` gives epoch e's batches, from 1.

    The last epoch is cut short where the settings' `max_steps` end it. A batch goes through in parts of
    `micro_batch_size` rows, if given; the update is that of the whole. AdamW (0.9, 0.999), linear warm-up and linear
    decay to zero, gradients clipped to a total norm (TUPE, table 2). Raises NonFiniteLossError after an epoch whose
    loss is none.
    """
    model.to(
        compute.device
    )  # before the optimiser is made, because a move may replace the parameters
    optimizer = make_optimizer(model, settings)
    for module in model.modules():
        if isinstance(module, UsedRows):
            optimizer.register_step_pre_hook(module.decay_others)
    steps, done, epoch = settings.steps(steps_per_epoch), 0, 0
    while done < steps:
        epoch += 1
        model.train()
        losses = []
        for batch in islice(epochs(epoch), steps - done):
            rate = settings.learning_rate * linear_factor(done, steps, settings.warmup_ratio)
            parts = part_losses(model, batch, compute, micro_batch_size)
            losses.append(update(model, optimizer, rate, settings.clip_norm, parts))
            done += 1
            progress(done, steps, losses[-1].item)
        loss = float(torch.stack(losses).mean())  # the epoch's one wait for the device
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"loss is {loss} in epoch {epoch}")
        yield loss


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rate: float,
    clip_norm: float,
    losses: Iterable[Tensor],
) -> Tensor:
    """One step at this rate along the gradient of the sum of `losses`, which is returned; one graph at a time."""
    done = []
    for group in optimizer.param_groups:
        group["lr"] = rate
    for loss in losses:
        loss.backward()
        done.append(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return sum(done[1:], done[0])


def part_losses(
    model: nn.Module, batch: Batch, compute: Compute, rows: int | None = None
) -> Iterator[Tensor]:
    """The loss of each part of at most `rows` rows, as its share of the mean loss of the batch."""
    for part in batch.parts(rows or len(batch.labels)):
        part = part.to(compute.device)
        with compute.autocast():
            logits = model(part.ids, part.mask, part.segments).logits
        loss = classification_loss(logits, part.labels)
        whole = len(part.labels) == len(batch.labels)
        yield loss if whole else loss * (len(part.labels) / len(batch.labels))


def make_optimizer(
    model: nn.Module, settings: Hyperparameters | PretrainingSettings
) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only: biases and LayerNorms are the vectors."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {
            "params": [each for each in learning if each.ndim >= 2],
            "weight_decay": settings.weight_decay,
        },
        {"params": [each for each in learning if each.ndim < 2], "weight_decay": 0.0},
    ]
    # Fused: one kernel a parameter group; its arithmetic is that of the plain implementation.
    rates: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": (0.9, 0.999),
        "eps": settings.adam_epsilon,
    }
    return torch.optim.AdamW(groups, **rates, fused=True)


def linear_factor(step: int, steps: int, warmup_ratio: float) -> float:
    """The part of the rate at `step` (from 0), as transformers has it: up over ceil(ratio * steps) steps, then down."""
    warmup = math.ceil(warmup_ratio * steps)
    return step / warmup if step < warmup else max(0.0, (steps - step) / max(1, steps - warmup))


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
    """Logits float32 (rows, labels) of all batches, in the split's order whatever theirs; `after` each is called."""
    model.eval()
    rows, logits = [], []
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
    """A token table of which only the rows `used` (u,), sorted ids, are trained: `weight` (u, d).

    In evaluation all rows are there, as AdamW would have left them. The table itself stays a part of the model, without
    a gradient, so that it goes wherever training moves the model. In training an id that is not among `used` has no
    row, and looking it up is an error: any other row in its place would be a wrong number that nobody notices.
    """

    lookup: Tensor
    used: Tensor

    def __init__(self, table: nn.Embedding, used: Int[Tensor, " u"]) -> None:
        super().__init__()
        self.weight = nn.Parameter(table.weight.detach()[used])
        self.padding = (
            None if table.padding_idx is None else int(torch.searchsorted(used, table.padding_idx))
        )
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
        """Evaluation begins with bringing the whole table up to date."""
        if self.training and not mode:
            with torch.no_grad():
                self.table.weight.mul_(self.decay)
                self.table.weight[self.used] = self.weight
            self.decay = 1.0
        return super().train(mode)

    def decay_others(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """To be called before each step: the decay that AdamW's step means for rows that are not used.

        p <- p * (1 - lr * weight_decay), equation 12 of Loshchilov & Hutter 2019; the product is kept in double
        precision and applied once, which differs from AdamW's own rounding by some 1e-7 of a weight.
        """
        for group in optimizer.param_groups:
            if any(parameter is self.weight for parameter in group["params"]):
                self.decay *= 1 - float(group["lr"]) * group["weight_decay"]


@contextmanager
def used_rows_only(
    model: EncoderForSequenceClassification | NativeClassifier, tokens: TokenisedTask
) -> Iterator[None]:
    """In this block the model trains only the token rows that its training batches look up.

    After it, the whole table is up to date and trained. The token table is half of a small encoder, and a task uses a
    part of its rows. To the others AdamW does nothing but decay them: their gradients and moments are zero. A model
    looks up the ids of the texts, that of padding, and special ids that it adds by itself, such as the one that a
    decoder starts with; its configuration names these. Models that may use their table in other ways than by looking
    rows up are left alone: variants of the user's own, tables of a class of their own, shared tables.
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
    """The model's table of tokens, if the model does nothing else with it than to look rows up."""
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
    """The ids that the model may look up although no text holds them: padding, and those that its settings name."""
    ids = [] if table.padding_idx is None else [table.padding_idx]
    configurations = []
    if isinstance(model, NativeClassifier):
        whole = model.base.config
        configurations = [whole.to_dict(), whole.get_text_config().to_dict()]
    for settings in configurations:
        for name in settings:
            if name.endswith("_token_id"):
                value = settings[name]
                ids += value if isinstance(value, list) else [value]
    return [
        number for number in ids if isinstance(number, int) and 0 <= number < table.num_embeddings
    ]
