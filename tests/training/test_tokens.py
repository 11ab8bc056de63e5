"""Tokenised tasks: the tokenizer's ids, made once; the slice that is held out; batches of similar
length.
"""

import math
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock, call

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data.task_data import TaskData, held_out_rows
from glue_bench.training.masking import MaskedBatch
from glue_bench.training.tokenizers import train_tokenizer
from glue_bench.training.tokens import (
    Batch,
    TokenisedSplit,
    TokenisedTask,
    bucketed_rows,
    collate,
    evaluation_batches,
    hold_out,
    tokenise,
    training_batches,
)

FIRST = ["the old cat", "a dog chased the tall old goose again today", "anna ?", "the goose"]
SECOND = ["a dog", "the cat", "was the old cat chased by the lazy dog again ?", "today"]
TOKENIZER = train_tokenizer(FIRST + SECOND, 90)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokens"


def pairs(labels=(0, 1, 1, 0)) -> TaskData:
    frame = pd.DataFrame({"text_a": FIRST, "text_b": SECOND, "label": labels})
    no_labels = np.array([-1, -1], dtype=frame["label"].dtype)
    test = frame.iloc[:2].assign(label=no_labels)
    return TaskData("rte", "tsv", {"train": frame, "validation": frame.iloc[:3], "test": test})


def single() -> TaskData:
    frame = pd.DataFrame({"text_a": FIRST, "label": [0.0, 2.5, 5.0, 3.8]})
    return TaskData("cola", "tsv", {"train": frame})


KINDS = pytest.mark.parametrize("data", [pairs(), single()], ids=["pairs", "single"])


@KINDS
def test_the_arrays_of_a_task_are_mapped_into_memory_and_cannot_be_written(data):
    tokens = tokenise(data, TOKENIZER, 32)
    assert tokens.padding_id == TOKENIZER.pad_token_id
    assert set(tokens.splits) == set(data.splits)
    for split in tokens.splits.values():
        for array in (split.ids, split.segments, split.offsets, split.labels):
            assert isinstance(array, np.memmap)
            assert not array.flags.writeable


@KINDS
def test_the_arrays_of_a_task_have_the_types_that_they_are_documented_with(data):
    label_type = np.float32 if data.task == "cola" else np.int64
    for name, split in tokenise(data, TOKENIZER, 32).splits.items():
        assert split.ids.dtype == np.int32
        assert split.segments.dtype == np.uint8
        assert split.offsets.dtype == np.int64
        assert split.labels.dtype == label_type
        labels = data.splits[name]["label"].astype(label_type)
        np.testing.assert_array_equal(split.labels, labels)


@pytest.mark.parametrize("length", [32, 6])
@KINDS
def test_every_example_has_the_ids_and_segments_of_the_tokenizer(data, length, monkeypatch):
    monkeypatch.setattr("glue_bench.training.tokens.ROWS_AT_ONCE", 3)
    splits = tokenise(data, TOKENIZER, length).splits
    for name, frame in data.splits.items():
        split = splits[name]
        for row, texts in enumerate(frame.drop(columns="label").itertuples(index=False)):
            expected = TOKENIZER(
                *texts, truncation=True, max_length=length, return_token_type_ids=True
            )
            place = slice(split.offsets[row], split.offsets[row + 1])
            assert split.ids[place].tolist() == expected["input_ids"]
            assert split.segments[place].tolist() == expected["token_type_ids"]
            assert split.lengths[row] == len(expected["input_ids"])


def test_equal_tasks_are_tokenised_once_and_others_anew(cache):
    for _ in range(2):
        tokenise(pairs(), TOKENIZER, 32)
        (folder,) = cache.iterdir()
        inode = folder.stat().st_ino
    assert folder.stat().st_ino == inode
    tokenise(pairs(), TOKENIZER, 16)
    tokenise(pairs(labels=(1, 1, 1, 0)), TOKENIZER, 32)
    tokenise(pairs(), train_tokenizer(FIRST, 80), 32)
    assert len(list(cache.iterdir())) == 4


