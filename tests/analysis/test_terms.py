"""The terms of attention: they add up to what transformers and every variant compute, and shares are covariances."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import ARMS, CONFIGS

from glue_bench.analysis import term_effects, terms
from glue_bench.analysis.chance import EXACT, LeftOut
from glue_bench.analysis.held_out import MaskedRow
from glue_bench.analysis.hooks import FOUR, input_sum, watching
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import encoder as encoder_of
from glue_bench.model.tiny import POSITIONS, encoder_config, random_model, tokens

IDS = tokens(5, POSITIONS)


def model_of(variant: str, **options) -> EncoderModel:
    return random_model(EncoderModel, encoder_config(variant, variant_options=options))


@pytest.mark.parametrize("family", CONFIGS)
@torch.no_grad()
def test_the_nine_terms_are_the_attention_of_transformers(family, tmp_path):
    kind = transformers.AutoModel._model_mapping[type(CONFIGS[family]())]
    theirs = random_model(kind, CONFIGS[family]())
    theirs.save_pretrained(tmp_path)
    theirs.set_attn_implementation("eager")
    model = encoder_of(read_checkpoint(str(tmp_path))).eval()
    table, expected = (
        input_sum(model, POSITIONS),
        theirs(input_ids=IDS, output_attentions=True).attentions[0],
    )
    assert table.has_positions
    assert (
        terms.sum_of(terms.terms_of_input(model, table, IDS)).softmax(-1) - expected
    ).abs().max() < 1e-5
    assert terms.check_sum(model, table, IDS) < EXACT


@pytest.mark.parametrize(("variant", "options"), ARMS)
@torch.no_grad()
def test_the_terms_of_every_variant_add_up_or_are_left_out_with_a_reason(variant, options):
    model, seen = model_of(variant, **options), []
    if variant in ("multiply", "gate"):
        with pytest.raises(LeftOut, match="is no sum"):
            input_sum(model, POSITIONS)
        return
    table = input_sum(model, POSITIONS)
    if table.has_positions:
        recent = random_model(
            EncoderModel, encoder_config(variant, variant_options=options, norm_first=True)
        )
        assert (
            max(terms.check_sum(one, input_sum(one, POSITIONS), IDS) for one in (model, recent))
            < EXACT
        )
        assert terms.sequence_shares(model, table, IDS).sum(-1) == pytest.approx(1, abs=1e-4)
        return
    with watching(model, lambda _, scores: seen.append(scores)):
        model.hidden_states(IDS)
    left_out = {"rotary": "turn queries and keys", "none": "neither its input nor its scores"}
    if variant in left_out or options.get("terms") == ["word-word"]:
        with pytest.raises(LeftOut, match=left_out.get(variant, "neither")):
            terms.terms_of(seen[0])
        return
    for scores in seen:
        found = terms.terms_of(scores)
        assert terms.sum_error(found, scores.logits) < EXACT
        if variant == "four-term":
            assert set(found) == {term.replace("-", "_") for term in options.get("terms", FOUR)}
        assert terms.shares(found).sum(-1) == pytest.approx(1, abs=1e-4)


@torch.no_grad()
def test_the_tables_are_those_of_the_variant_and_terms_of_others_are_refused():
    model = model_of("add")
    table = input_sum(model, POSITIONS)
    with pytest.raises(LeftOut, match="away from the encoder's own"):
        terms.check_sum(model, replace(table, positions=1.001 * table.positions), IDS)
    words, positions = model.variant.words.weight, model.variant.positions.weight
    assert table.words == pytest.approx(words - words.mean(0), abs=1e-5)
    assert table.positions == pytest.approx(positions - positions.mean(0), abs=1e-5)
    entering = model.variant(IDS, torch.zeros_like(IDS)).hidden
    assert table.words[IDS] + table.positions + table.mean == pytest.approx(entering, abs=1e-5)
    apart, half = input_sum(model_of("concat-split"), POSITIONS), model.config.hidden_size // 2
    assert not apart.words[:, half:].any()
    assert not apart.positions[:, :half].any()


@torch.no_grad()
def test_shares_are_covariances_of_the_terms_as_matrices():
    """That of a bias, too."""
    model = model_of("add-relative")
    table = input_sum(model, POSITIONS)
    found, nine = terms.sequence_shares(model, table, IDS), terms.terms_of_input(model, table, IDS)
    assert tuple(nine) == (*terms.NINE, terms.BIAS)
    whole = (
        torch.stack([term.expand_as(nine["word_word"]) for term in nine.values()]).double().numpy()
    )
    assert abs(found[..., 9]).min() > 0.001
    for sequence, head in np.ndindex(*found.shape[:2]):
        each = whole[:, sequence, head].reshape(10, -1)
        covariances = np.cov(each, each.sum(0))[-1]
        assert found[sequence, head] == pytest.approx(covariances[:-1] / covariances[-1], abs=1e-4)


@torch.no_grad()
def test_the_divergence_is_that_of_the_attention_without_the_term():
    model = model_of("add")
    table = input_sum(model, POSITIONS)
    found, nine = (
        term_effects.divergences(model, table, IDS),
        terms.terms_of_input(model, table, IDS),
    )
    attention = terms.sum_of(nine).double().softmax(-1)
    for index, term in enumerate(terms.NINE):
        other = (
            terms.sum_of({name: each for name, each in nine.items() if name != term})
            .double()
            .softmax(-1)
        )
        expected = (attention * (attention.log() - other.log())).sum(-1).mean((1, 2))
        assert found[:, index] == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("variant", ["add", "add-relative"])
def test_the_loss_is_taken_once_with_all_terms_and_then_without_each_of_the_four(variant):
    head, seen = random_model(EncoderForMaskedLM, encoder_config(variant)), []
    model = head.base
    model.blocks[0].attention.register_forward_hook(lambda _, given, __: seen.append(given[1].bias))
    text = SimpleNamespace(
        probes=[SimpleNamespace(masked=MaskedRow(ids, 0 * ids, ids)) for ids in IDS.numpy()]
    )
    table = input_sum(model, POSITIONS)
    given = {"model": model, "sum": table, "tokens": IDS, "head_and_text": lambda _: (head, text)}
    rows = {row.measure: row for row in term_effects.measure_effect(SimpleNamespace(**given)).rows}
    with torch.no_grad():
        nine = terms.terms_of_input(model, table, IDS)
    for term, bias in zip(
        FOUR, seen[2:], strict=True
    ):  # after the sum is checked, and the loss with all terms
        assert bias.numpy() == pytest.approx(
            ((0 if seen[0] is None else seen[0]) - nine[term]).numpy(), abs=1e-4
        )
        assert rows[f"terms.loss_rise.{term}"].n == len(IDS)


def test_the_share_of_mixed_terms_beside_word_to_word_by_hand():
    shares_of = {"word_word": [0.6, 0.1], "word_position": [0.1, 0.2], "position_word": [0.1, 0.1]}
    by_head = np.array([shares_of.get(term, [0.5, 0.5]) for term in terms.NINE]).T
    assert terms.mixed_to_words(terms.NINE, by_head) == pytest.approx((0.2 / 0.8 + 0.3 / 0.4) / 2)


def test_baselines_keep_what_they_should():
    table = input_sum(model_of("add"), POSITIONS)
    other = terms.rotated(table, 0).positions
    assert other @ other.T == pytest.approx(table.positions @ table.positions.T, abs=1e-5)
    assert (other - table.positions).abs().max() > 0.1
    covariance = table.positions.T @ table.positions / POSITIONS
    drawn = torch.stack([terms.redrawn(table, draw).positions for draw in range(400)])
    found = torch.einsum("tni,tnj->ij", drawn, drawn) / (400 * POSITIONS)
    assert found == pytest.approx(covariance, abs=0.1 * float(covariance.diag().max()))
    assert drawn[0].norm() == pytest.approx(float(table.positions.norm()))
