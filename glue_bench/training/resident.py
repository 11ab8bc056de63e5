"""A cell on a GPU: its data lives there, its steps are replayed, and the host waits once an epoch."""

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from glue_bench.config import Cell
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.transformers_api import EncoderForSequenceClassification
from glue_bench.training.batches import bucketed_rows, evaluation_rows, share_at_once
from glue_bench.training.device_split import ABSENT, DeviceSplit, on_device
from glue_bench.training.engine import ENGINES, Shape
from glue_bench.training.loop import NonFiniteLossError, linear_factor
from glue_bench.training.progress import tell
from glue_bench.training.runtime import accelerator
from glue_bench.training.tokens import TokenisedTask

EVALUATION_TOKENS = 65_536


class ResidentTraining:
    """The training and the predictions of one cell; updates are `HostTraining`'s, up to rounding and dropout."""

    def __init__(
        self,
        model: EncoderForSequenceClassification,
        cell: Cell,
        tokens: TokenisedTask,
        rows_at_once: int | None,
        device: torch.device | None = None,
    ) -> None:
        self.initial, self.cell, self.tokens, self.rows_at_once = model, cell, tokens, rows_at_once
        runtime = accelerator()
        self.device = device or runtime.device
        autocast = torch.bfloat16 if runtime.native_amp else None
        config = cast(EncoderConfig, model.config)
        shape = Shape.of(config, cell.hyperparameters, rows_at_once, autocast, self.device)
        self.engine = ENGINES.get(config, shape, cell.hyperparameters)
        self.train_split = tokens.splits["train"]

    @property
    def model(self) -> EncoderForSequenceClassification:
        """With the weights as they are now."""
        return self.engine.model

    def epochs(self) -> Iterator[float]:
        """Train; yields the mean training loss after each epoch.

        Raises:
            NonFiniteLossError: an epoch's loss is NaN or infinite.
        """
        plans = self._plans()
        split = self._split("train")
        try:
            self.engine.prepare((length for _, lengths in plans for length in lengths), split.labels.dtype)
            self.engine.load(self.initial)
            torch.manual_seed(self.cell.seed)  # recording has drawn random numbers
            rates = self._rates(sum(len(lengths) for _, lengths in plans))
            for epoch, (rows, lengths) in enumerate(plans):
                self.engine.model.train()
                done = epoch * len(plans[0][1])
                chosen = torch.from_numpy(rows).to(self.device)
                losses = self._epoch(split, chosen, lengths, rates, done)
                loss = float(losses.mean())  # the epoch's one wait for the device
                if not math.isfinite(loss):
                    raise NonFiniteLossError(f"loss is {loss} in epoch {epoch + 1}")
                yield loss
        except RuntimeError as error:
            if not isinstance(error, NonFiniteLossError):
                ENGINES.drop()  # nothing is known of what they hold now
            raise

    def predict(self, name: str) -> np.ndarray:
        """Logits float32 (rows, labels) of a split, in its order."""
        split, tokens = self._split(name), self.tokens.splits[name]
        self.engine.model.eval()
        share = share_at_once(self.cell.hyperparameters.batch_size, self.rows_at_once)
        logits = torch.empty(len(tokens), self.engine.model.num_labels, device=self.device)
        for rows in evaluation_rows(tokens.lengths, int(EVALUATION_TOKENS * share)):
            chosen = torch.as_tensor(rows).to(self.device, non_blocking=True)
            logits[chosen] = self.engine.logits(split.gather(chosen, int(tokens.lengths[rows].max())))
        return logits.cpu().numpy()

    def _split(self, name: str) -> DeviceSplit:
        return on_device(self.tokens.splits[name], self.tokens.padding_id, self.device)

    def _plans(self) -> list[tuple[np.ndarray, list[int]]]:
        """The `_plan` of each epoch; the last one is cut short where the settings' `max_steps` end it."""
        settings, plans = self.cell.hyperparameters, list[tuple[np.ndarray, list[int]]]()
        left = settings.steps(-(-len(self.train_split) // settings.batch_size))
        while left > 0:
            rows, lengths = self._plan(len(plans) + 1)
            plans.append((rows[:left], lengths[:left]))
            left -= len(lengths)
        return plans

    def _plan(self, epoch: int) -> tuple[np.ndarray, list[int]]:
        """The rows (steps, b) of an epoch's batches, ABSENT where one is short, and the length each is padded to."""
        settings, lengths = self.cell.hyperparameters, self.train_split.lengths
        size, most = settings.batch_size, settings.max_length
        batches = bucketed_rows(lengths, size, np.random.default_rng([self.cell.seed, epoch]))
        rows = np.full((len(batches), size), ABSENT)
        for place, batch in enumerate(batches):
            rows[place, : len(batch)] = batch
        return rows, [self.engine.padded(int(lengths[batch].max()), most) for batch in batches]

    def _rates(self, steps: int) -> Float[Tensor, " s"]:
        settings = self.cell.hyperparameters
        factors = [linear_factor(step, steps, settings.warmup_ratio) for step in range(steps)]
        return (settings.learning_rate * torch.tensor(factors, dtype=torch.float64)).float().to(self.device)

    def _epoch(
        self,
        split: DeviceSplit,
        rows: Int[Tensor, "s b"],
        lengths: list[int],
        rates: Float[Tensor, " t"],
        done: int = 0,
    ) -> Float[Tensor, " s"]:
        """The loss of each of s steps after `done` of t. Only what is told of progress waits for the device."""
        losses = torch.empty(len(lengths), device=self.device)
        for step, (chosen, length) in enumerate(zip(rows, lengths, strict=True)):
            losses[step] = self.engine.step(split.gather(chosen, length), rates[done + step])
            tell(done + step + 1, len(rates), losses[step].item)
        return losses
