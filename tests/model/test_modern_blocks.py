"""The blocks of the encoder are those of torch and of ModernBERT, with the same weights."""

from typing import Any

import pytest
import torch
from tiny_models import encoder_config, pad, random_model, segments, tokens
from torch import nn
from transformers import ModernBertConfig
from transformers.models.modernbert.modeling_modernbert import ModernBertMLP

from glue_bench.config import parse_experiment
from glue_bench.model.encoder import Block, BlockScores, EncoderModel
from glue_bench.training.inputs import Inputs

PLAIN = BlockScores(None, None, None, whole=False)
HIDDEN, MASK = torch.randn(3, 7, 24, dtype=torch.float64), torch.arange(7) < torch.tensor([7, 5, 1])[:, None]
OURS = {
    "self_attn.in_proj_": "attention.qkv.",
    "self_attn.out_proj.": "attention.out.",
    "linear1.": "up.",
    "linear2.": "down.",
    "norm1.": "attention_norm.",
    "norm2.": "norm.",
}


def random_block(**changes: Any) -> Block:
    config = encoder_config(**changes)
    block = Block(config, scale=(config.hidden_size // config.num_attention_heads) ** -0.5).double().eval()
    for weight in block.parameters():
        nn.init.normal_(weight, std=0.3)
    return block


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_block_is_that_of_torch(norm_first: bool) -> None:
    ours = random_block(norm_first=norm_first)
    theirs = nn.TransformerEncoderLayer(
        24, 3, 40, activation="gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).eval()
    state = {}
    for name in theirs.state_dict():
        start = next(start for start in OURS if name.startswith(start))
        state[name] = ours.get_parameter(name.replace(start, OURS[start]))
    theirs.load_state_dict(state)
    for mask in (None, MASK):
        expected = theirs(HIDDEN, src_key_padding_mask=None if mask is None else ~mask)
        found = ours(HIDDEN, PLAIN, mask)
        real = torch.ones_like(MASK) if mask is None else mask
        torch.testing.assert_close(found[real], expected[real], atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(ours(HIDDEN, PLAIN, mask, 1), found[:, :1], atol=1e-12, rtol=1e-12)


def test_a_gated_feed_forward_layer_is_that_of_modernbert() -> None:
    ours = random_block(norm_first=True, gated=True)
    theirs = ModernBertMLP(ModernBertConfig(hidden_size=24, intermediate_size=40, mlp_bias=True)).double().eval()
    theirs.load_state_dict(
        {f"{name}.{part}": getattr(getattr(ours, mine), part) for name, mine in (("Wi", "up"), ("Wo", "down"))
         for part in ("weight", "bias")}
    )  # fmt: skip
    torch.testing.assert_close(ours.feed_forward(HIDDEN), theirs(HIDDEN), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
def test_what_leaves_the_last_block_is_normalised(norm_first: bool) -> None:
    model = random_model(EncoderModel, encoder_config(norm_first=norm_first, gated=True))
    norm = model.final_norm if norm_first else model.blocks[-1].norm
    nn.init.ones_(norm.weight)
    nn.init.zeros_(norm.bias)
    ids, mask = pad(tokens(), [11, 7, 2], 0)
    state = model.hidden_states(ids, mask, segments(ids))[-1]
    torch.testing.assert_close(state.std(-1, unbiased=False), torch.ones(3, 11))


def test_an_experiment_has_these_blocks_and_others_keep_their_ids(tiny: Any) -> None:
    def inputs(**scratch: Any) -> Inputs:
        return Inputs(parse_experiment(tiny(arms=["add"], checkpoint="scratch", scratch=scratch)))

    plain, modern = inputs(), inputs(norm_first=True, gated=True)
    arm = plain.experiment.arms[0]
    assert "norm_first" not in plain.start_digest(arm)
    assert inputs(norm_first=False, gated=False).start_digest(arm) == plain.start_digest(arm)
    assert '"norm_first":true,"gated":true' in modern.start_digest(arm)
    config = modern.initial(arm).config
    assert (config.norm_first, config.gated) == (True, True)
