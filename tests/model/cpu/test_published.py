"""The kernels in models of transformers: dropout is dropout, attention is torch's, and nothing else has changed."""

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binomtest
from torch import nn
from transformers import BertConfig, BertForSequenceClassification
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from glue_bench.model.cpu.dropout import draw_kept, keep_factors
from glue_bench.model.cpu.published import CheapDropout, attention, with_cpu_kernels

B, Q, L, H, K = 3, 5, 7, 2, 4
RATE = 0.4


class Calls(nn.Module):
    """What a block of transformers hands over as itself."""

    def __init__(self, *, is_causal=False, num_key_value_groups=1):
        super().__init__()
        self.is_causal, self.num_key_value_groups = is_causal, num_key_value_groups


def drawn(heads=H, queries=Q, dtype=torch.float64):
    torch.manual_seed(0)
    shapes = [(B, H, queries, K), (B, heads, L, K), (B, heads, L, K)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def padding(queries=Q):
    mask = torch.ones(B, 1, queries, L, dtype=torch.bool)
    mask[1, ..., 5:] = False
    mask[2, ..., 1:] = False
    return mask


@pytest.mark.parametrize("mask", [None, padding()])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_attention_with_dropout_and_its_gradients(mask, scaling):
    tensors = drawn()
    query, key, value = tensors
    torch.manual_seed(1)
    mine, weights = attention(Calls(), *tensors, mask, dropout=RATE, scaling=scaling)
    torch.manual_seed(1)
    factors = keep_factors(draw_kept((H, B, Q, L), RATE), RATE, torch.float64).transpose(0, 1)
    scores = query @ key.mT * (K**-0.5 if scaling is None else scaling)
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    theirs = (F.softmax(scores, dim=-1) * factors @ value).transpose(1, 2)
    assert weights is None
    torch.testing.assert_close(mine, theirs)
    gradient = torch.randn_like(mine)
    for one, other in zip(*(torch.autograd.grad(each, tensors, gradient) for each in (mine, theirs)), strict=True):
        torch.testing.assert_close(one, other)


def ragged():
    mask = padding(L)
    mask[0, :, :3, 4:] = False
    return mask


UNUSUAL = {
    "a decoder": (Calls(is_causal=True), drawn(queries=L), None, {}),
    "a call that says so": (Calls(), drawn(queries=L), None, {"is_causal": True}),
    "queries that see other keys": (Calls(), drawn(queries=L), ragged(), {}),
    "scores as a mask": (Calls(), drawn(), torch.zeros(B, 1, Q, L, dtype=torch.float64), {}),
    "a mask of all texts": (Calls(), drawn(), padding()[:1], {}),
    "shared keys": (Calls(num_key_value_groups=2), drawn(heads=1), padding(), {}),
    "a bias": (Calls(), drawn(), padding(), {"position_bias": torch.ones(B, H, Q, L, dtype=torch.float64)}),
    "float16": (Calls(), drawn(dtype=torch.float16), padding(), {}),
    "no dropout": (Calls(), drawn(), padding(), {"dropout": 0.0}),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_what_is_unusual_is_computed_by_transformers(case):
    module, tensors, mask, more = UNUSUAL[case]
    found = []
    for function in (attention, sdpa_attention_forward):
        torch.manual_seed(2)
        found.append(function(module, *tensors, mask, **{"dropout": RATE, "scaling": 0.5} | more)[0])
    assert torch.equal(*found)


def test_dropout_has_its_rate_its_mean_its_gradient_and_its_seed():
    dropout = CheapDropout(0.1)
    values = torch.ones(400, 1003, requires_grad=True)
    torch.manual_seed(3)
    out = dropout(values)
    out.sum().backward()
    assert binomtest(int((out == 0).sum()), out.numel(), round(0.1 * 2**16) / 2**16).pvalue > 1e-3
    assert out.detach().unique().tolist() == pytest.approx([0, 1 / 0.9], rel=1e-4)
    assert torch.equal(values.grad, out.detach())
    torch.manual_seed(3)
    assert torch.equal(dropout(values), out)
    assert not torch.equal(dropout(values), out)
    torch.manual_seed(3)
    assert not torch.equal(nn.Dropout(0.1)(values), out)


@pytest.mark.parametrize("dropout", [CheapDropout(0.0), CheapDropout(1.0), CheapDropout(0.5, True)])
def test_dropout_at_the_ends_and_in_place_is_that_of_torch(dropout):
    found = []
    for module in (dropout, nn.Dropout(dropout.p, dropout.inplace)):
        torch.manual_seed(4)
        found.append(module(torch.ones(10**6)))
    assert torch.equal(*found)


def test_on_another_device_dropout_is_that_of_torch():
    assert CheapDropout(0.5)(torch.ones(3, device="meta")).device.type == "meta"


def test_every_module_of_dropout_is_replaced_and_the_weights_keep_their_names():
    config = BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, num_labels=2
    )
    torch.manual_seed(5)
    model = BertForSequenceClassification(config)
    before, written = {name: weight.clone() for name, weight in model.state_dict().items()}, model.config.to_dict()
    with_cpu_kernels(model)
    kinds = {type(part) for part in model.modules() if isinstance(part, nn.Dropout)}
    assert kinds == {CheapDropout}
    assert model.bert.encoder.layer[1].attention.self.dropout.p == 0.1
    assert model.config.to_dict() == written
    assert list(model.state_dict()) == list(before)
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items())
