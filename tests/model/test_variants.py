"""The contract over all of VARIANTS, and what else holds for every variant."""

from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError
from option_sets import ARMS, OPTIONS
from tiny_models import (
    HEADS,
    HIDDEN,
    NARROW,
    POSITIONS,
    encoder_config,
    max_error,
    pad,
    random_model,
    segments,
    states,
    tokens,
)
from torch import nn
from transformers import AutoModelForMaskedLM

from glue_bench.errors import UserError
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant
from glue_bench.model.variants.options import check_variant
from glue_bench.testing import CLAUSES, check_clause, check_contract

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
@pytest.mark.parametrize("clause", [clause for clause in CLAUSES if clause != "gradients"])  # which follows
def test_every_variant_meets_the_contract(clause: str, variant: str) -> None:
    check_clause(clause, variant)


LAST = [(variant, sets[-1]) for variant, sets in OPTIONS.items()]


@pytest.mark.parametrize(
    ("variant", "options"),
    [pytest.param(*arm, marks=() if arm in LAST else pytest.mark.slow) for arm in ARMS if arm[1]],
    ids=str,
)
def test_options_keep_the_contract(variant: str, options: dict[str, Any]) -> None:
    check_contract(variant, options)


@pytest.mark.parametrize(("variant", "options"), ARMS, ids=str)
def test_every_parameter_learns_under_every_option(variant: str, options: dict[str, Any]) -> None:
    check_clause("gradients", variant, options)


def without_dropout(variant: str, **sizes: Any) -> EncoderConfig:
    return encoder_config(variant, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)


@every_variant
def test_what_the_encoder_puts_out(variant: str) -> None:
    output = EncoderModel(encoder_config(variant))(tokens(2, 7), output_hidden_states=True)
    assert output.last_hidden_state.shape == (2, 7, HIDDEN)
    assert output.pooler_output.shape == (2, HIDDEN)
    assert len(output.hidden_states) == 3


@every_variant
def test_padding_without_a_mask_is_heard(variant: str) -> None:
    """Else the clause on padding would show nothing."""
    model, long = random_model(EncoderModel, encoder_config(variant)), tokens(3, 12)
    ids, mask = pad(long, [7, 7, 7], padding_id=0)
    masked, unmasked = ([state[:, :7] for state in states(model, ids, m)] for m in (mask, None))
    assert max_error(masked, states(model, long[:, :7])) < 1e-5
    assert max_error(unmasked, masked) > 1e-2


@every_variant
def test_the_padding_row_stays(variant: str) -> None:
    model = random_model(EncoderForSequenceClassification, without_dropout(variant))
    ids, mask = pad(tokens(3, 9), [9, 4, 4], padding_id=0)
    model(ids, mask, labels=torch.tensor([0, 1, 1])).loss.backward()
    assert not model.base.variant.words.weight.grad[0].any()


def test_which_rows_of_the_untied_table_learn() -> None:
    """Row 0 makes theta_1, one constant for the whole row of scores of [CLS], which softmax ignores.

    So p_theta1 does nothing in TUPE-A, by equation 9 as by the official code. Row 1 (theta_2) and the rows of
    positions 1 to l - 1 learn; rows past the sequence do not.
    """
    model = random_model(EncoderForMaskedLM, without_dropout("untied")).double()
    model(tokens(3, 9), labels=tokens(3, 9)).loss.backward()
    size = model.base.variant.positions.weight.grad.abs().amax(dim=1)
    assert size[0] < 1e-12
    assert (size[1:10] > 1e-6).all()
    assert not size[10:].any()


@every_variant
@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.float32])
def test_mask_of_any_type(variant: str, dtype: torch.dtype) -> None:
    model = random_model(EncoderModel, encoder_config(variant))
    ids, mask = pad(tokens(), [11, 5, 2], padding_id=0)
    assert max_error(states(model, ids, mask.to(dtype)), states(model, ids, mask)) == 0


@every_variant
@pytest.mark.parametrize("sizes", [{}, {"embedding_size": NARROW}], ids=["wide", "narrow"])
def test_decoder_is_tied_to_the_words(variant: str, sizes: dict[str, int], tmp_path: Path) -> None:
    model = EncoderForMaskedLM(encoder_config(variant, **sizes))
    model.save_pretrained(tmp_path)
    for candidate in (model, AutoModelForMaskedLM.from_pretrained(tmp_path)):
        assert candidate.decoder.weight is candidate.base.variant.words.weight


