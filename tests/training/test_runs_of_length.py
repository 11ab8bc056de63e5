"""Batches of similar length: cut from runs as long as transformers' sampler has them, for any
number of rows.
"""

import math

import numpy as np
import pytest
from transformers import trainer_pt_utils

from glue_bench.training.tokens import TokenisedSplit, bucketed_rows, collate


def runs_of_transformers(rows: int, batch_size: int) -> int:
    """How many rows transformers sorts at once, asked of its own function: where lengths in its
    order rise.
    """
    lengths = list(range(rows))
    order = np.array(trainer_pt_utils.get_length_grouped_indices(lengths, batch_size))
    rises = np.flatnonzero(np.diff(order[1:]) > 0) + 2
    edges = [edge for edge in rises.tolist() if edge > batch_size]
    return edges[0] if edges else rows


@pytest.mark.parametrize(("rows", "batch_size"), [(70, 4), (2001, 2), (33, 1), (1000, 16)])
def test_runs_are_as_long_as_in_transformers(rows, batch_size):
    """Each run has the rows of a stretch of the same permutation, sorted by length."""
    length = runs_of_transformers(rows, batch_size)
    lengths = np.random.default_rng(0).integers(1, 500, size=rows)
    batches = bucketed_rows(lengths, batch_size, np.random.default_rng(7))
    order = np.random.default_rng(7).permutation(rows)
    run_of_row = np.empty(rows, dtype=int)
    run_of_row[order] = np.arange(rows) // length
    by_run: dict[int, list[np.ndarray]] = {}
    for batch in batches:
        runs = set(run_of_row[batch].tolist())
        assert len(runs) == 1, "a batch is of one run"
        by_run.setdefault(runs.pop(), []).append(batch)
    assert len(by_run) == math.ceil(rows / length)
    for run, inside in by_run.items():
        spans = sorted((lengths[batch].max(), lengths[batch].min()) for batch in inside)
        lower = [low for _, low in spans[1:]]
        upper = [high for high, _ in spans[:-1]]
        assert all(low >= high for low, high in zip(lower, upper, strict=True)), f"run {run}"


def split_of(lengths: list[int]) -> TokenisedSplit:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(100, 100 + offsets[-1], dtype=np.int32)
    segments = (ids % 3).astype(np.uint8)
    return TokenisedSplit(ids, offsets, segments, np.arange(len(lengths)))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7])
def test_the_parts_of_a_batch_are_its_rows_in_order(rows):
    """Every array is compared row by row. The last part may be smaller."""
    batch = collate(split_of([5, 3, 6, 2, 4]), np.array([3, 0, 2, 4, 1]), 9)
    place = 0
    for part in batch.parts(rows):
        assert 0 < len(part.labels) <= rows
        for row in range(len(part.labels)):
            for name in ("ids", "segments", "mask", "labels", "rows"):
                values = getattr(part, name)[row]
                expected = getattr(batch, name)[place]
                assert np.array_equal(values, expected), f"{name} of row {place}"
            place += 1
    assert place == 5
