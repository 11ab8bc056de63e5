"""Packed text, and its masking: whole sentences in order, nothing lost, and (seed, step) alone decides a batch."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.tiny_pretraining import corpus_of, packed_of, word_tokenizer
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


def sequences(text) -> list[list[int]]:
    return [text.ids[start:stop].tolist() for start, stop in pairwise(text.offsets)]


def words(ids) -> list[int]:
    """The numbers of the words among some tokens, in order."""
    return [token - FIRST_WORD for token in ids if token >= FIRST_WORD]


def packed(lengths, length=12, share=0.2, tokenizer=WORDS, **options):
    """Documents of sentences of these lengths; the n-th sentence of all consists of the word Wn alone."""
    numbers = iter(range(10**6))
    documents = [
        [" ".join([f"W{next(numbers)}"] * length) for length in document] for document in lengths
    ]
    return pack(corpus_of(documents), tokenizer, length, share, **options)


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
    found = {split: words(text[split].ids.tolist()) for split in text}
    for split in text:
        assert found[split] == sorted(found[split])
        check_sequences(text[split], flat, length)
    assert sorted(found["train"] + found["validation"]) == [
        n for n, size in enumerate(flat) for _ in range(size)
    ]
    held_out = set(found["validation"])
    assert not set(found["train"]) & held_out
    assert abs(len(held_out) - share * len(flat)) < slack
    numbers = iter(range(len(flat)))
    for document in lengths:  # its end, or a short one whole
        flags = [next(numbers) in held_out for _ in document]
        assert flags == sorted(flags)
        assert share * len(document) >= 1 or len(set(flags)) == 1


def check_sequences(text, flat: list[int], length: int) -> None:
    found = sequences(text)
    assert text.lengths.tolist() == [len(sequence) for sequence in found]
    assert len(text) == len(found)
    for sequence in found:
        assert 3 <= len(sequence) <= length
        assert (sequence[0], sequence[-1]) == (CLS, SEP)
        for word in words(sequence):  # whole, or a piece of what fits nowhere whole
            assert sequence.count(word + FIRST_WORD) == flat[word] or flat[word] > length - 2
    for sequence, after in pairwise(
        found
    ):  # it ended only because the next sentence, or piece of one, had no room
        assert len(sequence) + min(flat[words(after)[0]], length - 2) + 1 > length


@given_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=LENGTHS, length=st.integers(8, 20), most=st.integers(1, 30), pairs=st.booleans())
def test_pieces_are_of_one_document_and_pairs_cut_half_of_the_sequences_at_a_sentence_and_nothing_is_lost(
    monkeypatch, lengths, length, most, pairs
):
    monkeypatch.setattr(packing, "PIECE_TOKENS", most)
    owner = [number for number, document in enumerate(lengths) for _ in document]
    try:
        text = packed(lengths, length, 0.2, pairs=pairs)
    except UserError:  # too small, or nothing can be cut
        return
    whole = [word for split in text.values() for word in words(split.ids.tolist())]
    assert sorted(whole) == [
        n for n, size in enumerate(size for each in lengths for size in each) for _ in range(size)
    ]
    for split in text.values():
        for start, document in zip(split.starts, split.documents, strict=True):
            first = split.ids[start + (split.ids[start] == CLS)]
            assert owner[first - FIRST_WORD] == document
        starts, documents = split.pieces
        edges = [*starts, len(split.ids)]
        assert starts[0] == 0
        for (start, stop), document in zip(pairwise(edges), documents, strict=True):
            assert 0 < stop - start <= most
            assert {owner[word] for word in words(split.ids[start:stop].tolist())} <= {document}
        if pairs:
            check_cuts(split, length)


def check_cuts(split, length: int) -> None:
    could = 0
    for sequence, cut in zip(sequences(split), split.cuts.tolist(), strict=True):
        assert len(sequence) <= length
        assert (SEP, SEP) not in pairwise(sequence)
        could += len(set(words(sequence))) > 1
        if cut:
            assert sequence[cut - 1] == SEP
            assert sequence[cut] != sequence[cut - 2]  # a word stands for a sentence
            assert 2 < cut < len(sequence) - 1
    found = np.count_nonzero(split.cuts)
    assert min(could, len(split) // 2 - (len(split) - could)) <= found <= -(-len(split) // 2)


def test_whatever_changes_the_sequences_is_packed_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path))
    usual = {"lengths": [[4, 5, 6, 7, 9, 2]], "tokenizer": WORDS, "length": 12, "share": 0.2}
    others = [
        {"lengths": [[4, 5, 6, 7, 9, 3]]},
        {"tokenizer": word_tokenizer(401)},
        {"length": 13},
        {"share": 0.4},
    ]
    for number, other in enumerate([{}, *others, {"pairs": True}], start=1):
        packed(**usual | other)
        assert isinstance(packed(**usual | other)["train"].ids, np.memmap)
        assert len(list((tmp_path / "corpora").iterdir())) == number
    monkeypatch.setattr("glue_bench.training.packing.LAYOUT_VERSION", 0)
    assert (len(packed(**usual)), len(list((tmp_path / "corpora").iterdir()))) == (2, number + 1)


NO_PAIRS = "pretraining.segments: pairs, but no sequence of corpus 'made' has two sentences to cut between; end"
LACKING = {name: word_tokenizer(without=f"{name.lower()}_token") for name in ("MASK", "CLS", "SEP")}
NO_TOKEN = "the tokenizer has no [{}] token; masked-LM pretraining needs one, name another"


@pytest.mark.parametrize(
    ("documents", "words", "share", "pairs", "said"),
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
        *(([["W1"]], words, 0.4, False, NO_TOKEN.format(name)) for name, words in LACKING.items()),
    ],
    ids=["small", "unknown", "no pairs", *LACKING],
)
def test_text_that_does_not_do_is_refused(documents, words, share, pairs, said):
    with pytest.raises(UserError) as caught:
        pack(corpus_of(documents), words, 12, share, pairs=pairs)
    assert str(caught.value).startswith(said)


ROWS = [3, 4, 7, 12, 16, 16, 30, 40]
VOCABULARY = Vocabulary.of(word_tokenizer())


def batch_of(text, *, share=0.15, step=0) -> MaskedBatch:
    """The whole text."""
    return training_batch(
        text, VOCABULARY, rows=len(text), mask_probability=share, seed=1, step=step
    )


def unmasked(batch: MaskedBatch) -> torch.Tensor:
    """The ids with every target back in its place."""
    ids = batch.ids.clone()
    ids.view(-1)[batch.places] = batch.targets
    return ids


@pytest.mark.parametrize("share", [0.15, 0.4, 0.01])
def test_each_sequence_has_its_share_of_targets_that_stood_where_they_are_asked_for(share):
    text, longest = packed_of(ROWS), max(ROWS)
    batch, rows = batch_of(text, share=share), masking.epoch_order(len(text), 1, 0)
    counts = (batch.places // batch.ids.shape[1]).bincount(minlength=len(ROWS))
    assert counts.tolist() == [max(1, round(share * (ROWS[row] - 2))) for row in rows]
    padded = [sequences(text)[row] for row in rows]
    assert unmasked(batch).tolist() == [[*row, *[0] * (longest - len(row))] for row in padded]
    assert batch.mask.tolist() == [
        [column < len(row) for column in range(longest)] for row in padded
    ]
    assert batch.tokens == sum(ROWS)
    assert batch.places.tolist() == sorted(set(batch.places.tolist()))


def test_no_special_token_is_ever_asked_for_or_put_in_as_a_random_one():
    text = packed_of([8] * 50)
    ids = text.ids.copy()
    ids[np.arange(3, len(ids), 8)] = 1  # [UNK]
    ids[np.arange(4, len(ids), 8)] = SEP  # between documents
    text = replace(text, ids=ids)
    for step in range(20):
        batch = batch_of(text, share=0.5, step=step)
        put = batch.ids.view(-1)[batch.places]
        assert (batch.targets >= FIRST_WORD).all()
        assert ((put == VOCABULARY.mask_id) | (put >= FIRST_WORD)).all()
        assert len(batch.targets) == 50 * 2  # of four words


def test_ids_that_no_token_has_are_never_drawn_and_tokens_beyond_a_gap_are_masked():
    vocabulary = {name: id for id, name in enumerate(tokenizers.SPECIAL.values())} | {
        "a": 7,
        "b": 40,
        "c": 3000,
    }
    gaps = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.wordpiece(vocabulary), **tokenizers.SPECIAL
    )
    assert Vocabulary.of(gaps).regular.tolist() == [7, 40, 3000]


def test_eighty_ten_ten():
    batch = batch_of(packed_of([102] * 200), share=0.5)
    put, count = batch.ids.view(-1)[batch.places], len(batch.targets)
    assert count == 10_000
    masked, kept = int((put == VOCABULARY.mask_id).sum()), int((put == batch.targets).sum())
    # Bounds of five standard deviations; a random token is the old one once in 60 times.
    assert abs(masked - 8000) < 5 * np.sqrt(count * 0.8 * 0.2)
    assert abs(kept - count * (0.1 + 0.1 / 60)) < 5 * np.sqrt(count * 0.1 * 0.9)
    random = put[(put != VOCABULARY.mask_id) & (put != batch.targets)]
    counts = random.bincount(minlength=65)[FIRST_WORD:]
    assert abs(counts - len(random) / 60).max() < 5 * np.sqrt(len(random) / 60)


def test_held_out_text_is_masked_the_same_way_at_every_call(monkeypatch):
    monkeypatch.setattr(masking, "EVALUATION_ROWS", 3)
    text = packed_of(ROWS)
    first, again = (list(masked_evaluation_batches(text, VOCABULARY, 0.15)) for _ in range(2))
    assert [len(batch.ids) for batch in first] == [3, 3, 2]
    assert [batch.digest for batch in first] == [batch.digest for batch in again]
    assert [row[row != 0].tolist() for batch in first for row in unmasked(batch)] == sequences(text)


def test_what_stands_behind_a_cut_is_the_second_segment():
    text = replace(packed_of([8, 8, 6, 12]), cuts=np.array([0, 5, 0, 2], dtype=np.uint16))
    batch = masking.mask_rows(text, np.arange(4), VOCABULARY, 0.15, np.random.default_rng(0))
    assert batch.segments.sum(dim=1).tolist() == [0, 3, 0, 10]
    assert batch.segments[1].tolist() == [0] * 5 + [1] * 3 + [0] * 4  # padding is of the first
    assert torch.equal([*batch.parts(2)][1].segments, batch.segments[2:])
    assert batch_of(packed_of(ROWS)).segments is None
