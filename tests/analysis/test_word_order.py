"""Measures of a masked-LM encoder: exact where theory says so, by hand where logits are known."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import SENTENCES

from glue_bench.analysis import held_out, word_order
from glue_bench.analysis.held_out import HeldOut
from glue_bench.analysis.word_order import (
    SWAP_DISTANCES,
    order_sums,
    pairs,
    reorder_words,
    shuffle_n_grams,
)
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import under_head
from glue_bench.testing import encoder_config, random_model
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import train_tokenizer

POSITIONS = 64
SWAPS = [f"swap_{distance}" for distance in SWAP_DISTANCES]
RISES = ["shuffle_1", "shuffle_2", "shuffle_3", "reverse"]
STARTS = ["start_8", "start_16"]


@pytest.fixture(scope="module")
def tokenizer():
    """A vocabulary so small that most words have several pieces."""
    return train_tokenizer(SENTENCES, 80)


def pack(tokenizer, texts) -> PackedText:
    """Make a sequence of each text, a tuple of sentences with separators between them."""
    sequences = []
    for sentences in texts:
        ids = [tokenizer.cls_token_id]
        for encoded in tokenizer(list(sentences), add_special_tokens=False)["input_ids"]:
            ids += encoded[: POSITIONS // len(sentences) - 2]
            ids.append(tokenizer.sep_token_id)
        sequences.append(np.array(ids, dtype=np.int32))
    starts = np.cumsum([0, *map(len, sequences)])
    return PackedText(np.concatenate(sequences), starts)


@pytest.fixture(scope="module")
def text(tokenizer) -> HeldOut:
    """Eight sequences: four of a sentence, four of two."""
    singles = [(sentence,) for sentence in SENTENCES[:4]]
    pairs = zip(SENTENCES[4:8], SENTENCES[8:12], strict=True)
    packed = pack(tokenizer, [*singles, *pairs])
    return HeldOut(packed, tokenizer)


def model_of(variant: str, tokenizer) -> EncoderForMaskedLM:
    config = encoder_config(variant, vocab_size=len(tokenizer), max_position_embeddings=POSITIONS)
    return random_model(EncoderForMaskedLM, config)


def model_of_pairs(table: np.ndarray) -> SimpleNamespace:
    """Make a model whose prediction depends on the previous token alone.

    `table` (vocabulary, vocabulary) has the logits by previous token.
    """
    logits = torch.from_numpy(table)
    base = SimpleNamespace(hidden_states=lambda ids, *_, **__: [ids.roll(1, 1)[..., None]])
    return SimpleNamespace(
        base=base, device=torch.device("cpu"), predict=lambda states: logits[states[:, 0]]
    )


@pytest.fixture(scope="module")
def none_measures(tokenizer, text):
    model = model_of("none", tokenizer)
    return order_sums(model, text, POSITIONS)


@pytest.mark.parametrize("name", SWAPS)
def test_without_positions_exactly_half_of_the_originals_are_preferred(none_measures, name):
    sums = none_measures[name]
    expected = sums.counts / 2
    assert sums.n > 5
    assert sums.sums.tolist() == expected.tolist()


@pytest.mark.parametrize("name", [*RISES, *STARTS])
def test_without_positions_no_order_matters(none_measures, name):
    rises = none_measures[name].sums
    assert np.abs(rises).max() < 1e-4


@pytest.fixture(scope="module")
def add_model(tokenizer):
    return model_of("add", tokenizer)


@pytest.fixture(scope="module")
def add_measures(add_model, text):
    return order_sums(add_model, text, POSITIONS)


def test_with_positions_order_matters(add_measures):
    expected = ["validation_loss", *SWAPS, *RISES, *STARTS]
    assert list(add_measures) == expected
    for name in (*RISES, *STARTS):
        rises = add_measures[name].sums
        assert np.abs(rises).min() > 1e-3, name


def test_with_positions_hardly_any_swap_is_a_tie(add_measures):
    """There are more than a hundred swaps."""
    ties = 0
    for name in SWAPS:
        hits = add_measures[name].sums
        ties += np.count_nonzero(hits % 1)
    assert ties <= 1


def test_equal_calls_give_equal_bits(add_model, add_measures, text):
    second = order_sums(add_model, text, POSITIONS)
    for name, sums in add_measures.items():
        assert (sums.sums == second[name].sums).all(), name


@pytest.mark.parametrize("name", ["validation_loss", "shuffle_1"])
def test_other_draws_give_other_values(add_model, add_measures, text, monkeypatch, name):
    monkeypatch.setattr(word_order, "VALIDATION_SEED", 2)
    monkeypatch.setattr(held_out, "VALIDATION_SEED", 2)
    other_draws = order_sums(add_model, replace(text), POSITIONS, [])
    assert other_draws[name].value != add_measures[name].value


@pytest.mark.parametrize("variant", ["alibi", "rotary", "shaw", "diet-rel", "disentangled"])
def test_an_encoder_of_distances_alone_does_not_feel_a_moved_start(variant, tokenizer, text):
    model = model_of(variant, tokenizer)
    measures = order_sums(model, text, POSITIONS, [])
    for name in STARTS:
        rises = measures[name].sums
        assert not rises.any(), name


def test_a_moved_start_reads_all_texts_at_one_length(tokenizer, text):
    model = model_of("add", tokenizer)
    lengths = []

    def note_length(_module, inputs) -> None:
        ids, *_ = inputs
        lengths.append(ids.shape[1])

    model.base.variant.register_forward_pre_hook(note_length)
    measures = order_sums(model, text, POSITIONS, [])
    of_first_start, of_second_start = (measures[name].counts for name in STARTS)
    assert of_first_start.tolist() == of_second_start.tolist()
    assert max(lengths[-2:]) + 16 <= POSITIONS


def test_starts_are_left_out_where_there_are_too_few_positions(add_model, text):
    measures = order_sums(add_model, text, 31, [])
    assert not set(STARTS) & measures.keys()


def test_swaps_are_left_out_where_no_two_words_can_change_places(add_model, tokenizer):
    packed = pack(tokenizer, [("Yes",), ("No",)])
    measures = order_sums(add_model, HeldOut(packed, tokenizer), 16)
    expected = ["validation_loss", *RISES]
    assert list(measures) == expected


def log_likelihood(log_p: np.ndarray, tokens: list[int], places: list[int]) -> float:
    """Sum log p of each token given the previous token, which is not masked.

    Each token is masked on its own.
    """
    return sum(log_p[tokens[place - 1], tokens[place]] for place in places)


def test_two_swapped_words_by_hand(tokenizer, monkeypatch):
    monkeypatch.setattr(word_order, "MAX_HELD_OUT_TOKENS", 1)  # so few that one swap is made
    packed = pack(tokenizer, [(SENTENCES[0],)])
    text = HeldOut(packed, tokenizer)
    (probe,) = text.probes
    (((a, b), (c, d)),) = pairs(probe, 2, 0, text)

    ids = probe.ids.tolist()
    swapped = ids[:a] + ids[c:d] + ids[b:c] + ids[a:b] + ids[d:]
    places = [*range(a, b), *range(c, d)]
    swapped_places = [*range(a, a + d - c), *range(d - b + a, d)]

    vocabulary = len(tokenizer)
    logits = np.random.default_rng(0).normal(size=(vocabulary, vocabulary))
    outcomes = set()
    for table in (logits, -logits, logits.T, -logits.T):
        normalisers = np.log(np.exp(table).sum(1, keepdims=True))
        log_p = table - normalisers
        of_original = log_likelihood(log_p, ids, places)
        of_swapped = log_likelihood(log_p, swapped, swapped_places)
        is_preferred = of_original > of_swapped
        outcomes.add(is_preferred)
        sums = word_order.swap_sums(model_of_pairs(table), text, 2)
        assert sums.value == float(is_preferred)

    assert outcomes == {True, False}


def test_the_loss_equals_the_loss_of_transformers(tokenizer, text, tmp_path):
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=len(tokenizer),
        initializer_range=0.3,
    )
    bert = random_model(transformers.BertForMaskedLM, config)
    bert.save_pretrained(tmp_path)
    checkpoint = read_checkpoint(str(tmp_path))
    model = under_head(checkpoint, checkpoint.config).eval()
    rows = [probe.masked for probe in text.probes]
    sums = held_out.loss_sums(model, rows)
    for row, total, count in zip(rows, sums.sums, sums.counts, strict=True):
        ids = torch.from_numpy(row.ids)[None]
        labels = torch.from_numpy(row.labels)[None]
        loss = bert(ids, labels=labels).loss.item()
        assert total == pytest.approx(loss * count, rel=1e-5)


def reorder(words, n: int | None, index: int):
    """Put n-grams of words in random order; None reverses the words."""
    if n is None:
        return words[::-1]
    return shuffle_n_grams(words, n, np.random.default_rng([n, index]))


@pytest.fixture(params=[1, 2, 3, None])
def n(request) -> int | None:
    """The length of n-grams; None stands for words in reverse."""
    return request.param


def bounds(words) -> tuple[int, int]:
    """Return the place at which the first of several words starts, and where the last one stops."""
    return words[0][0], words[-1][1]


def places_after(probe, n: int | None, index: int) -> np.ndarray:
    """Return the place from which each token of a reordered sequence came."""
    places = np.arange(len(probe.ids))
    numbered = probe.masked._replace(labels=places)
    row = reorder_words(probe._replace(masked=numbered), lambda words: reorder(words, n, index))
    return row.labels


def test_masks_and_labels_move_with_their_words(n, text):
    for index, probe in enumerate(text.probes):
        row = reorder_words(probe, lambda words, index=index: reorder(words, n, index))
        places = places_after(probe, n, index)
        ids = probe.masked.ids[places]
        labels = probe.masked.labels[places]
        assert row.ids.tolist() == ids.tolist(), index
        assert row.labels.tolist() == labels.tolist(), index


def test_words_move_within_their_segment(n, text):
    for index, probe in enumerate(text.probes):
        row = reorder_words(probe, lambda words, index=index: reorder(words, n, index))
        places = places_after(probe, n, index)
        segments = probe.masked.segments
        assert row.segments.tolist() == segments.tolist(), index
        for words in probe.stretches:
            start, stop = bounds(words)
            moved = places[start:stop].tolist()
            assert sorted(moved) == list(range(start, stop)), index


@pytest.mark.parametrize("n", [1, 2, 3])
def test_n_grams_stay_whole(n, text):
    for index, probe in enumerate(text.probes):
        places = places_after(probe, n, index).tolist()
        for words in probe.stretches:
            for first_word in range(0, len(words), n):
                start, stop = bounds(words[first_word : first_word + n])
                gram = list(range(start, stop))
                place = places.index(start)
                assert places[place : place + len(gram)] == gram, index


def test_words_in_reverse_by_hand(text):
    for probe in text.probes:
        places = places_after(probe, None, 0)
        for words in probe.stretches:
            by_hand = []
            for word in reversed(words):
                by_hand += range(*word)
            start, stop = bounds(words)
            moved = places[start:stop].tolist()
            assert moved == by_hand


@pytest.fixture
def cut_text(tokenizer) -> HeldOut:
    """Four sequences; the second and the fourth are cut into two segments."""
    two_sentences = zip(SENTENCES[:4], SENTENCES[4:8], strict=True)
    packed = pack(tokenizer, two_sentences)
    cuts = []
    for start, stop in itertools.pairwise(packed.offsets):
        sequence = packed.ids[start:stop].tolist()
        cuts.append(sequence.index(tokenizer.sep_token_id) + 1)
    cuts[0] = cuts[2] = 0
    return HeldOut(replace(packed, cuts=np.array(cuts)), tokenizer)


def test_segments_are_those_that_the_model_was_trained_with(cut_text):
    for probe, cut in zip(cut_text.probes, cut_text.text.cuts, strict=True):
        segments = probe.masked.segments.tolist()
        by_hand = [int(0 < cut <= place) for place in range(len(probe.ids))]
        assert segments == by_hand, cut
        for words in probe.stretches:
            start, stop = bounds(words)
            of_stretch = set(segments[start:stop])
            assert len(of_stretch) == 1, cut


def test_a_sample_of_a_text_keeps_its_segments(cut_text, monkeypatch):
    packed = cut_text.text
    monkeypatch.setattr(held_out, "MAX_HELD_OUT_TOKENS", len(packed.ids) // 2 + 9)
    other_cuts = np.roll(packed.cuts, 1)
    sample = replace(cut_text, text=replace(packed, cuts=other_cuts))
    has_two = [bool(probe.masked.segments.any()) for probe in sample.probes]
    assert has_two == [True, True]
