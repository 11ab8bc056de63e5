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
    DISTANCES,
    in_n_grams,
    order_sums,
    pairs,
    reordered,
)
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import under_head
from glue_bench.testing import encoder_config, random_model
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import train_tokenizer

POSITIONS = 64
SWAPS = [f"swap_{distance}" for distance in DISTANCES]
RISES = ["shuffle_1", "shuffle_2", "shuffle_3", "reverse"]
STARTS = ["start_8", "start_16"]


@pytest.fixture(scope="module")
def tokenizer():
    """A vocabulary so small that most words have several pieces."""
    return train_tokenizer(SENTENCES, 80)


def packed(tokenizer, texts) -> PackedText:
    """A sequence for each text, a tuple of sentences with separators between them."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    sequences = []
    for sentences in texts:
        ids = [cls]
        for encoded in tokenizer(list(sentences), add_special_tokens=False)["input_ids"]:
            ids += [*encoded[: POSITIONS // len(sentences) - 2], sep]
        sequences.append(np.array(ids, dtype=np.int32))
    return PackedText(np.concatenate(sequences), np.cumsum([0, *map(len, sequences)]))


@pytest.fixture(scope="module")
def text(tokenizer) -> HeldOut:
    """Eight sequences: four of a sentence, four of two."""
    texts = [*((one,) for one in SENTENCES[:4]), *zip(SENTENCES[4:8], SENTENCES[8:12], strict=True)]
    return HeldOut(packed(tokenizer, texts), tokenizer)


def model_of(variant: str, tokenizer) -> EncoderForMaskedLM:
    config = encoder_config(variant, vocab_size=len(tokenizer), max_position_embeddings=POSITIONS)
    return random_model(EncoderForMaskedLM, config)


def knows_pairs(table: np.ndarray) -> SimpleNamespace:
    """A model whose prediction follows from the token before alone: `table` (vocabulary, vocabulary) of logits."""
    base = SimpleNamespace(hidden_states=lambda ids, *_, **__: [ids.roll(1, 1)[..., None]])
    logits, device = torch.from_numpy(table), torch.device("cpu")
    return SimpleNamespace(base=base, device=device, predict=lambda states: logits[states[:, 0]])


def test_without_positions_the_swap_test_is_exactly_chance_and_no_order_matters(tokenizer, text):
    measured = order_sums(model_of("none", tokenizer), text, POSITIONS)
    for name in SWAPS:
        assert measured[name].n > 5
        assert (measured[name].sums == measured[name].counts / 2).all()
    assert all(np.abs(measured[name].sums).max() < 1e-4 for name in (*RISES, *STARTS))


def test_with_positions_order_matters_and_equal_calls_give_equal_bits(tokenizer, text, monkeypatch):
    model = model_of("add", tokenizer)
    measured, again = (order_sums(model, text, POSITIONS) for _ in range(2))
    assert list(measured) == ["validation_loss", *SWAPS, *RISES, *STARTS]
    assert (
        sum((measured[name].sums % 1 > 0).sum() for name in SWAPS) <= 1
    )  # ties, of more than a hundred swaps
    assert all(np.abs(measured[name].sums).min() > 1e-3 for name in (*RISES, *STARTS))
    assert all((sums.sums == again[name].sums).all() for name, sums in measured.items())
    monkeypatch.setattr(word_order, "VALIDATION_SEED", 2)
    monkeypatch.setattr(held_out, "VALIDATION_SEED", 2)
    other = order_sums(model, replace(text), POSITIONS, [])
    assert all(
        other[name].value != measured[name].value for name in ("validation_loss", "shuffle_1")
    )


@pytest.mark.parametrize("variant", ["alibi", "rotary", "shaw", "diet-rel", "disentangled"])
def test_what_knows_distances_alone_does_not_feel_a_moved_start(variant, tokenizer, text):
    found = order_sums(model_of(variant, tokenizer), text, POSITIONS, [])
    assert not any(found[name].sums.any() for name in STARTS)


def test_a_moved_start_reads_all_texts_at_one_length_and_what_a_text_lacks_is_left_out(
    tokenizer, text
):
    model, lengths = model_of("add", tokenizer), []
    model.base.variant.register_forward_pre_hook(lambda _, given: lengths.append(given[0].shape[1]))
    found = order_sums(model, text, POSITIONS, [])
    assert found["start_8"].counts.tolist() == found["start_16"].counts.tolist()
    assert max(lengths[-2:]) + 16 <= POSITIONS
    assert not set(STARTS) & order_sums(model, text, 31, []).keys()
    short = HeldOut(
        packed(tokenizer, [("Yes",), ("No",)]), tokenizer
    )  # which has no two such words to swap
    assert list(order_sums(model, short, 16)) == ["validation_loss", *RISES]


def test_the_swap_test_by_hand(tokenizer, monkeypatch):
    monkeypatch.setattr(word_order, "MAX_TOKENS", 1)  # so few that one swap is made
    drawn = np.random.default_rng(0).normal(size=(len(tokenizer), len(tokenizer)))
    one = HeldOut(packed(tokenizer, [(SENTENCES[0],)]), tokenizer)
    (probe,) = one.probes
    (((a, b), (c, d)),) = pairs(probe, 2, 0, one)
    ids = probe.ids.tolist()
    swapped = ids[:a] + ids[c:d] + ids[b:c] + ids[a:b] + ids[d:]
    versions = [
        (ids, [*range(a, b), *range(c, d)]),
        (swapped, [*range(a, a + d - c), *range(d - b + a, d)]),
    ]
    outcomes = set()
    for table in (drawn, -drawn, drawn.T, -drawn.T):
        log_p = table - np.log(np.exp(table).sum(1, keepdims=True))
        # The token before stands there as it is: each token is masked on its own.
        original, other = (
            sum(log_p[tokens[k - 1], tokens[k]] for k in places) for tokens, places in versions
        )
        outcomes.add(original > other)
        assert word_order.swap_sums(knows_pairs(table), one, 2).value == float(original > other)
    assert outcomes == {True, False}


def test_the_loss_is_that_of_transformers(tokenizer, text, tmp_path):
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = transformers.BertConfig(**sizes, vocab_size=len(tokenizer), initializer_range=0.3)
    theirs = random_model(transformers.BertForMaskedLM, config)
    theirs.save_pretrained(tmp_path)
    masked = [probe.masked for probe in text.probes]
    ours = held_out.loss_sums(
        under_head(start := read_checkpoint(str(tmp_path)), start.config).eval(), masked
    )
    for row, total, count in zip(masked, ours.sums, ours.counts, strict=True):
        ids, labels = (torch.from_numpy(part)[None] for part in (row.ids, row.labels))
        assert total == pytest.approx(theirs(ids, labels=labels).loss.item() * count, rel=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, None])
def test_labels_move_with_their_words(n, text):
    """Where each token went to, its mask and its label went, too; n-grams stay whole, and None reverses words."""
    for index, probe in enumerate(text.probes):

        def order(words, k=index):
            return in_n_grams(words, n, np.random.default_rng([n, k])) if n else words[::-1]

        numbered = probe._replace(
            masked=probe.masked._replace(ids=probe.ids, labels=np.arange(len(probe.ids)))
        )
        row, plain = reordered(probe, order), reordered(numbered, order)
        for part, whole in (
            (row.ids, probe.masked.ids),
            (row.labels, probe.masked.labels),
            (plain.ids, probe.ids),
        ):
            assert (part == whole[plain.labels]).all()
        assert (
            row.segments == probe.masked.segments
        ).all()  # words move within a segment, which stays where it is
        for words in probe.stretches:
            places = plain.labels[words[0][0] : words[-1][1]].tolist()
            assert sorted(places) == list(range(words[0][0], words[-1][1]))
            assert n or places == [place for word in words[::-1] for place in range(*word)]
            for gram in (words[k : k + n] for k in range(0, len(words), n)) if n else ():
                at = places.index(gram[0][0])
                assert places[at : at + gram[-1][1] - gram[0][0]] == list(
                    range(gram[0][0], gram[-1][1])
                )


def test_segments_are_those_that_the_model_was_trained_with(tokenizer, monkeypatch):
    """A part of the sequences are cut into two segments; both kinds are read as pretraining reads them."""
    plain = packed(tokenizer, list(zip(SENTENCES[:4], SENTENCES[4:8], strict=True)))
    seps = [
        np.flatnonzero(plain.ids[a:b] == tokenizer.sep_token_id)
        for a, b in itertools.pairwise(plain.offsets)
    ]
    cuts = np.array([0, seps[1][0] + 1, 0, seps[3][0] + 1])
    text = HeldOut(replace(plain, cuts=cuts), tokenizer)
    for probe, cut in zip(text.probes, cuts, strict=True):
        assert (probe.masked.segments == ((cut > 0) & (np.arange(len(probe.ids)) >= cut))).all()
        assert all(
            len(set(probe.masked.segments[slice(words[0][0], words[-1][1])])) == 1
            for words in probe.stretches
        )
    monkeypatch.setattr(held_out, "MAX_TOKENS", len(plain.ids) // 2 + 9)
    half = replace(text, text=replace(text.text, cuts=np.roll(cuts, 1)))
    assert [probe.masked.segments.any() for probe in half.probes] == [True, True]
