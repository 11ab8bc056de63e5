"""What every variant promises, whatever it is: one test each over all of VARIANTS."""

from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError
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
    shuffled,
    states,
    tokens,
)
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, PreTrainedModel

from glue_bench.errors import UserError
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.transformers_api import EncoderForMaskedLM, EncoderForSequenceClassification, EncoderModel
from glue_bench.model.variants import VARIANTS, build_variant, check_variant, option_names
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant

every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_encoder = pytest.mark.parametrize(
    "sizes",
    [{}, {"type_vocab_size": 0}, {"embedding_size": NARROW}],
    ids=["bert-like", "without segments", "narrow tables"],
)
HEADED = [EncoderForMaskedLM, EncoderForSequenceClassification]
LOADERS = [
    (EncoderModel, AutoModel),
    (EncoderForSequenceClassification, AutoModelForSequenceClassification),
    (EncoderForMaskedLM, AutoModelForMaskedLM),
]


def without_dropout(variant: str, **sizes: Any) -> EncoderConfig:
    return encoder_config(variant, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)


@every_variant
@every_encoder
def test_shapes_of_what_enters_the_first_block(variant: str, sizes: dict[str, int]) -> None:
    config = encoder_config(variant, **sizes)
    ids = tokens(3, 7)
    start = build_variant(config)(ids, segments(ids))
    assert start.hidden.shape == (3, 7, config.embedding_size)
    if start.bias is not None:
        assert start.bias.shape in {(1, HEADS, 7, 7), (3, HEADS, 7, 7)}


@every_variant
@every_encoder
def test_encoder_runs_at_every_length(variant: str, sizes: dict[str, int]) -> None:
    model = random_model(EncoderModel, encoder_config(variant, **sizes))
    for length in (1, 2, POSITIONS):
        output = model(tokens(2, length), output_hidden_states=True)
        assert output.last_hidden_state.shape == (2, length, HIDDEN)
        assert output.last_hidden_state.isfinite().all()
        assert output.pooler_output.shape == (2, HIDDEN)
        assert len(output.hidden_states) == 3


@every_variant
@every_encoder
@pytest.mark.parametrize("kind", HEADED)
def test_every_parameter_learns(variant: str, sizes: dict[str, int], kind: type[PreTrainedModel]) -> None:
    """Through the masked-LM loss all but the pooler, which only classification uses."""
    model = random_model(kind, without_dropout(variant, num_labels=3, **sizes)).train()
    ids = tokens(3, 9)
    labels = ids if kind is EncoderForMaskedLM else torch.tensor([0, 1, 2])
    model(ids, None, segments(ids), labels=labels).loss.backward()
    idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert [name for name in idle if kind is not EncoderForMaskedLM or "pooler" not in name] == []


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
@every_encoder
def test_padding_does_not_change_real_tokens(variant: str, sizes: dict[str, int]) -> None:
    model = random_model(EncoderModel, encoder_config(variant, **sizes))
    long = tokens(3, 12)
    ids, mask = pad(long, [7, 7, 7], padding_id=0)
    alone = states(model, long[:, :7], None, segments(long[:, :7]))
    padded = [state[:, :7] for state in states(model, ids, mask, segments(ids))]
    assert max_error(padded, alone) < 1e-5
    unmasked = [state[:, :7] for state in states(model, ids, None, segments(ids))]
    assert max_error(unmasked, alone) > 1e-2


@every_variant
@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.float32])
def test_mask_of_any_type(variant: str, dtype: torch.dtype) -> None:
    model = random_model(EncoderModel, encoder_config(variant))
    ids, mask = pad(tokens(), [11, 5, 2], padding_id=0)
    assert max_error(states(model, ids, mask.to(dtype)), states(model, ids, mask)) == 0


@every_variant
@pytest.mark.parametrize(("kind", "loader"), LOADERS)
def test_saved_and_loaded_through_auto_classes(
    variant: str, kind: type[PreTrainedModel], loader: Any, tmp_path: Path
) -> None:
    model = random_model(kind, encoder_config(variant, num_labels=3, origin="adapted"))
    model.save_pretrained(tmp_path)
    again = loader.from_pretrained(tmp_path).eval()
    assert (tmp_path / "model.safetensors").exists()
    assert type(again).__name__ == kind.__name__
    assert (again.config.variant, again.config.origin) == (variant, "adapted")
    assert_same_weights(model, again)
    ids, mask = pad(tokens(), [11, 5, 2], padding_id=0)
    with torch.no_grad():
        for ours, theirs in zip(model(ids, mask).to_tuple(), again(ids, mask).to_tuple(), strict=True):
            assert (ours - theirs).abs().max() < 1e-5  # equal weights at other addresses may round differently


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    weights = other.state_dict()
    assert one.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in one.state_dict().items())


