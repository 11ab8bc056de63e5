"""What is done to a task is done to each of its splits, and the slice that is held out is drawn at
random, once.
"""

import numpy as np
import pytest

from glue_bench.training.tokens import TokenisedSplit, TokenisedTask, hold_out

SPLITS = {"train": 40, "validation_matched": 3, "validation_mismatched": 5, "test_matched": 2}


def split_of(rows: int) -> TokenisedSplit:
    """Make rows of four tokens, the last two in segment 1. The label is the row's number."""
    ids = np.arange(4 * rows, dtype=np.int32)
    segments = np.tile(np.array([0, 0, 1, 1], dtype=np.uint8), rows)
    return TokenisedSplit(ids, 4 * np.arange(rows + 1), segments, np.arange(rows))


@pytest.fixture
def task() -> TokenisedTask:
    return TokenisedTask({name: split_of(rows) for name, rows in SPLITS.items()}, padding_id=7)


@pytest.mark.parametrize("name", SPLITS)
def test_every_split_is_put_into_one_segment_and_nothing_else_changes(task, name):
    before = task.splits[name]
    after = task.in_one_segment().splits[name]
    assert not after.segments.any()
    assert np.array_equal(after.ids, before.ids)
    assert np.array_equal(after.offsets, before.offsets)
    assert np.array_equal(after.labels, before.labels)
    assert before.segments.any()


def held_out_rows(task: TokenisedTask, share: float) -> list[int]:
    """Return the rows of the slice, which are its labels."""
    return hold_out(task, share).splits["held_out"].labels.tolist()


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_rows_that_are_held_out_come_from_everywhere_and_are_the_same_at_every_call(task, share):
    rows = held_out_rows(task, share)
    assert rows == sorted(rows)
    assert rows == held_out_rows(task, share)
    count = round(share * 40)
    first = list(range(count))
    last = list(range(40 - count, 40))
    assert rows not in (first, last)
    assert 0 < sum(row < 20 for row in rows) < count


def test_a_larger_slice_holds_a_smaller_one(task):
    """So a study of the share compares nested slices."""
    small = set(held_out_rows(task, 0.1))
    large = set(held_out_rows(task, 0.25))
    assert small < large


@pytest.mark.parametrize("name", ["validation_matched", "validation_mismatched", "test_matched"])
def test_other_splits_stay_as_they_are(task, name):
    assert hold_out(task, 0.25).splits[name] is task.splits[name]
