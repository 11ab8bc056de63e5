"""Variants against other people's code (T5, RoFormer, DeBERTa), their papers' equations, and each
other.
"""

import math
from itertools import combinations, product
from typing import Any

import pytest
import torch
import transformers
from helpers.tiny_models import (
    HIDDEN,
    LAYERS,
    encoder_config,
    max_error,
    random_model,
    segments,
    states,
    tokens,
)
from helpers.tiny_models import encoder as loaded
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.families import FAMILIES
from glue_bench.model.fresh import fresh
from glue_bench.model.grafts import graft
from glue_bench.model.start import Start
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.relative import RelativeBias
from glue_bench.model.variants.untied import ATTENTION_TERMS


def test_the_bias_of_a_distance_is_in_the_bucket_of_t5():
    bias = RelativeBias(num_heads=4)
    places = torch.arange(300)
    offsets = places - places[:, None]
    buckets = T5Attention._relative_position_bucket(offsets, num_buckets=32, max_distance=128)
    assert torch.equal(bias(300)[0], bias.table.weight[buckets].permute(2, 0, 1))


SIZES: dict[str, Any] = {
    "vocab_size": 90,
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def loud(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """With weights large enough that positions are seen; what is fixed, as RoFormer's sinusoids,
    stays.
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    return model.eval()


def check_parity(
    model: EncoderModel, reference: transformers.PreTrainedModel, permitted: float, *, padded: bool
) -> None:
    ids = torch.randint(1, 90, (3, 11))
    mask = torch.ones(3, 11, dtype=torch.long)
    if padded:
        mask[1, 7:] = 0
    expected = reference(ids, attention_mask=mask).last_hidden_state
    differences = model(ids, mask).last_hidden_state - expected
    error = differences[mask.bool()].abs().max()
    assert error < permitted
    shuffled = reference(ids.flip(1), attention_mask=mask).last_hidden_state.flip(1)
    assert (shuffled - expected)[0].abs().max() > 1e-2, (
        "position must matter, or the comparison says nothing"
    )


@pytest.mark.parametrize("padded", [False, True])
def test_rotary_equals_roformer(padded):
    reference = loud(
        transformers.RoFormerModel(transformers.RoFormerConfig(**SIZES, embedding_size=32))
    )
    weights, _ = FAMILIES["bert"].translate(reference.state_dict(), None)
    model = EncoderModel(encoder_config("rotary", **SIZES)).eval()
    model.load_state_dict(weights, strict=False)
    check_parity(model, reference, 1e-5, padded=padded)


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (8, [2.0**-power for power in range(1, 9)]),
        (16, [2 ** (-power / 2) for power in range(1, 17)]),
        (12, [2.0**-power for power in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]),
    ],
)
def test_alibi_falls_linearly_with_distance_on_both_sides_by_the_slopes_of_the_paper(heads, slopes):
    model = EncoderModel(encoder_config("alibi", hidden_size=48, num_attention_heads=heads))
    ids = tokens(1, 5)
    places = torch.arange(5)
    expected = -torch.tensor(slopes)[:, None, None] * (places - places[:, None]).abs()
    bias = model.variant(ids, segments(ids)).bias[0]
    torch.testing.assert_close(bias, expected)


def encoder(variant: str, **options: object) -> EncoderModel:
    """Return a random encoder whose positions are large enough to matter."""
    return random_model(EncoderModel, encoder_config(variant, variant_options=options))


def test_sinusoids_equal_the_original_transformers():
    variant = encoder("add-sinusoidal", scale=1.0).variant
    ids = tokens(1, 6)
    added = variant(ids, segments(ids)).hidden - variant.words_and_segments(ids, segments(ids))
    for position, pair in product(range(6), range(HIDDEN // 2)):
        turn = position / 10_000 ** (2 * pair / HIDDEN)
        sine, cosine = (added[0, position, 2 * pair : 2 * pair + 2] / 2**0.5).tolist()
        assert (sine, cosine) == pytest.approx((math.sin(turn), math.cos(turn)), abs=1e-5)


def from_deberta(raw: dict[str, torch.Tensor], heads: int, blocks: int) -> dict[str, torch.Tensor]:
    """DeBERTa's weights in our names: its in_proj holds query, key and value head by head, the key
    without bias.
    """
    weights, _ = FAMILIES["bert"].translate(raw, None)
    weights["variant.distances.weight"] = raw["encoder.rel_embeddings.weight"]
    for block in range(blocks):
        our_prefix = f"blocks.{block}.attention.qkv"
        their_prefix = f"encoder.layer.{block}.attention.self"
        stacked = raw[f"{their_prefix}.in_proj.weight"].unflatten(0, (heads, 3, -1))
        weights[f"{our_prefix}.weight"] = stacked.transpose(0, 1).flatten(0, 2)
        query = raw[f"{their_prefix}.q_bias"]
        value = raw[f"{their_prefix}.v_bias"]
        weights[f"{our_prefix}.bias"] = torch.cat([query, torch.zeros_like(query), value])
        for side, name in (("keys", "pos_proj"), ("queries", "pos_q_proj")):
            for part in ("weight", "bias"):
                their_name = f"{their_prefix}.{name}.{part}"
                if their_name in raw:
                    weights[f"variant.{side}.{block}.{part}"] = raw[their_name]
    return weights


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("terms", [["c2p", "p2c"], ["c2p"], ["p2c"]])
def test_disentangled_equals_deberta(terms, padded):
    kind = {"relative_attention": True, "position_biased_input": False, "pos_att_type": terms}
    config = transformers.DebertaConfig(**SIZES, **kind, type_vocab_size=2, layer_norm_eps=1e-12)
    reference = loud(transformers.DebertaModel(config))
    names = {"c2p": "content-position", "p2c": "position-content"}
    options = {"terms": [names[term] for term in terms]}
    model = EncoderModel(encoder_config("disentangled", variant_options=options, **SIZES)).eval()
    weights = from_deberta(reference.state_dict(), 4, 2)
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert [name for name in missing if not name.startswith("pooler")] == []
    assert not unknown
    check_parity(model, reference, 1e-4, padded=padded)


LENGTH = 6


def fresh_model(variant: str, options: dict[str, object], **sizes: object) -> EncoderModel:
    """Return an encoder with fresh weights."""
    return fresh(EncoderModel, encoder_config(variant, variant_options=options, **sizes)).eval()


def difference(first: EncoderModel, second: EncoderModel) -> float:
    return max_error(states(first, tokens()), states(second, tokens()))


@pytest.mark.parametrize("segments", ["input", "none"])
def test_concat_that_starts_from_the_identity_starts_as_addition(segments):
    place = {"segments": segments}
    add = fresh_model("add", place)
    assert difference(fresh_model("concat", {"init": "identity", **place}), add) < 1e-5
    assert difference(fresh_model("concat", place), add) > 0.1


def test_sinusoids_start_at_the_scale_of_the_words():
    words = fresh_model("add-sinusoidal", {"scale": "words"}, initializer_range=0.1)
    number = fresh_model("add-sinusoidal", {"scale": 0.1}, initializer_range=0.1)
    fixed = fresh_model("add-sinusoidal", {}, initializer_range=0.1)
    assert difference(words, number) < 1e-5
    assert difference(words, fixed) > 0.1
    add = encoder("add")
    start = Start(add.config, add.state_dict(), "pretrained")
    grafted = graft(start, "add-sinusoidal", {"scale": "words"})
    assert grafted.weights["variant.scale"] == add.variant.words.weight.std()


def position_table(options: dict[str, object]) -> torch.Tensor:
    """Return the fresh position table of `add` with options, for a range of 0.1."""
    model = fresh_model("add", options, initializer_range=0.1)
    return model.variant.positions.weight.detach()


def test_a_number_multiplies_the_start_of_the_position_table():
    assert torch.equal(position_table({"position_start": 4.0}), 4 * position_table({}))


def test_a_table_that_starts_at_sinusoids_has_the_rows_of_the_fixed_ones():
    learned = fresh_model("add", {"position_start": "sinusoids"}, initializer_range=0.1)
    fixed = fresh_model("add-sinusoidal", {"scale": "words"}, initializer_range=0.1)
    assert difference(learned, fixed) < 1e-5
    assert learned.variant.positions.weight.requires_grad


def test_a_normalised_position_is_added_after_its_layer_norm():
    model = fresh_model("add", {"position_norm": True})
    ids = tokens()
    segment_ids = torch.zeros_like(ids)
    table = model.variant.positions.weight[: ids.shape[1]]
    centred = table - table.mean(-1, keepdim=True)
    variance = table.var(-1, keepdim=True, unbiased=False)
    normalised = centred / (variance + model.config.layer_norm_eps).sqrt()
    words = model.variant.words(ids) + model.variant.segments(segment_ids)
    assert max_error([model.variant(ids, segment_ids).hidden], [words + normalised]) < 1e-5


def test_normalised_positions_can_start_as_large_as_words():
    model = fresh_model("add", {"position_norm": "words"}, initializer_range=0.1)
    rows = model.variant.position_rows(9)
    sizes = rows.square().mean(-1).sqrt()
    torch.testing.assert_close(sizes, torch.full_like(sizes, 0.1), atol=1e-3, rtol=0)
    assert difference(model, fresh_model("add", {"position_norm": True})) > 0.1


def test_a_graft_with_normalised_positions_starts_near_the_checkpoint_and_is_not_called_exact():
    add = encoder("add")
    start = Start(add.config, add.state_dict(), "pretrained")
    grafted = graft(start, "add", {"position_norm": True})
    norm = grafted.weights["variant.position_norm.weight"]
    assert torch.allclose(norm, add.variant.positions.weight.std(dim=1).mean().expand_as(norm))


SUBSETS: list[tuple[str, ...]] = []
for count in range(1, 5):
    SUBSETS += combinations(ATTENTION_TERMS, count)
SUBSETS.remove(("word-word",))


def scores_of(variant: Variant, query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Return the scores of the first block from the variant's output."""
    ids = tokens(2, LENGTH)
    given = variant(ids, torch.zeros_like(ids))
    new_query, new_key = (query, key) if given.rotate is None else given.rotate(0, query, key)
    scores = new_query @ new_key.mT * scale
    if given.bias is not None:
        scores = scores + given.bias
    if given.scores is not None:
        scores = scores + given.scores(0, query, key)
    return scores


def heads_of_positions(variant: Variant, side: str) -> Tensor:
    """Return the queries or keys (l, h, k) of positions; zeros where no term has them."""
    rows = variant.position_norm(variant.positions.weight[1 : LENGTH + 1])
    project = getattr(variant, f"position_{side}") or torch.zeros_like
    return project(rows).view(LENGTH, variant.dims.num_heads, variant.dims.head_size)


@pytest.mark.parametrize("kept", SUBSETS, ids="+".join)
@torch.no_grad()
def test_every_subset_of_terms_is_its_equation(kept):
    variant = encoder("four-term", terms=list(kept)).variant
    size = variant.dims.head_size
    query, key = torch.randn(2, 2, variant.dims.num_heads, LENGTH, size)
    scores = scores_of(variant, query, key, (len(kept) * size) ** -0.5)
    position_query = heads_of_positions(variant, "query")
    position_key = heads_of_positions(variant, "key")
    for i, j, h in [(0, 0, 0), (1, 4, 1), (5, 2, 0)]:
        queries = {"word": query[0, h, i], "position": position_query[i, h]}
        keys = {"word": key[0, h, j], "position": position_key[j, h]}
        products = []
        for term in kept:
            query_side, key_side = term.split("-")
            products.append(queries[query_side] @ keys[key_side])
        expected = torch.stack(products).sum() / (len(kept) * size) ** 0.5
        assert scores[0, h, i, j].item() == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize(
    ("variant", "zeros"), [("gate", "gate"), ("add-relative", "relative.table")]
)
def test_a_gate_half_open_and_a_bias_of_zeros_are_addition(variant, zeros):
    model = encoder(variant)
    add = encoder("add")
    for weight in model.variant.get_submodule(zeros).parameters():
        torch.nn.init.zeros_(weight)
    model.load_state_dict(add.state_dict(), strict=False)
    assert difference(model, add) < 1e-5


@pytest.mark.parametrize("share", [True, False])
def test_diet_rel_is_a_scalar_a_distance(share):
    variant = encoder("diet-rel", share=share).variant
    for block in (0, 1):
        bias = variant.position_bias(0 if share else block, LENGTH)
        table = variant.distances[0 if share else block].weight
        for i, j in [(0, 0), (0, 5), (4, 1)]:
            assert torch.equal(bias[0, :, i, j], table[j - i + variant.dims.max_positions - 1])
    assert len(variant.distances) == (1 if share else 2)


def test_diet_abs_is_a_product_a_head_without_scale():
    variant = encoder("diet-abs", rank=5).variant
    bias = variant.position_bias(0, LENGTH)
    queries, keys = (
        part[0].weight.view(-1, variant.dims.num_heads, 5)
        for part in (variant.queries, variant.keys)
    )
    assert bias[0, 1, 2, 4].item() == pytest.approx((queries[2, 1] @ keys[4, 1]).item(), abs=1e-5)


def test_shaw_adds_the_relative_key_before_the_product():
    variant = encoder("shaw", max_distance=3).variant
    ids = tokens(2, LENGTH)
    heads, size = variant.dims.num_heads, variant.dims.head_size
    query, key = torch.randn(2, 2, heads, LENGTH, size)
    extra = variant(ids, torch.zeros_like(ids)).scores(1, query, key)
    scores = query @ key.mT * size**-0.5 + extra
    table = variant.relative_keys[1].weight
    for i, j in [(0, 0), (0, 5), (5, 0), (2, 3)]:
        relative = table[max(-3, min(3, j - i)) + 3]
        expected = query[1, 0, i] @ (key[1, 0, j] + relative) / size**0.5
        assert scores[1, 0, i, j].item() == pytest.approx(expected.item(), abs=1e-4)


PROJECTIONS = [
    f"variant.position_{side}.{part}" for side in ("query", "key") for part in ("weight", "bias")
]


@pytest.mark.parametrize("variant", ["untied", "untied-tie-cls", "untied-relative"])
@torch.no_grad()
def test_each_block_gets_the_bias_of_its_own_projections(variant):
    """Each bias equals the bias of an encoder whose blocks all have this block's projections."""
    model = encoder(variant, share=False)
    ids = tokens()
    biases = list(model.variant(ids, segments(ids)).bias)
    assert len(biases) == LAYERS
    for block, bias in enumerate(biases):
        weights = model.state_dict()
        for name in PROJECTIONS:
            weights[name] = weights[name].chunk(LAYERS)[block]
        shared = loaded(encoder_config(variant), weights)
        expected = shared.variant(ids, segments(ids)).bias
        torch.testing.assert_close(bias, expected, atol=1e-6, rtol=1e-6)
    assert float((biases[0] - biases[1]).abs().max()) > 0.1
