"""Variants against each other where one is a special case, and against their equations in explicit loops."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pytest
import torch
from tiny_models import encoder_config
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh
from glue_bench.model.variants.options import canonical_options
from glue_bench.model.variants.untied import TERMS

LENGTH = 6


def encoder(variant: str, **options: object) -> EncoderModel:
    """A random encoder whose positions are loud enough to be seen."""
    model = EncoderModel(encoder_config(variant, variant_options=options)).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def ids() -> Tensor:
    return torch.randint(1, 40, (2, LENGTH))


def with_weights_of(model: EncoderModel, other: EncoderModel) -> EncoderModel:
    model.load_state_dict(other.state_dict(), strict=False)
    return model


def output(model: EncoderModel, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return model(tokens).last_hidden_state


def assert_same(one: EncoderModel, other: EncoderModel) -> None:
    tokens = ids()
    assert (output(one, tokens) - output(other, tokens)).abs().max() < 1e-5


def start(variant: str, options: Mapping[str, object], **sizes: object) -> EncoderModel:
    """An encoder with fresh weights."""
    return fresh(EncoderModel, encoder_config(variant, variant_options=dict(options), **sizes)).eval()


@pytest.mark.parametrize("segments", ["input", "none"])
def test_concat_that_starts_from_the_identity_starts_as_addition(segments: str) -> None:
    place, tokens = {"segments": segments}, ids()
    add = output(start("add", place), tokens)
    assert (output(start("concat", {"init": "identity", **place}), tokens) - add).abs().max() < 1e-5
    assert (output(start("concat", place), tokens) - add).abs().max() > 0.1
    assert canonical_options("concat", {"init": "random", **place}) == canonical_options("concat", place)


@pytest.mark.parametrize("scale", [0.02, 0.1])
def test_a_random_start_of_concat_is_smaller_than_addition_by_the_range_and_the_width(scale: float) -> None:
    width, tokens = 192, torch.arange(40)[None, :16]
    add, concat = (
        start(name, {}, hidden_size=width, initializer_range=scale).variant(tokens, tokens * 0).hidden.std().item()
        for name in ("add", "concat")
    )
    assert concat / add == pytest.approx(scale * width**0.5, rel=0.1)


def test_sinusoids_start_at_the_scale_of_the_words(tmp_path: Path) -> None:
    tokens = ids()
    words, number, fixed = (
        start("add-sinusoidal", options, initializer_range=0.1) for options in ({"scale": "words"}, {"scale": 0.1}, {})
    )
    assert (output(words, tokens) - output(number, tokens)).abs().max() < 1e-5
    assert (output(words, tokens) - output(fixed, tokens)).abs().max() > 0.1
    encoder("add").save_pretrained(tmp_path)
    add = read_checkpoint(str(tmp_path))
    grafted = graft(add, "add-sinusoidal", {"scale": "words"})
    assert grafted.weights["variant.scale"] == add.weights["variant.words.weight"].std()
    assert "variant.scale" not in graft(add, "add-sinusoidal", {}).weights


def test_word_and_position_terms_alone_are_untied_with_cls_tied() -> None:
    untied = encoder("untied-tie-cls")
    assert_same(with_weights_of(encoder("four-term", terms=["word-word", "position-position"]), untied), untied)


def test_the_word_term_alone_has_no_positions() -> None:
    none = encoder("none")
    assert_same(with_weights_of(encoder("four-term", terms=["word-word"]), none), none)


def modules_of(terms: Sequence[str]) -> set[str]:
    """What these terms read of positions."""
    sides = {"position_query": "position-", "position_key": "-position"}
    projections = {name for name, side in sides.items() if any(side in term for term in terms)}
    return {"positions", "position_norm"} | projections if projections else set()


@pytest.mark.parametrize("kept", [kept for count in range(1, 5) for kept in combinations(TERMS, count)], ids="+".join)
def test_every_subset_of_terms_is_its_equation(kept: tuple[str, ...]) -> None:
    variant = encoder("four-term", terms=list(kept)).variant
    assert {name.partition(".")[0] for name in variant.state_dict()} == {"words", "segments"} | modules_of(kept)
    if not variant.uses_position:
        return
    tokens = ids()
    given = variant(tokens, torch.zeros_like(tokens))
    heads, size = variant.dims.num_heads, variant.dims.head_size
    query, key = torch.randn(2, 2, heads, LENGTH, size)
    new_query, new_key = (query, key) if given.rotate is None else given.rotate(0, query, key)
    extra = None if given.scores is None else given.scores(0, query, key)
    scores = new_query @ new_key.mT * (len(kept) * size) ** -0.5
    for part in (given.bias, extra):
        scores = scores if part is None else scores + part
    rows = variant.position_norm(variant.positions.weight[1 : LENGTH + 1])
    p_query, p_key = (
        getattr(variant, f"position_{side}", torch.zeros_like)(rows).view(LENGTH, heads, size)
        for side in ("query", "key")
    )
    for i, j, h in [(0, 0, 0), (1, 4, 1), (5, 2, 0)]:
        sides = {"word": (query[0, h, i], key[0, h, j]), "position": (p_query[i, h], p_key[j, h])}
        products = [sides[term.split("-")[0]][0] @ sides[term.split("-")[1]][1] for term in kept]
        expected = torch.stack(products).sum() / (len(kept) * size) ** 0.5
        assert scores[0, h, i, j].item() == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize("terms", [[], ["word-segment"]])
def test_terms_that_do_not_exist_are_refused(terms: list[str]) -> None:
    with pytest.raises(UserError, match="give one or more of word-word"):
        encoder("four-term", terms=terms)


def test_multiplication_by_one_has_no_positions() -> None:
    multiply, none = encoder("multiply"), encoder("none")
    torch.nn.init.zeros_(multiply.variant.positions.weight)
    assert_same(with_weights_of(multiply, none), none)


def test_a_gate_half_open_is_addition() -> None:
    gate, add = encoder("gate"), encoder("add")
    torch.nn.init.zeros_(gate.variant.gate.weight)
    torch.nn.init.zeros_(gate.variant.gate.bias)
    assert_same(with_weights_of(gate, add), add)


@pytest.mark.parametrize("share", [True, False])
def test_diet_rel_is_a_scalar_a_distance(share: bool) -> None:
    variant = encoder("diet-rel", share=share).variant
    for block in (0, 1):
        bias = variant.position_bias(0 if share else block, LENGTH)
        table = variant.distances[0 if share else block].weight
        for i, j in [(0, 0), (0, 5), (4, 1)]:
            assert torch.equal(bias[0, :, i, j], table[j - i + variant.dims.max_positions - 1])
    assert len(variant.distances) == (1 if share else 2)


def test_diet_abs_is_a_product_a_head_without_scale() -> None:
    variant = encoder("diet-abs", rank=5).variant
    bias = variant.position_bias(0, LENGTH)
    queries, keys = (part[0].weight.view(-1, variant.dims.num_heads, 5) for part in (variant.queries, variant.keys))
    assert bias[0, 1, 2, 4].item() == pytest.approx((queries[2, 1] @ keys[4, 1]).item(), abs=1e-5)


def test_shaw_adds_the_relative_key_before_the_product() -> None:
    variant = encoder("shaw", max_distance=3).variant
    tokens = ids()
    heads, size = variant.dims.num_heads, variant.dims.head_size
    query, key = torch.randn(2, 2, heads, LENGTH, size)
    extra = variant(tokens, torch.zeros_like(tokens)).scores(1, query, key)
    scores = query @ key.mT * size**-0.5 + extra
    table = variant.relative_keys[1].weight
    for i, j in [(0, 0), (0, 5), (5, 0), (2, 3)]:
        relative = table[max(-3, min(3, j - i)) + 3]
        expected = query[1, 0, i] @ (key[1, 0, j] + relative) / size**0.5
        assert scores[1, 0, i, j].item() == pytest.approx(expected.item(), abs=1e-4)


def test_a_relative_bias_of_zeros_is_addition() -> None:
    relative, add = encoder("add-relative"), encoder("add")
    torch.nn.init.zeros_(relative.variant.relative.table.weight)
    assert_same(with_weights_of(relative, add), add)
