"""Segments as an axis of their own: in the input, in the scores, or nowhere, under every variant."""

from pathlib import Path

import pytest
import torch
from tiny_models import encoder_config, max_error, random_model, saved, states, tokens
from tiny_models import segments as two_segments
from torch import Tensor
from transformers import AutoModel, BertModel, DistilBertModel

from glue_bench.errors import UserError
from glue_bench.model.checkpoints import graft, read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.start import Start
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import PLACES

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def encoder(variant: str, place: str, **sizes: int) -> EncoderModel:
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
    model, tokens = encoder(variant, place), torch.randint(1, 40, (2, 6))
    apart = torch.tensor([[0, 0, 0, 1, 1, 1]]).expand(2, -1)
    change = (output(model, tokens, apart) - output(model, tokens, None)).abs().max()
    assert change == 0 if place == "none" else change > 1e-2


def test_scores_hold_a_scalar_a_head_and_pair() -> None:
    model = encoder("add", "scores")
    scores = model.segment_scores(torch.tensor([[0, 1]]))
    table = model.segment_scores.table.weight
    assert torch.equal(scores[0, :, 0, 1], table[1])
    assert torch.equal(scores[0, :, 1, 0], table[2])


@pytest.mark.parametrize("place", ["scores", "none"])
def test_a_graft_says_that_it_lost_the_segments(place: str, tmp_path: Path) -> None:
    saved(tmp_path, BertModel, "bert")
    start = graft(read_checkpoint(str(tmp_path)), "add", {"segments": place})
    assert (start.origin, start.exact) == ("grafted", False)
    model = EncoderModel(start.config)
    model.load_state_dict(start.weights)
    assert model.segment_scores is None or not model.segment_scores.table.weight.any()


def test_a_graft_without_segments_to_lose_is_exact(tmp_path: Path) -> None:
    saved(tmp_path, DistilBertModel, "distilbert")
    assert graft(read_checkpoint(str(tmp_path)), "concat", {"segments": "none"}).exact


@pytest.mark.parametrize("variant", ["add", "concat", "gate"])
@pytest.mark.parametrize("after", PLACES)
@pytest.mark.parametrize("before", PLACES)
def test_a_graft_is_exact_where_the_segments_stay_and_only_there(before: str, after: str, variant: str) -> None:
    theirs = random_model(EncoderModel, encoder_config("add", variant_options={"segments": before}))
    start = graft(Start(theirs.config, theirs.state_dict(), "pretrained"), variant, {"segments": after})
    ours = EncoderModel(start.config).eval()
    ours.load_state_dict(start.weights)
    ids = tokens()
    error = max_error(*(states(model, ids, None, two_segments(ids)) for model in (ours, theirs)))
    assert start.exact == (error < 1e-5)
    assert start.exact == (before == after or (before, after) == ("none", "scores"))


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = encoder("untied", "scores")
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(again.segment_scores.table.weight, model.segment_scores.table.weight)


def test_a_place_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown value 'score' in option 'segments' .*did you mean 'scores'"):
        encoder("add", "score")


@pytest.mark.parametrize(("types", "has"), [(0, "none"), (1, "only one")])
def test_scores_of_segments_that_the_encoder_lacks_are_refused(types: int, has: str) -> None:
    with pytest.raises(UserError, match=f"segments cannot enter the scores, the encoder has {has}"):
        encoder("add", "scores", type_vocab_size=types)
