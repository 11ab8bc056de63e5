"""What enters and where: segments as an axis of their own, a moved start, and the parts of `concat-split`."""

from typing import Any

import pytest
import torch
from tiny_models import (
    HIDDEN,
    POSITIONS,
    encoder_config,
    max_error,
    random_model,
    states,
    tokens,
)
from tiny_models import segments as segments
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import PLACES

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def with_segments(variant: str, place: str, **sizes: int) -> EncoderModel:
    model = EncoderModel(encoder_config(variant, variant_options={"segments": place}, **sizes)).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


def output(model: EncoderModel, tokens: Tensor, segments: Tensor | None) -> Tensor:
    with torch.no_grad():
        return model(tokens, token_type_ids=segments).last_hidden_state


@every_variant
@pytest.mark.parametrize("place", PLACES)
def test_segments_matter_unless_they_enter_nowhere(variant: str, place: str) -> None:
    model, tokens = with_segments(variant, place), torch.randint(1, 40, (2, 6))
    apart = torch.tensor([[0, 0, 0, 1, 1, 1]]).expand(2, -1)
    change = (output(model, tokens, apart) - output(model, tokens, None)).abs().max()
    assert change == 0 if place == "none" else change > 1e-2


def test_scores_hold_a_scalar_a_head_and_pair() -> None:
    model = with_segments("add", "scores")
    scores = model.segment_scores(torch.tensor([[0, 1]]))
    table = model.segment_scores.table.weight
    assert torch.equal(scores[0, :, 0, 1], table[1])
    assert torch.equal(scores[0, :, 1, 0], table[2])


@pytest.mark.parametrize(("types", "has"), [(0, "none"), (1, "only one")])
def test_scores_of_segments_that_the_encoder_lacks_are_refused(types: int, has: str) -> None:
    with pytest.raises(UserError, match=f"segments cannot enter the scores, the encoder has {has}"):
        with_segments("add", "scores", type_vocab_size=types)


START, LENGTH = 5, 11

RELATIVE = {"none", "diet-rel", "shaw", "alibi", "rotary", "disentangled"}  # `none` has no positions at all

SINUSOIDAL = {"add-sinusoidal"}

# The first rows that stay: [CLS], and in TUPE's tables p_theta1 before it.
TABLES = {"positions": 1, "queries.0": 1, "keys.0": 1}

UNTIED = {"untied", "untied-tie-cls", "untied-relative", "four-term"}


def model_of(variant: str) -> EncoderModel:
    return random_model(EncoderModel, encoder_config(variant))


def moved(table: Tensor, fixed: int) -> Tensor:
    """The table whose row of position i is that of position `START` + i."""
    return torch.cat([table[:fixed], table[START + fixed :], table[fixed : START + fixed]])


@pytest.mark.parametrize("variant", sorted(RELATIVE))
def test_a_relative_variant_does_not_see_where_a_sequence_starts(variant):
    model, ids = model_of(variant), tokens(3, LENGTH)
    inputs = (ids, None, segments(ids))
    assert max_error(states(model, *inputs, START), states(model, *inputs)) == 0


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - RELATIVE - SINUSOIDAL))
def test_an_absolute_variant_reads_the_rows_from_there_on(variant):
    model, ids = model_of(variant), tokens(3, LENGTH)
    inputs = (ids, None, segments(ids))
    still, from_there = states(model, *inputs), states(model, *inputs, START)
    for name, fixed in TABLES.items():
        if f"variant.{name}.weight" in model.state_dict():
            table = model.get_submodule(f"variant.{name}").weight.data
            table.copy_(moved(table, fixed + (variant in UNTIED)))
    assert max_error(from_there, states(model, *inputs)) == 0
    assert max_error(from_there, still) > 1e-2


def test_sinusoids_are_those_of_the_positions_from_there_on():
    model, ids = model_of("add-sinusoidal"), tokens(3, LENGTH)
    kinds = segments(ids)
    everywhere = model.variant(torch.full((1, POSITIONS), 7), torch.zeros(1, POSITIONS, dtype=torch.long)).hidden
    words = model.variant.words_and_segments(torch.full((1, POSITIONS), 7), torch.zeros(1, POSITIONS, dtype=torch.long))
    table = (everywhere - words)[0]
    expected = model.variant.words_and_segments(ids, kinds)
    expected = expected + torch.cat([table[:1], table[START + 1 : START + LENGTH]])
    torch.testing.assert_close(model.variant(ids, kinds, START).hidden, expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_positions_that_do_not_exist_are_refused(variant):
    model, ids = model_of(variant), tokens(3, LENGTH)
    beyond = POSITIONS - LENGTH + 1
    with pytest.raises(
        ValueError, match=f"{LENGTH} tokens that start at {beyond}, but the encoder has {POSITIONS} pos"
    ):
        model.hidden_states(ids, None, segments(ids), start=beyond)
    if variant not in RELATIVE:
        with pytest.raises(ValueError, match=f"but the encoder has {POSITIONS} positions"):
            model.variant(ids, segments(ids), beyond)


SHARE = 0.25

TOKENS = HIDDEN - HIDDEN // 4


def split_config(share: float = SHARE, **changes: Any) -> Any:
    return encoder_config("concat-split", variant_options={"position_share": share}, **changes)


@pytest.mark.parametrize(("share", "parts"), [(0.01, "24 for tokens and 0"), (0.99, "0 for tokens and 24")])
def test_a_share_that_leaves_a_part_nothing_is_refused(share: float, parts: str) -> None:
    message = rf"{parts} for positions; neither may be 0, so give a share from 0\.04167 to 0\.9583"
    with pytest.raises(UserError, match=f"variant 'concat-split' cannot be made .*{message}"):
        EncoderModel(split_config(share))


@torch.no_grad()
def test_tokens_and_segments_are_in_one_part_and_positions_in_the_other() -> None:
    variant = random_model(EncoderModel, split_config()).variant
    ids = tokens()
    hidden = variant(ids, segments(ids)).hidden
    assert torch.equal(hidden[..., :TOKENS], variant.words(ids) + variant.segments(segments(ids)))
    assert torch.equal(hidden[..., TOKENS:], variant.positions.weight[:11].expand(3, -1, -1))