def split_of(lengths) -> TokenisedSplit:
    """Make examples of these lengths. Ids, from 100 on, and segments tell where a token was."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(100, 100 + offsets[-1], dtype=np.int32)
    return TokenisedSplit(ids, offsets, (ids % 2).astype(np.uint8), np.arange(len(lengths)))


def examples(split) -> list[tuple]:
    """Return the label, the ids and the segments of each example."""
    rows = []
    for label, (start, stop) in zip(split.labels, pairwise(split.offsets), strict=True):
        ids = tuple(split.ids[start:stop])
        segments = tuple(split.segments[start:stop])
        rows.append((int(label), ids, segments))
    return rows


@given(st.lists(st.integers(1, 5), min_size=2, max_size=30), st.floats(0.01, 0.5))
def test_train_is_parted_and_nothing_is_lost(lengths, share):
    full_split = split_of(lengths)
    task = TokenisedTask({"train": full_split, "validation": full_split}, 0)
    parts = hold_out(task, share).splits
    kept = examples(parts["train"])
    held_out = examples(parts["held_out"])
    expected = round(share * len(full_split))
    assert sorted(kept + held_out) == examples(full_split)
    assert len(held_out) == max(1, expected)
    assert parts["validation"] is full_split


@given(st.integers(2, 30), st.floats(0.01, 0.5))
def test_baselines_are_not_fitted_on_the_rows_that_are_held_out(rows, share):
    parts = hold_out(TokenisedTask({"train": split_of([1] * rows)}, 0), share).splits
    held_out, rest = held_out_rows(rows, share)
    assert parts["held_out"].labels.tolist() == held_out.tolist()
    assert parts["train"].labels.tolist() == rest.tolist()


PADDING = 9
CPU = torch.device("cpu")
GPU = torch.device("cuda")
LATER = {"non_blocking": True}
Lengths = st.lists(st.integers(1, 40), min_size=1, max_size=300)


@given(Lengths, st.integers(1, 33), st.integers(0, 2**31))
def test_an_epoch_holds_every_row_once(lengths, batch_size, seed):
    batches = bucketed_rows(np.array(lengths), batch_size, np.random.default_rng(seed))
    rows = np.concatenate(batches).tolist()
    assert sorted(rows) == list(range(len(lengths)))
    sizes = sorted(len(batch) for batch in batches)
    expected = [batch_size] * (len(sizes) - 1)
    assert sizes[1:] == expected
    assert len(batches) == math.ceil(len(lengths) / batch_size)


def test_seed_and_epoch_decide_the_batches():
    lengths = np.random.default_rng(0).integers(1, 20, size=200)
    split = split_of(lengths)

    def rows_of(seed: int, epoch: int) -> list[frozenset[int]]:
        batches = training_batches(split, 16, PADDING, seed, epoch)
        return [frozenset(batch.rows.tolist()) for batch in batches]

    assert rows_of(1, 1) == rows_of(1, 1)
    assert set(rows_of(1, 1)) != set(rows_of(1, 2))
    assert set(rows_of(1, 1)) != set(rows_of(2, 1))


@given(Lengths, st.data())
def test_collating_equals_padding_one_by_one(lengths, data):
    split = split_of(lengths)
    order = data.draw(st.permutations(range(len(lengths))))
    rows = np.array(order)[: data.draw(st.integers(1, len(lengths)))]
    batch = collate(split, rows, PADDING)

    sizes = [lengths[row] for row in rows]
    shape = (len(rows), max(sizes))

    for tensor in (batch.ids, batch.segments):
        assert tensor.shape == shape
        assert tensor.dtype == torch.int64
    assert (batch.mask is None) == (len(set(sizes)) == 1)
    assert batch.labels.tolist() == rows.tolist()
    assert batch.rows.tolist() == rows.tolist()

    for place, row in enumerate(rows):
        tokens = slice(split.offsets[row], split.offsets[row + 1])
        padding = max(sizes) - sizes[place]
        ids = split.ids[tokens].tolist() + [PADDING] * padding
        segments = split.segments[tokens].tolist() + [0] * padding
        assert batch.ids[place].tolist() == ids
        assert batch.segments[place].tolist() == segments
        if batch.mask is not None:
            expected = [True] * sizes[place] + [False] * padding
            assert batch.mask[place].tolist() == expected, place


@given(Lengths, st.integers(1, 500), st.sampled_from([1, 8]))
def test_evaluation_covers_every_row_within_the_budget(lengths, budget, multiple):
    def padded(length: int) -> int:
        return math.ceil(length / multiple) * multiple

    batches = list(evaluation_batches(split_of(lengths), PADDING, budget, padded))
    rows: list[int] = []
    widths: list[int] = []
    tokens = 0
    for batch in batches:
        rows += batch.rows.tolist()
        widths.append(batch.ids.shape[1])
        tokens += int((batch.ids != PADDING).sum())
        assert batch.ids.shape[1] % multiple == 0
        assert batch.ids.numel() <= budget or len(batch.rows) == 1
    assert sorted(rows) == list(range(len(lengths)))
    assert widths == sorted(widths, reverse=True)
    assert tokens == sum(lengths)


@pytest.mark.parametrize(
    ("device", "calls"),
    [("cpu", [call.to(CPU)]), ("cuda", [call.pin_memory(), call.pin_memory().to(GPU, **LATER)])],
)
def test_the_host_does_not_wait_until_a_gpu_has_copied_a_batch(device, calls):
    plain = [Mock(is_cuda=False) for _ in range(4)]
    masked = [Mock(is_cuda=False) for _ in range(5)]
    Batch(*plain, np.arange(2)).to(torch.device(device))
    MaskedBatch(*masked).to(torch.device(device))
    for tensor in plain + masked:
        assert tensor.mock_calls == calls
