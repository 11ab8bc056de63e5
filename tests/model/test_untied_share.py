"""`share: false` of the untied family: projections of positions of its own in each block."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import (
    CONFIGS,
    HIDDEN,
    LAYERS,
    NARROW,
    encoder,
    encoder_config,
    max_error,
    pad,
    random_model,
    saved,
    segments,
    states,
    tokens,
)
from torch import Tensor
from transformers import AutoModelForMaskedLM

from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import Start

MODELS = {
    "bert": transformers.BertModel,
    "roberta": transformers.RobertaModel,
    "electra": transformers.ElectraModel,
    "distilbert": transformers.DistilBertModel,
}
every_untied = pytest.mark.parametrize("variant", ["untied", "untied-tie-cls", "untied-relative"])
PROJECTIONS = [f"variant.position_{side}.{part}" for side in ("query", "key") for part in ("weight", "bias")]


def config(variant: str, share: bool, place: str = "input", **sizes: Any) -> Any:
    options = {"share": share, "segments": place}
    return encoder_config(
        variant, variant_options=options, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes
    )


def repeated(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The shared projections as every block's own."""
    return {name: torch.cat([tensor] * LAYERS) if name in PROJECTIONS else tensor for name, tensor in weights.items()}


def of_block(weights: dict[str, Tensor], block: int) -> dict[str, Tensor]:
    """One block's projections as the shared ones."""
    return {name: tensor.chunk(LAYERS)[block] if name in PROJECTIONS else tensor for name, tensor in weights.items()}


def batch() -> tuple[Tensor, Tensor, Tensor]:
    ids, mask = pad(tokens(), [11, 7, 2], padding_id=0)
    return ids, mask, segments(ids)


@every_untied
@pytest.mark.parametrize("place", ["input", "scores", "none"])
def test_equal_projections_compute_what_shared_ones_compute(variant: str, place: str) -> None:
    shared = random_model(EncoderModel, config(variant, True, place))
    own = encoder(config(variant, False, place), repeated(shared.state_dict()))
    assert max_error(states(own, *batch()), states(shared, *batch())) < 1e-6


@every_untied
@torch.no_grad()
def test_each_block_gets_the_bias_of_its_own_projections(variant: str) -> None:
    own = random_model(EncoderModel, config(variant, False))
    ids = tokens()
    start = own.variant(ids, segments(ids))
    biases = list(start.bias)
    assert len(biases) == LAYERS
    assert start.rotate is None
    assert start.scores is None
    for block, bias in enumerate(biases):
        one = encoder(config(variant, True), of_block(own.state_dict(), block))
        torch.testing.assert_close(bias, one.variant(ids, segments(ids)).bias, atol=1e-6, rtol=1e-6)
    assert float((biases[0] - biases[1]).abs().max()) > 0.1


@every_untied
@pytest.mark.parametrize("sizes", [{}, {"type_vocab_size": 0}, {"embedding_size": NARROW}])
def test_every_blocks_projections_learn(variant: str, sizes: dict[str, int]) -> None:
    model = random_model(EncoderForMaskedLM, config(variant, False, **sizes)).double().train()
    ids, mask, types = batch()
    model(ids, mask, types, labels=ids).loss.backward()
    own = model.base.variant
    for weight in (own.position_query.weight, own.position_key.weight, own.position_query.bias):
        assert all(part.abs().max() > 1e-6 for part in weight.grad.chunk(LAYERS))
    idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert [name for name in idle if "pooler" not in name] == []


@every_untied
def test_names_are_those_of_the_shared_form(variant: str) -> None:
    shared, own = (EncoderModel(config(variant, share)).state_dict() for share in (True, False))
    assert shared.keys() == own.keys() == EncoderModel(encoder_config(variant)).state_dict().keys()
    assert {name for name in shared if shared[name].shape != own[name].shape} == set(PROJECTIONS)
    assert shared["variant.position_query.weight"].shape == (HIDDEN, HIDDEN)
    assert own["variant.position_query.weight"].shape == (LAYERS * HIDDEN, HIDDEN)


@every_untied
def test_the_biases_of_all_blocks_are_computed_once(variant: str) -> None:
    model = random_model(EncoderModel, config(variant, False))
    calls = []
    for side in (model.variant.position_query, model.variant.position_key, model.variant.position_norm):
        side.register_forward_hook(lambda module, *_: calls.append(module))
    states(model, tokens())
    assert len(calls) == len(set(calls)) == 3


@every_untied
def test_padding_does_not_change_real_tokens(variant: str) -> None:
    model = random_model(EncoderModel, config(variant, False))
    ids, mask = pad(tokens(3, 12), [7, 7, 7], padding_id=0)
    padded = [state[:, :7] for state in states(model, ids, mask)]
    assert max_error(padded, states(model, ids[:, :7])) < 1e-5


@every_untied
def test_saved_and_loaded(variant: str, tmp_path: Path) -> None:
    model = random_model(EncoderForMaskedLM, config(variant, False))
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(*batch()).logits, model(*batch()).logits)


@every_untied
def test_bfloat16_is_close_to_float32(variant: str) -> None:
    model = random_model(EncoderModel, config(variant, False))
    ids, mask, types = batch()
    exact = states(model, ids, mask, types)[-1][mask.bool()]
    rounded = states(model.to(torch.bfloat16), ids, mask, types)[-1][mask.bool()]
    assert rounded.dtype == torch.bfloat16
    assert float((rounded.float() - exact).abs().mean()) < 0.03


@pytest.mark.parametrize("family", CONFIGS)
@every_untied
def test_grafts_of_both_forms_start_at_the_same(family: str, variant: str, tmp_path: Path) -> None:
    """But ELECTRA's, whose projections meet other dimensions than the tables' and start fresh."""
    checkpoint = read_checkpoint(saved(tmp_path, MODELS[family], family)[1])
    shared, own = (graft(checkpoint, variant, {"share": share}) for share in (True, False))
    assert (own.exact, own.origin) == (False, "grafted")
    results = [start_states(start) for start in (own, shared)]
    assert all(state.isfinite().all() for state in results[0])
    assert family == "electra" or max_error(*results) < 1e-6


def start_states(start: Start) -> list[Tensor]:
    ids, mask = pad(tokens(), [11, 7, 2], start.config.pad_token_id)
    return states(encoder(start.config, start.weights), ids, mask, segments(ids, start.config.type_vocab_size))
