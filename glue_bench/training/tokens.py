"""A task as tokens, made once and shared between cells and processes; and batches of similar length of it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.config import HELD_OUT, Hyperparameters
from glue_bench.data.task_data import TaskData, held_out_rows
from glue_bench.files import cache_folder, kept_or_made
from glue_bench.training.tokenizers import tokenizer_digest

TOKENS_VERSION = 1  # of what `encode_split` makes: a part of the cache's key
MOST_BATCHES_PER_RUN = 50
ROWS_AT_ONCE = 10_000  # lists of ids of a whole MNLI would take gigabytes in each worker
Padded = Callable[[int], int]
"""Length of a batch's longest example -> the length that the batch is padded to."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of any length, end to end: row i is [offsets[i], offsets[i + 1]) of the token `ids` (tokens,)."""

    ids: np.ndarray
    offsets: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, special ones included."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def end_to_end(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of `rows` stand, int64 (tokens,), in that order; and the offsets that they then have."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return np.arange(offsets[-1]) + np.repeat(
            self.offsets[rows] - offsets[:-1], lengths
        ), offsets

    def padded(self, rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of `rows` stand, int64 (b, l), 0 for padding; and which are real, bool (b, l)."""
        columns = np.arange(length)
        real = columns < self.lengths[rows][:, None]
        return np.where(real, self.offsets[rows][:, None] + columns, 0), real


@dataclass(frozen=True, eq=False)
class TokenisedSplit(Ragged):
    """All examples of a split: `ids` int32 and `segments` uint8 (tokens,).

    `labels` (rows,) are int64 classes or float32 scores, -1 where unknown.
    """

    segments: np.ndarray
    labels: np.ndarray

    def take(self, rows: np.ndarray) -> "TokenisedSplit":
        """The examples `rows`, in that order, as a split of their own."""
        places, offsets = self.end_to_end(rows)
        return TokenisedSplit(self.ids[places], offsets, self.segments[places], self.labels[rows])


@dataclass(frozen=True)
class TokenisedTask:
    """Every split of one task under one tokenizer and length."""

    splits: Mapping[str, TokenisedSplit]
    padding_id: int

    def in_one_segment(self) -> "TokenisedTask":
        """The same tokens, all of them in segment 0."""
        zeros = {
            name: np.zeros_like(split.segments, subok=False) for name, split in self.splits.items()
        }
        return replace(
            self,
            splits={
                name: replace(self.splits[name], segments=each) for name, each in zeros.items()
            },
        )


def hold_out(tokens: TokenisedTask, share: float) -> TokenisedTask:
    """The task with `share` of its training examples, at least one, drawn at random, as a split to choose by."""
    train = tokens.splits["train"]
    held_out, rest = held_out_rows(len(train), share)
    parts = {HELD_OUT: train.take(held_out), "train": train.take(rest)}
    return replace(tokens, splits={**tokens.splits, **parts})


def tokenise(data: TaskData, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TokenisedTask:
    """The task as token ids in memory-mapped arrays, read from the cache where an equal one has been made before.

    Pairs longer than `max_length` lose tokens of the longer text first, as in transformers' run_glue.
    """
    arrays = [field.name for field in fields(TokenisedSplit)]

    def make(folder: Path) -> None:
        for name, frame in data.splits.items():
            split = encode_split(frame, tokenizer, max_length)
            for array in arrays:
                np.save(folder / f"{name}.{array}.npy", getattr(split, array))

    def read(folder: Path) -> dict[str, TokenisedSplit]:
        return {
            name: TokenisedSplit(
                *(np.load(folder / f"{name}.{array}.npy", mmap_mode="r") for array in arrays)
            )
            for name in data.splits
        }

    key = f"{TOKENS_VERSION}-{data.task}-{data.digest[:16]}-{tokenizer_digest(tokenizer)[:16]}-{max_length}"
    splits = kept_or_made(cache_folder() / "tokens" / key, make, read)
    return TokenisedTask(splits, int(tokenizer.pad_token_id))


def encode_split(
    frame: pd.DataFrame, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> TokenisedSplit:
    """A split in memory, from its columns text_a, perhaps text_b, and label."""
    how: dict[str, Any] = {
        "truncation": True,
        "max_length": max_length,
        "return_token_type_ids": True,
    }
    ids, segments, lengths = [np.empty(0, np.int32)], [np.empty(0, np.uint8)], list[int]()
    for first in range(0, len(frame), ROWS_AT_ONCE):
        some = frame.iloc[first : first + ROWS_AT_ONCE]
        pairs = some["text_b"].tolist() if "text_b" in some else None
        encoded = tokenizer(some["text_a"].tolist(), pairs, **how)
        ids.append(np.fromiter(chain.from_iterable(encoded["input_ids"]), np.int32))
        segments.append(np.fromiter(chain.from_iterable(encoded["token_type_ids"]), np.uint8))
        lengths += map(len, encoded["input_ids"])
    labels = frame["label"].to_numpy()
    return TokenisedSplit(
        ids=np.concatenate(ids),
        segments=np.concatenate(segments),
        offsets=np.cumsum([0, *lengths]),
        labels=labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64),
    )


@dataclass(frozen=True)
class Batch:
    """`ids` and `segments` int64 (b, l), padded on the right; `mask` bool (b, l), None where nothing is padded.

    `labels` (b,); `rows` (b,) are the examples' places in the split.
    """

    ids: Tensor
    segments: Tensor
    mask: Tensor | None
    labels: Tensor
    rows: np.ndarray

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        tensors = self.ids, self.segments, self.mask, self.labels
        ids, segments, mask, labels = (on_device(tensor, device) for tensor in tensors)
        return Batch(ids, segments, mask, labels, self.rows)  # type: ignore[arg-type]

    def parts(self, rows: int) -> Iterator["Batch"]:
        """The batch in parts of at most `rows` rows, in order."""
        for start in range(0, len(self.labels), rows):
            some = slice(start, start + rows)
            mask = None if self.mask is None else self.mask[some]
            yield Batch(
                self.ids[some], self.segments[some], mask, self.labels[some], self.rows[some]
            )


def on_device(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    """A tensor of the host on a device. A GPU copies it by itself: the host does not wait for the steps before."""
    if tensor is None:
        return None
    return (
        tensor.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else tensor.to(device)
    )


def training_batches(
    split: TokenisedSplit,
    batch_size: int,
    padding_id: int,
    seed: int,
    epoch: int,
    padded: Padded = int,
) -> Iterator[Batch]:
    """One epoch: shuffled, grouped by length, batches in random order; decided by (seed, epoch) alone."""
    generator = np.random.default_rng([seed, epoch])
    for rows in bucketed_rows(split.lengths, batch_size, generator):
        yield collate(split, rows, padding_id, padded)


def bucketed_rows(
    lengths: np.ndarray, batch_size: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Every example once, in batches of `batch_size` (the last one smaller) of similar length.

    Batches are cut from random runs of examples, each sorted by length: a longer run spends less on padding, a shorter
    one lets epochs differ. Runs are those of transformers' `LengthGroupedSampler`: at least four, of at most 50.
    """
    order = generator.permutation(len(lengths))
    run_length = max(1, min(len(lengths) // (4 * batch_size), MOST_BATCHES_PER_RUN)) * batch_size
    runs = [order[start : start + run_length] for start in range(0, len(order), run_length)]
    by_length = [run[np.argsort(-lengths[run], kind="stable")] for run in runs]
    batches = [
        run[start : start + batch_size]
        for run in by_length
        for start in range(0, len(run), batch_size)
    ]
    return [batches[index] for index in generator.permutation(len(batches))]


def trained_tokens(split: TokenisedSplit, settings: Hyperparameters, seed: int) -> int:
    """The tokens of all updates, those of an epoch that ends early too."""
    in_epoch = settings.steps_per_epoch(len(split))
    whole, left = divmod(settings.steps(in_epoch), in_epoch)
    order = np.random.default_rng([seed, whole + 1])
    cut = bucketed_rows(split.lengths, settings.batch_size, order)[:left] if left else []
    return int(split.offsets[-1]) * whole + sum(int(split.lengths[rows].sum()) for rows in cut)


def evaluation_batches(
    split: TokenisedSplit, padding_id: int, tokens: int, padded: Padded = int
) -> Iterator[Batch]:
    """Every example once, longest first, in batches of about `tokens` tokens with padding."""
    order = np.argsort(-split.lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, tokens // padded(int(split.lengths[order[start]])))
        yield collate(split, order[start:stop], padding_id, padded)
        start = stop


def collate(
    split: TokenisedSplit, rows: np.ndarray, padding_id: int, padded: Padded = int
) -> Batch:
    """The examples `rows` of a split as one batch."""
    places, real = split.padded(rows, padded(int(split.lengths[rows].max())))
    return Batch(
        ids=torch.from_numpy(np.where(real, split.ids[places], padding_id).astype(np.int64)),
        segments=torch.from_numpy(np.where(real, split.segments[places], 0).astype(np.int64)),
        mask=None if real.all() else torch.from_numpy(real),
        labels=torch.from_numpy(split.labels[rows]),
        rows=rows,
    )
