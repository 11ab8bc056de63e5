"""As transformers models: every argument does what it does there, or raises."""

from typing import Any

import pytest
import torch
from option_sets import ARMS
from tiny_models import encoder_config, pad, random_model, segments, tokens

from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification, classification_loss

KINDS = [EncoderModel, EncoderForSequenceClassification, EncoderForMaskedLM]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def model(request: pytest.FixtureRequest) -> Any:
    return random_model(request.param, encoder_config(num_labels=2))


@pytest.mark.parametrize("name", ["position_ids", "inputs_embeds", "output_attentions", "atention_mask", "label"])
def test_an_argument_that_is_not_here_raises(model: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"got an unexpected keyword argument '{name}'"):
        model(tokens(), **{name: None})


@pytest.mark.parametrize("place", ["argument", "configuration"])
def test_a_tuple_is_returned_where_one_is_asked_for(model: Any, place: str) -> None:
    expected = model(tokens()).to_tuple()
    if place == "configuration":
        model.config.return_dict = False
    found = model(tokens(), **({"return_dict": False} if place == "argument" else {}))
    assert type(found) is tuple
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_hidden_states_are_returned_where_they_are_asked_for(model: Any) -> None:
    ids, mask = pad(tokens(), [11, 7, 2])
    inputs = ids, mask, segments(ids)
    plain, found = model(*inputs), model(*inputs, output_hidden_states=True)
    assert plain.hidden_states is None
    for ours, expected in zip(found.hidden_states, model.base_model.hidden_states(*inputs), strict=True):
        assert torch.equal(ours, expected)
    torch.testing.assert_close(found[0], plain[0])


@pytest.mark.parametrize("enters", ["input", "scores"])
@pytest.mark.parametrize(("variant", "options"), [arm for arm in ARMS if "segments" not in arm[1]])
def test_to_compute_only_what_the_pooler_reads_changes_nothing_that_it_reads(variant, options, enters):
    options = options | {"segments": enters}
    config = encoder_config(variant, variant_options=options, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    model = random_model(EncoderModel, config).double().train()
    ids, mask = pad(tokens(), [11, 7, 4], 0)
    kinds = segments(ids)
    results = []
    for pooled in (model.pooled(ids, mask, kinds), model(ids, mask, kinds).pooler_output):
        model.zero_grad()
        pooled.square().sum().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        results.append((pooled.detach(), gradients))
    (first, mine), (second, theirs) = results
    torch.testing.assert_close(first, second)
    assert set(mine) == set(theirs)
    for name, gradient in mine.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-7, atol=1e-10, msg=name)


def test_the_masked_lm_head_at_some_places_predicts_what_it_does_at_all_and_its_loss_is_their_mean() -> None:
    model, ids = random_model(EncoderForMaskedLM, encoder_config()), tokens()
    places = torch.tensor([0, 5, 17])
    labels = torch.full_like(ids, -100)
    labels.view(-1)[places] = ids.view(-1)[places]
    whole, some = model(ids, labels=labels), model(ids, places=places).logits
    torch.testing.assert_close(some, whole.logits.flatten(0, 1)[places])
    torch.testing.assert_close(whole.loss, -some.log_softmax(-1)[range(3), ids.view(-1)[places]].mean())


def test_the_loss_of_one_output_is_the_mean_squared_error() -> None:
    logits, scores = torch.tensor([[1.0], [2.5]]), torch.tensor([0.0, 2.0])
    assert float(classification_loss(logits, scores)) == pytest.approx((1 + 0.25) / 2)
