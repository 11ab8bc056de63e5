"""Variants at the extremes of their options, and compared with another library."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.tiny_models import (
    HEAD_SIZE,
    HEADS,
    HIDDEN,
    LAYERS,
    POSITIONS,
    encoder_config,
    max_error,
    random_model,
    segments,
    states,
    tokens,
)
from torch import Tensor
from transformers import GPTNeoXConfig, ModernBertConfig, T5Config
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.modernbert import modeling_modernbert as modernbert
from transformers.models.t5.modeling_t5 import T5Attention

from glue_bench.errors import UserError
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.grafts import graft
from glue_bench.model.start import Start
from glue_bench.model.variants import VARIANTS

LENGTH = 11


def encoder(variant: str, **options: Any) -> EncoderModel:
    """Return a random encoder."""
    return random_model(EncoderModel, encoder_config(variant, variant_options=options))


def difference(first: EncoderModel, second: EncoderModel) -> float:
    """Return how far two encoders are apart after the first got the weights of the second."""
    weights = first.state_dict() | {
        name: weight for name, weight in second.state_dict().items() if name in first.state_dict()
    }
    first.load_state_dict(weights)
    return max_error(states(first, tokens()), states(second, tokens()))


@pytest.mark.parametrize(
    ("variant", "options"),
    [("concat-heads", {"position_size": 0}), ("rotary", {"fraction": 0.0})],
)
def test_no_dimension_for_positions_is_no_position(variant, options):
    assert difference(encoder(variant, **options), encoder("none")) < 1e-6


@pytest.mark.parametrize("variant", ["relative", "relative-key-query"])
def test_tables_of_zeros_are_no_position(variant):
    model = encoder(variant)
    for name, weight in model.variant.named_parameters():
        if not name.startswith(("words", "segments")):
            weight.data.zero_()
    assert difference(model, encoder("none")) < 1e-6


def test_infused_positions_of_zeros_are_no_position_where_no_norm_makes_them_larger():
    sizes = {"embedding_norm": False}
    infused = random_model(EncoderModel, encoder_config("position-infused", **sizes))
    infused.variant.positions.weight.data.zero_()
    none = random_model(EncoderModel, encoder_config("none", **sizes))
    assert difference(infused, none) < 1e-6


def test_add_relative_without_its_table_is_relative():
    model = encoder("add-relative")
    model.variant.positions.weight.data.zero_()
    assert difference(model, encoder("relative")) < 1e-6


@pytest.mark.parametrize("variant", ["untied", "untied-tie-cls", "untied-relative"])
def test_every_block_named_is_all_blocks(variant):
    named = encoder(variant, blocks=[2, 1])
    assert difference(named, encoder(variant)) < 1e-6


def test_untied_with_positions_at_the_input_equals_add():
    model = encoder("untied", add_positions=True).variant
    ids = tokens()
    added = model(ids, segments(ids)).hidden - model.words_and_segments(ids, segments(ids))
    expected = model.positions.weight[1 : LENGTH + 1].expand_as(added)
    torch.testing.assert_close(added, expected, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_tupes_scores_equal_a_concatenation_inside_the_heads():
    """Here r = k. TUPE's table has a row before the positions, which no score reads."""
    untied = encoder("untied-tie-cls", share=False)
    heads = encoder("concat-heads", position_size=HEAD_SIZE)
    weights = untied.state_dict()
    weights["variant.positions.weight"] = weights["variant.positions.weight"][1:]
    heads.load_state_dict(weights)
    error = max_error(states(heads, tokens()), states(untied, tokens()))
    assert error < 1e-5


