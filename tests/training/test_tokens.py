"""Tokenised tasks: what the tokenizer says, made once, read from the disk; and the slice of train that is held out."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_bench.data.task_data import TaskData
from glue_bench.errors import UserError
from glue_bench.training.tokenizers import PROBE, train_tokenizer
from glue_bench.training.tokens import TokenisedSplit, TokenisedTask, hold_out, tokenise

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
    return TaskData("cola", "tsv", {"train": pd.DataFrame({"text_a": FIRST, "label": [0.0, 2.5, 5.0, 3.8]})})


class Watched:
    """A tokenizer that counts its calls, and does something else first."""

    def __init__(self, first=lambda: None):
        self.first, self.calls = first, 0

    def __getattr__(self, name):
        return getattr(TOKENIZER, name)

    def __call__(self, *arguments, **options):
        if arguments != PROBE:  # by which its digest tells it from others
            self.calls += 1
            self.first()
        return TOKENIZER(*arguments, **options)


@pytest.mark.parametrize("length", [32, 6])
@pytest.mark.parametrize("data", [pairs(), single()], ids=["pairs", "single"])
def test_every_example_is_what_the_tokenizer_makes_of_it(data, length):
    made = tokenise(data, TOKENIZER, length)
    assert (made.task, made.padding_id, set(made.splits)) == (data.task, TOKENIZER.pad_token_id, set(data.splits))
    for name, frame in data.splits.items():
        split = made.splits[name]
        arrays = (split.ids, split.segments, split.offsets, split.labels)
        assert all(isinstance(array, np.memmap) and not array.flags.writeable for array in arrays)
        label = np.float32 if data.task == "cola" else np.int64
        assert [array.dtype for array in arrays] == [np.int32, np.uint8, np.int64, label]
        np.testing.assert_array_equal(split.labels, frame["label"].astype(label))
        for row, texts in enumerate(frame.drop(columns="label").itertuples(index=False)):
            expected = TOKENIZER(*texts, truncation=True, max_length=length, return_token_type_ids=True)
            place = slice(split.offsets[row], split.offsets[row + 1])
            assert split.ids[place].tolist() == expected["input_ids"]
            assert split.segments[place].tolist() == expected["token_type_ids"]
            assert split.lengths[row] == len(expected["input_ids"])


@pytest.mark.parametrize("length", [6, 9, 12])
def test_the_longer_text_of_a_pair_is_cut_first(length):
    split = tokenise(pairs(), TOKENIZER, length).splits["train"]
    for row in range(len(split)):
        segments = split.segments[split.offsets[row] : split.offsets[row + 1]].tolist()
        whole = [len(TOKENIZER(texts[row], add_special_tokens=False)["input_ids"]) for texts in (FIRST, SECOND)]
        kept = [segments.count(0) - 2, segments.count(1) - 1]  # [CLS] first [SEP], second [SEP]
        assert sum(kept) == min(sum(whole), length - 3)
        for mine, other in ((0, 1), (1, 0)):
            assert kept[mine] == whole[mine] or kept[mine] >= kept[other] - 1


def test_in_one_segment_nothing_else_changes():
    made = tokenise(pairs(), TOKENIZER, 32)
    one = made.in_one_segment()
    for name, split in made.splits.items():
        assert split.segments.any()
        assert not one.splits[name].segments.any()
        assert len(one.splits[name].segments) == len(split.ids)
        assert one.splits[name].ids is split.ids


# The cache


def test_what_is_equal_is_tokenised_once_and_anything_else_anew(cache):
    watched = Watched()
    first, again = (tokenise(pairs(), watched, 32).splits["train"] for _ in range(2))
    assert watched.calls == 3
    np.testing.assert_array_equal(first.ids, again.ids)
    tokenise(pairs(), TOKENIZER, 16)
    tokenise(pairs(labels=(1, 1, 1, 0)), TOKENIZER, 32)
    tokenise(pairs(), train_tokenizer(FIRST, 80), 32)
    assert len(list(cache.iterdir())) == 4


def test_two_that_start_together_end_with_one_copy(cache):
    barrier = Barrier(2, timeout=60)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: tokenise(single(), Watched(barrier.wait), 32), range(2)))
    np.testing.assert_array_equal(both[0].splits["train"].ids, both[1].splits["train"].ids)
    (left,) = cache.iterdir()
    assert not left.name.startswith(".making")


def test_an_interrupted_tokenisation_leaves_nothing(cache):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenise(pairs(), Watched(stop), 32)
    assert list(cache.iterdir()) == []


def test_an_error_of_the_disk_is_one_line(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UserError, match=r"^cannot write to '.*tokens.*': No space left on device; make room there, or"):
        tokenise(pairs(), TOKENIZER, 32)


def flip(path: Path) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "a bit": ("train.ids.npy", flip),
    "cut": ("train.offsets.npy", lambda path: path.write_bytes(path.read_bytes()[:-4])),
    "empty": ("validation.labels.npy", lambda path: path.write_bytes(b"")),
    "gone": ("test.labels.npy", Path.unlink),
    "no array": ("train.segments.npy", lambda path: path.write_bytes(b"x" * 200)),
    "checksums": ("checksums.json", lambda path: path.write_bytes(b"[1]")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_in_the_cache_is_made_anew(cache, damage):
    whole = {name: np.array(split.ids) for name, split in tokenise(pairs(), TOKENIZER, 32).splits.items()}
    name, harm = DAMAGES[damage]
    (folder,) = cache.iterdir()
    harm(folder / name)
    watched = Watched()
    again = tokenise(pairs(), watched, 32)
    tokenise(pairs(), watched, 32)
    assert watched.calls == 3
    for split, ids in whole.items():
        np.testing.assert_array_equal(again.splits[split].ids, ids)
    assert list(cache.iterdir()) == [folder]


# The slice that is held out


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
    first, second = (list(hold_out(tokens, 0.2).splits["held_out"].labels) for _ in range(2))
    assert first == second
    assert first != list(range(10))  # drawn, not the head of the file