@every_variant
@pytest.mark.parametrize("kind", HEADED)
def test_encoder_inside_a_headed_checkpoint(variant: str, kind: type[PreTrainedModel], tmp_path: Path) -> None:
    model = random_model(kind, encoder_config(variant))
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert_same_weights(model.base, again)
    assert max_error(states(again, tokens()), states(model.base, tokens())) < 1e-5


@every_variant
@pytest.mark.parametrize("sizes", [{}, {"embedding_size": NARROW}], ids=["wide", "narrow"])
def test_decoder_is_tied_to_the_words(variant: str, sizes: dict[str, int], tmp_path: Path) -> None:
    model = EncoderForMaskedLM(encoder_config(variant, **sizes))
    model.save_pretrained(tmp_path)
    for candidate in (model, AutoModelForMaskedLM.from_pretrained(tmp_path)):
        assert candidate.decoder.weight is candidate.base.variant.words.weight


@every_variant
def test_wrong_shapes_are_refused(variant: str) -> None:
    model = EncoderModel(encoder_config(variant))
    ids = tokens()
    with pytest.raises((TypeCheckError, ValueError)):
        model(ids[0])
    with pytest.raises((TypeCheckError, ValueError)):
        model(ids, token_type_ids=ids[:, :-1])
    with pytest.raises((TypeCheckError, ValueError)):
        model(ids.float())


def test_a_score_bias_that_is_not_square_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        EncoderInput(torch.zeros(2, 5, HIDDEN), torch.zeros(1, HEADS, 5, 4))
    with pytest.raises(TypeCheckError):
        EncoderInput(torch.zeros(2, 5, HIDDEN), torch.zeros(3, HEADS, 5, 5))


@every_variant
def test_longer_than_the_position_table_is_refused(variant: str) -> None:
    with pytest.raises(ValueError, match="sequences of 17 tokens, but the encoder has 16 positions"):
        EncoderModel(encoder_config(variant))(tokens(1, POSITIONS + 1))


@every_variant
@torch.no_grad()
def test_order_reaches_cls_in_all_but_none(variant: str) -> None:
    model = random_model(EncoderModel, encoder_config(variant)).double()
    pooled = [model(ids).pooler_output for ids in (tokens(), shuffled(tokens()))]
    change = float((pooled[0] - pooled[1]).abs().max())
    assert change < 1e-12 if variant == "none" else change > 1e-2


@every_variant
@torch.no_grad()
def test_segments_reach_cls(variant: str) -> None:
    model = random_model(EncoderModel, encoder_config(variant))
    pooled = [model(tokens(), None, ids).pooler_output for ids in (None, segments(tokens()))]
    assert float((pooled[0] - pooled[1]).abs().max()) > 1e-2


@every_variant
def test_bfloat16_is_close_to_float32(variant: str) -> None:
    model = random_model(EncoderModel, encoder_config(variant))
    ids, mask = pad(tokens(), [11, 7, 2], padding_id=0)
    exact = states(model, ids, mask)[-1][mask.bool()]
    rounded = states(model.to(torch.bfloat16), ids, mask)[-1][mask.bool()]
    assert rounded.dtype == torch.bfloat16
    assert float((rounded.float() - exact).abs().mean()) < 0.03
    assert float(exact.abs().mean()) > 0.3


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
    assert option_names("scaled") == ["factor", "segments"]
    model = EncoderModel(encoder_config("scaled", variant_options={"factor": 2.0}))
    assert isinstance(model.variant, nn.Module)
    assert model.variant.factor == 2.0
    with pytest.raises(UserError, match=r"unknown option 'facto' in variant 'scaled'; did you mean 'factor'"):
        check_variant("scaled", {"facto": 2})


@every_variant
def test_summary_and_source_are_said(variant: str) -> None:
    assert VARIANTS[variant].summary
    assert VARIANTS[variant].source
    assert VARIANTS[variant].score_terms >= 1
