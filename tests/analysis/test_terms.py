"""The terms of attention add up to the scores of every variant; shares are covariances."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import ARMS, CONFIGS

from glue_bench.analysis import term_effects, terms
from glue_bench.analysis.chance import ROUNDING_ERROR, LeftOut
from glue_bench.analysis.held_out import MaskedRow
from glue_bench.analysis.hooks import FOUR_TERMS, BlockTerms, InputSum, input_sum, watch_scores
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import encoder as encoder_of
from glue_bench.model.tiny import POSITIONS, encoder_config, random_model, tokens

IDS = tokens(5, POSITIONS)


def model_of(variant: str, **options) -> EncoderModel:
    return random_model(EncoderModel, encoder_config(variant, variant_options=options))


def scores_by_block(model: EncoderModel) -> list[BlockTerms]:
    """Return the scores of each block for IDS."""
    scores: list[BlockTerms] = []
    with watch_scores(model, lambda _, of_block: scores.append(of_block)):
        model.hidden_states(IDS)
    return scores


@pytest.mark.parametrize("family", CONFIGS)
@torch.no_grad()
def test_the_nine_terms_are_the_attention_of_transformers(family, tmp_path):
    make_config = CONFIGS[family]
    config = make_config()
    original = random_model(transformers.AutoModel._model_mapping[type(config)], config)
    original.save_pretrained(tmp_path)
    original.set_attn_implementation("eager")
    model = encoder_of(read_checkpoint(str(tmp_path))).eval()
    table = input_sum(model, POSITIONS)
    assert table.has_positions
    attention = terms.sum_of(terms.terms_of_input(model, table, IDS)).softmax(-1)
    expected = original(input_ids=IDS, output_attentions=True).attentions[0]
    assert (attention - expected).abs().max() < 1e-5
    assert terms.check_sum(model, table, IDS) < ROUNDING_ERROR


NO_SUM = ("multiply", "gate")
"""Variants whose input is no sum of a word and a position."""


@pytest.mark.parametrize("variant", NO_SUM)
@torch.no_grad()
def test_an_input_that_is_no_sum_is_left_out(variant):
    with pytest.raises(LeftOut, match="is not the sum of"):
        input_sum(model_of(variant), POSITIONS)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("variant", "options"), ARMS)
@torch.no_grad()
def test_the_terms_of_positions_at_the_input_add_up(variant, options, norm_first):
    if variant in (*NO_SUM, "position-infused"):
        return
    config = encoder_config(variant, variant_options=options, norm_first=norm_first)
    model = random_model(EncoderModel, config)
    table = input_sum(model, POSITIONS)
    if table.has_positions:
        assert terms.check_sum(model, table, IDS) < ROUNDING_ERROR
        shares = terms.sequence_shares(model, table, IDS)
        assert shares.sum(-1) == pytest.approx(1, abs=1e-4)


WITHOUT_POSITION = ({"terms": ["word-word"]}, {"fraction": 0.0}, {"position_size": 0})
ENTER_QUERIES_AND_KEYS = ("rotary", "polar", "position-infused")


def reason_without_terms(variant: str, options: dict, block: int) -> str:
    """Return the reason why the scores of a block have no terms; empty if they have."""
    has_no_position = variant == "none" or options in WITHOUT_POSITION
    if has_no_position or block not in options.get("blocks", [block]):
        return "neither its input nor its scores"
    return "enter queries and keys" if variant in ENTER_QUERIES_AND_KEYS else ""


@torch.no_grad()
def test_positions_beside_the_input_in_queries_and_keys_leave_the_terms_out():
    model = model_of("position-infused", add_positions=True)
    with pytest.raises(LeftOut, match="enter queries and keys"):
        terms.terms_of_input(model, input_sum(model, POSITIONS), IDS)


@pytest.mark.parametrize(("variant", "options"), ARMS)
@torch.no_grad()
def test_the_terms_of_positions_in_the_scores_add_up_or_are_left_out(variant, options):
    model = model_of(variant, **options)
    if variant in NO_SUM or input_sum(model, POSITIONS).has_positions:
        return
    for block, scores in enumerate(scores_by_block(model), 1):
        reason = reason_without_terms(variant, options, block)
        if reason:
            with pytest.raises(LeftOut, match=reason):
                terms.terms_of(scores)
            continue
        parts = terms.terms_of(scores)
        assert terms.sum_error(parts, scores.logits) < ROUNDING_ERROR
        assert terms.shares(parts).sum(-1) == pytest.approx(1, abs=1e-4)
        if variant == "four-term":
            names = options.get("terms", FOUR_TERMS)
            assert set(parts) == {name.replace("-", "_") for name in names}


@torch.no_grad()
def test_the_tables_equal_the_variants_tables():
    model = model_of("add")
    table = input_sum(model, POSITIONS)
    words = model.variant.words.weight
    positions = model.variant.positions.weight
    assert table.words == pytest.approx(words - words.mean(0), abs=1e-5)
    assert table.positions == pytest.approx(positions - positions.mean(0), abs=1e-5)
    hidden = model.variant(IDS, torch.zeros_like(IDS)).hidden
    assert table.words[IDS] + table.positions + table.mean == pytest.approx(hidden, abs=1e-5)


@torch.no_grad()
def test_the_tables_of_concat_split_have_dimensions_of_their_own():
    model = model_of("concat-split")
    table = input_sum(model, POSITIONS)
    half = model.config.hidden_size // 2
    assert not table.words[:, half:].any()
    assert not table.positions[:, :half].any()


@torch.no_grad()
def test_terms_of_another_table_are_refused():
    model = model_of("add")
    table = input_sum(model, POSITIONS)
    larger = replace(table, positions=1.001 * table.positions)
    with pytest.raises(LeftOut, match="away from the encoder's own"):
        terms.check_sum(model, larger, IDS)


@torch.no_grad()
def test_shares_are_covariances_of_the_terms_as_matrices():
    """The share of a bias is a covariance, too."""
    model = model_of("add-relative")
    table = input_sum(model, POSITIONS)
    shares = terms.sequence_shares(model, table, IDS)
    ten = terms.terms_of_input(model, table, IDS)
    assert tuple(ten) == (*terms.NINE_TERMS, terms.BIAS)
    assert abs(shares[..., 9]).min() > 0.001
    expanded = [term.expand_as(ten["word_word"]) for term in ten.values()]
    matrices = torch.stack(expanded).double().numpy()
    for sequence, head in np.ndindex(*shares.shape[:2]):
        rows = matrices[:, sequence, head].reshape(10, -1)
        covariances = np.cov(rows, rows.sum(0))[-1]
        by_hand = covariances[:-1] / covariances[-1]
        assert shares[sequence, head] == pytest.approx(by_hand, abs=1e-4)


@torch.no_grad()
def test_the_divergence_compares_attention_with_and_without_the_term():
    model = model_of("add")
    table = input_sum(model, POSITIONS)
    divergences = term_effects.divergences(model, table, IDS)
    nine = terms.terms_of_input(model, table, IDS)
    attention = terms.sum_of(nine).double().softmax(-1)
    for index, term in enumerate(terms.NINE_TERMS):
        remaining = dict(nine)
        del remaining[term]
        without = terms.sum_of(remaining).double().softmax(-1)
        by_hand = (attention * (attention.log() - without.log())).sum(-1).mean((1, 2))
        assert divergences[:, index] == pytest.approx(by_hand, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("variant", ["add", "add-relative"])
def test_the_loss_is_taken_once_with_all_terms_and_then_without_each_of_the_four(variant):
    head = random_model(EncoderForMaskedLM, encoder_config(variant))
    model = head.base
    biases = []
    model.blocks[0].attention.register_forward_hook(
        lambda _, inputs, __: biases.append(inputs[1].bias)
    )

    probes = [SimpleNamespace(masked=MaskedRow(ids, 0 * ids, ids)) for ids in IDS.numpy()]
    text = SimpleNamespace(probes=probes)
    table = input_sum(model, POSITIONS)
    subject = SimpleNamespace(
        model=model, sum=table, tokens=IDS, head_and_text=lambda _: (head, text)
    )

    rows = {row.measure: row for row in term_effects.measure_effect(subject).rows}
    with torch.no_grad():
        nine = terms.terms_of_input(model, table, IDS)

    first, _, *without_terms = biases  # the check of the sum, and the loss with all terms
    for term, bias in zip(FOUR_TERMS, without_terms, strict=True):
        by_hand = (0 if first is None else first) - nine[term]
        assert bias.numpy() == pytest.approx(by_hand.numpy(), abs=1e-4)
        assert rows[f"terms.loss_rise.{term}"].n == len(IDS)


def test_the_share_of_mixed_terms_beside_word_to_word_by_hand():
    shares = {term: [0.5, 0.5] for term in terms.NINE_TERMS}
    shares["word_word"] = [0.6, 0.1]
    shares["word_position"] = [0.1, 0.2]
    shares["position_word"] = [0.1, 0.1]
    by_head = np.array(list(shares.values())).T
    by_hand = (0.2 / 0.8 + 0.3 / 0.4) / 2
    assert terms.mixed_to_words(terms.NINE_TERMS, by_head) == pytest.approx(by_hand)


@pytest.fixture
def table() -> InputSum:
    return input_sum(model_of("add"), POSITIONS)


def test_rotated_positions_keep_their_products_with_each_other(table):
    rotated = terms.rotate_positions(table, 0).positions
    products = table.positions @ table.positions.T
    assert rotated @ rotated.T == pytest.approx(products, abs=1e-5)
    assert (rotated - table.positions).abs().max() > 0.1


def test_redrawn_positions_keep_their_covariance_and_size(table):
    covariance = table.positions.T @ table.positions / POSITIONS
    draws = torch.stack([terms.redraw_positions(table, draw).positions for draw in range(400)])
    mean = torch.einsum("tni,tnj->ij", draws, draws) / (400 * POSITIONS)
    assert mean == pytest.approx(covariance, abs=0.1 * float(covariance.diag().max()))
    assert draws[0].norm() == pytest.approx(float(table.positions.norm()))
