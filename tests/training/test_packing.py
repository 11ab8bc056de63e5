"""Packed text and its masking: whole sentences in order, and (seed, step) alone decides a batch."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.tiny_pretraining import corpus_of, packed_of, sequences_of, word_tokenizer
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from glue_bench.errors import UserError
from glue_bench.training import masking, packing, tokenizers
from glue_bench.training.masking import (
    MaskedBatch,
    Vocabulary,
    masked_evaluation_batches,
    training_batch,
)
from glue_bench.training.packing import pack

CLS, SEP, FIRST_WORD = 2, 3, 5
WORDS = word_tokenizer(400)


def words(ids) -> list[int]:
    """Return the numbers of the words among tokens, in order."""
    return [token - FIRST_WORD for token in ids if token >= FIRST_WORD]


def packed(lengths, length=12, share=0.2, tokenizer=WORDS, **options):
    """Pack documents of sentences of these lengths. The n-th sentence has the word Wn alone."""
    documents: list[list[str]] = []
    number = 0
    for sizes in lengths:
        sentences: list[str] = []
        for size in sizes:
            sentences.append(" ".join([f"W{number}"] * size))
            number += 1
        documents.append(sentences)
    return pack(corpus_of(documents), tokenizer, length, share, **options)


def sentence_sizes(lengths) -> list[int]:
    """Return the lengths of the sentences of all documents."""
    return [size for document in lengths for size in document]


def sentence_words(lengths) -> list[int]:
    """Return the numbers of the words of the text, in order."""
    sizes = sentence_sizes(lengths)
    return np.repeat(np.arange(len(sizes)), sizes).tolist()


def test_sentences_fill_sequences_and_separators_part_documents():
    text = packed([[3, 4, 2], [2, 5], [10, 3], [7]], share=0.125)
    assert sequences_of(text["train"]) == [
        [CLS, 5, 5, 5, 6, 6, 6, 6, 7, 7, SEP],  # a separator and the next sentence would not fit
        [CLS, 8, 8, 9, 9, 9, 9, 9, SEP],
        [CLS, *[10] * 10, SEP],
        [CLS, 11, 11, 11, SEP],
    ]
    assert sequences_of(text["validation"]) == [[CLS, *[12] * 7, SEP]]


LENGTHS = st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=12), min_size=1, max_size=25)


def check_sequences(text, sizes: list[int], length: int) -> None:
    """Check that sequences are full, and that only sentences longer than a sequence are split."""
    token_lists = sequences_of(text)
    assert text.lengths.tolist() == [len(tokens) for tokens in token_lists]
    for tokens in token_lists:
        assert 3 <= len(tokens) <= length
        assert tokens[0] == CLS
        assert tokens[-1] == SEP
        for word in words(tokens):
            size = sizes[word]
            assert tokens.count(word + FIRST_WORD) == size or size > length - 2, word
    for tokens, next_tokens in pairwise(token_lists):
        next_size = min(sizes[words(next_tokens)[0]], length - 2)
        assert len(tokens) + next_size + 1 > length


def packed_if_possible(lengths, length, share, **options):
    """Return the packed splits; none if the text is too small to divide, or nothing can be cut."""
    try:
        return packed(lengths, length, share, **options)
    except UserError:
        return {}


any_text = given(
    lengths=LENGTHS, length=st.integers(8, 20), share=st.sampled_from([0.05, 0.2, 0.5])
)


@any_text
def test_every_word_is_in_one_split_and_in_order(lengths, length, share):
    text = packed_if_possible(lengths, length, share)
    numbers: list[int] = []
    for split in text.values():
        numbers_of_split = words(split.ids.tolist())
        assert numbers_of_split == sorted(numbers_of_split)
        numbers += numbers_of_split
    assert not text or sorted(numbers) == sentence_words(lengths)


@any_text
def test_sequences_are_full_and_only_sentences_longer_than_one_are_split(lengths, length, share):
    for split in packed_if_possible(lengths, length, share).values():
        check_sequences(split, sentence_sizes(lengths), length)


@any_text
def test_a_share_of_the_sentences_is_held_out(lengths, length, share):
    sentences = len(sentence_sizes(lengths))
    expected = share * sentences
    # A document whose share is less than a sentence is held out as a whole, or not at all.
    short_documents = [len(document) for document in lengths if share * len(document) < 1]
    tolerance = max([1, *short_documents]) + 0.01

    text = packed_if_possible(lengths, length, share)
    if text:
        held_out = set(words(text["validation"].ids.tolist()))
        assert held_out.isdisjoint(words(text["train"].ids.tolist()))
        assert abs(len(held_out) - expected) < tolerance
    else:
        assert min(expected, sentences - expected) < tolerance


@any_text
def test_the_end_of_a_document_is_held_out(lengths, length, share):
    text = packed_if_possible(lengths, length, share)
    if not text:
        return
    held_out = set(words(text["validation"].ids.tolist()))
    first = 0
    for document in lengths:
        numbers = range(first, first + len(document))
        first += len(document)
        is_held_out = [number in held_out for number in numbers]
        assert is_held_out == sorted(is_held_out)
        if share * len(document) < 1:
            assert len(set(is_held_out)) == 1


@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, length=st.integers(8, 20), tokens=st.integers(1, 30), pairs=st.booleans())
def test_documents_and_pieces_have_the_words_of_one_document(
    monkeypatch, lengths, length, tokens, pairs
):
    monkeypatch.setattr(packing, "PIECE_TOKENS", tokens)
    sizes = [len(document) for document in lengths]
    document_of_word = np.repeat(np.arange(len(sizes)), sizes)
    try:
        text = packed(lengths, length, 0.2, pairs=pairs)
    except UserError:  # the corpus is too small, or nothing can be cut
        return
    for split in text.values():
        for start, document in zip(split.starts, split.documents, strict=True):
            is_at_cls = split.ids[start] == CLS
            first_word = split.ids[start + is_at_cls] - FIRST_WORD
            assert document_of_word[first_word] == document
        starts, documents = split.pieces
        edges = [*starts, len(split.ids)]
        assert starts[0] == 0
        for (start, stop), document in zip(pairwise(edges), documents, strict=True):
            assert 0 < stop - start <= tokens
            numbers = words(split.ids[start:stop].tolist())
            assert set(document_of_word[numbers]) <= {document}


def check_cuts(split, length: int) -> None:
    """Check that half of the sequences that have two sentences are cut between two of them."""
    divisible = 0
    for tokens, cut in zip(sequences_of(split), split.cuts.tolist(), strict=True):
        assert len(tokens) <= length
        assert (SEP, SEP) not in pairwise(tokens)
        if len(set(words(tokens))) > 1:
            divisible += 1
        if cut:
            assert tokens[cut - 1] == SEP
            assert tokens[cut] != tokens[cut - 2]  # a word stands for a sentence
            assert 2 < cut < len(tokens) - 1
    cuts = np.count_nonzero(split.cuts)
    indivisible = len(split) - divisible
    assert cuts >= min(divisible, len(split) // 2 - indivisible)
    assert cuts <= math.ceil(len(split) / 2)


@given(lengths=LENGTHS, length=st.integers(8, 20))
def test_pairs_cut_half_of_the_sequences_at_a_sentence(lengths, length):
    for split in packed_if_possible(lengths, length, 0.2, pairs=True).values():
        check_cuts(split, length)


@given(lengths=LENGTHS, length=st.integers(8, 20))
def test_pairs_lose_no_word(lengths, length):
    text = packed_if_possible(lengths, length, 0.2, pairs=True)
    numbers: list[int] = []
    for split in text.values():
        numbers += words(split.ids.tolist())
    assert not text or sorted(numbers) == sentence_words(lengths)


def test_a_text_is_packed_anew_if_anything_changes_its_sequences(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path))
    usual = {"lengths": [[4, 5, 6, 7, 9, 2]], "tokenizer": WORDS, "length": 12, "share": 0.2}
    changes = [
        {},
        {"lengths": [[4, 5, 6, 7, 9, 3]]},
        {"tokenizer": word_tokenizer(401)},
        {"length": 13},
        {"share": 0.4},
        {"pairs": True},
    ]
    for number, change in enumerate(changes, start=1):
        packed(**usual | change)
        assert isinstance(packed(**usual | change)["train"].ids, np.memmap)
        assert len(list((tmp_path / "corpora").iterdir())) == number
    monkeypatch.setattr("glue_bench.training.packing.LAYOUT_VERSION", 0)
    packed(**usual)
    expected = len(changes) + 1
    assert len(list((tmp_path / "corpora").iterdir())) == expected


NO_PAIRS = (
    "pretraining.segments: pairs, but no sequence of corpus 'made' has two sentences to cut "
    "between; end"
)
INCOMPLETE = {
    name: word_tokenizer(without=f"{name.lower()}_token") for name in ("MASK", "CLS", "SEP")
}
NO_TOKEN = "the tokenizer has no [{}] token; masked-LM pretraining needs one, name another"


@pytest.mark.parametrize(
    ("documents", "words", "share", "pairs", "message"),
    [
        (
            [["W1"] * 3] * 2,
            WORDS,
            0.1,
            False,
            "corpus 'made' is too small: nothing left for validation; add text",
        ),
        (
            [["Никто не знает"] * 9],
            WORDS,
            0.4,
            False,
            "the tokenizer knows no word of corpus 'made'; name another",
        ),
        ([["W1 " * 9]] * 5, WORDS, 0.4, True, NO_PAIRS),
        *(
            ([["W1"]], words, 0.4, False, NO_TOKEN.format(name))
            for name, words in INCOMPLETE.items()
        ),
    ],
    ids=["small", "unknown", "no pairs", *INCOMPLETE],
)
def test_a_text_that_cannot_be_packed_is_refused(documents, words, share, pairs, message):
    with pytest.raises(UserError) as caught:
        pack(corpus_of(documents), words, 12, share, pairs=pairs)
    assert str(caught.value).startswith(message)


ROWS = [3, 4, 7, 12, 16, 16, 30, 40]
VOCABULARY = Vocabulary.of(word_tokenizer())


def batch_of(text, *, share=0.15, step=0) -> MaskedBatch:
    """Return the batch of a step, which has the whole text."""
    return training_batch(
        text, VOCABULARY, rows=len(text), mask_probability=share, seed=1, step=step
    )


def unmasked(batch: MaskedBatch) -> torch.Tensor:
    """Return the ids with every target back in its place."""
    ids = batch.ids.clone()
    ids.view(-1)[batch.places] = batch.targets
    return ids


@pytest.mark.parametrize("share", [0.15, 0.4, 0.01])
def test_each_sequence_has_its_share_of_targets(share):
    batch = batch_of(packed_of(ROWS), share=share)
    order = masking.epoch_order(len(ROWS), 1, 0)
    rows_of_targets = batch.places // batch.ids.shape[1]
    expected = [max(1, round(share * (ROWS[row] - 2))) for row in order]
    assert rows_of_targets.bincount(minlength=len(ROWS)).tolist() == expected
    assert batch.places.tolist() == sorted(set(batch.places.tolist()))


@pytest.mark.parametrize("share", [0.15, 0.4, 0.01])
def test_targets_are_the_tokens_of_the_sequences_at_their_places(share):
    text = packed_of(ROWS)
    token_lists = sequences_of(text)
    batch = batch_of(text, share=share)
    for place, row in enumerate(masking.epoch_order(len(text), 1, 0)):
        tokens = token_lists[row]
        padding = max(ROWS) - len(tokens)
        assert unmasked(batch)[place].tolist() == tokens + [0] * padding, place
        assert batch.mask[place].tolist() == [True] * len(tokens) + [False] * padding, place
    assert batch.tokens == sum(ROWS)


def test_no_special_token_is_a_target_or_a_random_token():
    text = packed_of([8] * 50)
    ids = text.ids.copy()
    ids[np.arange(3, len(ids), 8)] = 1  # [UNK]
    ids[np.arange(4, len(ids), 8)] = SEP  # a separator between documents
    text = replace(text, ids=ids)
    for step in range(20):
        batch = batch_of(text, share=0.5, step=step)
        inputs = batch.ids.view(-1)[batch.places]
        assert (batch.targets >= FIRST_WORD).all()
        assert ((inputs == VOCABULARY.mask_id) | (inputs >= FIRST_WORD)).all()
        assert len(batch.targets) == 50 * 2  # four words are masked


def test_ids_that_no_token_has_are_never_drawn_and_tokens_beyond_a_gap_are_masked():
    vocabulary = {"a": 7, "b": 40, "c": 3000}
    for token_id, name in enumerate(tokenizers.BERT_TOKENS.values()):
        vocabulary[name] = token_id
    library = tokenizers.wordpiece(vocabulary)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, **tokenizers.BERT_TOKENS)
    assert Vocabulary.of(tokenizer).regular.tolist() == [7, 40, 3000]


def test_targets_are_masked_replaced_or_kept_in_the_shares_80_10_10():
    batch = batch_of(packed_of([102] * 200), share=0.5)
    inputs = batch.ids.view(-1)[batch.places]
    count = len(batch.targets)
    assert count == 10_000
    is_masked = inputs == VOCABULARY.mask_id
    is_kept = inputs == batch.targets
    # The bounds are five standard deviations. Once in 60 times a random token is the old one.
    masked = int(is_masked.sum())
    deviation_of_masked = np.sqrt(count * 0.8 * 0.2)
    assert abs(masked - 8000) < 5 * deviation_of_masked
    kept_share = 0.1 + 0.1 / 60
    kept = int(is_kept.sum())
    deviation_of_kept = np.sqrt(count * 0.1 * 0.9)
    assert abs(kept - count * kept_share) < 5 * deviation_of_kept
    random = inputs[~is_masked & ~is_kept]
    counts = random.bincount(minlength=65)[FIRST_WORD:]
    expected = len(random) / 60
    assert abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_held_out_text_is_masked_the_same_way_at_every_call(monkeypatch):
    monkeypatch.setattr(masking, "EVALUATION_ROWS", 3)
    text = packed_of(ROWS)
    first = list(masked_evaluation_batches(text, VOCABULARY, 0.15))
    second = list(masked_evaluation_batches(text, VOCABULARY, 0.15))
    assert [len(batch.ids) for batch in first] == [3, 3, 2]
    assert [batch.digest for batch in first] == [batch.digest for batch in second]
    rows = torch.cat([unmasked(batch).view(-1) for batch in first])
    assert rows[rows != 0].tolist() == text.ids.tolist()


def test_what_stands_behind_a_cut_is_the_second_segment():
    cuts = np.array([0, 5, 0, 2], dtype=np.uint16)
    text = replace(packed_of([8, 8, 6, 12]), cuts=cuts)
    generator = np.random.default_rng(0)
    batch = masking.mask_rows(text, np.arange(4), VOCABULARY, 0.15, generator)
    assert batch.segments.sum(dim=1).tolist() == [0, 3, 0, 10]
    assert batch.segments[1].tolist() == [0] * 5 + [1] * 3 + [0] * 4  # padding: segment 0
    assert torch.equal([*batch.parts(2)][1].segments, batch.segments[2:])
    assert batch_of(packed_of(ROWS)).segments is None
