"""Cheap dropout is dropout: its rate, its mean, its seed, and nothing of it in evaluation."""

import pytest
import torch
from scipy.stats import binomtest

from glue_bench.model.cpu.dropout import Dropout, draw_kept, keep_factors

DRAWS = (400, 1003)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_rate_is_the_stated_one(rate):
    torch.manual_seed(0)
    factors = keep_factors(draw_kept(DRAWS, rate), rate)
    dropped = int((factors == 0).sum())
    assert binomtest(dropped, factors.numel(), round(rate * 2**16) / 2**16).pvalue > 1e-3
    kept = factors[factors != 0].unique()
    assert kept.tolist() == pytest.approx([1 / (1 - rate)], rel=2e-4)


def test_neighbours_are_independent():
    torch.manual_seed(1)
    dropped = (draw_kept((10**6,), 0.1) == 0).float()
    for lag in (1, 2, 3, 4, 1003):
        both = float((dropped[lag:] * dropped[:-lag]).mean())
        assert both == pytest.approx(0.01, abs=6e-4), lag


def test_each_lane_of_a_word_has_the_rate():
    torch.manual_seed(2)
    dropped = (draw_kept((10**6,), 0.1) == 0).float()
    assert dropped.view(-1, 4).mean(dim=0).tolist() == pytest.approx([0.1] * 4, abs=3e-3)


def test_it_is_seeded_and_every_call_differs():
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
