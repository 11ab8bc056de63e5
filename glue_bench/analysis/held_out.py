"""The held-out text that all measures read: the same sequences and masks for every arm with the same tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from transformers import PreTrainedTokenizerBase

from glue_bench.training.masking import VALIDATION_SEED, Vocabulary, evaluation_batches
from glue_bench.training.packing import PackedText
from glue_bench.training.words import Span, WordRule

TOKENS = 24_576  # 384 sequences of 64 tokens, 192 of 128: all measures of a tiny encoder within 20 s on one thread
IGNORED = -100  # a label that no loss is taken of


@dataclass(frozen=True)
class Row:
    """What a model is given: `ids` and `segments` int64 (l,), and `labels` int64 (l,): what to predict, or IGNORED."""

    ids: np.ndarray
    segments: np.ndarray
    labels: np.ndarray


def predicted(rows: Sequence[Row]) -> np.ndarray:
    """float64 (rows,): how many tokens of each row are to be predicted."""
    return np.array([(row.labels != IGNORED).sum() for row in rows], dtype=float)


@dataclass(frozen=True)
class Probe:
    """A held-out sequence: its `ids` int64 (l,), the same with masks and labels, and its words by stretches.

    A stretch is what lies between two separators, and so within one segment; words never leave theirs.
    """

    ids: np.ndarray
    masked: Row
    stretches: list[list[Span]]


@dataclass(frozen=True)
class HeldOut:
    """Text to measure on, of `tokenizer`. Of a longer text as many sequences as have `tokens`, spread evenly.

    Of each sequence `mask_share` of the tokens is to be predicted, masked as in pretraining. Masks, swaps and shuffles
    follow from the text and `seed` alone.
    """

    text: PackedText
    tokenizer: PreTrainedTokenizerBase
    mask_share: float = 0.15
    tokens: int = TOKENS
    seed: int = VALIDATION_SEED

    @cached_property
    def rule(self) -> WordRule:
        """What the vocabulary says of words."""
        return WordRule.of(self.tokenizer)

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return int(self.tokenizer.mask_token_id)

    @cached_property
    def probes(self) -> list[Probe]:
        """The sequences, each with its masks and words."""
        return list(self._probes())

    def _probes(self) -> Iterator[Probe]:
        text = _spread(self.text, self.tokens)
        vocabulary, first = Vocabulary.of(self.tokenizer), 0
        for batch in evaluation_batches(text, vocabulary, self.mask_share, self.seed):
            labels = np.full(batch.ids.shape, IGNORED)
            labels.flat[batch.places.numpy()] = batch.targets.numpy()
            segments = np.zeros_like(labels) if batch.segments is None else batch.segments.numpy()
            for row in zip(batch.ids.numpy(), segments, labels, strict=True):
                ids = text.ids[text.offsets[first] : text.offsets[first + 1]].astype(np.int64)
                masked = Row(*(part[: len(ids)] for part in row))
                yield Probe(ids, masked, self.rule.stretches(ids))
                first += 1


def _spread(text: PackedText, tokens: int) -> PackedText:
    """Of a text of more `tokens`, so many sequences as have them, spread evenly over it, in its order."""
    count = max(1, tokens * len(text) // len(text.ids))
    if count >= len(text):
        return text
    chosen = np.arange(count) * len(text) // count
    ids = [text.ids[text.offsets[row] : text.offsets[row + 1]] for row in chosen]
    offsets = np.concatenate([[0], np.cumsum(text.lengths[chosen])])
    return PackedText(np.concatenate(ids), offsets, cuts=None if text.cuts is None else text.cuts[chosen])
