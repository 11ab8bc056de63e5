"""Variants against other people's code (T5, RoFormer, DeBERTa) and the papers' figures (ALiBi, Vaswani et al.)."""

import math

import pytest
import torch
import transformers
from tiny_models import encoder_config
from transformers.models.t5.modeling_t5 import T5Attention

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.families import FAMILIES
from glue_bench.model.variants.additive import angles
from glue_bench.model.variants.relative import alibi_slopes, offsets, relative_buckets


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 64), (8, 20)])
def test_buckets_are_those_of_t5(buckets: int, max_distance: int) -> None:
    away = offsets(300, torch.zeros(1))
    theirs = T5Attention._relative_position_bucket(away, num_buckets=buckets, max_distance=max_distance)
    assert torch.equal(relative_buckets(away, buckets, max_distance), theirs)


def roformer() -> transformers.RoFormerModel:
    config = transformers.RoFormerConfig(
        vocab_size=90,
        hidden_size=32,
        embedding_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        rotary_value=False,
    )
    model = transformers.RoFormerModel(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.ndim > 1 and "embed_positions" not in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize("padded", [False, True])
def test_rotary_computes_what_roformer_computes(padded: bool) -> None:
    theirs = roformer()
    weights, _ = FAMILIES["bert"].translate(theirs.state_dict(), None)
    sizes = {"vocab_size": 90, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 40}
    ours = EncoderModel(encoder_config("rotary", num_attention_heads=4, num_hidden_layers=2, **sizes)).eval()
    ours.load_state_dict(weights, strict=False)
    ids, mask = torch.randint(1, 90, (3, 11)), torch.ones(3, 11, dtype=torch.long)
    if padded:
        mask[1, 7:] = 0
    expected = theirs(ids, attention_mask=mask).last_hidden_state
    error = (ours(ids, mask).last_hidden_state - expected)[mask.bool()].abs().max()
    assert error < 1e-5
    shuffled = theirs(ids.flip(1), attention_mask=mask).last_hidden_state.flip(1)
    assert (shuffled - expected)[0].abs().max() > 1e-2, "position must matter, or the comparison says nothing"


def test_slopes_are_the_papers() -> None:
    assert alibi_slopes(8) == [2.0**-power for power in range(1, 9)]
    assert alibi_slopes(16)[:2] == [2**-0.5, 2**-1]
    assert len(set(alibi_slopes(12))) == 12
    assert alibi_slopes(12)[8:] == [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]


def test_alibi_falls_linearly_with_distance_on_both_sides() -> None:
    model = EncoderModel(encoder_config("alibi", num_attention_heads=4))
    bias = model.variant(torch.ones(1, 5, dtype=torch.long), torch.zeros(1, 5, dtype=torch.long)).bias
    expected = [[-0.25 * abs(i - j) for j in range(5)] for i in range(5)]  # the first of four slopes is 2^-2
    assert torch.equal(bias[0, 0], torch.tensor(expected))


def test_angles_are_those_of_the_original_transformer() -> None:
    sine, cosine = angles(6, 8, torch.zeros(1))
    for position in range(6):
        for pair in range(4):
            turn = position / 10_000 ** (2 * pair / 8)
            assert math.isclose(sine[position, pair], math.sin(turn), abs_tol=1e-6)
            assert math.isclose(cosine[position, pair], math.cos(turn), abs_tol=1e-6)


def deberta(terms: list[str]) -> transformers.DebertaModel:
    config = transformers.DebertaConfig(
        vocab_size=90,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=40,
        type_vocab_size=2,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=terms,
        layer_norm_eps=1e-12,
    )
    model = transformers.DebertaModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    return model


def from_deberta(raw: dict[str, torch.Tensor], heads: int, blocks: int) -> dict[str, torch.Tensor]:
    """DeBERTa's weights in our names: its in_proj holds query, key and value head by head, the key without bias."""
    weights, _ = FAMILIES["bert"].translate(raw, None)
    weights["variant.distances.weight"] = raw["encoder.rel_embeddings.weight"]
    for block in range(blocks):
        mine, theirs = f"blocks.{block}.attention.qkv", f"encoder.layer.{block}.attention.self"
        stacked = raw[f"{theirs}.in_proj.weight"].unflatten(0, (heads, 3, -1))
        weights[f"{mine}.weight"] = stacked.transpose(0, 1).flatten(0, 2)
        query, value = raw[f"{theirs}.q_bias"], raw[f"{theirs}.v_bias"]
        weights[f"{mine}.bias"] = torch.cat([query, torch.zeros_like(query), value])
        for ours, name in (("keys", "pos_proj"), ("queries", "pos_q_proj")):
            for part in ("weight", "bias"):
                if f"{theirs}.{name}.{part}" in raw:
                    weights[f"variant.{ours}.{block}.{part}"] = raw[f"{theirs}.{name}.{part}"]
    return weights


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("terms", [["c2p", "p2c"], ["c2p"], ["p2c"]])
def test_disentangled_computes_what_deberta_computes(terms: list[str], padded: bool) -> None:
    theirs = deberta(terms)
    names = {"c2p": "content-position", "p2c": "position-content"}
    sizes = {"vocab_size": 90, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 40}
    options = {"terms": [names[term] for term in terms]}
    config = encoder_config(
        "disentangled", variant_options=options, num_attention_heads=4, num_hidden_layers=2, **sizes
    )
    ours = EncoderModel(config).eval()
    lacking, unknown = ours.load_state_dict(from_deberta(theirs.state_dict(), 4, 2), strict=False)
    assert all(name.startswith("pooler") for name in lacking)
    assert not unknown
    ids, mask = torch.randint(1, 90, (3, 11)), torch.ones(3, 11, dtype=torch.long)
    if padded:
        mask[1, 7:] = 0
    expected = theirs(ids, attention_mask=mask).last_hidden_state
    error = (ours(ids, mask).last_hidden_state - expected)[mask.bool()].abs().max()
    assert error < 1e-4
    shuffled = theirs(ids.flip(1), attention_mask=mask).last_hidden_state.flip(1)
    assert (shuffled - expected)[0].abs().max() > 1e-2, "position must matter, or the comparison says nothing"
