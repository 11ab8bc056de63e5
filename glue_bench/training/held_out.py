"""A slice of train kept out of training, so that rates and epochs can be chosen without the validation set."""

from dataclasses import replace

import numpy as np

from glue_bench.config import HELD_OUT
from glue_bench.training.tokens import TokenisedSplit, TokenisedTask

SEED = 0  # one slice for all arms, rates and seeds


def hold_out(tokens: TokenisedTask, share: float) -> TokenisedTask:
    """The task with `share` of its training rows, at least one, drawn at random, as a split of their own.

    The slice is drawn by rows: MNLI's three hypotheses of a premise, say, can fall on both sides, so that scores on it
    are a little better than those on the validation set. They are for choosing, not for reporting.
    """
    train = tokens.splits["train"]
    order = np.random.default_rng(SEED).permutation(len(train))
    held = max(1, round(share * len(train)))
    parts = {HELD_OUT: take(train, np.sort(order[:held])), "train": take(train, np.sort(order[held:]))}
    return replace(tokens, splits={**tokens.splits, **parts})


def take(split: TokenisedSplit, rows: np.ndarray) -> TokenisedSplit:
    """The examples `rows` of a split, in that order, as a split."""
    lengths = split.lengths[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # Token t of the new split lies as far from its example's start as it did in the old one.
    places = np.arange(offsets[-1]) + np.repeat(split.offsets[rows] - offsets[:-1], lengths)
    return TokenisedSplit(split.ids[places], split.segments[places], offsets, split.labels[rows])
