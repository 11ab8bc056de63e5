"""The terms of attention: they add up to what transformers and every variant compute, and shares are covariances."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from tiny_models import ARMS, CONFIGS

from glue_bench.analysis import terms as terms_room
from glue_bench.analysis.chance import EXACT, LeftOut
from glue_bench.analysis.hooks import watching
from glue_bench.analysis.score_terms import FOUR, NINE, centred, mixed_to_words, shares_of_scores, terms_of
from glue_bench.analysis.tables import InputSum, input_sum
from glue_bench.analysis.terms import check_sum, divergences, head_shares, heads, measure_effect, position_bias, shares
from glue_bench.analysis.word_order import Row
from glue_bench.model.checkpoints import encoder as encoder_of
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.testing import POSITIONS, encoder_config, random_model, tokens

IDS = tokens(5, POSITIONS)
NO_SUM = {"multiply", "gate"}


def model_of(variant: str, **options) -> EncoderModel:
    return random_model(EncoderModel, encoder_config(variant, variant_options=options))


def nine(model: EncoderModel, table: InputSum) -> torch.Tensor:
    queries, keys = heads(model, table, IDS)
    return torch.stack([query @ key.mT for query in queries for key in keys])


# The sum


@pytest.mark.parametrize("family", CONFIGS)
def test_the_nine_terms_are_the_attention_of_transformers(family, tmp_path):
    kind = transformers.AutoModel._model_mapping[type(CONFIGS[family]())]
    theirs = random_model(kind, CONFIGS[family]())
    theirs.save_pretrained(tmp_path)
    theirs.set_attn_implementation("eager")
    model = encoder_of(read_checkpoint(str(tmp_path))).eval()
    with torch.no_grad():
        expected = theirs(input_ids=IDS, output_attentions=True).attentions[0]
        table = input_sum(model, POSITIONS)
        found = nine(model, table).sum(0).softmax(-1)
        assert check_sum(model, table, IDS) < EXACT
    assert (found - expected).abs().max() < 1e-5
    assert table.has_positions


@pytest.mark.parametrize(("variant", "options"), ARMS)
def test_the_terms_of_every_variant_add_up_or_are_left_out_with_a_reason(variant, options):
    model = model_of(variant, **options)
    if variant in NO_SUM:
        with pytest.raises(LeftOut, match="is no sum"):
            input_sum(model, POSITIONS)
        return
    table, seen = input_sum(model, POSITIONS), []
    with torch.no_grad(), watching(model, lambda _, scores: seen.append(scores)):
        if table.has_positions:
            assert check_sum(model, table, IDS) < EXACT
            found = shares(*heads(model, table, IDS), position_bias(model, POSITIONS))
            assert found.sum(-1) == pytest.approx(1, abs=1e-4)
            return
        model.hidden_states(IDS)
    left_out = {"rotary": "turn queries and keys", "none": "neither its input nor its scores"}
    if variant in left_out or options.get("terms") == ["word-word"]:
        with pytest.raises(LeftOut, match=left_out.get(variant, "neither")):
            terms_of(seen[0])
        return
    for scores in seen:
        terms = terms_of(scores)
        assert (sum(terms.values()) - scores.logits).abs().max() < EXACT * scores.logits.abs().max()
        assert len(terms) > 1 or "word-word" not in options.get("terms", ["word-word"])
        found = shares_of_scores({name: centred(term) for name, term in terms.items()})
        assert sum(found.values()) == pytest.approx(1, abs=1e-4)


def test_the_tables_are_those_of_the_variant_and_terms_of_others_are_refused():
    model = model_of("add")
    table = input_sum(model, POSITIONS)
    with torch.no_grad():
        with pytest.raises(LeftOut, match="away from the encoder's own"):
            check_sum(model, replace(table, positions=1.001 * table.positions), IDS)
        entering = model.variant(IDS, torch.zeros_like(IDS)).hidden
        words, positions = model.variant.words.weight, model.variant.positions.weight
        assert table.words == pytest.approx(words - words.mean(0), abs=1e-5)
        assert table.positions == pytest.approx(positions - positions.mean(0), abs=1e-5)
    assert table.words[IDS] + table.positions + table.mean == pytest.approx(entering, abs=1e-5)
    apart, half = input_sum(model_of("concat-split"), POSITIONS), model.config.hidden_size // 2
    assert not apart.words[:, half:].any()
    assert not apart.positions[:, :half].any()


# Shares, and what a term does


def test_shares_are_covariances_of_the_terms_as_matrices():
    """Those of baselines, too: they divide by the variance of the logits with their bias."""
    model = model_of("add-relative")
    table, bias = input_sum(model, POSITIONS), position_bias(model, POSITIONS)
    with torch.no_grad():
        found = shares(*heads(model, table, IDS), bias).numpy()
        terms = torch.cat([nine(model, table), bias[None].expand(-1, len(IDS), -1, -1, -1)]).double().numpy()
        assert abs(found[..., 9]).min() > 0.001
        assert head_shares(model, table, IDS) == pytest.approx(found.mean(0)[:, :9], abs=1e-5)
    terms = terms - terms.mean(-1, keepdims=True)
    for sequence, head in np.ndindex(*found.shape[:2]):
        each = terms[:, sequence, head].reshape(10, -1)
        covariances = np.cov(each, each.sum(0))[-1]
        assert found[sequence, head] == pytest.approx(covariances[:-1] / covariances[-1], abs=1e-4)


def test_the_divergence_is_that_of_the_attention_without_the_term():
    model = model_of("add")
    table = input_sum(model, POSITIONS)
    with torch.no_grad():
        found = divergences(model, table, IDS)
        terms = nine(model, table).double()
        attention = terms.sum(0).softmax(-1)
        for term in range(9):
            other = (terms.sum(0) - terms[term]).softmax(-1)
            expected = (attention * (attention.log() - other.log())).sum(-1).mean((1, 2))
            assert found[:, term] == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("variant", ["add", "add-relative"])
def test_the_loss_is_taken_once_with_all_terms_and_then_without_each_of_the_four(variant):
    head, seen = random_model(EncoderForMaskedLM, encoder_config(variant)), []
    model = head.base
    model.blocks[0].attention.register_forward_hook(lambda _, given, __: seen.append(given[1].bias))
    masked = [Row(ids, 0 * ids, ids) for ids in IDS.numpy()]
    text = SimpleNamespace(probes=[SimpleNamespace(masked=row) for row in masked])
    table = input_sum(model, POSITIONS)
    given = {"model": model, "sum": table, "tokens": IDS, "masked_lm": lambda _: (head, text)}
    rows = {row.measure: row for row in measure_effect(SimpleNamespace(**given)).rows}
    with torch.no_grad():
        terms = dict(zip(NINE, nine(model, table), strict=True))
    for term, bias in zip(FOUR, seen[1:], strict=True):
        assert bias.numpy() == pytest.approx(((0 if seen[0] is None else seen[0]) - terms[term]).numpy(), abs=1e-4)
        assert rows[f"terms.loss_rise.{'_'.join(term)}"].n == len(IDS)


def test_the_share_of_mixed_terms_beside_word_to_word_by_hand():
    shares_of = {("word", "word"): [0.6, 0.1], ("word", "position"): [0.1, 0.2], ("position", "word"): [0.1, 0.1]}
    by_head = np.array([shares_of.get(term, [0.5, 0.5]) for term in NINE]).T
    assert mixed_to_words(NINE, by_head) == pytest.approx((0.2 / 0.8 + 0.3 / 0.4) / 2)


def test_baselines_keep_what_they_should():
    table = input_sum(model_of("add"), POSITIONS)
    moved, other = terms_room.permuted(table, POSITIONS), terms_room.turned(table, 0).positions
    assert not torch.equal(moved.positions, table.positions)
    assert sorted(moved.positions.sum(1).tolist()) == sorted(table.positions.sum(1).tolist())
    assert other @ other.T == pytest.approx(table.positions @ table.positions.T, abs=1e-5)
    assert (other - table.positions).abs().max() > 0.1
    covariance = table.positions.T @ table.positions / POSITIONS
    drawn = torch.stack([terms_room.redrawn(table, draw).positions for draw in range(400)])
    found = torch.einsum("tni,tnj->ij", drawn, drawn) / (400 * POSITIONS)
    assert found == pytest.approx(covariance, abs=0.1 * float(covariance.diag().max()))
    assert drawn[0].norm() == pytest.approx(float(table.positions.norm()))
