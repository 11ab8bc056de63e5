"""Computing only what the pooler reads changes nothing that the pooler reads, for any variant."""

import pytest
import torch
from tiny_models import encoder_config, pad, random_model, segments, tokens

from glue_bench.model.transformers_api import EncoderModel
from glue_bench.model.variants import VARIANTS


@pytest.mark.parametrize("enters", ["input", "scores"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_pooled_output_and_its_gradients(variant, enters):
    options = {"segments": enters}
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
