"""Attention and dropout on a CPU are torch's: values, gradients, rate, mean and seed."""

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binomtest

from glue_bench.model import cpu
from glue_bench.model.cpu import Dropout, draw_kept, keep_factors
from glue_bench.model.encoder import attend, padding_scores

B, L, H, K = 3, 7, 2, 4
SCALE = 0.3
MASK = torch.arange(L) < torch.tensor([7, 5, 1])[:, None]
DRAWS = (400, 1003)


def inputs(rows=L, bias=None, dtype=torch.float64):
    """Queries, keys and values as slices of one projection, and a bias of that kind."""
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(B, L, 3, H, K, dtype=dtype, generator=generator, requires_grad=True)
    shape = {None: None, "shared": (1, H, rows, L), "own": (B, H, rows, L), "of all heads": (1, 1, rows, L)}[bias]
    added = None if shape is None else torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True)
    query, key, value = packed.unbind(2)
    return packed, (query[:, :rows], key, value, added)


def values_and_gradients(function, rows, bias, **settings):
    packed, given = inputs(rows, bias)
    torch.manual_seed(1)
    out = function(*given, **settings)
    generator = torch.Generator().manual_seed(2)
    gradient = torch.randn(out.shape, dtype=out.dtype, generator=generator)
    learning = [tensor for tensor in (packed, given[3]) if tensor is not None]
    return out, *torch.autograd.grad(out, learning, gradient)


@pytest.mark.parametrize("bias", [None, "shared", "own", "of all heads"])
@pytest.mark.parametrize("rows", [L, 1])
@pytest.mark.parametrize("mask", [None, MASK])
def test_without_dropout_attention_and_its_gradients_are_those_of_torch(bias, rows, mask):
    def ours(query, key, value, bias):
        padding = None if mask is None else padding_scores(mask, query.dtype)
        return cpu.attend(query, key, value, bias, padding, scale=SCALE, dropout=0.0)

    def theirs(query, key, value, bias):
        scores = torch.zeros(B, H, rows, L, dtype=query.dtype) + (0 if bias is None else bias)
        scores = scores if mask is None else scores.masked_fill(~mask[:, None, None], -torch.inf)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        return F.scaled_dot_product_attention(query, key, value, scores, scale=SCALE).transpose(1, 2)

    for one, other in zip(*(values_and_gradients(each, rows, bias) for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("bias", [None, "shared", "own"])
def test_dropout_of_attention_is_of_its_weights(bias):
    def ours(query, key, value, bias):
        return cpu.attend(query, key, value, bias, None, scale=SCALE, dropout=0.4)

    def theirs(query, key, value, bias):
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        factors = keep_factors(draw_kept((H, B, L, L), 0.4), 0.4, torch.float64).transpose(0, 1)
        weights = (query @ key.mT * SCALE + (0 if bias is None else bias)).softmax(-1)
        return (weights * factors @ value).transpose(1, 2)

    for one, other in zip(*(values_and_gradients(each, L, bias) for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_are_those_of_finite_differences():
    _, (query, key, value, bias) = inputs(1, "shared")
    given = [part.detach().clone().requires_grad_() for part in (query, key, value, bias)]
    padding = padding_scores(MASK, torch.float64)
    assert torch.autograd.gradcheck(lambda *t: cpu.attend(*t, padding, scale=SCALE, dropout=0.0), given)


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_an_encoder_attends_the_same_way_in_training_and_evaluation(dtype, within):
    _, (query, key, value, bias) = inputs(bias="shared", dtype=dtype)
    learning = attend(query, key, value, bias, MASK, scale=SCALE, dropout=0.0)
    still = attend(query, key, value, bias.detach(), MASK, scale=SCALE, dropout=0.0)
    assert learning.dtype == still.dtype == dtype
    assert learning.grad_fn.name().startswith("_Attention") != still.grad_fn.name().startswith("_Attention")
    torch.testing.assert_close(learning, still, atol=within, rtol=within)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_rate_of_dropout_is_the_stated_one_and_its_mean_is_one(rate):
    torch.manual_seed(0)
    factors = keep_factors(draw_kept(DRAWS, rate), rate)
    dropped = int((factors == 0).sum())
    assert binomtest(dropped, factors.numel(), round(rate * 2**16) / 2**16).pvalue > 1e-3
    kept = factors[factors != 0].unique()
    assert kept.tolist() == pytest.approx([1 / (1 - rate)], rel=2e-4)
    assert float(factors.mean()) == pytest.approx(1, abs=0.02)


def test_neighbours_are_independent_and_each_lane_of_a_word_has_the_rate():
    torch.manual_seed(1)
    dropped = (draw_kept((10**6,), 0.1) == 0).float()
    for lag in (1, 2, 3, 4, 1003):
        both = float((dropped[lag:] * dropped[:-lag]).mean())
        assert both == pytest.approx(0.01, abs=6e-4), lag
    assert dropped.view(-1, 4).mean(dim=0).tolist() == pytest.approx([0.1] * 4, abs=3e-3)


def test_dropout_is_seeded_and_every_call_differs():
    torch.manual_seed(3)
    first, second = draw_kept((64,), 0.5), draw_kept((64,), 0.5)
    torch.manual_seed(3)
    assert torch.equal(first, draw_kept((64,), 0.5))
    assert not torch.equal(first, second)


def test_the_gradient_is_dropped_where_the_value_is():
    torch.manual_seed(4)
    values, residual = torch.randn(50, 7, requires_grad=True), torch.randn(50, 7, requires_grad=True)
    dropout = Dropout(0.3)
    out = dropout(values)
    out.sum().backward()
    torch.testing.assert_close(values.grad * values, out)
    torch.manual_seed(5)
    added = dropout.add(residual, values)
    torch.manual_seed(5)
    torch.testing.assert_close(added, residual + dropout(values))


def test_what_is_dropped_of_bf16_is_added_in_float32():
    torch.manual_seed(6)
    values, residual = torch.ones(1000, dtype=torch.bfloat16, requires_grad=True), torch.zeros(1000)
    added = Dropout(0.1).add(residual, values)
    assert added.dtype == torch.float32
    assert added.unique().tolist() == pytest.approx([0, 1 / 0.9], rel=1e-4)  # in bf16 1.109
    added.sum().backward()
    torch.testing.assert_close(values.grad, added.detach().bfloat16())


def test_evaluation_drops_nothing():
    dropout, values = Dropout(0.5).eval(), torch.randn(3, 4)
    assert dropout(values) is values
    torch.testing.assert_close(dropout.add(values, values), 2 * values)
