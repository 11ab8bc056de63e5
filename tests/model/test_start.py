"""A moved start: tables and sinusoids of absolute positions shift, distances do not, and [CLS] stays where it is."""

import pytest
import torch
from tiny_models import POSITIONS, encoder_config, max_error, random_model, segments, states, tokens
from torch import Tensor

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import Add

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


class WithoutStart(Add):
    def forward(self, token_ids, segment_ids):
        return super().forward(token_ids, segment_ids)


def test_a_variant_that_takes_no_start_is_used_as_before(monkeypatch):
    monkeypatch.setitem(VARIANTS, "without-start", WithoutStart)
    model, ids = model_of("without-start"), tokens(3, LENGTH)
    assert not model.variant.takes_start()
    assert model_of("add").variant.takes_start()
    assert max_error(states(model, ids, None, segments(ids), 0), states(model_of("add"), ids, None, segments(ids))) == 0
