"""The tokens of a task, made once and shared between cells and processes, and batches of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.config import HELD_OUT, Hyperparameters
from glue_bench.data.task_data import TaskData, held_out_rows
from glue_bench.files import cache_folder, read_or_make
from glue_bench.training.tokenizers import tokenizer_digest

TOKENS_VERSION = 1  # the version of the arrays of `encode_split`, a part of the cache's key
MAX_BATCHES_PER_RUN = 50
ROWS_AT_ONCE = 10_000  # the ids of all of MNLI as lists would take gigabytes in each worker
Padded = Callable[[int], int]
"""Takes the length of a batch's longest example; returns the length that the batch is padded to."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of any length, end to end.

    - `ids` (tokens,): the tokens of all rows.
    - `offsets` (rows + 1,): row i has the tokens from offsets[i] to before offsets[i + 1].
    """

    ids: np.ndarray
    offsets: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each row, special ones included."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def end_to_end(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the tokens of `rows`, with the rows end to end in this order.

        Returns:
            The indices, int64 (tokens of the rows,), and the new offsets, int64 (rows + 1,).
        """
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        shifts = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return np.arange(offsets[-1]) + shifts, offsets

    def padded(self, rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the tokens of `rows`, with each row padded to `length`.

        Returns:
            The indices, int64 (b, l), which are 0 for padding; and whether each is a real token,
            bool (b, l).
        """
        columns = np.arange(length)
        real = columns < self.lengths[rows][:, None]
        places = self.offsets[rows][:, None] + columns
        return np.where(real, places, 0), real


@dataclass(frozen=True, eq=False)
class TokenisedSplit(Ragged):
    """All examples of a split.

    - `ids` int32 and `segments` uint8, both (tokens,).
    - `labels` (rows,): int64 classes or float32 scores, -1 where unknown.
    """

    segments: np.ndarray
    labels: np.ndarray

    def take(self, rows: np.ndarray) -> "TokenisedSplit":
        """Return the examples with these row numbers, in this order, as a split."""
        places, offsets = self.end_to_end(rows)
        return TokenisedSplit(self.ids[places], offsets, self.segments[places], self.labels[rows])


@dataclass(frozen=True)
class TokenisedTask:
    """Every split of one task under one tokenizer and length."""

    splits: Mapping[str, TokenisedSplit]
    padding_id: int

    def in_one_segment(self) -> "TokenisedTask":
        """Return the same tokens, all of them in segment 0."""
        splits = {}
        for name, split in self.splits.items():
            segments = np.zeros_like(split.segments, subok=False)
            splits[name] = replace(split, segments=segments)
        return replace(self, splits=splits)


def hold_out(tokens: TokenisedTask, share: float) -> TokenisedTask:
    """Hold out `share` of the training examples, at least one, as a split HELD_OUT.

    The examples are drawn at random. The rest is the new training split.
    """
    train = tokens.splits["train"]
    held_out, rest = held_out_rows(len(train), share)
    splits = dict(tokens.splits)
    splits[HELD_OUT] = train.take(held_out)
    splits["train"] = train.take(rest)
    return replace(tokens, splits=splits)


def tokenise(data: TaskData, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TokenisedTask:
    """Return a task as tokens in memory-mapped arrays, which are kept in the cache.

    Args:
        data: the texts and labels of the task's splits.
        tokenizer: makes the tokens.
        max_length: the largest number of tokens of an example. If a pair is longer, its longer text
            is cut first, as in transformers' run_glue.
    """
    arrays = [field.name for field in fields(TokenisedSplit)]

    def make(folder: Path) -> None:
        for name, frame in data.splits.items():
            split = encode_split(frame, tokenizer, max_length)
            for array in arrays:
                np.save(folder / f"{name}.{array}.npy", getattr(split, array))

    def read(folder: Path) -> dict[str, TokenisedSplit]:
        splits = {}
        for name in data.splits:
            files = {array: folder / f"{name}.{array}.npy" for array in arrays}
            mapped = {array: np.load(file, mmap_mode="r") for array, file in files.items()}
            splits[name] = TokenisedSplit(**mapped)
        return splits

    digests = f"{data.digest[:16]}-{tokenizer_digest(tokenizer)[:16]}"
    key = f"{TOKENS_VERSION}-{data.task}-{digests}-{max_length}"
    splits = read_or_make(cache_folder() / "tokens" / key, make, read)
    return TokenisedTask(splits, int(tokenizer.pad_token_id))


def encode_split(
    frame: pd.DataFrame, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> TokenisedSplit:
    """Return the tokens of a split, in memory.

    Args:
        frame: columns text_a, label, and perhaps text_b.
        tokenizer: makes the tokens.
        max_length: the largest number of tokens of an example.
    """
    ids = [np.empty(0, np.int32)]
    segments = [np.empty(0, np.uint8)]
    lengths: list[int] = []

    for first in range(0, len(frame), ROWS_AT_ONCE):
        chunk = frame.iloc[first : first + ROWS_AT_ONCE]
        encoded = tokenizer(
            chunk["text_a"].tolist(),
            chunk["text_b"].tolist() if "text_b" in chunk else None,
            truncation=True,
            max_length=max_length,
            return_token_type_ids=True,
        )
        ids.append(np.fromiter(chain.from_iterable(encoded["input_ids"]), np.int32))
        segments.append(np.fromiter(chain.from_iterable(encoded["token_type_ids"]), np.uint8))
        lengths += map(len, encoded["input_ids"])

    labels = frame["label"].to_numpy()
    kind = np.float32 if labels.dtype.kind == "f" else np.int64
    return TokenisedSplit(
        ids=np.concatenate(ids),
        segments=np.concatenate(segments),
        offsets=np.cumsum([0, *lengths]),
        labels=labels.astype(kind),
    )


@dataclass(frozen=True)
class Batch:
    """Examples, padded on the right to one length.

    - `ids` and `segments`: int64 (b, l).
    - `mask`: bool (b, l), true for real tokens; None if nothing is padded.
    - `labels`: (b,).
    - `rows`: (b,), the examples' places in the split.
    """

    ids: Tensor
    segments: Tensor
    mask: Tensor | None
    labels: Tensor
    rows: np.ndarray

    def to(self, device: torch.device) -> "Batch":
        """Return the same batch on a device."""
        return Batch(
            ids=move_to_device(self.ids, device),
            segments=move_to_device(self.segments, device),
            mask=None if self.mask is None else move_to_device(self.mask, device),
            labels=move_to_device(self.labels, device),
            rows=self.rows,
        )

    def fixed(self) -> dict[str, Tensor]:
        """Return the tensors of the batch by name, always with a mask."""
        tensors = {"ids": self.ids, "segments": self.segments, "labels": self.labels}
        no_padding = torch.ones_like(self.ids, dtype=torch.bool)
        return {**tensors, "mask": no_padding if self.mask is None else self.mask}

    def parts(self, rows: int) -> Iterator["Batch"]:
        """Yield the batch in parts of at most `rows` rows, in order."""
        for start in range(0, len(self.labels), rows):
            part = slice(start, start + rows)
            yield Batch(
                ids=self.ids[part],
                segments=self.segments[part],
                mask=None if self.mask is None else self.mask[part],
                labels=self.labels[part],
                rows=self.rows[part],
            )


def move_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to a device.

    A GPU copies the tensor by itself: the host does not wait for earlier steps.
    """
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def training_batches(
    split: TokenisedSplit,
    batch_size: int,
    padding_id: int,
    seed: int,
    epoch: int,
    padded: Padded = int,
) -> Iterator[Batch]:
    """Yield the batches of one epoch: shuffled, of similar length, in random order.

    Args:
        split: the training examples.
        batch_size: how many examples a batch has.
        padding_id: the id of padding.
        seed: decides the order, together with the epoch.
        epoch: from 1.
        padded: returns the length that a batch is padded to.
    """
    generator = np.random.default_rng([seed, epoch])
    for rows in bucketed_rows(split.lengths, batch_size, generator):
        yield collate(split, rows, padding_id, padded)


def bucketed_rows(
    lengths: np.ndarray, batch_size: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Return the rows of each batch of an epoch. Batches have examples of similar length.

    Batches are cut from random runs of examples, each sorted by length: a longer run spends less on
    padding, and a shorter one lets epochs differ. Runs are as long as in transformers'
    `LengthGroupedSampler`: there are at least four, with at most 50 batches each.

    Args:
        lengths: the length of each example.
        batch_size: how many examples a batch has; the last one may have fewer.
        generator: decides the order.
    """
    order = generator.permutation(len(lengths))
    batches_per_run = min(len(lengths) // (4 * batch_size), MAX_BATCHES_PER_RUN)
    run_length = max(1, batches_per_run) * batch_size
    batches = []
    for first in range(0, len(order), run_length):
        run = order[first : first + run_length]
        run = run[np.argsort(-lengths[run], kind="stable")]
        for start in range(0, len(run), batch_size):
            batches.append(run[start : start + batch_size])
    return [batches[index] for index in generator.permutation(len(batches))]


def trained_tokens(split: TokenisedSplit, settings: Hyperparameters, seed: int) -> int:
    """Count the tokens of all updates of a cell. Its last epoch may end early."""
    steps_per_epoch = settings.steps_per_epoch(len(split))
    epochs, last_steps = divmod(settings.steps(steps_per_epoch), steps_per_epoch)
    tokens = int(split.offsets[-1]) * epochs
    if last_steps:
        generator = np.random.default_rng([seed, epochs + 1])
        batches = bucketed_rows(split.lengths, settings.batch_size, generator)
        for rows in batches[:last_steps]:
            tokens += int(split.lengths[rows].sum())
    return tokens


def evaluation_batches(
    split: TokenisedSplit,
    padding_id: int,
    tokens: int,
    padded: Padded = int,
    most_rows: int | None = None,
) -> Iterator[Batch]:
    """Yield every example once, longest first.

    Args:
        split: the examples.
        padding_id: the id of padding.
        tokens: about how many tokens a batch has, with padding.
        padded: returns the length that a batch is padded to.
        most_rows: the largest number of rows of a batch; by default `tokens` alone limits a batch.
    """
    order = np.argsort(-split.lengths, kind="stable")
    start = 0
    while start < len(order):
        length = padded(int(split.lengths[order[start]]))
        rows = max(1, tokens // length)
        stop = start + min(rows, most_rows or rows)
        yield collate(split, order[start:stop], padding_id, padded)
        start = stop


def collate(
    split: TokenisedSplit, rows: np.ndarray, padding_id: int, padded: Padded = int
) -> Batch:
    """Return the examples `rows` of a split as one batch.

    Args:
        split: the examples.
        rows: (b,), their places.
        padding_id: the id of padding.
        padded: returns the length that the batch is padded to.
    """
    length = padded(int(split.lengths[rows].max()))
    places, real = split.padded(rows, length)
    ids = np.where(real, split.ids[places], padding_id)
    segments = np.where(real, split.segments[places], 0)
    return Batch(
        ids=torch.from_numpy(ids.astype(np.int64)),
        segments=torch.from_numpy(segments.astype(np.int64)),
        mask=None if real.all() else torch.from_numpy(real),
        labels=torch.from_numpy(split.labels[rows]),
        rows=rows,
    )
