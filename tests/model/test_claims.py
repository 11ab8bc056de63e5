"""Claims of docs/explanation/why-embeddings-are-added.md that need no training."""

import pytest
import torch
from helpers.tiny_models import encoder_config, random_model, shuffled, states, tokens

from glue_bench.model.checks import permutation
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants.additive import sinusoids


@pytest.mark.parametrize("blocks", [1, 4, 12])
def test_permuted_words_give_permuted_outputs_at_any_depth_without_positions(blocks):
    config = encoder_config("none", num_hidden_layers=blocks)
    model = random_model(EncoderModel, config).double()
    order = permutation(tokens().shape[1])
    expected = states(model, tokens())[-1][:, order]
    permuted = states(model, shuffled(tokens()))[-1]
    torch.testing.assert_close(permuted, expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("positions", "dimensions"), [(128, 218), (512, 287)])
def test_so_many_of_512_dimensions_hold_95_percent_of_the_variance_of_sinusoids(
    positions, dimensions
):
    table = sinusoids(positions, 512, torch.zeros(1)).double()
    variances = table.var(0, unbiased=False).sort(descending=True).values
    shares = variances.cumsum(0) / variances.sum()
    assert int((shares < 0.95).sum()) + 1 == dimensions
