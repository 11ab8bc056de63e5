"""Position is alive in an arm's actual weights, or can come alive; else the arm is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import Checkpoint, Start, graft
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import NoPosition
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Variant
from glue_bench.model.variants.relative import RelativeBias
from glue_bench.testing.order import check_order
from glue_bench.testing.tiny import encoder_config, random_model


@pytest.fixture
def additive() -> Checkpoint:
    model = random_model(EncoderModel, encoder_config("add"))
    return Checkpoint("additive", model.config, model.state_dict(), {})


def trained(variant: str, **weights: Tensor) -> Start:
    """Random weights that count as trained with a variant, some of them replaced."""
    config = encoder_config(variant, origin="pretrained")
    return Start(config, random_model(EncoderModel, config).state_dict() | weights, "pretrained")


def refusal(start: Start) -> str:
    with pytest.raises(UserError) as caught:
        check_order(start, "mine", "folder/of-weights")
    assert str(caught.value).startswith(f"arm 'mine' (variant '{start.config.variant}' from 'folder/of-weights'): ")
    return str(caught.value)


class Bias(Variant):
    """T5's bias alone, which a graft starts at zero: dead, but it learns."""

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.relative = RelativeBias(dims.num_heads)

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        return EncoderInput(self.words_and_segments(token_ids, segment_ids), self.relative(token_ids.shape[1]))

    def graft(self, base: Additive) -> Any:
        nn.init.zeros_(self.relative.table.weight)
        return super().graft(base)


class StuckProduct(Variant):
    """P_Q P_K^T with both at zero after a graft: noise would wake it, a gradient cannot."""

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.queries = nn.Embedding(dims.max_positions, dims.num_heads)
        self.keys = nn.Embedding(dims.max_positions, dims.num_heads)

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        query, key = (table.weight[: token_ids.shape[1]].T for table in (self.queries, self.keys))
        bias = query[None, :, :, None] * key[None, :, None, :]
        return EncoderInput(self.words_and_segments(token_ids, segment_ids), bias)

    def graft(self, base: Additive) -> Any:
        nn.init.zeros_(self.queries.weight)
        nn.init.zeros_(self.keys.weight)
        return super().graft(base)


class HalfStuckProduct(StuckProduct):
    """The same with one of the tables at zero, from where it does learn."""

    def graft(self, base: Additive) -> Any:
        grafted = super().graft(base)
        nn.init.normal_(self.keys.weight, std=0.02)
        return grafted


class AloneInName(NoPosition):
    """Says that it has no position, and hears one."""

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        return EncoderInput(hidden + self.words.weight[: token_ids.shape[1]])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_graft_is_alive_or_has_no_position(variant: str, additive: Checkpoint) -> None:
    check_order(graft(additive, variant, {}), "mine", "additive")


@pytest.mark.parametrize("variant", VARIANTS)
def test_fresh_weights_are_alive_or_have_no_position(variant: str) -> None:
    check_order(Start(encoder_config(variant, num_hidden_layers=1), {}, "scratch"), "mine", "scratch")


def test_a_subset_of_terms_may_have_no_position(additive: Checkpoint) -> None:
    check_order(graft(additive, "four-term", {"terms": ["word-word"]}), "mine", "additive")


@pytest.mark.parametrize("variant", [Bias, HalfStuckProduct])
def test_a_graft_that_starts_dead_but_learns_is_let_through(
    variant: type[Variant], additive: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS, "quiet", variant)
    start = graft(additive, "quiet", {})
    check_order(start, "mine", "additive")
    with pytest.raises(UserError, match="position is dead"):  # or it would not have started dead
        check_order(Start(start.config, start.weights, "pretrained"), "mine", "additive")


def test_a_graft_that_starts_dead_and_cannot_learn_is_refused(
    additive: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS, "stuck", StuckProduct)
    assert "position is dead, permuting tokens does not change the output and no gradient can make it" in refusal(
        graft(additive, "stuck", {})
    )


def test_trained_weights_with_dead_positions_are_refused() -> None:
    check_order(trained("add"), "mine", "additive")
    same = torch.ones(16, 24)  # one position like the other, and not only at zero
    assert "does not change the output of these trained weights; give another checkpoint, or take" in refusal(
        trained("add", **{"variant.positions.weight": same})
    )


def test_a_variant_without_position_that_hears_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VARIANTS, "alone", AloneInName)
    assert "permuting tokens changes the output by" in refusal(trained("alone"))


def test_an_output_that_is_not_finite_is_refused() -> None:
    assert "its output is not finite" in refusal(trained("add", **{"norm.weight": torch.full((24,), torch.nan)}))


def test_random_numbers_stay_as_they_are() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    check_order(Start(encoder_config("add"), {}, "scratch"), "mine", "scratch")
    assert torch.equal(torch.rand(2), expected)
