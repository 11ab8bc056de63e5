"""Dropout and attention for training on a CPU: the same functions as torch's, for less time.

torch's dropout draws one Bernoulli number per element, one after another. This takes a quarter of a
fine-tuning step. Here one 64-bit number of the same generator serves four elements, with 16 bits
for each. torch's attention leaves its fast path on a CPU as soon as there is dropout or a bias that
learns, and then copies queries, keys, values and their gradients from one layout to another. Here
each head reads queries, keys and values where their projection wrote them.

Shapes: b batch, q queries, l keys, h heads, k head size.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

LANES = 4
STEPS = 2**16
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def is_supported(tensor: Tensor) -> bool:
    """Return whether `attend_on_cpu` takes a tensor: one of DTYPES, on the CPU."""
    return tensor.device.type == "cpu" and tensor.dtype in DTYPES


def attend_on_cpu(
    query: Float[Tensor, "b q h k"],
    key: Float[Tensor, "b l h k"],
    value: Float[Tensor, "b l h k"],
    bias: Float[Tensor, "#b #h #q l"] | None,
    padding: Float[Tensor, "b 1 1 l"] | None,
    *,
    scale: float,
    dropout: float,
) -> Float[Tensor, "b q h k"]:
    """Compute softmax(q k^T * scale + bias + padding) v, with dropout.

    It is computed in float32, or in float64 if the input is float64.
    """
    return _Attention.apply(query, key, value, bias, padding, scale, dropout)


class _Attention(torch.autograd.Function):
    """Attention head by head, with products over the batch.

    The products read slices of any layout, but write contiguous ones only. Weights and their
    gradients are (h, b, q, l).
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        query, key, value, bias, padding, scale, dropout = inputs
        queries, keys, values = map(to_float32_or_more, (query, key, value))
        batch, rows, heads, size = queries.shape

        weights = queries.new_empty(heads, batch, rows, keys.shape[1])
        for h in range(heads):
            multiply(queries[:, :, h], keys[:, :, h].mT, weights[h], scale)
        for scores in (bias, padding):
            if scores is not None:
                weights += scores.transpose(0, 1)
        torch.softmax(weights, dim=-1, out=weights)

        kept = None
        dropped = weights
        if dropout:
            kept = draw_kept(weights.shape, dropout)
            dropped = keep_factors(kept, dropout, weights.dtype).mul_(weights)

        mixed = queries.new_empty(heads, batch, rows, size)
        for h in range(heads):
            multiply(dropped[h], values[:, :, h], mixed[h])

        ctx.save_for_backward(query, key, value, bias, weights, kept)
        ctx.scale = scale
        ctx.dropout = dropout
        output = query.new_empty(batch, rows, heads, size)
        return output.copy_(mixed.permute(1, 2, 0, 3))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, weights, kept = ctx.saved_tensors
        queries, keys, values = map(to_float32_or_more, (query, key, value))
        gradient = gradient.to(weights.dtype)

        factors = None
        dropped = weights
        if kept is not None:
            factors = keep_factors(kept, ctx.dropout, weights.dtype)
            dropped = weights * factors

        to_scores = torch.empty_like(weights)
        to_values = new_heads(value, weights)
        for h in range(len(weights)):
            multiply(dropped[h].mT, gradient[:, :, h], to_values[h])
            multiply(gradient[:, :, h], values[:, :, h].mT, to_scores[h])

        if factors is not None:
            to_scores *= factors
        softmax_backward = torch.ops.aten._softmax_backward_data
        softmax_backward(to_scores, weights, -1, weights.dtype, grad_input=to_scores)

        to_queries = new_heads(query, weights)
        to_keys = new_heads(key, weights)
        for h in range(len(weights)):
            multiply(to_scores[h], keys[:, :, h], to_queries[h], ctx.scale)
            multiply(to_scores[h].mT, queries[:, :, h], to_keys[h], ctx.scale)

        to_bias = None
        if ctx.needs_input_grad[3]:
            to_bias = to_scores.transpose(0, 1).sum_to_size(bias.shape)
        to_inputs = [
            part.permute(1, 2, 0, 3).to(query.dtype) for part in (to_queries, to_keys, to_values)
        ]
        return *to_inputs, to_bias, None, None, None


