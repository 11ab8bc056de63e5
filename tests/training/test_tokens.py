"""Tokenised tasks: what the tokenizer says, made once; the slice that is held out; batches of similar length."""

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
    test = frame.iloc[:2].assign(label=np.array([-1, -1], dtype=frame["label"].dtype))
    return TaskData("rte", "tsv", {"train": frame, "validation": frame.iloc[:3], "test": test})


def single() -> TaskData:
    return TaskData(
        "cola", "tsv", {"train": pd.DataFrame({"text_a": FIRST, "label": [0.0, 2.5, 5.0, 3.8]})}
    )


@pytest.mark.parametrize("length", [32, 6])
@pytest.mark.parametrize("data", [pairs(), single()], ids=["pairs", "single"])
def test_every_example_is_what_the_tokenizer_makes_of_it(data, length, monkeypatch):
    monkeypatch.setattr("glue_bench.training.tokens.ROWS_AT_ONCE", 3)
    made = tokenise(data, TOKENIZER, length)
    assert (made.padding_id, set(made.splits)) == (TOKENIZER.pad_token_id, set(data.splits))
    for name, frame in data.splits.items():
        split = made.splits[name]
        arrays = (split.ids, split.segments, split.offsets, split.labels)
        assert all(isinstance(array, np.memmap) and not array.flags.writeable for array in arrays)
        label = np.float32 if data.task == "cola" else np.int64
        assert [array.dtype for array in arrays] == [np.int32, np.uint8, np.int64, label]
        np.testing.assert_array_equal(split.labels, frame["label"].astype(label))
        for row, texts in enumerate(frame.drop(columns="label").itertuples(index=False)):
            expected = TOKENIZER(
                *texts, truncation=True, max_length=length, return_token_type_ids=True
            )
            place = slice(split.offsets[row], split.offsets[row + 1])
            assert split.ids[place].tolist() == expected["input_ids"]
            assert split.segments[place].tolist() == expected["token_type_ids"]
            assert split.lengths[row] == len(expected["input_ids"])


def test_what_is_equal_is_tokenised_once_and_anything_else_anew(cache):
    for _ in range(2):
        tokenise(pairs(), TOKENIZER, 32)
        (folder,) = cache.iterdir()
        made = folder.stat().st_ino
    assert folder.stat().st_ino == made
    tokenise(pairs(), TOKENIZER, 16)
    tokenise(pairs(labels=(1, 1, 1, 0)), TOKENIZER, 32)
    tokenise(pairs(), train_tokenizer(FIRST, 80), 32)
    assert len(list(cache.iterdir())) == 4


def split_of(lengths) -> TokenisedSplit:
    """Examples of these lengths, whose ids, from 100 on, and segments tell where they were."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(100, 100 + offsets[-1], dtype=np.int32)
    return TokenisedSplit(ids, offsets, (ids % 2).astype(np.uint8), np.arange(len(lengths)))


def examples(split) -> list[tuple]:
    spans = zip(split.labels, pairwise(split.offsets), strict=True)
    return [
        (int(label), tuple(split.ids[a:b]), tuple(split.segments[a:b])) for label, (a, b) in spans
    ]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=30), st.floats(0.01, 0.5))
def test_train_is_parted_and_nothing_is_lost(lengths, share):
    whole = split_of(lengths)
    parts = hold_out(TokenisedTask({"train": whole, "validation": whole}, 0), share).splits
    assert sorted(examples(parts["train"]) + examples(parts["held_out"])) == examples(whole)
    assert len(parts["held_out"]) == max(1, round(share * len(whole)))
    assert parts["validation"] is whole
    rows = [part.labels.tolist() for part in (parts["held_out"], parts["train"])]
    assert rows == [
        part.tolist() for part in held_out_rows(len(whole), share)
    ]  # which baselines are not fitted on


PADDING = 9
CPU, GPU, LATER = torch.device("cpu"), torch.device("cuda"), {"non_blocking": True}
Lengths = st.lists(st.integers(1, 40), min_size=1, max_size=300)


@given(Lengths, st.integers(1, 33), st.integers(0, 2**31))
def test_an_epoch_holds_every_row_once(lengths, batch_size, seed):
    batches = bucketed_rows(np.array(lengths), batch_size, np.random.default_rng(seed))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    sizes = sorted(len(batch) for batch in batches)
    assert sizes[1:] == [batch_size] * (len(sizes) - 1)
    assert len(batches) == -(-len(lengths) // batch_size)


def test_seed_and_epoch_decide_the_batches():
    split = split_of(np.random.default_rng(0).integers(1, 20, size=200))
    given = [
        training_batches(split, 16, PADDING, seed, epoch)
        for seed, epoch in ((1, 1), (1, 1), (1, 2), (2, 1))
    ]
    first, again, *others = [
        [frozenset(batch.rows.tolist()) for batch in batches] for batches in given
    ]
    assert first == again
    assert set(first) not in map(set, others)


@given(Lengths, st.data())
def test_collating_equals_padding_one_by_one(lengths, data):
    split = split_of(lengths)
    rows = np.array(data.draw(st.permutations(range(len(lengths)))))[
        : data.draw(st.integers(1, len(lengths)))
    ]
    batch = collate(split, rows, PADDING)
    longest = max(lengths[row] for row in rows)
    assert batch.ids.shape == batch.segments.shape == (len(rows), longest)
    assert batch.ids.dtype == batch.segments.dtype == torch.int64
    for place, row in enumerate(rows):
        start, stop = split.offsets[row], split.offsets[row + 1]
        padding = longest - lengths[row]
        assert batch.ids[place].tolist() == [*split.ids[start:stop].tolist(), *[PADDING] * padding]
        assert batch.segments[place].tolist() == [
            *split.segments[start:stop].tolist(),
            *[0] * padding,
        ]
        if batch.mask is not None:
            assert batch.mask[place].tolist() == [True] * lengths[row] + [False] * padding
    assert (batch.mask is None) == (len({lengths[row] for row in rows}) == 1)
    assert batch.labels.tolist() == batch.rows.tolist() == rows.tolist()


@given(Lengths, st.integers(1, 500), st.sampled_from([1, 8]))
def test_evaluation_covers_every_row_within_the_budget(lengths, budget, apart):
    batches = list(
        evaluation_batches(
            split_of(lengths), PADDING, budget, lambda length: -(-length // apart) * apart
        )
    )
    assert all(batch.ids.shape[1] % apart == 0 for batch in batches)
    assert sum(int((batch.ids != PADDING).sum()) for batch in batches) == sum(lengths)
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    assert all(batch.ids.numel() <= budget or len(batch.rows) == 1 for batch in batches)
    assert [batch.ids.shape[1] for batch in batches] == sorted(
        (b.ids.shape[1] for b in batches), reverse=True
    )


@pytest.mark.parametrize(
    ("device", "calls"),
    [("cpu", [call.to(CPU)]), ("cuda", [call.pin_memory(), call.pin_memory().to(GPU, **LATER)])],
)
def test_the_host_does_not_wait_until_a_gpu_has_copied_a_batch(device, calls):
    plain, masked = [Mock() for _ in range(4)], [Mock() for _ in range(5)]
    Batch(*plain, np.arange(2)).to(torch.device(device))
    MaskedBatch(*masked).to(torch.device(device))
    assert [tensor.mock_calls for tensor in plain + masked] == [calls] * 9
