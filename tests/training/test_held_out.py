"""A held-out slice is a part of train, the same one for all, and nothing else changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.training.tokens import TokenisedSplit, TokenisedTask, hold_out


def split_of(lengths) -> TokenisedSplit:
    """Examples of these lengths, whose ids and segments tell where they were."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(offsets[-1], dtype=np.int32)
    return TokenisedSplit(ids, (ids % 2).astype(np.uint8), offsets, np.arange(len(lengths)))


def examples(split) -> list[tuple]:
    spans = zip(split.offsets[:-1], split.offsets[1:], strict=True)
    return [
        (int(label), tuple(split.ids[a:b]), tuple(split.segments[a:b]))
        for label, (a, b) in zip(split.labels, spans, strict=True)
    ]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=30), st.floats(0.01, 0.5))
def test_train_is_parted_and_nothing_is_lost(lengths, share):
    whole = split_of(lengths)
    parts = hold_out(TokenisedTask("rte", {"train": whole, "validation": whole}, 0), share).splits
    assert sorted(examples(parts["train"]) + examples(parts["held_out"])) == examples(whole)
    assert len(parts["held_out"]) == max(1, round(share * len(whole)))
    assert parts["validation"] is whole


def test_taken_examples_are_whole_and_in_the_order_asked_for():
    whole = split_of([3, 1, 4, 2])
    assert examples(whole.take(np.array([2, 0]))) == [examples(whole)[2], examples(whole)[0]]


def test_the_slice_is_the_same_every_time():
    tokens = TokenisedTask("rte", {"train": split_of([1] * 50)}, 0)
    first, second = (hold_out(tokens, 0.2).splits["held_out"].labels for _ in range(2))
    assert first == pytest.approx(second)
    assert list(first) != list(range(10))  # drawn, not the head of the file