def to_float32_or_more(values: Tensor) -> Tensor:
    """Return the values in float32 at least."""
    dtype = torch.promote_types(values.dtype, torch.float32)
    return values.to(dtype)


def new_heads(part: Float[Tensor, "b n h k"], like: Tensor) -> Float[Tensor, "h b n k"]:
    """Return memory for the gradient of queries, keys or values, of the type of `like`."""
    batch, length, heads, size = part.shape
    return like.new_empty(heads, batch, length, size)


def multiply(first: Tensor, second: Tensor, out: Tensor, scale: float = 1.0) -> None:
    """Compute out = first @ second * scale, batched."""
    torch.baddbmm(out, first, second, beta=0, alpha=scale, out=out)


class Dropout(nn.Dropout):
    """torch's dropout (Srivastava et al. 2014), whose random numbers are cheap on a CPU."""

    def forward(self, input: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return self.add(None, input)

    def add(
        self, residual: Float[Tensor, "*shape"] | None, values: Float[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape"]:
        """Compute residual + dropout(values), on a CPU in one pass over memory.

        An accelerator draws in parallel by itself.
        """
        drops = self.training and 0 < self.p < 1
        if drops and not self.inplace and values.device.type == "cpu":
            return _AddDropped.apply(residual, values, self.p)
        dropped = super().forward(values)
        return dropped if residual is None else residual + dropped


class _AddDropped(torch.autograd.Function):
    """dropout(values), added to a residual if there is one; computed in float32 at least."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, values: Tensor, rate: float) -> Tensor:
        kept = draw_kept(values.shape, rate)
        ctx.save_for_backward(kept)
        ctx.rate = rate
        ctx.dtype = values.dtype
        values = to_float32_or_more(values)
        factors = keep_factors(kept, rate, values.dtype)
        if residual is None:
            return factors.mul_(values).to(ctx.dtype)
        return torch.addcmul(residual.to(values.dtype), values, factors).to(residual.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        factors = keep_factors(kept, ctx.rate, to_float32_or_more(gradient).dtype)
        to_values = factors.mul_(gradient).to(ctx.dtype)
        to_residual = gradient if ctx.needs_input_grad[0] else None
        return to_residual, to_values, None


def draw_kept(shape: torch.Size | tuple[int, ...], rate: float) -> UInt8[Tensor, "*shape"]:
    """Draw independent numbers on the CPU: 0 (dropped) with probability `rate`, else 1.

    The probability is that to the nearest 2^-16.
    """
    count = math.prod(shape)
    words = torch.empty(math.ceil(count / LANES), dtype=torch.int64)
    # The whole range is drawn: without a lower end the top bit would always be 0.
    words.random_(-(2**63), None)
    bits = words.view(torch.int16)[:count].view(shape)
    first_kept = steps_dropped(rate) - STEPS // 2
    kept = torch.empty(shape, dtype=torch.uint8)
    return torch.ge(bits, first_kept, out=kept)


def keep_factors(
    kept: UInt8[Tensor, "*shape"], rate: float, dtype: torch.dtype
) -> Float[Tensor, "*shape"]:
    """Return 0 for dropped numbers, and 1 / (1 - rate) for kept ones.

    They are computed again where needed, because storing them takes four times the memory.
    """
    factor = STEPS / (STEPS - steps_dropped(rate))
    return kept.to(dtype).mul_(factor)


def steps_dropped(rate: float) -> int:
    """Return how many of the STEPS numbers are dropped; never all."""
    return min(round(rate * STEPS), STEPS - 1)
