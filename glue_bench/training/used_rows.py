"""Training of the used token rows alone: no gradient, moments or update for words that never occur.

The table is half of a small encoder, and a task uses a part of its rows. To the others AdamW does nothing but decay
their weights: their gradients and moments are zero in every step. So that is all that is done to them, once an epoch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from glue_bench.model.heads import EncoderForSequenceClassification
from glue_bench.model.native import NativeClassifier
from glue_bench.model.variants import OURS


class UsedRows(nn.Module):
    """A token table of which only the rows `used` (u,), sorted ids, are trained.

    `weight` (u, d) are those rows. In evaluation all rows are there, as AdamW would have left them. The table itself
    stays a part of the model, without a gradient, so that it goes wherever training moves the model.
    """

    lookup: Tensor
    used: Tensor

    def __init__(self, table: nn.Embedding, used: Int[Tensor, " u"]) -> None:
        super().__init__()
        self.weight = nn.Parameter(table.weight.detach()[used])
        self.padding = None if table.padding_idx is None else int(torch.searchsorted(used, table.padding_idx))
        self.decay = 1.0
        lookup = torch.zeros(table.num_embeddings, dtype=torch.long)
        lookup[used] = torch.arange(len(used))
        self.register_buffer("lookup", lookup, persistent=False)
        self.register_buffer("used", used, persistent=False)
        self.table = table.requires_grad_(False)

    @property
    def embedding_dim(self) -> int:
        """The width of a row."""
        return self.weight.shape[1]

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
def used_rows_only(model: EncoderForSequenceClassification | NativeClassifier, ids: np.ndarray) -> Iterator[None]:
    """In this block the model trains only the token rows of `ids`; after it, the whole table is up to date and trained.

    The model may be moved to another device or type in the block. Models that may use their table in other ways than by
    looking rows up are left alone: variants of the user's own, tables of a class of their own, shared tables.
    """
    table = model.base.get_input_embeddings()
    if not isinstance(table, nn.Embedding) or not _only_looked_up(model, table):
        yield
        return
    padding = [] if table.padding_idx is None else [table.padding_idx]
    used = torch.from_numpy(np.union1d(ids, padding).astype(np.int64))
    rows = UsedRows(table, used.to(table.weight.device))
    model.base.set_input_embeddings(rows)
    try:
        yield
    finally:
        rows.eval()
        table.requires_grad_(True)
        model.base.set_input_embeddings(table)


def _only_looked_up(model: EncoderForSequenceClassification | NativeClassifier, table: nn.Embedding) -> bool:
    if isinstance(model, EncoderForSequenceClassification):
        return type(model.base.variant) in OURS
    places = [name for name, part in model.named_modules(remove_duplicate=False) if part is table]
    return type(table) is nn.Embedding and table.max_norm is None and len(places) == 1
