"""Masked-LM batches: decided by the text, the settings and the step alone, so that every arm sees the same."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.training.packing import PackedText
from glue_bench.training.tokens import on_device

TO_MASK, TO_RANDOM = 0.8, 0.9  # 80% become [MASK], 10% a random token, 10% stay (BERT)
EVALUATION_ROWS = 64
VALIDATION_SEED = 1  # of validation masks, whatever the seed of the pretraining


@dataclass(frozen=True)
class Vocabulary:
    """What masking has to know of a tokenizer; `regular` are the ids of its tokens that are not special."""

    mask_id: int
    padding_id: int
    regular: np.ndarray

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> "Vocabulary":
        """That of a tokenizer with [MASK] and padding."""
        regular = np.setdiff1d(
            [*tokenizer.get_vocab().values()], tokenizer.all_special_ids
        )  # ids may have gaps
        return cls(int(tokenizer.mask_token_id), int(tokenizer.pad_token_id), regular)


@dataclass(frozen=True)
class MaskedBatch:
    """Sequences with some tokens to predict: `ids` int64 (b, l), masked; `mask` bool (b, l), None where none is padded.

    `places` int64 (n,) are the flat indices into (b, l) to predict; `targets` int64 (n,) the tokens that stood there;
    `segments` int64 (b, l), None where all is of one segment.
    """

    ids: Tensor
    mask: Tensor | None
    places: Tensor
    targets: Tensor
    segments: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Real tokens."""
        return self.ids.numel() if self.mask is None else int(self.mask.sum())

    @property
    def digest(self) -> bytes:
        """SHA-256 of everything the model is given and asked."""
        parts = [
            self.ids,
            self.mask,
            self.places,
            self.targets,
            *([] if self.segments is None else [self.segments]),
        ]
        return hashlib.sha256(
            b"".join(b"-" if part is None else part.numpy().tobytes() for part in parts)
        ).digest()

    def parts(self, rows: int) -> Iterator["MaskedBatch"]:
        """The batch in parts of at most `rows` rows, in order."""
        batch, length = self.ids.shape
        for start in range(0, batch, rows):
            some, first = slice(start, start + rows), start * length
            inside = (self.places >= first) & (self.places < first + rows * length)
            mask, segments = (
                None if each is None else each[some] for each in (self.mask, self.segments)
            )
            yield MaskedBatch(
                self.ids[some], mask, self.places[inside] - first, self.targets[inside], segments
            )

    def to(self, device: torch.device) -> "MaskedBatch":
        """The same batch on a device."""
        tensors = (self.ids, self.mask, self.places, self.targets, self.segments)
        return MaskedBatch(*(on_device(tensor, device) for tensor in tensors))  # type: ignore[arg-type]


def training_batch(
    text: PackedText,
    vocabulary: Vocabulary,
    *,
    rows: int,
    mask_probability: float,
    seed: int,
    step: int,
) -> MaskedBatch:
    """The batch of one step (from 0): `rows` sequences, epochs shuffled one by one, masked anew at every step."""
    places = np.arange(step * rows, (step + 1) * rows)
    epochs, inside = np.divmod(places, len(text))
    chosen = np.array(
        [epoch_order(len(text), seed, int(e))[i] for e, i in zip(epochs, inside, strict=True)]
    )
    return mask_rows(
        text, chosen, vocabulary, mask_probability, np.random.default_rng([seed, step, 1])
    )


def masked_evaluation_batches(
    text: PackedText, vocabulary: Vocabulary, mask_probability: float, seed: int = VALIDATION_SEED
) -> Iterator[MaskedBatch]:
    """Every sequence once, in order, with the same masks at every call."""
    for start in range(0, len(text), EVALUATION_ROWS):
        rows = np.arange(start, min(start + EVALUATION_ROWS, len(text)))
        yield mask_rows(
            text, rows, vocabulary, mask_probability, np.random.default_rng([seed, start, 2])
        )


def mask_rows(
    text: PackedText,
    rows: np.ndarray,
    vocabulary: Vocabulary,
    mask_probability: float,
    generator: np.random.Generator,
) -> MaskedBatch:
    """BERT's masking: of each sequence round(mask_probability * tokens), by TO_MASK and TO_RANDOM."""
    places, real = text.padded(rows, int(text.lengths[rows].max()))
    ids = np.where(real, text.ids[places], vocabulary.padding_id).astype(np.int64)
    candidates = np.isin(ids, vocabulary.regular) & real
    # In each row the round(mask_probability * candidates), at least one, with the lowest of random keys.
    keys = np.where(candidates, generator.random(candidates.shape), 2.0)
    counts = np.maximum(1, np.rint(mask_probability * candidates.sum(axis=1))).astype(int)
    last = np.take_along_axis(np.sort(keys, axis=1), counts[:, None] - 1, axis=1)
    chosen = (keys <= last) & candidates
    targets = ids[chosen]
    fate = generator.random(len(targets))
    random = vocabulary.regular[generator.integers(len(vocabulary.regular), size=len(targets))]
    ids[chosen] = np.where(
        fate < TO_MASK, vocabulary.mask_id, np.where(fate < TO_RANDOM, random, targets)
    )
    segments = None
    if text.cuts is not None:
        cuts = text.cuts[rows][:, None].astype(int)
        segments = torch.from_numpy(
            (real & (cuts > 0) & (np.arange(real.shape[1]) >= cuts)).astype(np.int64)
        )
    return MaskedBatch(
        ids=torch.from_numpy(ids),
        mask=None if real.all() else torch.from_numpy(real),
        places=torch.from_numpy(np.flatnonzero(chosen)),
        targets=torch.from_numpy(targets),
        segments=segments,
    )


@lru_cache(maxsize=2)
def epoch_order(sequences: int, seed: int, epoch: int) -> np.ndarray:
    """The order in which an epoch goes through the sequences."""
    return np.random.default_rng([seed, epoch, 0]).permutation(sequences)
