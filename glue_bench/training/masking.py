"""Masked-LM batches. Text, settings and step decide them, so every arm sees the same batches."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.config import PretrainingSettings
from glue_bench.training.packing import PackedText
from glue_bench.training.tokens import move_to_device

# Of the tokens to predict 80% become [MASK], 10% become a random token, and 10% stay (BERT).
MASK_BELOW = 0.8
RANDOM_BELOW = 0.9
IGNORED_TARGET = -100  # cross_entropy leaves it out
EVALUATION_ROWS = 64
VALIDATION_SEED = 1  # the seed of validation masks, whatever the seed of the pretraining


@dataclass(frozen=True)
class Vocabulary:
    """The ids that masking needs; `regular` (r,) are the ids of tokens that are not special."""

    mask_id: int
    padding_id: int
    regular: np.ndarray

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> "Vocabulary":
        """Return the ids of a tokenizer with [MASK] and padding."""
        token_ids = [*tokenizer.get_vocab().values()]  # the ids may have gaps
        return cls(
            mask_id=int(tokenizer.mask_token_id),
            padding_id=int(tokenizer.pad_token_id),
            regular=np.setdiff1d(token_ids, tokenizer.all_special_ids),
        )


@dataclass(frozen=True)
class MaskedBatch:
    """Sequences with some tokens to predict.

    - `ids`: int64 (b, l), masked.
    - `mask`: bool (b, l), true for real tokens; None if nothing is padded.
    - `places`: int64 (n,), the flat indices into (b, l) of the tokens to predict.
    - `targets`: int64 (n,), the tokens that stood there.
    - `segments`: int64 (b, l); None if all sequences have one segment.
    """

    ids: Tensor
    mask: Tensor | None
    places: Tensor
    targets: Tensor
    segments: Tensor | None = None

    @property
    def tokens(self) -> int:
        """The number of tokens that are no padding."""
        return self.ids.numel() if self.mask is None else int(self.mask.sum())

    @property
    def digest(self) -> bytes:
        """The SHA-256 of everything that the model is given and asked."""
        total = hashlib.sha256(self.ids.numpy().tobytes())
        total.update(b"-" if self.mask is None else self.mask.numpy().tobytes())
        total.update(self.places.numpy().tobytes())
        total.update(self.targets.numpy().tobytes())
        if self.segments is not None:
            total.update(self.segments.numpy().tobytes())
        return total.digest()

    def parts(self, rows: int) -> Iterator["MaskedBatch"]:
        """Yield the batch in parts of at most `rows` rows, in order."""
        batch, length = self.ids.shape
        for start in range(0, batch, rows):
            part = slice(start, start + rows)
            first_place = start * length
            end_place = first_place + rows * length
            is_inside = (self.places >= first_place) & (self.places < end_place)
            yield MaskedBatch(
                ids=self.ids[part],
                mask=None if self.mask is None else self.mask[part],
                places=self.places[is_inside] - first_place,
                targets=self.targets[is_inside],
                segments=None if self.segments is None else self.segments[part],
            )

    def fixed(self, length: int, places: int) -> dict[str, Tensor]:
        """Return the tensors of the batch, padded to shapes that no batch changes.

        Padded sequences have `length` tokens, and `places` are predicted. The places after the
        batch's own places have the target IGNORED_TARGET.
        """
        columns = self.ids.shape[1]
        wider = (0, length - columns)
        longer = (0, places - len(self.places))
        is_real = torch.ones_like(self.ids, dtype=torch.bool) if self.mask is None else self.mask
        moved_places = self.places + self.places // columns * (length - columns)
        tensors = {
            "ids": F.pad(self.ids, wider),
            "mask": F.pad(is_real, wider),
            "places": F.pad(moved_places, longer),
            "targets": F.pad(self.targets, longer, value=IGNORED_TARGET),
        }
        if self.segments is not None:
            tensors["segments"] = F.pad(self.segments, wider)
        return tensors

    def to(self, device: torch.device) -> "MaskedBatch":
        """Return the same batch on a device."""
        return MaskedBatch(
            ids=move_to_device(self.ids, device),
            mask=None if self.mask is None else move_to_device(self.mask, device),
            places=move_to_device(self.places, device),
            targets=move_to_device(self.targets, device),
            segments=None if self.segments is None else move_to_device(self.segments, device),
        )


def training_batch(
    text: PackedText,
    vocabulary: Vocabulary,
    *,
    rows: int,
    mask_probability: float,
    seed: int,
    step: int,
) -> MaskedBatch:
    """Return the batch of one step.

    Every epoch goes through all sequences in an order of its own. Masks are new at every step.

    Args:
        text: the sequences.
        vocabulary: the ids that masking needs.
        rows: how many sequences a batch has.
        mask_probability: the share of tokens to predict.
        seed: the seed of the pretraining.
        step: from 0.
    """
    epochs, places = np.divmod(np.arange(step * rows, (step + 1) * rows), len(text))
    sequences = [
        epoch_order(len(text), seed, epoch)[place]
        for epoch, place in zip(epochs.tolist(), places.tolist(), strict=True)
    ]
    generator = np.random.default_rng([seed, step, 1])
    return mask_rows(text, np.array(sequences), vocabulary, mask_probability, generator)


def masked_training_batches(
    text: PackedText,
    vocabulary: Vocabulary,
    settings: PretrainingSettings,
    first: int,
    *,
    is_fixed: bool,
) -> Iterator[tuple[MaskedBatch, dict[str, Tensor]]]:
    """Yield the batches of the steps from `first` on, each with its tensors in fixed shapes.

    Args:
        text: the sequences.
        vocabulary: the ids that masking needs.
        settings: the settings of one run.
        first: the first step, counted from 0.
        is_fixed: whether tensors in fixed shapes are made; if not, there is None in their place.
    """
    places = settings.rows * max(1, round(settings.mask_probability * settings.length))
    for step in range(first, settings.steps):
        batch = training_batch(
            text,
            vocabulary,
            rows=settings.rows,
            mask_probability=settings.mask_probability,
            seed=settings.seed,
            step=step,
        )
        yield batch, batch.fixed(settings.length, places) if is_fixed else {}


def masked_evaluation_batches(
    text: PackedText, vocabulary: Vocabulary, mask_probability: float, seed: int = VALIDATION_SEED
) -> Iterator[MaskedBatch]:
    """Yield every sequence once, in order, with the same masks at every call.

    Args:
        text: the sequences.
        vocabulary: the ids that masking needs.
        mask_probability: the share of tokens to predict.
        seed: decides the masks.
    """
    for start in range(0, len(text), EVALUATION_ROWS):
        rows = np.arange(start, min(start + EVALUATION_ROWS, len(text)))
        generator = np.random.default_rng([seed, start, 2])
        yield mask_rows(text, rows, vocabulary, mask_probability, generator)


def mask_rows(
    text: PackedText,
    rows: np.ndarray,
    vocabulary: Vocabulary,
    mask_probability: float,
    generator: np.random.Generator,
) -> MaskedBatch:
    """Mask sequences as BERT does, by MASK_BELOW and RANDOM_BELOW.

    Args:
        text: the sequences.
        rows: the indices of the sequences to mask, (b,).
        vocabulary: the ids that masking needs.
        mask_probability: the share of tokens to predict. In each sequence round(mask_probability *
            tokens) tokens are predicted, at least one.
        generator: decides the masks.
    """
    places, real = text.padded(rows, int(text.lengths[rows].max()))
    ids = np.where(real, text.ids[places], vocabulary.padding_id).astype(np.int64)
    is_candidate = np.isin(ids, vocabulary.regular) & real
    is_target = choose_targets(is_candidate, mask_probability, generator)
    targets = ids[is_target]
    ids[is_target] = change_targets(targets, vocabulary, generator)
    segments = None
    if text.cuts is not None:
        cuts = text.cuts[rows][:, None].astype(int)
        is_second = real & (cuts > 0) & (np.arange(real.shape[1]) >= cuts)
        segments = torch.from_numpy(is_second.astype(np.int64))
    return MaskedBatch(
        ids=torch.from_numpy(ids),
        mask=None if real.all() else torch.from_numpy(real),
        places=torch.from_numpy(np.flatnonzero(is_target)),
        targets=torch.from_numpy(targets),
        segments=segments,
    )


def choose_targets(
    is_candidate: np.ndarray, mask_probability: float, generator: np.random.Generator
) -> np.ndarray:
    """Choose the tokens to predict, bool (b, l): those with the lowest random keys in each row.

    Args:
        is_candidate: bool (b, l), whether a token may be predicted.
        mask_probability: the share of candidates that is chosen, at least one in each row.
        generator: draws the keys.
    """
    keys = np.where(is_candidate, generator.random(is_candidate.shape), 2.0)
    counts = np.rint(mask_probability * is_candidate.sum(axis=1))
    counts = np.maximum(1, counts).astype(int)
    highest_keys = np.take_along_axis(np.sort(keys, axis=1), counts[:, None] - 1, axis=1)
    return (keys <= highest_keys) & is_candidate


def change_targets(
    targets: np.ndarray, vocabulary: Vocabulary, generator: np.random.Generator
) -> np.ndarray:
    """Return the tokens that the model reads in place of the tokens to predict, int64 (n,)."""
    fate = generator.random(len(targets))
    drawn = generator.integers(len(vocabulary.regular), size=len(targets))
    random_ids = vocabulary.regular[drawn]
    changed = np.where(fate < RANDOM_BELOW, random_ids, targets)
    return np.where(fate < MASK_BELOW, vocabulary.mask_id, changed)


@lru_cache(maxsize=2)
def epoch_order(sequences: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order in which an epoch goes through the sequences, int64 (sequences,)."""
    return np.random.default_rng([seed, epoch, 0]).permutation(sequences)
