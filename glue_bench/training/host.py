"""A cell on a CPU, and wherever accelerate takes the model: batches are made on the host, one after another."""

from collections.abc import Iterator

import numpy as np

from glue_bench.config import Cell
from glue_bench.model.transformers_api import EncoderForSequenceClassification
from glue_bench.training.batches import (
    EVALUATION_TOKENS,
    Batch,
    evaluation_batches,
    share_at_once,
    training_batches,
)
from glue_bench.training.loop import predict, train
from glue_bench.training.runtime import few_sizes
from glue_bench.training.tokens import TokenisedTask
from glue_bench.training.used_rows import used_rows_only


class HostTraining:
    """The training and the predictions of one cell, in place."""

    def __init__(
        self,
        model: EncoderForSequenceClassification,
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
        settings, split = self.cell.hyperparameters, self.tokens.splits["train"]
        steps = -(-len(split) // settings.batch_size)

        def batches(epoch: int) -> Iterator[Batch]:
            return training_batches(
                split, settings.batch_size, self.tokens.padding_id, self.cell.seed, epoch, self._padded
            )

        with used_rows_only(self.model, split.ids):
            yield from train(self.model, batches, steps, settings, self.rows_at_once)

    def predict(self, name: str) -> np.ndarray:
        """Logits float32 (rows, labels) of a split, in its order; in parts as small as those of training."""
        split = self.tokens.splits[name]
        share = share_at_once(self.cell.hyperparameters.batch_size, self.rows_at_once)
        batches = evaluation_batches(split, self.tokens.padding_id, int(EVALUATION_TOKENS * share), self._padded)
        return predict(self.model, batches, len(split))

    def _padded(self, length: int) -> int:
        return min(few_sizes(length), self.cell.hyperparameters.max_length)
