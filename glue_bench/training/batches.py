"""Batches of similar length, so that little is spent on padding."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glue_bench.training.tokens import TokenisedSplit

MOST_BATCHES_PER_RUN = 50
EVALUATION_TOKENS = 4_096
Padded = Callable[[int], int]
"""Length of a batch's longest example -> the length that the batch is padded to."""


@dataclass(frozen=True)
class Batch:
    """One batch, padded on the right to its longest example or somewhat further.

    `ids` and `segments` int64 (b, l); `mask` bool (b, l), None where nothing is padded; `labels` (b,);
    `rows` the examples' positions in the split.
    """

    ids: Tensor
    segments: Tensor
    mask: Tensor | None
    labels: Tensor
    rows: np.ndarray

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        mask = None if self.mask is None else moved(self.mask, device)
        ids, segments, labels = (moved(tensor, device) for tensor in (self.ids, self.segments, self.labels))
        return Batch(ids, segments, mask, labels, self.rows)

    def parts(self, rows: int) -> Iterator["Batch"]:
        """The batch in parts of at most `rows` rows, in order."""
        for start in range(0, len(self.labels), rows):
            some = slice(start, start + rows)
            mask = None if self.mask is None else self.mask[some]
            yield Batch(self.ids[some], self.segments[some], mask, self.labels[some], self.rows[some])


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device. A GPU copies it by itself: the host does not wait for the steps before."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def training_batches(
    split: TokenisedSplit, batch_size: int, padding_id: int, seed: int, epoch: int, padded: Padded = int
) -> Iterator[Batch]:
    """One epoch: shuffled, grouped by length, batches in random order; decided by (seed, epoch) alone."""
    generator = np.random.default_rng([seed, epoch])
    for rows in bucketed_rows(split.lengths, batch_size, generator):
        yield collate(split, rows, padding_id, padded)


def bucketed_rows(lengths: np.ndarray, batch_size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Every example once, in batches of `batch_size` (the last one smaller) of similar length.

    Batches are cut from random runs of examples, each sorted by length. A longer run spends less on padding. A shorter
    one lets two epochs differ: were the whole of a small split one run, its examples would meet the same ones in every
    epoch. Runs are as long as those of transformers' `LengthGroupedSampler`: at least four, of at most 50 batches.
    """
    order = generator.permutation(len(lengths))
    run_length = max(1, min(len(lengths) // (4 * batch_size), MOST_BATCHES_PER_RUN)) * batch_size
    runs = [order[start : start + run_length] for start in range(0, len(order), run_length)]
    by_length = [run[np.argsort(-lengths[run], kind="stable")] for run in runs]
    batches = [run[start : start + batch_size] for run in by_length for start in range(0, len(run), batch_size)]
    return [batches[index] for index in generator.permutation(len(batches))]


def evaluation_batches(
    split: TokenisedSplit, padding_id: int, tokens: int = EVALUATION_TOKENS, padded: Padded = int
) -> Iterator[Batch]:
    """Every example once, longest first, in batches of about `tokens` tokens with padding."""
    order = np.argsort(-split.lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, tokens // padded(int(split.lengths[order[start]])))
        yield collate(split, order[start:stop], padding_id, padded)
        start = stop


def collate(split: TokenisedSplit, rows: np.ndarray, padding_id: int, padded: Padded = int) -> Batch:
    """The examples `rows` of a split as one batch."""
    lengths = split.lengths[rows]
    columns = np.arange(padded(int(lengths.max())))
    real = columns < lengths[:, None]
    places = np.where(real, split.offsets[rows][:, None] + columns, 0)
    ids = np.where(real, split.ids[places], padding_id).astype(np.int64)
    segments = np.where(real, split.segments[places], 0).astype(np.int64)
    return Batch(
        ids=torch.from_numpy(ids),
        segments=torch.from_numpy(segments),
        mask=None if real.all() else torch.from_numpy(real),
        labels=torch.from_numpy(split.labels[rows]),
        rows=rows,
    )
