"""Held-out text with masks, and an encoder's loss on it.

    loss     mean over masked tokens of  -log p(x_t | text with its masks),  in nats

Shapes: l length of a sequence, m masked tokens of a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from glue_bench.analysis.chance import Sums
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training.masking import VALIDATION_SEED, Vocabulary, masked_evaluation_batches
from glue_bench.training.packing import PackedText
from glue_bench.training.words import Span, WordRule

TOKENS_AT_ONCE = 8192
MAX_HELD_OUT_TOKENS = 24_576
"""384 sequences of 64 tokens, or 192 of 128.

All measures of a tiny encoder take 20 s on one thread.
"""
IGNORED_LABEL = -100  # the label of a token that has no part in the loss


class MaskedRow(NamedTuple):
    """The input of a model, int64 (l,): ids, segments, and labels to predict or IGNORED_LABEL."""

    ids: np.ndarray
    segments: np.ndarray
    labels: np.ndarray

    def cut(self, length: int) -> Self:
        """Cut the row. The rest of a longer text still ends with its separator."""
        kept = min(length, len(self.ids))
        places = [*range(kept - 1), -1]
        return self._replace(
            ids=self.ids[places],
            segments=self.segments[places],
            labels=self.labels[places],
        )


class Probe(NamedTuple):
    """A held-out sequence: its `ids` int64 (l,), the sequence with masks, and its words.

    `stretches` has a list of words for each stretch. A stretch is the text between two separators,
    so it lies within one segment. No word reaches from one stretch into another.
    """

    ids: np.ndarray
    masked: MaskedRow
    stretches: list[list[Span]]


@dataclass(frozen=True)
class HeldOut:
    """The text that measures are taken on, as tokens of `tokenizer`.

    If the text has more than MAX_HELD_OUT_TOKENS, an evenly spread sample of its sequences is
    taken.

    In each sequence the share `mask_probability` of the tokens is masked as in pretraining, and is
    to be predicted. Masks, swaps and shuffles depend on the text alone.
    """

    text: PackedText
    tokenizer: PreTrainedTokenizerBase
    mask_probability: float = 0.15

    @cached_property
    def rule(self) -> WordRule:
        """The rule that says which tokens of the tokenizer begin words."""
        return WordRule.of(self.tokenizer)

    @cached_property
    def probes(self) -> list[Probe]:
        """The sequences, each with its masks and words."""
        text = self._sampled_text()
        probes: list[Probe] = []
        vocabulary = Vocabulary.of(self.tokenizer)
        batches = masked_evaluation_batches(
            text, vocabulary, self.mask_probability, VALIDATION_SEED
        )
        for batch in batches:
            labels = np.full(batch.ids.shape, IGNORED_LABEL)
            labels.flat[batch.places.numpy()] = batch.targets.numpy()
            segments = np.zeros_like(labels)
            if batch.segments is not None:
                segments = batch.segments.numpy()
            for row in zip(batch.ids.numpy(), segments, labels, strict=True):
                first, stop = text.offsets[len(probes) : len(probes) + 2]
                ids = text.ids[first:stop].astype(np.int64)
                masked = MaskedRow(*(part[: len(ids)] for part in row))
                probes.append(Probe(ids, masked, self.rule.stretches(ids)))
        return probes

    def _sampled_text(self) -> PackedText:
        """Return the text, or an evenly spread sample of its sequences if it is too long."""
        text = self.text
        count = max(1, MAX_HELD_OUT_TOKENS * len(text) // len(text.ids))
        if count >= len(text):
            return text
        chosen = np.arange(count) * len(text) // count
        places, offsets = text.end_to_end(chosen)
        cuts = None if text.cuts is None else text.cuts[chosen]
        return PackedText(text.ids[places], offsets, cuts=cuts)


@torch.inference_mode()
def loss_sums(model: EncoderForMaskedLM, rows: Sequence[MaskedRow]) -> Sums:
    """Sum over each row's labels -log p(label | row), in nats, and count the labels.

    Rows of similar length form a batch of at most TOKENS_AT_ONCE tokens. The model computes in
    float32, and its head runs only at the tokens to predict.
    """
    lengths = np.array([len(row.ids) for row in rows], dtype=int)
    sums = np.zeros(len(rows))
    order = np.argsort(lengths, kind="stable")
    while len(order):
        # The longest of the next rows decides how many of them there may be.
        padded_tokens = lengths[order] * (np.arange(len(order)) + 1)
        size = int(np.searchsorted(padded_tokens, TOKENS_AT_ONCE, side="right"))
        chosen, order = np.split(order, [max(size, 1)])
        sums[chosen] = _batch_losses(model, [rows[index] for index in chosen])
    counts = np.array([(row.labels != IGNORED_LABEL).sum() for row in rows], dtype=float)
    return Sums(sums, counts)


def _batch_losses(model: EncoderForMaskedLM, rows: Sequence[MaskedRow]) -> np.ndarray:
    """Return the sum of each row's losses, (rows,)."""
    ids = _padded([row.ids for row in rows], 0)
    segments = _padded([row.segments for row in rows], 0)
    labels = _padded([row.labels for row in rows], IGNORED_LABEL).flatten()
    length = ids.shape[1]
    lengths = torch.tensor([len(row.ids) for row in rows])
    mask = torch.arange(length) < lengths[:, None]
    device = model.device
    layers = model.base.hidden_states(ids.to(device), mask.to(device), segments.to(device))
    places = torch.nonzero(labels != IGNORED_LABEL)[:, 0]
    states = layers[-1].flatten(0, 1)[places.to(device)]
    logits = model.predict(states).float()
    losses = F.cross_entropy(logits, labels[places].to(device), reduction="none").cpu().double()
    return np.bincount(places.numpy() // length, losses.numpy(), minlength=len(rows))


def _padded(parts: Sequence[np.ndarray], value: int) -> torch.Tensor:
    tensors = [torch.from_numpy(part) for part in parts]
    return pad_sequence(tensors, batch_first=True, padding_value=value)
