"""Packed text, and its masking: whole sentences in order, nothing lost, and (seed, step) alone decides a batch."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from tiny_pretraining import corpus_of, packed_of, word_tokenizer

from glue_bench.errors import UserError
from glue_bench.training import masking, packing
from glue_bench.training.masking import MaskedBatch, Vocabulary, evaluation_batches, training_batch
from glue_bench.training.packing import pack

CLS, SEP = 2, 3
FIRST_WORD = 5


WORDS = word_tokenizer(400)


def documents_of(lengths: list[list[int]]) -> list[list[str]]:
    """Documents of sentences of these lengths; the n-th sentence of all consists of the word Wn alone."""
    numbers = iter(range(10**6))
    return [[" ".join([f"W{next(numbers)}"] * length) for length in document] for document in lengths]


def sequences(text) -> list[list[int]]:
    return [list(map(int, text.ids[start:stop])) for start, stop in zip(text.offsets, text.offsets[1:], strict=False)]


def words(text) -> list[int]:
    """The numbers of the words of all sequences, in order."""
    return [token - FIRST_WORD for token in text.ids.tolist() if token >= FIRST_WORD]


def packed(lengths, length=12, share=0.2, tokenizer=WORDS, **options):
    return pack(corpus_of(documents_of(lengths)), tokenizer, length, share, **options)


def test_sentences_fill_sequences_and_separators_part_documents():
    text = packed([[3, 4, 2], [2, 5], [10, 3], [7]], share=0.125)
    assert sequences(text["train"]) == [
        [CLS, 5, 5, 5, 6, 6, 6, 6, 7, 7, SEP],  # a separator and the next sentence would not fit
        [CLS, 8, 8, 9, 9, 9, 9, 9, SEP],
        [CLS, *[10] * 10, SEP],
        [CLS, 11, 11, 11, SEP],
    ]
    assert sequences(text["validation"]) == [[CLS, *[12] * 7, SEP]]


LENGTHS = st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=12), min_size=1, max_size=25)


@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, length=st.integers(8, 20), share=st.sampled_from([0.05, 0.2, 0.5]))
def test_packing_keeps_everything_in_order_and_whole(lengths, length, share):
    flat = [size for document in lengths for size in document]
    # A document that owes less than a sentence is held out whole or not at all.
    slack = max([1, *(len(document) for document in lengths if share * len(document) < 1)]) + 0.01
    try:
        text = packed(lengths, length, share)
    except UserError:  # too small to hold out a sentence, or to keep one
        assert min(share * len(flat), len(flat) - share * len(flat)) < slack
        return
    found = {split: words(text[split]) for split in text}
    for split in text:
        check_sequences(text[split], flat, length)
        assert found[split] == sorted(found[split])
    assert not set(found["train"]) & set(found["validation"])
    assert sorted(found["train"] + found["validation"]) == [n for n, size in enumerate(flat) for _ in range(size)]
    assert abs(len(set(found["validation"])) - share * len(flat)) < slack
    check_held_out_last(lengths, set(found["validation"]), share)


@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, length=st.integers(8, 20), most=st.integers(1, 30), pairs=st.booleans())
def test_pieces_are_of_one_document_and_every_word_is_in_one(monkeypatch, lengths, length, most, pairs):
    monkeypatch.setattr(packing, "PIECE_TOKENS", most)
    owner = [number for number, document in enumerate(lengths) for _ in document]
    try:
        text = packed(lengths, length, 0.2, pairs=pairs)
    except UserError:  # too small, or nothing can be cut
        return
    for split in text.values():
        for start, document in zip(split.starts, split.documents, strict=True):
            first = split.ids[start + (split.ids[start] == CLS)]
            assert first >= FIRST_WORD
            assert owner[first - FIRST_WORD] == document
        starts, documents = split.pieces
        assert starts[0] == 0
        sizes = np.diff([*starts, len(split.ids)])
        assert sizes.min() > 0
        assert sizes.max() <= most
        for start, size, document in zip(starts, sizes, documents, strict=True):
            inside = split.ids[start : start + size].tolist()
            assert {owner[token - FIRST_WORD] for token in inside if token >= FIRST_WORD} <= {document}


@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, length=st.integers(8, 20))
def test_pairs_cut_half_of_the_sequences_at_a_sentence_and_lose_nothing(lengths, length):
    flat = [size for document in lengths for size in document]
    try:
        text = packed(lengths, length, 0.2, pairs=True)
    except UserError:
        return
    whole = words(text["train"]) + words(text["validation"])
    assert sorted(whole) == [n for n, size in enumerate(flat) for _ in range(size)]
    for split in text.values():
        could = 0
        for sequence, cut in zip(sequences(split), split.cuts.tolist(), strict=True):
            assert len(sequence) <= length
            assert (SEP, SEP) not in pairwise(sequence)
            inner = [token for token in sequence[1:-1] if token != SEP]
            could += len(set(inner)) > 1
            if cut:
                assert sequence[cut - 1] == SEP
                assert sequence[cut] != sequence[cut - 2]  # a word stands for a sentence
                assert 2 < cut < len(sequence) - 1
        found = np.count_nonzero(split.cuts)
        assert found <= -(-len(split) // 2)
        assert found >= min(could, len(split) // 2 - (len(split) - could))


def check_sequences(text, flat: list[int], length: int) -> None:
    found = sequences(text)
    assert text.lengths.tolist() == [len(sequence) for sequence in found]
    assert len(text) == len(found)
    starts = []
    for sequence in found:
        assert len(sequence) <= length
        assert sequence[0] == CLS
        assert sequence[-1] == SEP
        assert len(sequence) >= 3
        starts.append(sequence[1] - FIRST_WORD)
        for word in set(sequence) - {CLS, SEP}:
            size = flat[word - FIRST_WORD]
            # Whole, or a piece of what fits nowhere whole.
            assert sequence.count(word) == size or size > length - 2
    for sequence, first in zip(found, starts[1:], strict=False):
        # A sequence ended only because the next sentence, or piece of one, had no room.
        assert len(sequence) + min(flat[first], length - 2) + 1 > length


def check_held_out_last(lengths: list[list[int]], held_out: set[int], share: float) -> None:
    start = 0
    for document in lengths:
        flags = [number in held_out for number in range(start, start + len(document))]
        assert flags == sorted(flags)
        assert share * len(document) >= 1 or len(set(flags)) <= 1
        start += len(document)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path))
    return tmp_path / "corpora"


def test_whatever_changes_the_sequences_is_packed_anew(cache):
    usual = {"lengths": [[4, 5, 6, 7, 9, 2]], "tokenizer": WORDS, "length": 12, "share": 0.2}
    others = [{"lengths": [[4, 5, 6, 7, 9, 3]]}, {"tokenizer": word_tokenizer(401)}, {"length": 13}, {"share": 0.4}]
    for number, other in enumerate([{}, *others, {"pairs": True}], start=1):
        packed(**usual | other)
        assert isinstance(packed(**usual | other)["train"].ids, np.memmap)
        assert len(list(cache.iterdir())) == number


NO_PAIRS = "pretraining.segments: pairs, but no sequence of corpus 'made' has two sentences to cut between; give"
LACKING = {name: word_tokenizer(without=f"{name.lower()}_token") for name in ("MASK", "CLS", "SEP")}
NO_TOKEN = "the tokenizer has no [{}] token; masked-LM pretraining needs one, name another"


@pytest.mark.parametrize(
    ("documents", "words", "share", "pairs", "said"),
    [
        ([["W1"] * 3] * 2, WORDS, 0.1, False, "corpus 'made' is too small: nothing left for validation; add text"),
        ([["Никто не знает"] * 9], WORDS, 0.4, False, "the tokenizer knows no word of corpus 'made'; name another"),
        ([["W1 " * 9]] * 5, WORDS, 0.4, True, NO_PAIRS),
        *(([["W1"]], words, 0.4, False, NO_TOKEN.format(name)) for name, words in LACKING.items()),
    ],
    ids=["small", "unknown", "no pairs", *LACKING],
)
def test_text_that_does_not_do_is_refused(documents, words, share, pairs, said):
    with pytest.raises(UserError) as caught:
        pack(corpus_of(documents), words, 12, share, pairs=pairs)
    assert str(caught.value).startswith(said)


ROWS = [3, 4, 7, 12, 16, 16, 30, 40]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.of(word_tokenizer())


def batch_of(text, vocabulary, *, rows=None, share=0.15, seed=1, step=0) -> MaskedBatch:
    return training_batch(text, vocabulary, rows=rows or len(text), share=share, seed=seed, step=step)


def unmasked(batch: MaskedBatch) -> torch.Tensor:
    """The ids with every target back in its place."""
    ids = batch.ids.clone()
    ids.view(-1)[batch.places] = batch.targets
    return ids


def same_batch(one: MaskedBatch, other: MaskedBatch) -> bool:
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)]
    return all((a is None and b is None) or torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("share", [0.15, 0.4, 0.01])
def test_each_sequence_has_its_share_of_targets_that_stood_where_they_are_asked_for(vocabulary, share):
    text, longest = packed_of(ROWS), max(ROWS)
    batch, rows = batch_of(text, vocabulary, share=share), masking.order(len(text), 1, 0)
    counts = (batch.places // batch.ids.shape[1]).bincount(minlength=len(ROWS))
    assert counts.tolist() == [max(1, round(share * (ROWS[row] - 2))) for row in rows]
    padded = [sequences(text)[row] for row in rows]
    assert unmasked(batch).tolist() == [[*row, *[0] * (longest - len(row))] for row in padded]
    assert batch.mask.tolist() == [[column < len(row) for column in range(longest)] for row in padded]
    assert batch.tokens == sum(ROWS)
    assert batch.places.tolist() == sorted(set(batch.places.tolist()))


def test_no_special_token_is_ever_asked_for_or_put_in_as_a_random_one(vocabulary):
    text = packed_of([8] * 50)
    ids = text.ids.copy()
    ids[np.arange(3, len(ids), 8)] = 1  # [UNK]
    ids[np.arange(4, len(ids), 8)] = 3  # [SEP] between documents
    text = replace(text, ids=ids)
    for step in range(20):
        batch = batch_of(text, vocabulary, share=0.5, step=step)
        assert (batch.targets >= 5).all()
        put = batch.ids.view(-1)[batch.places]
        assert ((put == vocabulary.mask_id) | (put >= 5)).all()
        assert len(batch.targets) == 50 * 2  # of four words


def test_eighty_ten_ten(vocabulary):
    text = packed_of([102] * 200)
    batch = batch_of(text, vocabulary, share=0.5)
    put, count = batch.ids.view(-1)[batch.places], len(batch.targets)
    assert count == 10_000
    masked = int((put == vocabulary.mask_id).sum())
    kept = int((put == batch.targets).sum())
    # Bounds of five standard deviations; a random token is the old one once in 60 times.
    assert abs(masked - 8000) < 5 * np.sqrt(count * 0.8 * 0.2)
    assert abs(kept - count * (0.1 + 0.1 / 60)) < 5 * np.sqrt(count * 0.1 * 0.9)
    random = put[(put != vocabulary.mask_id) & (put != batch.targets)]
    counts = random.bincount(minlength=65)[5:]
    assert abs(counts - len(random) / 60).max() < 5 * np.sqrt(len(random) / 60)


def test_held_out_text_is_masked_the_same_way_at_every_call(vocabulary, monkeypatch):
    monkeypatch.setattr(masking, "EVALUATION_ROWS", 3)
    text = packed_of(ROWS)
    first, again = (list(evaluation_batches(text, vocabulary, 0.15)) for _ in range(2))
    assert [len(batch.ids) for batch in first] == [3, 3, 2]
    assert all(same_batch(one, other) for one, other in zip(first, again, strict=True))
    seen = [row[row != 0].tolist() for batch in first for row in unmasked(batch)]
    assert seen == sequences(text)


def test_what_stands_behind_a_cut_is_the_second_segment(vocabulary):
    text = replace(packed_of([8, 8, 6, 12]), cuts=np.array([0, 5, 0, 2], dtype=np.uint16))
    batch = masking.masked(text, np.arange(4), vocabulary, 0.15, np.random.default_rng(0))
    assert batch.segments.sum(dim=1).tolist() == [0, 3, 0, 10]
    assert batch.segments[1].tolist() == [0] * 5 + [1] * 3 + [0] * 4  # padding is of the first
    assert torch.equal(batch.rows(1, 3).segments, batch.segments[1:3])
    assert batch_of(packed_of(ROWS), vocabulary).segments is None
