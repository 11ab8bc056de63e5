"""Blocks, attention, dropout and heads equal those of torch and transformers."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_models import ARMS, encoder_config, pad, random_model, segments, tokens
from scipy.stats import binomtest
from torch import nn
from transformers import ModernBertConfig
from transformers.models.modernbert.modeling_modernbert import ModernBertMLP

from glue_bench.board.plan_frames import shape_text
from glue_bench.config import load_experiment
from glue_bench.model import cpu
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.cpu import Dropout, draw_kept, keep_factors
from glue_bench.model.encoder import Block, BlockScores, EncoderModel
from glue_bench.model.heads import classification_loss
from glue_bench.sweep.plan import make_plan
from glue_bench.training.inputs import Inputs

PLAIN = BlockScores(None, None, None, all_queries=False)
HIDDEN = torch.randn(3, 7, 24, dtype=torch.float64)
MASK = torch.arange(7) < torch.tensor([7, 5, 1])[:, None]


def random_block(**changes: Any) -> Block:
    config = encoder_config(**changes)
    head_size = config.hidden_size // config.num_attention_heads
    block = Block(config, scale=head_size**-0.5).double().eval()
    for weight in block.parameters():
        nn.init.normal_(weight, std=0.3)
    return block


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_block_equals_torchs(norm_first):
    block = random_block(norm_first=norm_first)
    layer = nn.TransformerEncoderLayer(
        24,
        3,
        40,
        activation="gelu",
        layer_norm_eps=1e-12,
        batch_first=True,
        norm_first=norm_first,
        dtype=torch.float64,
    ).eval()

    attention = layer.self_attn
    attention.in_proj_weight = block.attention.qkv.weight
    attention.in_proj_bias = block.attention.qkv.bias
    attention.out_proj = block.attention.out
    layer.linear1 = block.up
    layer.linear2 = block.down
    layer.norm1 = block.attention_norm
    layer.norm2 = block.norm

    for mask in (None, MASK):
        expected = layer(HIDDEN, src_key_padding_mask=None if mask is None else ~mask)
        actual = block(HIDDEN, PLAIN, mask)
        real = torch.ones_like(MASK) if mask is None else mask
        torch.testing.assert_close(actual[real], expected[real], atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(
            block(HIDDEN, PLAIN, mask, 1), actual[:, :1], atol=1e-12, rtol=1e-12
        )


def test_a_gated_feed_forward_layer_equals_modernberts():
    block = random_block(norm_first=True, gated=True)
    layer = (
        ModernBertMLP(ModernBertConfig(hidden_size=24, intermediate_size=40, mlp_bias=True))
        .double()
        .eval()
    )
    layer.Wi, layer.Wo = block.up, block.down
    actual = block.feed_forward(HIDDEN)
    torch.testing.assert_close(actual, layer(HIDDEN), atol=1e-12, rtol=1e-12)


def test_what_leaves_the_last_block_of_recent_encoders_is_normalised():
    model = random_model(EncoderModel, encoder_config(norm_first=True, gated=True))
    nn.init.ones_(model.final_norm.weight)
    nn.init.zeros_(model.final_norm.bias)
    state = model.hidden_states(tokens())[-1]
    deviations = state.std(-1, unbiased=False)
    torch.testing.assert_close(deviations, torch.ones(3, 11))


@pytest.mark.usefixtures("small_demo")
def test_an_experiment_has_these_blocks_and_other_ids(tiny):
    def start_of(**scratch: Any) -> tuple[str, EncoderConfig, str]:
        inputs = Inputs(
            load_experiment(tiny(arms=["add"], checkpoint="scratch", scratch=scratch)), Path("none")
        )
        shape = make_plan(inputs).arms["add"].shape
        return inputs.first_arm.start_digest, inputs.first_arm.start.config, shape_text(shape)

    _, _, usual_shape = start_of()
    modern_digest, config, modern_shape = start_of(norm_first=True, gated=True)
    assert '"norm_first":true,"gated":true' in modern_digest
    assert config.norm_first
    assert config.gated
    assert modern_shape != usual_shape  # if they were equal, tables would rank the two together


B, L, H, K = 3, 7, 2, 4
SCALE = 0.3
PADDED = torch.arange(L) < torch.tensor([7, 5, 1])[:, None]
LOWEST = torch.zeros(B, 1, 1, L, dtype=torch.float64).masked_fill(~PADDED[:, None, None], -1e300)


def values_and_gradients(attend, rows=L, bias=None):
    """Compute attention, scaled by SCALE, of slices of one projection; and its gradients.

    The gradients are those of the projection, and of the bias if there is one of that kind.
    """
    random = partial(
        torch.randn,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
        requires_grad=True,
    )
    packed = random(B, L, 3, H, K)
    shapes = {"shared": (1, H, rows, L), "own": (B, H, rows, L), "of all heads": (1, 1, rows, L)}
    added = None if bias is None else random(shapes[bias])
    query, key, value = packed.unbind(2)
    torch.manual_seed(1)
    out = attend(query[:, :rows], key, value, added)
    inputs = [packed] if added is None else [packed, added]
    gradient = random(out.shape, requires_grad=False)
    return out, *torch.autograd.grad(out, inputs, gradient)


@pytest.mark.parametrize("bias", [None, "shared", "own", "of all heads"])
@pytest.mark.parametrize("rows", [L, 1])
@pytest.mark.parametrize("mask", [None, PADDED])
def test_without_dropout_attention_and_its_gradients_equal_torchs(bias, rows, mask):
    def by_torch(query, key, value, bias):
        scores = torch.zeros(B, H, rows, L, dtype=query.dtype) + (0 if bias is None else bias)
        scores = scores if mask is None else scores.masked_fill(~mask[:, None, None], -torch.inf)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        return F.scaled_dot_product_attention(query, key, value, scores, scale=SCALE).transpose(
            1, 2
        )

    padding = None if mask is None else LOWEST
    on_cpu = partial(cpu.attend_on_cpu, padding=padding, scale=SCALE, dropout=0.0)
    actual = values_and_gradients(on_cpu, rows, bias)
    expected = values_and_gradients(by_torch, rows, bias)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("bias", [None, "own"])
def test_dropout_of_attention_is_of_its_weights(bias):
    def by_torch(query, key, value, bias):
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        factors = keep_factors(draw_kept((H, B, L, L), 0.4), 0.4, torch.float64).transpose(0, 1)
        weights = (query @ key.mT * SCALE + (0 if bias is None else bias)).softmax(-1)
        return (weights * factors @ value).transpose(1, 2)

    on_cpu = partial(cpu.attend_on_cpu, padding=None, scale=SCALE, dropout=0.4)
    actual = values_and_gradients(on_cpu, bias=bias)
    expected = values_and_gradients(by_torch, bias=bias)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_rate_of_dropout_is_the_stated_one_and_its_mean_is_one(rate):
    torch.manual_seed(0)
    factors = keep_factors(draw_kept((400, 1003), rate), rate, torch.float32)
    dropped = int((factors == 0).sum())
    assert binomtest(dropped, factors.numel(), round(rate * 2**16) / 2**16).pvalue > 1e-3
    kept = factors[factors != 0].unique()
    expected = [1 / (1 - rate)]
    assert kept.tolist() == pytest.approx(expected, rel=2e-4)
    assert float(factors.mean()) == pytest.approx(1, abs=0.02)


def test_the_gradient_is_dropped_where_the_value_is():
    torch.manual_seed(4)
    values = torch.randn(50, 7, requires_grad=True)
    residual = torch.randn(50, 7, requires_grad=True)
    dropout = Dropout(0.3)
    out = dropout(values)
    out.sum().backward()
    torch.testing.assert_close(values.grad * values, out)
    torch.manual_seed(5)
    added = dropout.add(residual, values)
    torch.manual_seed(5)
    torch.testing.assert_close(added, residual + dropout(values))


@pytest.mark.parametrize("enters", ["input", "scores"])
@pytest.mark.parametrize(("variant", "options"), [arm for arm in ARMS if "segments" not in arm[1]])
def test_computing_only_the_rows_of_the_pooler_changes_none_of_them(variant, options, enters):
    options = options | {"segments": enters}
    config = encoder_config(
        variant, variant_options=options, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0
    )
    model = random_model(EncoderModel, config).double().train()
    ids, mask = pad(tokens(), [11, 7, 4], 0)
    kinds = segments(ids)
    alone = model.pooler(model.hidden_states(ids, mask, kinds, last_rows=1)[-1])
    every_row = model(ids, mask, kinds).pooler_output
    torch.testing.assert_close(alone, every_row, rtol=1e-7, atol=1e-10)
    weights = list(model.parameters())
    actual = torch.autograd.grad(alone.square().sum(), weights, allow_unused=True)
    expected = torch.autograd.grad(every_row.square().sum(), weights, allow_unused=True)
    for (name, _), *gradients in zip(model.named_parameters(), actual, expected, strict=True):
        torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10, msg=name)


def test_the_loss_of_one_output_is_the_mean_squared_error():
    logits = torch.tensor([[1.0], [2.5]])
    scores = torch.tensor([0.0, 2.0])
    expected = (1 + 0.25) / 2
    loss = classification_loss(logits, scores)
    assert loss.item() == pytest.approx(expected)


CODE = """
import importlib, os, sys
import torch, transformers
from transformers import PreTrainedModel  # what both orders need, and neither order is about

