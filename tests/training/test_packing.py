"""FULL-SENTENCES packing: whole sentences in order, nothing lost, nothing both held out and learnt."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from tiny_pretraining import corpus_of, word_tokenizer

from glue_bench.errors import UserError
from glue_bench.training import packing
from glue_bench.training.corpus import Corpus
from glue_bench.training.packing import pack, pack_beginning
from glue_bench.training.tokenizers import train_tokenizer

CLS, SEP = 2, 3
FIRST_WORD = 5


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(400)


def documents_of(lengths: list[list[int]]) -> list[list[str]]:
    """Documents of sentences of these lengths; the n-th sentence of all consists of the word Wn alone."""
    numbers = iter(range(10**6))
    return [[" ".join([f"W{next(numbers)}"] * length) for length in document] for document in lengths]


def sequences(text) -> list[list[int]]:
    return [list(map(int, text.ids[start:stop])) for start, stop in zip(text.offsets, text.offsets[1:], strict=False)]


def words(text) -> list[int]:
    """The numbers of the words of all sequences, in order."""
    return [token - FIRST_WORD for token in text.ids.tolist() if token >= FIRST_WORD]


def packed(lengths, tokenizer, length=12, share=0.2, **options):
    return pack(corpus_of(documents_of(lengths)), tokenizer, length, share, **options)


def test_sentences_fill_sequences_and_separators_part_documents(tokenizer):
    text = packed([[3, 4, 2], [2, 5], [10, 3], [7]], tokenizer, share=0.125)
    assert sequences(text["train"]) == [
        [CLS, 5, 5, 5, 6, 6, 6, 6, 7, 7, SEP],  # a separator and the next sentence would not fit
        [CLS, 8, 8, 9, 9, 9, 9, 9, SEP],
        [CLS, *[10] * 10, SEP],
        [CLS, 11, 11, 11, SEP],
    ]
    assert sequences(text["validation"]) == [[CLS, *[12] * 7, SEP]]


def test_one_separator_stands_between_documents_that_share_a_sequence(tokenizer):
    text = packed([[2], [2], [2], [1]], tokenizer, share=0.25)
    assert sequences(text["train"]) == [[CLS, 5, 5, SEP, 6, 6, SEP, 7, 7, SEP]]


def test_documents_may_end_at_blank_lines(tokenizer):
    corpus = Corpus("lines", (["W1 W1\nW2\n\nW3\n\nW4\nW5"],), "lines")
    assert sequences(pack(corpus, tokenizer, 12, 0.4)["train"]) == [[CLS, 6, 6, 7, 8, SEP]]
    text = pack(replace(corpus, blank_lines=True), tokenizer, 12, 0.4)
    assert sequences(text["train"]) == [[CLS, 6, 6, 7, SEP, 9, 10, SEP]]
    assert sequences(text["validation"]) == [[CLS, 8, SEP]]
    assert [text[split].documents.tolist() for split in text] == [[0, 2], [1]]
    assert [text[split].starts.tolist() for split in text] == [[0, 5], [0]]


def test_a_sentence_longer_than_a_sequence_is_cut_without_loss(tokenizer):
    text = packed([[3, 25, 2, 8]], tokenizer, share=0.25)
    assert sequences(text["train"]) == [
        [CLS, 5, 5, 5, SEP],
        [CLS, *[6] * 10, SEP],
        [CLS, *[6] * 10, SEP],
        [CLS, *[6] * 5, 7, 7, SEP],
    ]


LENGTHS = st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=12), min_size=1, max_size=25)


@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, length=st.integers(8, 20), share=st.sampled_from([0.05, 0.2, 0.5]))
def test_packing_keeps_everything_in_order_and_whole(tokenizer, lengths, length, share):
    flat = [size for document in lengths for size in document]
    # A document that owes less than a sentence is held out whole or not at all.
    slack = max([1, *(len(document) for document in lengths if share * len(document) < 1)]) + 0.01
    try:
        text = packed(lengths, tokenizer, length, share)
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
def test_pieces_are_of_one_document_and_every_word_is_in_one(tokenizer, monkeypatch, lengths, length, most, pairs):
    monkeypatch.setattr(packing, "PIECE_TOKENS", most)
    owner = [number for number, document in enumerate(lengths) for _ in document]
    try:
        text = packed(lengths, tokenizer, length, 0.2, pairs=pairs)
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


def test_a_piece_is_as_many_whole_sequences_as_fit(tokenizer, monkeypatch):
    text = packed([[8, 8, 8, 8, 2, 1], [3, 3], [4]], tokenizer, share=1 / 9)["train"]
    assert text.lengths.tolist() == [10, 10, 10, 12, 10]  # the second document begins in the last one, at token 45
    expected = {512: [0, 45], 24: [0, 20, 42, 45], 10: [0, 10, 20, 30, 40, 45]}
    for most, starts in expected.items():
        monkeypatch.setattr(packing, "PIECE_TOKENS", most)
        found = replace(text).pieces
        assert (found[0].tolist(), found[1].tolist()) == (starts, [0] * (len(starts) - 1) + [1])


@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, length=st.integers(8, 20))
def test_pairs_cut_half_of_the_sequences_at_a_sentence_and_lose_nothing(tokenizer, lengths, length):
    flat = [size for document in lengths for size in document]
    try:
        text = packed(lengths, tokenizer, length, 0.2, pairs=True)
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


def test_every_other_sequence_is_cut_where_all_can_be(tokenizer):
    cuts = packed([[2] * 12] * 6, tokenizer, 8, pairs=True)["train"].cuts
    assert (cuts > 0).tolist() == [number % 2 == 0 for number in range(29)]


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


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_equal_text_is_packed_once_and_anew_where_the_cache_is_damaged(tokenizer, damage, cache):
    text = packed([[4, 5, 6, 7, 8]], tokenizer)["train"]
    expected = sequences(text)
    assert isinstance(text.ids, np.memmap)
    (path,) = cache.glob("*/train.ids")
    content, made = path.read_bytes(), path.stat().st_ino
    assert sequences(packed([[4, 5, 6, 7, 8]], tokenizer)["train"]) == expected
    assert path.stat().st_ino == made
    path.write_bytes(content[:-2] if damage == "cut" else content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    assert sequences(packed([[4, 5, 6, 7, 8]], tokenizer)["train"]) == expected
    assert path.read_bytes() == content


def test_whatever_changes_the_sequences_is_packed_anew(tokenizer, cache):
    usual = {"lengths": [[4, 5, 6, 7, 9, 2]], "tokenizer": tokenizer, "length": 12, "share": 0.2}
    others = [
        {},
        {"lengths": [[4, 5, 6, 7, 9, 3]]},
        {"tokenizer": word_tokenizer(401)},
        {"length": 13},
        {"share": 0.4},
        {"pairs": True},
    ]
    for number, other in enumerate(others, start=1):
        packed(**usual | other)
        assert len(list(cache.iterdir())) == number


def test_ids_are_as_small_as_the_vocabulary_allows(tokenizer):
    assert packed([[4, 5, 6, 7, 8]], tokenizer)["train"].ids.dtype == np.uint16
    assert packed([[4, 5, 6, 7, 8]], word_tokenizer(2**16))["train"].ids.dtype == np.int32


def test_the_beginning_of_a_text_is_its_first_sequences(tokenizer):
    corpus = corpus_of(documents_of([[3, 4, 2], [2, 5], [7] * 9]))
    whole = pack_beginning(corpus, tokenizer, 12, 1000)
    assert sequences(whole)[:2] == [[CLS, 5, 5, 5, 6, 6, 6, 6, 7, 7, SEP], [CLS, 8, 8, 9, 9, 9, 9, 9, SEP]]
    for tokens, count in ((1, 1), (9, 1), (10, 2), (16, 2), (17, 3), (1000, 11)):
        assert sequences(pack_beginning(corpus, tokenizer, 12, tokens))[: count - 1] == sequences(whole)[: count - 1]
        assert len(pack_beginning(corpus, tokenizer, 12, tokens)) == count
    with pytest.raises(UserError, match="the tokenizer knows no word of corpus 'made'; name another"):
        pack_beginning(corpus_of([["Никто не знает"]]), tokenizer, 12, 10)


def test_word_pieces_of_all_sentences_come_back_in_order():
    lines = [f"The number {n} chased the cat{'s' * (n % 3)}." for n in range(90)]
    tokenizer = train_tokenizer(lines, 120)
    text = pack(corpus_of([lines[:50], lines[50:]]), tokenizer, 24, 0.1)
    for split, chosen in (("train", lines[:45] + lines[50:86]), ("validation", lines[45:50] + lines[86:])):
        special = {tokenizer.cls_token_id, tokenizer.sep_token_id}
        kept = [token for token in text[split].ids.tolist() if token not in special]
        assert kept == [token for line in chosen for token in tokenizer(line, add_special_tokens=False)["input_ids"]]


@pytest.mark.parametrize("lengths", [[[3, 3]], [[30], [2]]], ids=str)
def test_a_corpus_too_small_to_hold_out_a_sentence_is_refused(tokenizer, lengths):
    with pytest.raises(UserError, match="corpus 'made' is too small: nothing left for validation; add text"):
        packed(lengths, tokenizer, share=0.1)


@pytest.mark.parametrize(
    ("without", "name"), [("mask_token", "[MASK]"), ("cls_token", "[CLS]"), ("sep_token", "[SEP]")]
)
def test_a_tokenizer_without_a_special_token_is_refused(without, name):
    with pytest.raises(UserError) as caught:
        packed([[3, 4]], word_tokenizer(without=without), share=0.5)
    assert str(caught.value) == (f"the tokenizer has no {name} token; masked-LM pretraining needs one, name another")


def test_a_tokenizer_that_knows_no_word_is_refused(tokenizer):
    with pytest.raises(UserError, match="the tokenizer knows no word of corpus 'made'"):
        pack(corpus_of([["Никто не знает", "ни слова"]]), tokenizer, 12, 0.5)


def test_a_corpus_in_which_no_sequence_can_be_cut_is_refused(tokenizer):
    with pytest.raises(UserError) as caught:
        packed([[9]] * 5, tokenizer, pairs=True)
    assert str(caught.value) == (
        "pretraining.segments: pairs, but no sequence of corpus 'made' has two sentences to cut between; give each "
        "sentence a line or a full stop, raise pretraining.length, or leave segments out"
    )
