"""Attention on the CPU is torch's, values and gradients, with and without what makes torch slow."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange

from glue_bench.model.cpu.attention import attend
from glue_bench.model.cpu.dropout import draw_kept, keep_factors

B, L, H, K = 3, 7, 2, 4
SCALE = 0.3


def reference(packed, query, bias, factors=None):
    queries = packed[:, :, 0] if query is None else query
    q, k, v = (rearrange(part, "b l h k -> b h l k") for part in (queries, packed[:, :, -2], packed[:, :, -1]))
    scores = q @ k.mT * SCALE + (0 if bias is None else bias)
    weights = F.softmax(scores, dim=-1) * (1 if factors is None else factors)
    return rearrange(weights @ v, "b h q k -> b q h k")


def inputs(kind):
    torch.manual_seed(0)
    packed = torch.randn(B, L, 2 if "apart" in kind else 3, H, K, dtype=torch.float64, requires_grad=True)
    query = torch.randn(B, 1, H, K, dtype=torch.float64, requires_grad=True) if "apart" in kind else None
    rows = 1 if query is not None else L
    shapes = {"shared": (1, H, rows, L), "padding": (B, 1, 1, L), "own": (B, H, rows, L)}
    shape = next((shape for name, shape in shapes.items() if name in kind), None)
    bias = None if shape is None else torch.randn(shape, dtype=torch.float64, requires_grad=True)
    return packed, query, bias


@pytest.mark.parametrize("kind", ["plain", "shared", "padding", "own", "apart", "apart shared", "apart padding"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_values_and_gradients(kind, dropout):
    packed, query, bias = inputs(kind)
    learning = [tensor for tensor in (packed, query, bias) if tensor is not None]
    torch.manual_seed(1)
    mine = attend(packed, query, bias, scale=SCALE, dropout=dropout)
    torch.manual_seed(1)
    rows = L if query is None else 1
    factors = (
        keep_factors(draw_kept((H, B, rows, L), dropout), dropout, torch.float64).transpose(0, 1) if dropout else None
    )
    theirs = reference(packed, query, bias, factors)
    torch.testing.assert_close(mine, theirs)
    gradient = torch.randn_like(mine)
    for one, other in zip(
        torch.autograd.grad(mine, learning, gradient), torch.autograd.grad(theirs, learning, gradient), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_gradients_are_those_of_finite_differences():
    packed, query, bias = inputs("apart shared")
    assert torch.autograd.gradcheck(lambda *t: attend(*t, scale=SCALE, dropout=0.0), (packed, query, bias))