checkpoint, *orders = sys.argv[1:]
for order in orders:
    child = os.fork()
    if not child:
        for module in order.split(","):
            importlib.import_module(module)
        model = transformers.AutoModel.from_pretrained(checkpoint).eval()
        pooled = model(torch.arange(5, 15)[None]).pooler_output.detach()
        torch.save((type(model).__name__, pooled), f"{checkpoint}/{order}.pt")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, order
"""
"""Loads a checkpoint once for each order of imports, in a process of its own."""
ORDERS = [
    "glue_bench,transformers.models.auto.modeling_auto",
    "transformers.models.auto.modeling_auto,glue_bench",
]


@pytest.fixture(scope="module")
def saved_encoder(tmp_path_factory):
    """The folder of a checkpoint with what AutoModel makes of it in both orders, and an encoder."""
    folder = tmp_path_factory.mktemp("encoder")
    model = random_model(EncoderModel, encoder_config("untied"))
    model.save_pretrained(folder)
    subprocess.run([sys.executable, "-c", CODE, folder, *ORDERS], check=True, timeout=600)
    return folder, model


@pytest.mark.parametrize("order", ORDERS)
def test_auto_model_loads_our_checkpoint_whichever_is_imported_first(saved_encoder, order):
    folder, model = saved_encoder
    name, pooled = torch.load(folder / f"{order}.pt")
    assert name == "EncoderModel"
    torch.testing.assert_close(pooled, model(torch.arange(5, 15)[None]).pooler_output.detach())
