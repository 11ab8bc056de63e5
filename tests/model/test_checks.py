"""An arm is refused if positions have no effect in its weights, and can get none by training."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from helpers.tiny_models import ARM_CASES
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.checks import check_order
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.grafts import graft
from glue_bench.model.start import Start
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import NoPosition
from glue_bench.model.variants.base import EncoderInput
from glue_bench.testing import encoder_config, random_model


@pytest.fixture
def additive() -> Start:
    model = random_model(EncoderModel, encoder_config("add"))
    return Start(model.config, model.state_dict(), "pretrained", name="additive")


def trained(variant: str, **weights: Tensor) -> Start:
    """Return random weights that count as trained with a variant, some of them replaced."""
    config = encoder_config(variant, origin="pretrained")
    weights = random_model(EncoderModel, config).state_dict() | weights
    return Start(config, weights, "pretrained", name="folder/of-weights")


class AloneInName(NoPosition):
    """A variant that declares no position, and has one."""

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        return EncoderInput(hidden + self.words.weight[: token_ids.shape[1]])


@pytest.mark.parametrize(("variant", "options"), ARM_CASES)
def test_every_graft_and_fresh_weights_are_alive_or_have_no_position(variant, options, additive):
    if "position_start" not in options:  # this option is for fresh weights alone
        check_order(graft(additive, variant, options), "mine")
    config = encoder_config(variant, variant_options=options)
    check_order(Start(config, {}, "scratch"), "mine")
    if not options:
        check_order(trained(variant), "mine")


def dead(variant: str, base: Start) -> Start:
    """Return a graft of a checkpoint without positions."""
    base.weights["variant.positions.weight"].zero_()
    return graft(base, variant, {})


def test_a_graft_that_starts_dead_may_learn(additive):
    check_order(dead("add-relative", additive), "mine")  # the bias starts at zero, too


# All positions are equal, and not zero.
SAME = {"variant.positions.weight": torch.ones(16, 24)}
NAN = {"norm.weight": torch.full((24,), torch.nan)}
PARTS = "no gradient reaches positions, position_norm, position_query, position_key;"
REFUSED: dict[str, tuple[Callable[[Start], Start], str]] = {
    # A product of two factors of zero has no gradient, even if T5's bias beside it learns.
    "dead": (lambda base: dead("untied", base), f"position is dead, {PARTS}"),
    "dead in part": (
        lambda base: dead("untied-relative", base),
        f"position is dead in part, {PARTS}",
    ),
    "dead but trained": (
        lambda base: replace(dead("add-relative", base), origin="pretrained"),
        "position is dead",
    ),
    "trained": (
        lambda _: trained("add", **SAME),
        "does not change the output of these trained weights; give another",
    ),
    "alone in name": (lambda _: trained("alone"), "permuting tokens changes the output by"),
    "not finite": (lambda _: trained("add", **NAN), "its output is not finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_arm_is_refused(case, additive, monkeypatch):
    monkeypatch.setitem(VARIANTS, "alone", AloneInName)
    make, message = REFUSED[case]
    start = make(additive)
    place = re.escape(f"arm 'mine' (variant '{start.config.variant}' from '{start.name}'): ")
    with pytest.raises(UserError, match=f"^{place}.*{message}"):
        check_order(start, "mine")
