"""Measures of more text than goes through at once: every batch counts."""

from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import SENTENCES, encoder_config, random_model
from torch.nn.functional import cross_entropy

import glue_bench
from glue_bench.analysis import held_out, positions, term_effects, terms
from glue_bench.analysis.chance import Sums
from glue_bench.analysis.held_out import HeldOut, MaskedRow
from glue_bench.analysis.hooks import FOUR_TERMS, InputSum, input_sum
from glue_bench.analysis.subject import Subject
from glue_bench.model.encoder import BlockScores, EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.tiny import HIDDEN, POSITIONS, tokens
from glue_bench.training.corpus import Corpus
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import train_tokenizer

MANY = tokens(37, POSITIONS)
"""With 16 sequences at once these are two whole batches, and a batch of five."""


def subject_of(variant: str, **options) -> SimpleNamespace:
    """Return a subject with the attributes that the measures of scores read."""
    model = random_model(EncoderModel, encoder_config(variant, variant_options=options))
    return SimpleNamespace(model=model, sum=input_sum(model, POSITIONS), tokens=MANY)


def rows_by_name(measured) -> dict:
    return {(row.measure, row.layer): row for row in measured.rows}


# Attention


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """transformers' BERT with eager attention, and its checkpoint as a subject."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = train_tokenizer(SENTENCES, 150)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = transformers.BertConfig(**sizes, vocab_size=len(tokenizer), max_position_embeddings=12)
    model = random_model(transformers.BertModel, config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model.set_attn_implementation("eager")
    subject = Subject(str(folder), Corpus("made", (["\n".join(SENTENCES)],), "made"), sequences=37)
    return model, subject


def test_the_text_is_more_than_two_batches(bert):
    assert len(bert[1].ids) > 32
    assert len(bert[1].ids) % 16 > 0


@torch.no_grad()
def test_attention_is_the_mean_over_the_sequences_of_all_batches(bert):
    model, subject = bert
    expected = model(subject.tokens, output_attentions=True).attentions
    _, attention = subject.deep
    for block, (measured, weights) in enumerate(zip(attention, expected, strict=True), start=1):
        np.testing.assert_allclose(
            measured, weights.mean(0).numpy(), atol=1e-5, err_msg=f"block {block}"
        )


@torch.no_grad()
def test_states_have_the_sequences_of_all_batches(bert):
    model, subject = bert
    expected = model(subject.tokens, output_hidden_states=True).hidden_states
    states, _ = subject.deep
    for layer, (measured, hidden) in enumerate(zip(states, expected, strict=True)):
        np.testing.assert_allclose(measured, hidden.numpy(), atol=1e-4, err_msg=f"layer {layer}")


def test_running_text_is_cut_where_a_sequence_is_full_and_nothing_is_lost(bert):
    _, subject = bert
    tokenizer = subject.tokenizer
    encoded = tokenizer(list(SENTENCES), add_special_tokens=False)["input_ids"]
    running = list(chain.from_iterable(encoded))
    assert subject.ids[:, 1:-1].ravel().tolist() == running[: subject.ids[:, 1:-1].size]


# Terms


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("untied", {}),
        ("untied", {"share": False}),
        ("disentangled", {}),
        ("diet-abs", {"rank": 2, "share": False}),
    ],
)
@torch.no_grad()
def test_shares_of_scores_are_means_over_the_sequences_of_all_batches(variant, options):
    """In each block a share is the covariance of a term with the sum over all sequences at once."""
    subject = subject_of(variant, **options)
    rows = rows_by_name(terms.measure_score_terms(subject))
    scores_by_block = {}
    with terms.watch_scores(
        subject.model, lambda block, scores: scores_by_block.update({block: scores})
    ):
        subject.model.hidden_states(MANY)
    assert sorted(scores_by_block) == [1, 2]
    for block, scores in scores_by_block.items():
        parts = terms.terms_of(scores)
        total = sum(parts.values())
        for name, part in parts.items():
            shares = (part * total).sum((-1, -2)) / total.square().sum((-1, -2))
            row = rows[f"terms.share.{name}", block]
            assert (row.n, row.value) == (37, pytest.approx(float(shares.mean()), abs=1e-4)), (
                name,
                block,
            )


@torch.no_grad()
def test_the_error_of_a_sum_is_the_largest_of_all_batches_and_blocks():
    subject = subject_of("untied")
    errors = []

    def look(_: int, scores: terms.BlockTerms) -> None:
        errors.append(terms.sum_error(terms.terms_of(scores), scores.logits))

    with terms.watch_scores(subject.model, look):
        for batch in MANY.split(16):
            subject.model.hidden_states(batch)
    assert len(set(errors)) > 1
    row = rows_by_name(terms.measure_score_terms(subject))["terms.sum_error", 1]
    assert row.value == max(errors)


def test_bands_of_chance_come_of_draws_that_differ(monkeypatch):
    """The draws are rotations of the positions, and tables with their covariance."""
    drawn: dict[str, set[int]] = {"rotate_positions": set(), "redraw_positions": set()}
    for name, draws in drawn.items():
        original = getattr(terms, name)

        def noted(table: InputSum, draw: int, original=original, draws=draws) -> InputSum:
            draws.add(draw)
            return original(table, draw)

        monkeypatch.setattr(terms, name, noted)
    rows = rows_by_name(terms.measure_terms(subject_of("add")))
    counts = {name: len(draws) for name, draws in drawn.items()}
    assert counts == {"rotate_positions": 10, "redraw_positions": 3}
    for term in ("word_word", "word_position", "position_position"):
        row = rows[f"terms.share.{term}", 1]
        assert row.chance_low < row.chance_high, term


@torch.no_grad()
def test_permuted_positions_have_other_shares():
    """The scores between neighbouring positions change."""
    rows = rows_by_name(terms.measure_terms(subject_of("add")))
    share_of_own_order = rows["terms.share.position_position", 1].value
    permuted = rows["terms.share_permuted.position_position", 1].value
    assert permuted != pytest.approx(share_of_own_order, abs=1e-6)


def logits_with_attention(head: EncoderForMaskedLM, attention: torch.Tensor) -> torch.Tensor:
    """Compute the logits for MANY with another attention in the first block."""
    model = head.base
    first, second = model.blocks
    hidden = model.hidden_states(MANY)[0]
    values = first.attention.project(hidden)[2].transpose(1, 2)
    mixed = first.attention.out((attention @ values).transpose(1, 2).flatten(2))
    middle = first.attention_norm(hidden + mixed)
    after_first = first.norm(middle + first.feed_forward(middle))
    bias = model.variant(MANY, 0 * MANY).biases()[0]
    changes = BlockScores(bias, None, None, all_queries=False)
    return head.predict(second(after_first, changes))


@pytest.mark.parametrize("variant", ["add", "add-relative"])
@torch.no_grad()
def test_the_rise_of_the_loss_is_that_without_the_term(variant):
    """The scores of the first block are computed without the term, head by head."""
    head = random_model(EncoderForMaskedLM, encoder_config(variant))
    rows = [MaskedRow(ids, 0 * ids, ids) for ids in MANY.numpy()]
    text = SimpleNamespace(probes=[SimpleNamespace(masked=row) for row in rows])
    table = input_sum(head.base, POSITIONS)
    subject = SimpleNamespace(
        model=head.base, sum=table, tokens=MANY, head_and_text=lambda _: (head, text)
    )
    measured = rows_by_name(term_effects.measure_effect(subject))
    parts = terms.terms_of_input(head.base, table, MANY)
    before = cross_entropy(head(MANY).logits.flatten(0, 1), MANY.flatten()).item()
    for term in FOUR_TERMS:
        remaining = dict(parts)
        del remaining[term]
        logits = logits_with_attention(head, terms.sum_of(remaining).softmax(-1))
        rise = cross_entropy(logits.flatten(0, 1), MANY.flatten()).item() - before
        assert measured[f"terms.loss_rise.{term}", 1].value == pytest.approx(rise, abs=1e-3), term


# Positions


@torch.no_grad()
def test_position_scores_are_measured_in_the_first_block_if_blocks_have_projections():
    subject = subject_of("untied-tie-cls", share=False)
    zeros = torch.zeros(1, POSITIONS, dtype=torch.long)
    of_first, of_second = (
        bias[0].double().numpy() for bias in subject.model.variant(zeros, zeros).biases()
    )
    row = rows_by_name(positions.measure_position_scores(subject))["positions.scores.toeplitz", 1]
    expected = np.mean([positions.toeplitz(scores) for scores in of_first])
    assert row.value == pytest.approx(expected, rel=1e-4)
    assert row.value != pytest.approx(
        np.mean([positions.toeplitz(scores) for scores in of_second]), rel=1e-3
    )


@pytest.mark.parametrize(
    "sizes",
    [{}, {"norm_first": True}, {"embedding_size": 12}, {"embedding_size": 12, "norm_first": True}],
)
@torch.no_grad()
def test_queries_and_keys_of_added_positions_by_hand_in_every_kind_of_encoder(sizes):
    """They may differ by a factor for each row, which is the divisor of LayerNorm."""
    model = random_model(EncoderModel, encoder_config("add", **sizes))
    subject = SimpleNamespace(model=model, sum=input_sum(model, POSITIONS))
    rows = model.variant.positions.weight - model.variant.positions.weight.mean(0)
    rows = model.norm.weight * (rows - rows.mean(1, keepdim=True))
    if model.project is not None:
        rows = rows @ model.project.weight.T
    if sizes.get("norm_first"):
        rows = model.blocks[0].attention_norm.weight * (rows - rows.mean(1, keepdim=True))
    expected = rows @ model.blocks[0].attention.qkv.weight[: 2 * HIDDEN].T
    projected = positions.positions_of(subject).queries_and_keys
    torch.testing.assert_close(projected, expected, atol=1e-3, rtol=1e-3)


# Losses of held-out text


def random_text(sequences: int, lengths: tuple[int, ...], **options) -> HeldOut:
    """Return random words in sequences of these lengths, one after the other."""
    tokenizer = train_tokenizer(SENTENCES, 150)
    generator = np.random.default_rng(0)
    rows = []
    for number in range(sequences):
        inner = generator.integers(5, len(tokenizer), size=lengths[number % len(lengths)] - 2)
        rows.append(
            np.array([tokenizer.cls_token_id, *inner, tokenizer.sep_token_id], dtype=np.int32)
        )
    offsets = np.cumsum([0, *map(len, rows)])
    return HeldOut(PackedText(np.concatenate(rows), offsets), tokenizer, **options)


def test_rows_are_given_their_losses_however_many_go_through_at_once(monkeypatch):
    """The rows have unequal lengths, so that they are computed in another order."""
    text = random_text(23, (12, 5, 9, 7))
    config = encoder_config("add", vocab_size=len(text.tokenizer))
    model = random_model(EncoderForMaskedLM, config)
    rows = [probe.masked for probe in text.probes]
    expected = []
    for row in rows:
        ids, labels = (torch.from_numpy(part)[None] for part in (row.ids, row.labels))
        with torch.no_grad():
            expected.append(model(ids, labels=labels).loss.item() * int((row.labels != -100).sum()))
    for at_once in (8192, 40, 1):
        monkeypatch.setattr(held_out, "TOKENS_AT_ONCE", at_once)
        sums = held_out.loss_sums(model, rows).sums
        assert sums == pytest.approx(expected, rel=1e-4), f"{at_once} tokens at once"


def test_a_text_of_more_than_one_batch_has_the_probes_of_every_sequence():
    text = random_text(150, (9, 6, 12))
    assert len(text.probes) == 150
    for number, probe in enumerate(text.probes):
        ids = text.text.ids[text.text.offsets[number] : text.text.offsets[number + 1]]
        assert probe.ids.tolist() == ids.tolist(), number
        labels = probe.masked.labels
        assert labels[labels != -100].tolist() == ids[labels != -100].tolist(), number


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_share_of_tokens_to_predict_is_the_stated_one(share):
    text = random_text(10, (12,), mask_probability=share)
    counts = [int((probe.masked.labels != -100).sum()) for probe in text.probes]
    expected = [max(1, round(share * 10))] * 10
    assert counts == expected


def test_segments_reach_the_loss():
    config = encoder_config("add", vocab_size=len(random_text(1, (9,)).tokenizer))
    model = random_model(EncoderForMaskedLM, config)
    ids = np.arange(5, 14)
    segments = (np.arange(9) > 4).astype(int)
    measured_loss = held_out.loss_sums(model, [MaskedRow(ids, segments, ids)]).value
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None], None, torch.from_numpy(segments)[None]).logits[
            0
        ]
    expected = cross_entropy(logits, torch.from_numpy(ids)).item()
    assert measured_loss == pytest.approx(expected, rel=1e-5)


def test_sums_over_unequal_sequences_are_no_mean_of_means():
    sums = Sums(np.array([1.0, 8.0, 0.0]), np.array([1.0, 2.0, 0.0]))
    assert sums.value == pytest.approx(9 / 3)


# Several checkpoints and measures


def test_matrices_of_several_checkpoints_lie_in_one_frame_with_their_labels(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES))
    folders = []
    for seed, name in enumerate(("first", "second", "third")):
        torch.manual_seed(seed)
        EncoderModel(encoder_config("add", initializer_range=0.3)).save_pretrained(tmp_path / name)
        folders.append(tmp_path / name)
    result = glue_bench.analyse(folders, corpus=tmp_path / "text.txt", only=["subspaces"])
    curve = result.matrices["subspace_curve"]
    assert curve["checkpoint"].value_counts().to_dict() == dict.fromkeys(
        ("first", "second", "third"), HIDDEN
    )
    assert curve.groupby("checkpoint")["share"].first().nunique() == 3
