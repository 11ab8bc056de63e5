"""What reaches the second block as well as the first, with more than two segments, and in other
precisions.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import ARMS, HEADS, LAYERS, encoder_config, random_model, segments, tokens
from torch import Tensor, nn

from glue_bench.model import cpu
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import EncoderInput

TYPES = 3


def record_biases(model: EncoderModel) -> list[Tensor | None]:
    """Return a list in which each block will put its bias."""
    biases: list[Tensor | None] = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, inputs: biases.append(inputs[1].bias))
    return biases


@torch.no_grad()
def test_segment_scores_have_a_row_for_each_ordered_pair_of_three_segments():
    options = {"segments": "scores"}
    model = random_model(
        EncoderModel, encoder_config("add", variant_options=options, type_vocab_size=TYPES)
    )
    scores = model.segment_scores(torch.arange(TYPES)[None])[0]
    table = model.segment_scores.table.weight
    for query in range(TYPES):
        for key in range(TYPES):
            row = table[TYPES * query + key]
            assert torch.equal(scores[:, query, key], row), f"segment {query} to segment {key}"


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("none", {}),
        ("add-relative", {}),
        ("untied", {"share": True}),
        ("untied", {"share": False}),
        ("untied-relative", {"share": False}),
        ("diet-abs", {"rank": 2, "share": False}),
        ("diet-rel", {"share": True}),
        ("diet-rel", {"share": False}),
    ],
)
@torch.no_grad()
def test_segment_scores_are_added_to_the_bias_of_every_block(variant, options):
    placed = options | {"segments": "scores"}
    config = encoder_config(
        variant, variant_options=placed, type_vocab_size=TYPES, num_hidden_layers=3
    )
    model = random_model(EncoderModel, config)
    biases = record_biases(model)
    token_ids = tokens()
    segment_ids = torch.arange(token_ids.shape[1]).expand_as(token_ids) % TYPES
    model.hidden_states(token_ids, None, segment_ids)
    of_variant = model.variant(token_ids, segment_ids).biases()
    if len(of_variant) == 1:
        of_variant = of_variant * 3
    of_segments = model.segment_scores(segment_ids)
    assert len(biases) == 3
    for block, (bias, added) in enumerate(zip(biases, of_variant, strict=True)):
        expected = of_segments if added is None else added + of_segments
        torch.testing.assert_close(bias, expected, msg=f"block {block}")


def test_rotate_and_scores_get_the_number_of_their_block(monkeypatch):
    called: dict[str, list[int]] = {"rotate": [], "scores": []}

    def rotate(block: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        called["rotate"].append(block)
        return query, key

    def scores(block: int, query: Tensor, key: Tensor) -> Tensor:
        called["scores"].append(block)
        return query @ key.mT

    class Numbered(Add):
        def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
            entering = super().forward(token_ids, segment_ids)
            return replace(entering, rotate=rotate, scores=scores)

    monkeypatch.setitem(VARIANTS, "numbered", Numbered)
    EncoderModel(encoder_config("numbered", num_hidden_layers=3)).hidden_states(tokens())
    expected = {"rotate": [0, 1, 2], "scores": [0, 1, 2]}
    assert called == expected


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("variant", "options"), ARMS)
def test_every_layer_norm_has_the_eps_of_the_configuration(variant, options, norm_first):
    config = encoder_config(
        variant, variant_options=options, norm_first=norm_first, layer_norm_eps=0.25
    )
    model = EncoderForMaskedLM(config)
    norms = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)
    }
    assert len(norms) >= 2 * LAYERS
    assert {name: norm.eps for name, norm in norms.items()} == dict.fromkeys(norms, 0.25)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_gradient_reaches_the_row_of_padding_whatever_its_id(variant):
    model = random_model(EncoderModel, encoder_config(variant, pad_token_id=3)).train()
    token_ids = tokens() - 4
    token_ids[:, -2:] = 3
    token_ids[:, 1] = 0
    model.hidden_states(token_ids, None, segments(token_ids))[-1].square().sum().backward()
    gradients = model.variant.words.weight.grad.abs().sum(1)
    assert gradients[3].item() == 0.0
    assert gradients[0].item() > 0


PRECISE = {"scale": 0.3, "dropout": 0.0}


def attend_with_gradients(attend: Any, given: list[Tensor]) -> list[Tensor]:
    """Return the output of attention, and the gradient of each input."""
    inputs = [tensor.clone().requires_grad_() for tensor in given]
    mixed = attend(*inputs)
    mixed.float().square().sum().backward()
    return [mixed.detach(), *(tensor.grad for tensor in inputs)]


def test_attention_of_bfloat16_is_computed_in_float32():
    """Only the output is rounded: an encoder in float32 gives the same numbers to 8 bits."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 9, HEADS, 8)
    given = [torch.randn(shape, generator=generator).bfloat16() for _ in range(3)]
    attend = partial(cpu.attend_on_cpu, bias=None, padding=None, **PRECISE)
    rounded = attend(*given)
    exact = attend(*(tensor.float() for tensor in given))
    assert torch.equal(rounded, exact.bfloat16())


def test_gradients_of_attention_in_bfloat16_are_near_float32():
    generator = torch.Generator().manual_seed(0)
    shape = (2, 9, HEADS, 8)
    given = [torch.randn(shape, generator=generator).bfloat16() for _ in range(3)]
    attend = partial(cpu.attend_on_cpu, bias=None, padding=None, **PRECISE)
    rounded = attend_with_gradients(attend, given)
    exact = attend_with_gradients(attend, [tensor.float() for tensor in given])
    for name, low, high in zip(("mixed", "query", "key", "value"), rounded, exact, strict=True):
        torch.testing.assert_close(low.float(), high, rtol=0.03, atol=0.03, msg=name)


@torch.no_grad()
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_the_masked_lm_head_is_its_equation_with_an_activation_of_its_own(activation):
    """The equation is LN(act(h W + b)) E' + c. The head's activation differs from the blocks'."""
    config = encoder_config("add", head_act=activation, hidden_act="gelu", layer_norm_eps=0.25)
    model = random_model(EncoderForMaskedLM, config)
    token_ids = tokens()
    hidden = model.base.hidden_states(token_ids)[-1]
    dense = getattr(F, activation)(F.linear(hidden, model.dense.weight, model.dense.bias))
    centred = dense - dense.mean(-1, keepdim=True)
    normalised = centred / (centred.square().mean(-1, keepdim=True) + 0.25).sqrt()
    normalised = normalised * model.head_norm.weight + model.head_norm.bias
    expected = normalised @ model.base.variant.words.weight.T + model.decoder.bias
    torch.testing.assert_close(model(token_ids).logits, expected, atol=1e-4, rtol=1e-4)