@torch.no_grad()
def test_a_score_is_the_product_of_concatenated_queries_and_keys():
    """The score is [q_c; q_p] . [k_c; k_p] / sqrt(k + r), with block-diagonal projections."""
    size = 5
    model = encoder("concat-heads", position_size=size)
    variant = model.variant
    hidden = torch.randn(1, LENGTH, HIDDEN)
    ids = tokens(1, LENGTH)
    query, key, _ = model.blocks[1].attention.project(hidden)
    positions = variant.position_norm(variant.positions.weight[:LENGTH])
    shape = (LENGTH, LAYERS, HEADS, size)
    position_query = variant.position_query(positions).view(shape)[None, :, 1]
    position_key = variant.position_key(positions).view(shape)[None, :, 1]
    queries = torch.cat([query, position_query], dim=-1).transpose(1, 2)
    keys = torch.cat([key, position_key], dim=-1).transpose(1, 2)
    expected = queries @ keys.mT / (HEAD_SIZE + size) ** 0.5
    words = query.transpose(1, 2) @ key.transpose(1, 2).mT * model.blocks[1].attention.scale
    bias = variant(ids, segments(ids)).bias[1]
    torch.testing.assert_close(words + bias, expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_infused_positions_enter_queries_and_keys_and_not_values():
    model = encoder("position-infused")
    seen: list[Any] = []
    attention = model.blocks[1].attention
    attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    model.hidden_states(tokens())
    hidden, changes = seen[0][:2]
    positions = model.norm(model.variant.positions.weight[:LENGTH])
    projected = attention.project(hidden, infused=changes.infused)
    with_positions = attention.project(hidden + positions)
    without = attention.project(hidden)
    expected = [*with_positions[:2], without[2]]
    assert max_error(projected, expected) < 1e-5


@torch.no_grad()
def test_the_last_block_computes_one_row_of_infused_queries_like_all():
    model = encoder("position-infused")
    every_row = model.hidden_states(tokens())[-1][:, :1]
    first_row = model.hidden_states(tokens(), last_rows=1)[-1]
    torch.testing.assert_close(first_row, every_row, atol=1e-5, rtol=1e-5)


def test_no_bias_is_given_to_a_block_that_is_not_chosen():
    first, second = encoder("untied", blocks=[2]).variant(tokens(), segments(tokens())).bias
    assert first is None
    expected = encoder("untied").variant(tokens(), segments(tokens())).bias
    assert torch.equal(second, expected)


def test_the_bias_of_relative_is_the_one_of_t5():
    config = T5Config(d_model=HIDDEN, d_kv=HEAD_SIZE, num_heads=HEADS)
    reference = T5Attention(config, has_relative_attention_bias=True)
    variant = encoder("relative").variant
    reference.relative_attention_bias.weight.data.copy_(variant.relative.table.weight)
    bias = variant(tokens(), segments(tokens())).bias
    assert torch.equal(bias, reference.compute_bias(LENGTH, LENGTH))


# Rotations

SIZE = 16


def in_halves(heads: Tensor, rotated: int) -> Tensor:
    """Put the first of each pair of rotated neighbours before all seconds, as GPT-NeoX has them."""
    turned = heads[..., :rotated]
    return torch.cat([turned[..., ::2], turned[..., 1::2], heads[..., rotated:]], dim=-1)


def turned_by(options: dict[str, Any], query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and keys (2, heads, length, SIZE) after the variant has rotated them."""
    config = encoder_config("rotary", variant_options=options, hidden_size=HEADS * SIZE)
    entering = EncoderModel(config).variant(tokens(2, LENGTH), torch.zeros(2, LENGTH).long())
    return entering.rotate(0, query, key)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
@torch.no_grad()
def test_a_fraction_of_a_head_is_rotated_as_gpt_neox_rotates_it(fraction):
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": fraction}
    config = GPTNeoXConfig(
        hidden_size=HEADS * SIZE, num_attention_heads=HEADS, rope_parameters=rope
    )
    query, key = torch.randn(2, 2, HEADS, LENGTH, SIZE)
    places = torch.arange(LENGTH)[None]
    cosine, sine = neox.GPTNeoXRotaryEmbedding(config)(query, places)
    rotated = int(fraction * SIZE)
    halves = [in_halves(part, rotated) for part in (query, key)]
    expected = neox.apply_rotary_pos_emb(*halves, cosine, sine)
    actual = turned_by({"fraction": fraction}, query, key)
    assert max_error([in_halves(part, rotated) for part in actual], expected) < 1e-5


@pytest.mark.parametrize(
    ("layer", "base"), [("full_attention", 160_000.0), ("sliding_attention", 10_000.0)]
)
@torch.no_grad()
def test_a_base_is_the_one_of_modernbert(layer, base):
    config = ModernBertConfig(hidden_size=HEADS * SIZE, num_attention_heads=HEADS)
    query, key = torch.randn(2, 2, HEADS, LENGTH, SIZE)
    rotation = modernbert.ModernBertRotaryEmbedding(config)
    cosine, sine = rotation(query, torch.arange(LENGTH)[None], layer)
    halves = [in_halves(part, SIZE) for part in (query, key)]
    expected = modernbert.apply_rotary_pos_emb(*halves, cosine, sine)
    actual = turned_by({"base": base}, query, key)
    assert max_error([in_halves(part, SIZE) for part in actual], expected) < 1e-5


@pytest.mark.parametrize("base", [10_000.0, 50.0])
@torch.no_grad()
def test_polar_scores_are_the_equation_of_pope(base):
    variant = encoder("polar", base=base).variant
    query, key = torch.randn(2, 2, HEADS, LENGTH, HEAD_SIZE)
    given = variant(tokens(2, LENGTH), segments(tokens(2, LENGTH)))
    scores = given.scores(1, query, key)
    assert not given.rotate(1, query, key)[0].any()
    rates = base ** (-torch.arange(HEAD_SIZE) / HEAD_SIZE)
    for i, j, head in [(0, 0, 0), (2, 9, 1), (8, 3, 2)]:
        delta = variant.deltas[1][head, 0].clamp(-2 * torch.pi, 0)
        sizes = torch.nn.functional.softplus(torch.stack([query[1, head, i], key[1, head, j]]))
        angles = (j - i) * rates + delta
        expected = (sizes.prod(0) * angles.cos()).sum() / HEAD_SIZE**0.5
        torch.testing.assert_close(scores[1, head, i, j], expected, atol=1e-4, rtol=1e-4)


def test_a_block_that_is_not_chosen_does_not_rotate():
    query, key = torch.randn(2, 2, HEADS, LENGTH, SIZE)
    kept = turned_by({"blocks": [2]}, query, key)
    assert max_error(kept, [query, key]) == 0


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        ("rotary", {"fraction": 0.4}, "fraction 0.4 of a head of 3 dimensions cannot be split"),
        ("rotary", {"blocks": [3]}, "the encoder has 2 blocks, so there is no block 3"),
        ("untied", {"blocks": [1, 9]}, "the encoder has 2 blocks, so there is no block 9"),
    ],
)
def test_what_the_encoder_does_not_have_is_refused_in_one_line(variant, options, message):
    with pytest.raises(UserError, match=message):
        encoder(variant, **options)


# Huang et al. 2020


def scores_of_transformers_4(
    query: Tensor, key: Tensor, table: Tensor, *, with_key: bool
) -> Tensor:
    """Return BertSelfAttention's scores before padding: `relative_key`, or `relative_key_query`."""
    length = query.shape[2]
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    rows = table[distance + (len(table) + 1) // 2 - 1]
    scores = query @ key.mT + torch.einsum("bhld,lrd->bhlr", query, rows)
    if with_key:
        scores = scores + torch.einsum("bhrd,lrd->bhlr", key, rows)
    return scores / query.shape[-1] ** 0.5


RELATIVE: dict[str, tuple[str, dict[str, Any], Callable[[Any], Tensor]]] = {
    "relative_key": (
        "shaw",
        {"max_distance": POSITIONS - 1},
        lambda variant: variant.relative_keys[1].weight,
    ),
    "relative_key_query": ("relative-key-query", {}, lambda variant: variant.distances[1].weight),
}


@pytest.mark.parametrize("kind", RELATIVE)
@torch.no_grad()
def test_scores_equal_transformers_4(kind):
    """Its row of i - j is our row of j - i."""
    name, options, table_of = RELATIVE[kind]
    variant = encoder(name, **options).variant
    query, key = torch.randn(2, 2, HEADS, LENGTH, HEAD_SIZE)
    added = variant(tokens(2, LENGTH), segments(tokens(2, LENGTH))).scores(1, query, key)
    scores = query @ key.mT * variant.score_scale + added
    table = table_of(variant).flip(0)
    with_key = kind == "relative_key_query"
    expected = scores_of_transformers_4(query, key, table, with_key=with_key)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)


# What a leaderboard says of an arm


@pytest.mark.parametrize(
    ("variant", "options", "ending"),
    [
        ("untied", {"blocks": [1]}, " (only in block 1)"),
        ("untied", {"add_positions": True}, "; positions are also added at the input"),
        ("position-infused", {"add_positions": True}, "; positions are also added at the input"),
        ("rotary", {"blocks": [1, 2], "base": 500.0}, " (only in blocks 1, 2), base 500"),
        ("rotary", {"fraction": 0.25}, ", 0.25 of each head"),
        ("rotary", {}, ""),
    ],
)
def test_the_description_of_an_arm_names_the_changes_by_its_options(variant, options, ending):
    kind = VARIANTS[variant]
    assert kind.described(options, "pretrained") == f"{kind.summary}{ending}"


# Where a graft starts


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("relative", {}),
        ("rotary", {"fraction": 0.0}),
        ("concat-heads", {"position_size": 0}),
        ("position-infused", {"add_positions": True}),
        ("untied", {"add_positions": True}),
    ],
)
def test_a_graft_does_not_call_itself_exact(variant, options):
    add = encoder("add")
    checkpoint = Start(add.config, add.state_dict(), "pretrained")
    assert not graft(checkpoint, variant, options).exact
