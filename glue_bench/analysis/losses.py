"""The loss of each row of a masked-LM text; the head runs only at the places that are predicted."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from glue_bench.analysis.text import IGNORED, Row
from glue_bench.model.heads import EncoderForMaskedLM

TOKENS_AT_ONCE = 8192


@torch.inference_mode()
def row_losses(model: EncoderForMaskedLM, rows: Sequence[Row], start: int = 0) -> np.ndarray:
    """float64 (rows,): the sum over a row's labels of -log p(label | row), in nats.

    `start` is that of `Variant.forward`. Rows of about one length go through together, in float32.
    """
    summed = np.zeros(len(rows))
    for chosen in _batches(rows):
        together = [rows[index] for index in chosen]
        ids, segments = (_padded([getattr(row, name) for row in together], 0) for name in ("ids", "segments"))
        labels = _padded([row.labels for row in together], IGNORED)
        mask = torch.arange(ids.shape[1]) < torch.tensor([len(row.ids) for row in together])[:, None]
        ids, mask, segments = (each.to(model.device) for each in (ids, mask, segments))
        states = model.base.hidden_states(ids, mask, segments, start=start)[-1].flatten(0, 1)
        places = torch.nonzero(labels.flatten() != IGNORED)[:, 0]
        logits = model.predict(states[places.to(model.device)]).float()
        losses = F.cross_entropy(logits, labels.flatten()[places].to(model.device), reduction="none").double().cpu()
        summed[chosen] = np.bincount(places.numpy() // ids.shape[1], losses.numpy(), minlength=len(chosen))
    return summed


def _padded(parts: Sequence[np.ndarray], value: int) -> Tensor:
    return pad_sequence([torch.from_numpy(part) for part in parts], batch_first=True, padding_value=value)


def _batches(rows: Sequence[Row]) -> Iterator[np.ndarray]:
    """Which rows go through together: of about one length, and TOKENS_AT_ONCE tokens at most."""
    lengths = np.array([len(row.ids) for row in rows], dtype=int)
    order = np.argsort(lengths, kind="stable")
    while len(order):
        # The longest of the next rows decides how many of them there may be.
        size = int(np.searchsorted(lengths[order] * (np.arange(len(order)) + 1), TOKENS_AT_ONCE, side="right"))
        chosen, order = np.split(order, [max(size, 1)])
        yield chosen
