"""What enters the first block is the equation of its variant, with three segments and at a later
start, too.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.tiny_models import HEADS, HIDDEN, POSITIONS, encoder_config, random_model
from torch import Tensor

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.grafts import graft
from glue_bench.model.start import Start
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.untied import ATTENTION_TERMS

LENGTH = 5
TOKEN_IDS = torch.tensor([[7, 9, 4, 9, 30], [8, 5, 6, 49, 11]])
SEGMENT_IDS = torch.tensor([[0, 1, 2, 2, 1], [0, 0, 0, 2, 2]])
ONE_SEGMENT = torch.zeros_like(SEGMENT_IDS)


def multiply(_: Variant, word: Tensor, position: Tensor, segment: Tensor) -> Tensor:
    return word + word * position + segment


def gate(variant: Any, word: Tensor, position: Tensor, segment: Tensor) -> Tensor:
    weight = variant.gate.weight[0]
    logit = weight[:HIDDEN] @ word + weight[HIDDEN:] @ position + variant.gate.bias[0]
    of_word = 1 / (1 + torch.exp(-logit))
    return 2 * of_word * word + 2 * (1 - of_word) * position + segment


def concat(variant: Any, word: Tensor, position: Tensor, segment: Tensor) -> Tensor:
    return variant.projection.weight @ torch.cat([word, position, segment])


def concat_split(_: Variant, word: Tensor, position: Tensor, segment: Tensor) -> Tensor:
    return torch.cat([word + segment, position])


def add(_: Variant, word: Tensor, position: Tensor, segment: Tensor) -> Tensor:
    return word + position + segment


EQUATIONS: dict[str, Callable[[Any, Tensor, Tensor, Tensor], Tensor]] = {
    "add": add,
    "add-relative": add,
    "multiply": multiply,
    "gate": gate,
    "concat": concat,
    "concat-split": concat_split,
}


@pytest.mark.parametrize("start", [0, 6])
@pytest.mark.parametrize("variant", EQUATIONS)
@torch.no_grad()
def test_the_input_is_the_equation_of_its_variant(variant, start):
    """The equation is computed for each token by itself; [CLS] stays at position 0."""
    model = random_model(EncoderModel, encoder_config(variant, type_vocab_size=3)).variant
    with model.starting_at(start):
        hidden = model(TOKEN_IDS, SEGMENT_IDS).hidden
    for row in range(len(TOKEN_IDS)):
        for place in range(LENGTH):
            word = model.words.weight[TOKEN_IDS[row, place]]
            position = model.positions.weight[place + start if place else 0]
            segment = model.segments.weight[SEGMENT_IDS[row, place]]
            equation = EQUATIONS[variant]
            expected = equation(model, word, position, segment)
            torch.testing.assert_close(
                hidden[row, place], expected, atol=1e-5, rtol=1e-5, msg=f"row {row}, place {place}"
            )


def apart(size: float) -> Start:
    """Return an additive encoder whose words, and positions, each have half of the dimensions.

    The words are `size` times as long. All rows have mean 0 and the same length, so that the
    deviation of a sum is sqrt(1 + size^2) times that of p.
    """
    model = random_model(EncoderModel, encoder_config("add", variant_options={"segments": "none"}))
    weights = model.state_dict()
    half = HIDDEN // 2
    for name, columns, length in (
        ("words", slice(half, None), size),
        ("positions", slice(half), 1.0),
    ):
        table = torch.zeros_like(weights[f"variant.{name}.weight"])
        rows = weights[f"variant.{name}.weight"][:, columns]
        rows = rows - rows.mean(1, keepdim=True)
        table[:, columns] = length * rows / rows.norm(dim=1, keepdim=True)
        weights[f"variant.{name}.weight"] = table
    return Start(model.config, weights, "pretrained", name="apart")


def position_scores_of_add(start: Start, deviation: float) -> Tensor:
    """p_i W^Q (p_j W^K)^T / sqrt(k) of the first block, per head, with p as LayerNorm makes it of a
    sum.
    """
    weights = start.weights
    rows = weights["norm.weight"] * weights["variant.positions.weight"][:LENGTH] / deviation
    query, key, _ = weights["blocks.0.attention.qkv.weight"].chunk(3)
    head_size = HIDDEN // HEADS
    scores = []
    for head in range(HEADS):
        columns = slice(head * head_size, (head + 1) * head_size)
        scores.append((rows @ query[columns].T) @ (rows @ key[columns].T).T / head_size**0.5)
    return torch.stack(scores)


SEVERAL = [ATTENTION_TERMS, ATTENTION_TERMS[1:], (ATTENTION_TERMS[0], ATTENTION_TERMS[3])]


@pytest.mark.parametrize("size", [0.5, 3.0])
@pytest.mark.parametrize(
    ("variant", "options"),
    [("untied-tie-cls", {}), *(("four-term", {"terms": list(terms)}) for terms in SEVERAL)],
)
@torch.no_grad()
def test_grafted_positions_score_one_another_as_they_do_beside_the_words(variant, options, size):
    """This holds for words of any size, and for any number of terms."""
    base = apart(size)
    grafted = graft(base, variant, options | {"segments": "none"})
    model = EncoderModel(grafted.config)
    model.load_state_dict(grafted.weights, strict=False)
    deviation = ((1 + size**2) / HIDDEN) ** 0.5
    bias = model.variant(TOKEN_IDS, ONE_SEGMENT).bias[0]
    torch.testing.assert_close(bias, position_scores_of_add(base, deviation), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("variant", "options", "terms"),
    [
        ("add", {}, 1),
        ("untied", {}, 2),
        ("four-term", {}, 4),
        ("four-term", {"terms": list(ATTENTION_TERMS[:3])}, 3),
        ("four-term", {"terms": [ATTENTION_TERMS[0]]}, 1),
        ("disentangled", {}, 3),
        ("disentangled", {"terms": ["content-position"]}, 2),
    ],
)
@torch.no_grad()
def test_scores_of_words_are_scaled_by_the_number_of_terms(variant, options, terms):
    """The scale in every block is 1 / sqrt(terms * k)."""
    model = EncoderModel(encoder_config(variant, variant_options=options, num_hidden_layers=3))
    expected = (terms * HIDDEN / HEADS) ** -0.5
    scales = [block.attention.scale for block in model.blocks]
    assert scales == pytest.approx([expected] * 3)


@pytest.mark.parametrize("heads", [1, 3, 6])
@torch.no_grad()
def test_alibi_has_the_slopes_of_the_nearest_powers_of_two_interleaved(heads):
    """Press, Smith & Lewis 2022, by their recursion: those of a power of two, then every other one
    of twice as many.
    """

    def slopes(count: int) -> list[float]:
        if count & (count - 1) == 0:
            first = 2.0 ** (-8 / count)
            return [first ** (head + 1) for head in range(count)]
        power = 2 ** (count.bit_length() - 1)
        return slopes(power) + slopes(2 * power)[0::2][: count - power]

    model = EncoderModel(encoder_config("alibi", hidden_size=24, num_attention_heads=heads))
    bias = model.variant(TOKEN_IDS, ONE_SEGMENT).bias[0]
    fall = -bias[:, 0, 1]
    assert fall.tolist() == pytest.approx(slopes(heads))


@pytest.mark.parametrize("heads", [1, 3])
@torch.no_grad()
def test_rotary_turns_pairs_of_every_head_as_complex_numbers_do(heads):
    """Where the number of heads is odd: x + iy times exp(i * position * 10000^(-2m / k))."""
    model = EncoderModel(encoder_config("rotary", num_attention_heads=heads))
    size = HIDDEN // heads
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 2, heads, LENGTH, size, generator=generator)
    turned = model.variant(TOKEN_IDS, ONE_SEGMENT).rotate(0, query, key)
    rates = 10_000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    turns = torch.polar(
        torch.ones(LENGTH, size // 2).double(), torch.arange(LENGTH)[:, None] * rates
    )
    for name, given, result in zip(("query", "key"), (query, key), turned, strict=True):
        pairs = torch.view_as_complex(given.double().unflatten(-1, (-1, 2)))
        rotated_pairs = torch.view_as_real(pairs * turns)
        expected = rotated_pairs.flatten(-2).float()
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5, msg=name)


@torch.no_grad()
def test_sinusoids_of_a_later_start_belong_to_their_positions():
    """The scale is not the default. It is the root mean square of the added rows."""
    model = EncoderModel(encoder_config("add-sinusoidal", variant_options={"scale": 0.5}))
    variant = model.variant
    start = POSITIONS - LENGTH
    with variant.starting_at(start):
        hidden = variant(TOKEN_IDS, ONE_SEGMENT).hidden
    late = hidden - variant.words(TOKEN_IDS) - variant.segments.weight[0]
    places = torch.tensor([0, *range(start + 1, POSITIONS)])
    rates = 10_000.0 ** (-torch.arange(0, HIDDEN, 2) / HIDDEN)
    turns = places[:, None] * rates
    expected = 0.5 * 2**0.5 * torch.stack([turns.sin(), turns.cos()], -1).flatten(1)
    torch.testing.assert_close(late[1], expected, atol=1e-5, rtol=1e-4)
