"""The loss of each row of a masked-LM text; the head runs only at the places that are predicted."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from glue_bench.analysis.text import IGNORED, Row
from glue_bench.model.transformers_api import EncoderForMaskedLM

TOKENS_AT_ONCE = 8192


@torch.inference_mode()
def row_losses(model: EncoderForMaskedLM, rows: Sequence[Row], start: int = 0) -> np.ndarray:
    """float64 (rows,): the sum over a row's labels of -log p(label | row), in nats.

    `start` is that of `Variant.forward`. Rows of about one length go through together, in float32.
    """
    summed = np.zeros(len(rows))
    for chosen in _batches(rows):
        ids = pad_sequence([torch.from_numpy(rows[i].ids) for i in chosen], batch_first=True)
        labels = pad_sequence(
            [torch.from_numpy(rows[i].labels) for i in chosen], batch_first=True, padding_value=IGNORED
        )
        lengths = torch.tensor([len(rows[i].ids) for i in chosen])
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        losses = _token_losses(model, ids, None if mask.all() else mask, labels, start)
        places = np.flatnonzero(labels.numpy() != IGNORED)
        summed[chosen] = np.bincount(places // ids.shape[1], losses, minlength=len(chosen))
    return summed


def _token_losses(
    model: EncoderForMaskedLM, ids: Tensor, mask: Tensor | None, labels: Tensor, start: int
) -> np.ndarray:
    """float64 (n,): the loss of each label that is not IGNORED, in the order of the places."""
    ids, labels = ids.to(model.device), labels.to(model.device)
    states = model.base.hidden_states(ids, None if mask is None else mask.to(model.device), None, start)
    wanted = labels.flatten() != IGNORED
    logits = model.predict(states[-1].flatten(0, 1)[wanted])
    return F.cross_entropy(logits.float(), labels.flatten()[wanted], reduction="none").double().cpu().numpy()


def _batches(rows: Sequence[Row]) -> Iterator[np.ndarray]:
    """Which rows go through together: of about one length, and TOKENS_AT_ONCE tokens at most."""
    lengths = np.array([len(row.ids) for row in rows], dtype=int)
    order = np.argsort(lengths, kind="stable")
    while len(order):
        # The longest of the next rows decides how many of them there may be.
        size = int(np.searchsorted(lengths[order] * (np.arange(len(order)) + 1), TOKENS_AT_ONCE, side="right"))
        chosen, order = np.split(order, [max(size, 1)])
        yield chosen