def test_a_score_bias_that_is_not_square_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        EncoderInput(torch.zeros(2, 5, HIDDEN), torch.zeros(1, HEADS, 5, 4))
    with pytest.raises(TypeCheckError):
        EncoderInput(torch.zeros(2, 5, HIDDEN), torch.zeros(3, HEADS, 5, 5))


@pytest.mark.parametrize(
    ("token_ids", "segment_ids", "said"),
    [
        (tokens()[0], None, r"integers of shape \(batch, length\), not torch\.int64 of shape \(11,\)"),
        (tokens().float(), None, r"not torch\.float32 of shape \(3, 11\)"),
        (tokens(), tokens()[:, :1], r"segment ids have shape \(3, 1\), token ids \(3, 11\)"),
    ],
)
def test_wrong_ids_are_refused_where_annotations_are_not_checked(
    token_ids: torch.Tensor, segment_ids: torch.Tensor | None, said: str
) -> None:
    """As outside the tests: `__wrapped__` is the function without its checks. The last would broadcast."""
    with pytest.raises(ValueError, match=said):
        EncoderModel.hidden_states.__wrapped__(EncoderModel(encoder_config("none")), token_ids, None, segment_ids)


@every_variant
def test_longer_than_the_position_table_is_refused(variant: str) -> None:
    with pytest.raises(ValueError, match="sequences of 17 tokens, but the encoder has 16 positions"):
        EncoderModel(encoder_config(variant))(tokens(1, POSITIONS + 1))


@every_variant
@torch.no_grad()
def test_segments_reach_cls(variant: str) -> None:
    model = random_model(EncoderModel, encoder_config(variant))
    pooled = [model(tokens(), None, ids).pooler_output for ids in (None, segments(tokens()))]
    assert float((pooled[0] - pooled[1]).abs().max()) > 1e-2


@every_variant
def test_an_empty_sequence_is_finite_under_autocast(variant: str) -> None:
    model = random_model(EncoderModel, encoder_config(variant))
    ids, mask = pad(tokens(), [11, 7, 0], padding_id=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert states(model, ids, mask)[-1].isfinite().all()


def test_unknown_variant_is_refused_with_the_near_match() -> None:
    with pytest.raises(UserError, match="unknown variant 'untyed'; did you mean 'untied'"):
        EncoderModel(encoder_config("untyed"))
    with pytest.raises(UserError, match=r"unknown variant 'sum' in arms\.x; known: none, add, add-sinusoidal,"):
        check_variant("sum", {}, "arms.x")


@every_variant
def test_unknown_option_is_refused(variant: str) -> None:
    with pytest.raises(UserError, match="unknown option 'no_such_option'"):
        EncoderModel(encoder_config(variant, variant_options={"no_such_option": 1}))


class Scaled(Variant):
    """A variant with an option, for the test below."""

    def __init__(self, dims: Dimensions, *, factor: float = 1.0) -> None:
        super().__init__(dims)
        self.factor = factor

    def forward(self, token_ids: torch.Tensor, segment_ids: torch.Tensor) -> EncoderInput:
        return EncoderInput(self.factor * self.words_and_segments(token_ids, segment_ids))

    def graft(self, base: Additive) -> Grafted:
        self.graft_content(base)
        return Grafted(self.factor == 1.0)


def test_options_reach_a_variant_and_near_matches_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VARIANTS, "scaled", Scaled)
    model = EncoderModel(encoder_config("scaled", variant_options={"factor": 2.0}))
    assert isinstance(model.variant, nn.Module)
    assert model.variant.factor == 2.0
    with pytest.raises(UserError, match=r"unknown option 'facto' in variant 'scaled'; did you mean 'factor'"):
        check_variant("scaled", {"facto": 2})


@pytest.mark.parametrize(
    ("options", "origin", "start"),
    [
        ({}, "scratch", "; the projection starts at random"),
        ({"init": "identity"}, "scratch", "; the projection starts as the sum, which is 'add' exactly"),
        ({}, "grafted", "; the projection starts as the sum, which is 'add' exactly"),
        ({}, "pretrained", ""),
    ],
)
def test_an_arm_of_concat_says_how_its_projection_starts(options: dict[str, str], origin: str, start: str) -> None:
    assert VARIANTS["concat"].described(options, origin) == VARIANTS["concat"].summary + start


@every_variant
def test_summary_and_source_are_said(variant: str) -> None:
    assert VARIANTS[variant].summary
    assert VARIANTS[variant].source
    assert VARIANTS[variant].score_terms >= 1
