"""Tokenise a task once, keep it in memory-mapped arrays, share it between cells and processes."""

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from transformers import PreTrainedTokenizerBase

from glue_bench.config import HELD_OUT
from glue_bench.data.schema import TaskData
from glue_bench.files import (
    cache_folder,
    cache_written_to,
    check_checksums,
    set_aside,
    whole_folder,
    write_checksums,
)
from glue_bench.training.tokenizers import tokenizer_digest

LAYOUT_VERSION = 1
HELD_OUT_SEED = 0  # one slice for all arms, rates and seeds
Kept = TypeVar("Kept")
_NOT_DAMAGE = {errno.ENOMEM, errno.EMFILE, errno.ENFILE}  # of the process, not of the file
_ARRAYS = ("ids", "segments", "offsets", "labels")


@dataclass(frozen=True, eq=False)
class TokenisedSplit:
    """All examples of a split, end to end.

    `ids` int32 and `segments` uint8 of shape (tokens,); example i is [offsets[i], offsets[i + 1]);
    `labels` of shape (rows,), int64 classes or float32 scores, -1 where unknown. A split equals itself alone.
    """

    ids: np.ndarray
    segments: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, special ones included."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> "TokenisedSplit":
        """The examples `rows`, in that order, as a split of their own."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        # Token t of the new split lies as far from its example's start as it did in the old one.
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return TokenisedSplit(self.ids[places], self.segments[places], offsets, self.labels[rows])


@dataclass(frozen=True)
class TokenisedTask:
    """Every split of one task under one tokenizer and length."""

    task: str
    splits: Mapping[str, TokenisedSplit]
    padding_id: int

    def in_one_segment(self) -> "TokenisedTask":
        """The same tokens, all of them in segment 0."""
        splits = {
            name: replace(split, segments=np.zeros_like(split.segments, subok=False))
            for name, split in self.splits.items()
        }
        return replace(self, splits=splits)


def hold_out(tokens: TokenisedTask, share: float) -> TokenisedTask:
    """The task with `share` of its training examples, at least one, drawn at random, as a split of their own.

    Rates and epochs can be chosen on it without the validation set. The slice is drawn by examples: MNLI's three
    hypotheses of a premise, for one, can fall on both sides, so that scores on it are a little better than those on
    the validation set. They are for choosing, not for reporting.
    """
    train = tokens.splits["train"]
    order = np.random.default_rng(HELD_OUT_SEED).permutation(len(train))
    held = max(1, round(share * len(train)))
    parts = {HELD_OUT: train.take(np.sort(order[:held])), "train": train.take(np.sort(order[held:]))}
    return replace(tokens, splits={**tokens.splits, **parts})


def tokenise(data: TaskData, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TokenisedTask:
    """The task as token ids, read from the cache where an equal one has been made before.

    Pairs longer than `max_length` lose tokens of the longer text first, as in transformers' run_glue. What is damaged
    in the cache is made anew.
    """
    key = f"v{LAYOUT_VERSION}-{data.task}-{data.digest[:16]}-{tokenizer_digest(tokenizer)[:16]}-{max_length}"
    folder = cache_folder() / "tokens" / key
    splits = kept_or_made(
        folder,
        read=lambda: {name: _read_split(folder, name, len(frame)) for name, frame in data.splits.items()},
        make=lambda: _write(folder, data, tokenizer, max_length),
    )
    return TokenisedTask(data.task, splits, int(tokenizer.pad_token_id))


def _write(folder: Path, data: TaskData, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Write a folder of .npy files as a whole; another process may have been first with the same."""
    with whole_folder(folder) as aside:
        for name, frame in data.splits.items():
            for array, values in _encode(frame, tokenizer, max_length).items():
                np.save(aside / f"{name}.{array}.npy", values)
        write_checksums(aside)


def kept_or_made(folder: Path, *, read: Callable[[], Kept], make: Callable[[], None]) -> Kept:
    """What the cache has in `folder`, made first if it is not there, and anew if it cannot be read.

    `read` raises ValueError, EOFError or OSError of arrays that are cut short, or that do not fit together; a bit that
    has changed shows in the checksums.

    Raises:
        DiskError: the cache is full or cannot be written.
    """
    if folder.is_dir():
        try:
            check_checksums(folder)
            return read()
        except (ValueError, EOFError, OSError) as error:
            if getattr(error, "errno", None) in _NOT_DAMAGE:
                raise
            with cache_written_to(folder):
                set_aside(folder)
    with cache_written_to(folder):
        make()
    return read()


def _encode(frame: pd.DataFrame, tokenizer: PreTrainedTokenizerBase, max_length: int) -> dict[str, np.ndarray]:
    pairs = frame["text_b"].tolist() if "text_b" in frame else None
    encoded = tokenizer(
        frame["text_a"].tolist(), pairs, truncation=True, max_length=max_length, return_token_type_ids=True
    )
    lengths = [len(ids) for ids in encoded["input_ids"]]
    labels = frame["label"].to_numpy()
    return {
        "ids": np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded["input_ids"]]),
        "segments": np.concatenate([np.asarray(ids, dtype=np.uint8) for ids in encoded["token_type_ids"]]),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "labels": labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64),
    }


def encoded_split(frame: pd.DataFrame, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TokenisedSplit:
    """A split that is not kept."""
    return TokenisedSplit(**_encode(frame, tokenizer, max_length))


def _read_split(folder: Path, name: str, rows: int) -> TokenisedSplit:
    split = TokenisedSplit(**{array: np.load(folder / f"{name}.{array}.npy", mmap_mode="r") for array in _ARRAYS})
    tokens, offsets = len(split.ids), split.offsets
    if not (len(split.segments) == tokens and len(split.labels) == rows and len(offsets) == rows + 1):
        raise ValueError(f"arrays of '{folder}/{name}' have lengths that do not fit together")
    if offsets[0] != 0 or offsets[-1] != tokens or (split.lengths < 1).any():
        raise ValueError(f"offsets of '{folder}/{name}' do not lead through its tokens")
    return split
