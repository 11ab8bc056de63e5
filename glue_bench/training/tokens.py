"""Tokenise a task once, keep it in memory-mapped arrays, share it between cells and processes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import PreTrainedTokenizerBase

from glue_bench.config import HELD_OUT
from glue_bench.data.schema import TaskData
from glue_bench.files import cache_folder, kept_or_made
from glue_bench.training.tokenizers import tokenizer_digest

HELD_OUT_SEED = 0  # one slice for all arms, rates and seeds


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
    """The task as token ids in memory-mapped arrays, read from the cache where an equal one has been made before.

    Pairs longer than `max_length` lose tokens of the longer text first, as in transformers' run_glue.

    Raises:
        DiskError: the cache is full, or cannot be read or written.
    """
    arrays = [field.name for field in fields(TokenisedSplit)]

    def make(folder: Path) -> None:
        for name, frame in data.splits.items():
            split = encoded_split(frame, tokenizer, max_length)
            for array in arrays:
                np.save(folder / f"{name}.{array}.npy", getattr(split, array))

    def read(folder: Path) -> dict[str, TokenisedSplit]:
        return {
            name: TokenisedSplit(*(np.load(folder / f"{name}.{array}.npy", mmap_mode="r") for array in arrays))
            for name in data.splits
        }

    key = f"{data.task}-{data.digest[:16]}-{tokenizer_digest(tokenizer)[:16]}-{max_length}"
    return TokenisedTask(
        data.task, kept_or_made(cache_folder() / "tokens" / key, make, read), int(tokenizer.pad_token_id)
    )


def encoded_split(frame: pd.DataFrame, tokenizer: PreTrainedTokenizerBase, max_length: int) -> TokenisedSplit:
    """A split in memory, from its columns text_a, perhaps text_b, and label."""
    pairs = frame["text_b"].tolist() if "text_b" in frame else None
    encoded = tokenizer(
        frame["text_a"].tolist(), pairs, truncation=True, max_length=max_length, return_token_type_ids=True
    )
    labels = frame["label"].to_numpy()
    return TokenisedSplit(
        ids=np.fromiter(chain.from_iterable(encoded["input_ids"]), dtype=np.int32),
        segments=np.fromiter(chain.from_iterable(encoded["token_type_ids"]), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, encoded["input_ids"])]),
        labels=labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64),
    )
