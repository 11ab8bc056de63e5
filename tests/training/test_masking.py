"""Masks and order of pretraining: what seed, step and epoch decide, over unequal numbers of
sequences and rows.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.tiny_pretraining import WORDS, corpus_of, packed_of, sequences_of, word_tokenizer

from glue_bench.training import masking, packing
from glue_bench.training.masking import (
    MaskedBatch,
    Vocabulary,
    masked_evaluation_batches,
    training_batch,
)
from glue_bench.training.packing import PackedText, pack

VOCABULARY = Vocabulary.of(word_tokenizer())
SEQUENCES = 7
TEXT = packed_of([16] * SEQUENCES, words=WORDS)


def batch_at(step: int, *, rows: int = 3, seed: int = 1, text: PackedText = TEXT) -> MaskedBatch:
    return training_batch(text, VOCABULARY, rows=rows, mask_probability=0.4, seed=seed, step=step)


def sequence_numbers(batch: MaskedBatch, text: PackedText = TEXT) -> list[int]:
    """Return the number of each row's sequence, with every target back in its place."""
    ids = batch.ids.clone()
    ids.view(-1)[batch.places] = batch.targets
    sequences = sequences_of(text)
    return [sequences.index(row) for row in ids.tolist()]


def masks_by_sequence(batch: MaskedBatch) -> dict[int, frozenset[int]]:
    """Return the columns to predict in each sequence of a batch."""
    length = batch.ids.shape[1]
    rows, columns = np.divmod(batch.places.numpy(), length)
    numbers = sequence_numbers(batch)
    masks = {}
    for row, number in enumerate(numbers):
        places = columns[rows == row]
        masks[number] = frozenset(places.tolist())
    return masks


def order_of(seed: int, rows: int) -> list[int]:
    """Return the numbers of the sequences over four epochs, in order."""
    steps = math.ceil(4 * SEQUENCES / rows)
    numbers = []
    for step in range(steps):
        numbers += sequence_numbers(batch_at(step, rows=rows, seed=seed))
    return numbers[: 4 * SEQUENCES]


@pytest.mark.parametrize("rows", [1, 3, 5, 7, 10])
def test_every_epoch_has_every_sequence_once_wherever_batches_end(rows):
    """This holds even if a batch has the end of an epoch and the start of the next one."""
    numbers = order_of(1, rows)
    for epoch in range(4):
        inside = numbers[epoch * SEQUENCES : (epoch + 1) * SEQUENCES]
        assert sorted(inside) == list(range(SEQUENCES)), f"epoch {epoch}"


def test_the_order_is_of_the_seed_and_the_epoch_and_not_of_the_rows_of_a_batch():
    numbers = order_of(1, 3)
    assert order_of(1, 5) == numbers
    epochs = set()
    for first in range(0, len(numbers), SEQUENCES):
        of_epoch = numbers[first : first + SEQUENCES]
        epochs.add(tuple(of_epoch))
    assert len(epochs) == 4
    assert order_of(2, 3) != numbers


@pytest.mark.parametrize("change", [{"step": 1}, {"step": 0, "seed": 2}])
def test_masks_of_a_sequence_are_others_at_another_step_and_of_another_seed(change):
    """With 6 of 14 tokens masked, hardly one of 7 sequences has the same mask by chance."""
    first = masks_by_sequence(batch_at(0, rows=SEQUENCES))
    second = masks_by_sequence(batch_at(rows=SEQUENCES, **change))
    equal = [number for number in first if first[number] == second[number]]
    assert len(equal) <= 1, equal


def test_no_two_steps_and_no_two_seeds_ask_for_the_same_places():
    """The places are compared, whatever the sequences are."""
    places = set()
    for seed in (1, 2, 3):
        for step in range(4):
            batch = batch_at(step, rows=SEQUENCES, seed=seed)
            places.add(tuple(batch.places.tolist()))
    assert len(places) == 12


def test_masks_of_the_same_step_and_seed_are_the_same():
    assert batch_at(5).digest == batch_at(5).digest


def test_batches_of_held_out_text_have_masks_of_their_own(monkeypatch):
    """If not, every batch would be asked for the same places."""
    monkeypatch.setattr(masking, "EVALUATION_ROWS", 3)
    batches = list(masked_evaluation_batches(TEXT, VOCABULARY, 0.4))
    places = [tuple(batch.places.tolist()) for batch in batches]
    assert [len(batch.ids) for batch in batches] == [3, 3, 1]
    assert len(set(places)) == 3


@pytest.mark.parametrize("seeds", [(1, 1), (1, 2)])
def test_masks_of_held_out_text_are_of_their_seed(seeds):
    digests = {
        next(masked_evaluation_batches(TEXT, VOCABULARY, 0.4, seed)).digest for seed in seeds
    }
    assert len(digests) == len(set(seeds))


PARTS = ("ids", "mask", "places", "targets", "segments")


@pytest.mark.parametrize("part", PARTS)
def test_everything_that_a_model_is_given_and_asked_is_in_the_digest(part):
    cuts = np.array([0, 5, 0, 2], dtype=np.uint16)
    text = replace(packed_of([8, 8, 6, 12]), cuts=cuts)
    generator = np.random.default_rng(0)
    batch = masking.mask_rows(text, np.arange(4), VOCABULARY, 0.15, generator)
    tensor = getattr(batch, part).clone()
    tensor.view(-1)[0] = not tensor.view(-1)[0]
    assert replace(batch, **{part: tensor}).digest != batch.digest


# What is packed


DOCUMENTS = [["W1 W2 W3"] * 4, ["W4 W5"] * 7, ["W6"] * 2]


@pytest.mark.parametrize("pairs", [False, True])
def test_packing_does_not_depend_on_how_many_sentences_are_encoded_at_once(
    pairs, monkeypatch, tmp_path
):
    packed = []
    for at_once in (2_000, 3, 1):
        monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path / str(at_once)))
        monkeypatch.setattr(packing, "SENTENCES_AT_ONCE", at_once)
        packed.append(pack(corpus_of(DOCUMENTS), word_tokenizer(), 12, 0.2, pairs=pairs))
    for split in ("train", "validation"):
        expected = sequences_of(packed[0][split])
        assert [sequences_of(text[split]) for text in packed] == [expected] * 3, split


def test_a_text_with_blank_lines_between_documents_has_its_own_packing(monkeypatch, tmp_path):
    """Both corpora have the same text, the same digest, and one cache."""
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path))
    corpus_of_lines = corpus_of([["W1 W2 W3", "", "W4 W5", "", "W6 W7 W8"] * 3])
    documents = []
    for blank_lines in (False, True, False):
        corpus = replace(corpus_of_lines, blank_lines=blank_lines)
        packed = pack(corpus, word_tokenizer(), 12, 0.2)
        documents.append(len({*packed["train"].documents, *packed["validation"].documents}))
    assert documents == [1, 7, 1]


def test_ids_beyond_16_bits_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("GLUE_BENCH_CACHE", str(tmp_path))
    words = word_tokenizer(66_000)
    text = pack(corpus_of([["W65999 W65998"] * 9]), words, 12, 0.2)["train"]
    assert set(text.ids.tolist()) == {2, 3, 65_999 + 5, 65_998 + 5}
