"""Position is alive in an arm's actual weights, or can come alive; else the arm is refused."""

import pytest
import torch
from tiny_models import ARMS
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import Start, graft
from glue_bench.model.checks import check_order
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import NoPosition
from glue_bench.model.variants.base import EncoderInput
from glue_bench.testing import encoder_config, random_model


@pytest.fixture
def additive() -> Start:
    model = random_model(EncoderModel, encoder_config("add"))
    return Start(model.config, model.state_dict(), "pretrained", name="additive")


def trained(variant: str, **weights: Tensor) -> Start:
    """Random weights that count as trained with a variant, some of them replaced."""
    config = encoder_config(variant, origin="pretrained")
    weights = random_model(EncoderModel, config).state_dict() | weights
    return Start(config, weights, "pretrained", name="folder/of-weights")


def refusal(start: Start) -> str:
    with pytest.raises(UserError) as caught:
        check_order(start, "mine")
    assert str(caught.value).startswith(f"arm 'mine' (variant '{start.config.variant}' from '{start.name}'): ")
    return str(caught.value)


class AloneInName(NoPosition):
    """Says that it has no position, and hears one."""

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        return EncoderInput(hidden + self.words.weight[: token_ids.shape[1]])


@pytest.mark.parametrize(("variant", "options"), ARMS)
def test_every_graft_and_fresh_weights_are_alive_or_have_no_position(variant, options, additive):
    check_order(graft(additive, variant, options), "mine")
    config = encoder_config(variant, variant_options=options, num_hidden_layers=1)
    check_order(Start(config, {}, "scratch"), "mine")


def test_a_graft_that_starts_dead_is_refused_unless_it_learns(additive):
    additive.weights["variant.positions.weight"].zero_()
    start = graft(additive, "add-relative", {})  # whose bias starts at zero, too
    check_order(start, "mine")
    with pytest.raises(UserError, match="position is dead"):  # or it would not have started dead
        check_order(Start(start.config, start.weights, "pretrained"), "mine")


UNTIED_PARTS = "positions, position_norm, position_query, position_key"


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("untied", f"position is dead, no gradient reaches {UNTIED_PARTS};"),
        ("untied-relative", f"position is dead in part, no gradient reaches {UNTIED_PARTS};"),
    ],
)
def test_a_part_that_is_dead_from_the_start_is_refused(variant, said, additive):
    """A product of two factors of zero has no gradient; that T5's bias beside it learns does not wake it."""
    additive.weights["variant.positions.weight"].zero_()
    assert said in refusal(graft(additive, variant, {}))


def test_trained_weights_with_dead_positions_are_refused():
    check_order(trained("add"), "mine")
    same = torch.ones(16, 24)  # one position like the other, and not only at zero
    assert "does not change the output of these trained weights; give another checkpoint, or take" in refusal(
        trained("add", **{"variant.positions.weight": same})
    )


def test_a_variant_without_position_that_hears_one_is_refused(monkeypatch):
    monkeypatch.setitem(VARIANTS, "alone", AloneInName)
    assert "permuting tokens changes the output by" in refusal(trained("alone"))


def test_an_output_that_is_not_finite_is_refused():
    assert "its output is not finite" in refusal(trained("add", **{"norm.weight": torch.full((24,), torch.nan)}))
