"""Tokenised tasks: what the tokenizer says, made once, read from the disk."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pandas as pd
import pytest

from glue_bench.data.schema import TaskData
from glue_bench.errors import UserError
from glue_bench.training import tokens
from glue_bench.training.tokenizers import PROBE, train_tokenizer
from glue_bench.training.tokens import cache_folder, tokenise

FIRST = ["the old cat", "a dog chased the tall old goose again today", "anna ?", "the goose"]
SECOND = ["a dog", "the cat", "was the old cat chased by the lazy dog again ?", "today"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(FIRST + SECOND, 90)


def pairs(labels=(0, 1, 1, 0)) -> TaskData:
    frame = pd.DataFrame({"text_a": FIRST, "text_b": SECOND, "label": labels})
    test = frame.iloc[:2].assign(label=np.array([-1, -1], dtype=frame["label"].dtype))
    return TaskData("rte", "tsv", {"train": frame, "validation": frame.iloc[:3], "test": test})


def single() -> TaskData:
    return TaskData("cola", "tsv", {"train": pd.DataFrame({"text_a": FIRST, "label": [0, 1, 1, 0]})})


class Counting:
    """A tokenizer that counts its calls."""

    def __init__(self, tokenizer):
        self.tokenizer, self.calls = tokenizer, 0

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def __call__(self, *arguments, **options):
        self.calls += arguments != PROBE  # by which its digest tells it from others
        return self.tokenizer(*arguments, **options)


@pytest.mark.parametrize("data", [pairs(), single()], ids=["pairs", "single"])
def test_every_example_is_what_the_tokenizer_makes_of_it(tokenizer, data):
    made = tokenise(data, tokenizer, 32)
    assert made.padding_id == tokenizer.pad_token_id
    assert set(made.splits) == set(data.splits)
    for name, frame in data.splits.items():
        split = made.splits[name]
        assert len(split) == len(frame)
        np.testing.assert_array_equal(split.labels, frame["label"])
        for row, texts in enumerate(frame.drop(columns="label").itertuples(index=False)):
            expected = tokenizer(*texts, return_token_type_ids=True)
            place = slice(split.offsets[row], split.offsets[row + 1])
            assert split.ids[place].tolist() == expected["input_ids"]
            assert split.segments[place].tolist() == expected["token_type_ids"]
            assert split.lengths[row] == len(expected["input_ids"])


def test_arrays_are_memory_mapped_and_small(tokenizer):
    split = tokenise(pairs(), tokenizer, 32).splits["train"]
    for array in (split.ids, split.segments, split.offsets, split.labels):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
    assert (split.ids.dtype, split.segments.dtype, split.labels.dtype) == (np.int32, np.uint8, np.int64)


def test_scores_stay_numbers(tokenizer):
    made = tokenise(pairs(labels=(0.0, 2.5, 5.0, 3.8)), tokenizer, 32)
    assert made.splits["train"].labels.dtype == np.float32
    np.testing.assert_allclose(made.splits["train"].labels, [0, 2.5, 5, 3.8])


@pytest.mark.parametrize("length", [6, 9, 12])
def test_the_longer_text_of_a_pair_is_cut_first(tokenizer, length):
    split = tokenise(pairs(), tokenizer, length).splits["train"]
    for row in range(len(split)):
        place = slice(split.offsets[row], split.offsets[row + 1])
        whole = [len(tokenizer(texts[row], add_special_tokens=False)["input_ids"]) for texts in (FIRST, SECOND)]
        specials = (2, 1)  # [CLS] first [SEP], second [SEP]
        kept = [split.segments[place].tolist().count(segment) - specials[segment] for segment in (0, 1)]
        assert sum(kept) == min(sum(whole), length - 3)
        for mine, other in ((0, 1), (1, 0)):
            assert kept[mine] == whole[mine] or kept[mine] >= kept[other] - 1
        start = tokenizer(FIRST[row])["input_ids"][: kept[0] + 1]
        assert split.ids[place].tolist()[: kept[0] + 1] == start


def test_an_equal_task_is_tokenised_once(tokenizer):
    counting = Counting(tokenizer)
    first = tokenise(pairs(), counting, 32)
    assert counting.calls == 3
    again = tokenise(pairs(), counting, 32)
    assert counting.calls == 3
    np.testing.assert_array_equal(first.splits["train"].ids, again.splits["train"].ids)


def test_another_tokenizer_length_or_content_is_tokenised_anew(tokenizer, cache):
    tokenise(pairs(), tokenizer, 32)
    tokenise(pairs(), tokenizer, 16)
    tokenise(pairs(labels=(1, 1, 1, 0)), tokenizer, 32)
    tokenise(pairs(), train_tokenizer(FIRST, 80), 32)
    assert len(list((cache / "tokens").iterdir())) == 4


def test_two_that_start_together_end_with_one_copy(tokenizer, cache, monkeypatch):
    encode, both_have_begun = tokens._encode, Barrier(2, timeout=60)

    def slow_encode(frame, _tokenizer, max_length):
        both_have_begun.wait()
        return encode(frame, train_tokenizer(FIRST + SECOND, 90), max_length)

    monkeypatch.setattr(tokens, "_encode", slow_encode)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: tokenise(pairs(), tokenizer, 32), range(2)))
    np.testing.assert_array_equal(both[0].splits["train"].ids, both[1].splits["train"].ids)
    left = list((cache / "tokens").iterdir())
    assert len(left) == 1
    assert not left[0].name.startswith(".making")


def test_a_task_appears_in_the_cache_whole(tokenizer, cache, monkeypatch):
    rename, seen = Path.rename, []

    def watched(aside, folder):
        seen.append((len(list(aside.iterdir())), folder.exists()))
        return rename(aside, folder)

    monkeypatch.setattr(Path, "rename", watched)
    tokenise(pairs(), tokenizer, 32)
    assert seen == [(3 * 4 + 1, False)]  # four arrays a split, and their checksums
    assert [len(list(folder.iterdir())) for folder in (cache / "tokens").iterdir()] == [13]


def test_an_interrupted_tokenisation_leaves_nothing(tokenizer, cache, monkeypatch):
    save = np.save

    def stop_at_validation(path, values):
        if path.name.startswith("validation"):
            raise KeyboardInterrupt
        save(path, values)

    monkeypatch.setattr(np, "save", stop_at_validation)
    with pytest.raises(KeyboardInterrupt):
        tokenise(pairs(), tokenizer, 32)
    assert list((cache / "tokens").iterdir()) == []


def test_an_error_of_the_disk_is_not_hidden(tokenizer, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UserError, match=r"^cannot write to '.*tokens.*': No space left on device; make room there, or"):
        tokenise(pairs(), tokenizer, 32)


def test_the_cache_is_where_the_user_wants_it(cache, monkeypatch):
    assert cache_folder() == cache
    monkeypatch.delenv("GLUE_BENCH_CACHE")
    assert cache_folder().name == "glue-bench"


def flip(path: Path, place: int = -3) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def damages():
    """What can befall the cached train split, by name."""

    def cut(path):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - 4)

    def replaced(change):
        return lambda path: np.save(path, change(np.load(path)))

    return {
        "ids cut": ("ids", cut),
        "offsets cut": ("offsets", cut),
        "labels empty": ("labels", lambda path: path.write_bytes(b"")),
        "labels gone": ("labels", Path.unlink),
        "not an array": ("segments", lambda path: path.write_bytes(b"x" * 200)),
        "fewer segments": ("segments", replaced(lambda values: values[:-1])),
        "fewer rows": ("labels", replaced(lambda values: values[:-1])),
        "offsets beyond": ("offsets", replaced(lambda values: values * 2)),
        "offsets late": ("offsets", replaced(lambda values: np.maximum(values, 1))),
        "a bit": ("ids", lambda path: flip(path)),
        "offsets back": ("offsets", replaced(lambda values: values[[0, 2, 1, 3, 4]])),
    }


@pytest.mark.parametrize("damage", damages())
def test_what_is_damaged_in_the_cache_is_made_anew(tokenizer, cache, damage):
    whole = {name: np.array(split.ids) for name, split in tokenise(pairs(), tokenizer, 32).splits.items()}
    array, harm = damages()[damage]
    (folder,) = (cache / "tokens").iterdir()
    harm(folder / f"train.{array}.npy")
    counting = Counting(tokenizer)
    again = tokenise(pairs(), counting, 32)
    assert counting.calls == 3
    for name, ids in whole.items():
        np.testing.assert_array_equal(again.splits[name].ids, ids)
    assert list((cache / "tokens").iterdir()) == [folder]
    assert tokenise(pairs(), counting, 32)
    assert counting.calls == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[1]"])
def test_damaged_checksums_are_damage(tokenizer, cache, content):
    tokenise(pairs(), tokenizer, 32)
    (path,) = cache.rglob("checksums.json")
    path.write_bytes(content)
    counting = Counting(tokenizer)
    tokenise(pairs(), counting, 32)
    assert counting.calls == 3


def test_arrays_of_a_version_without_checksums_are_read(tokenizer, cache):
    tokenise(pairs(), tokenizer, 32)
    (path,) = cache.rglob("checksums.json")
    path.unlink()
    counting = Counting(tokenizer)
    tokenise(pairs(), counting, 32)
    assert counting.calls == 0
