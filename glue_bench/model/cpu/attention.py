"""Attention on a CPU in training: queries, keys and values are read where their projection left them.

torch's scaled_dot_product_attention leaves its fast path on a CPU as soon as there is dropout or a bias that learns,
and then copies queries, keys, values and all their gradients from one layout to another.

Shapes: b batch, q queries, l keys, h heads, k head size.
"""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from glue_bench.model.cpu.dropout import draw_kept, draws_cheaply, keep_factors


def reads_in_place(tensor: Tensor) -> bool:
    """Whether training attends as here: on a CPU, from any precision that float32 holds, or from float64."""
    return draws_cheaply(tensor) and tensor.dtype in (torch.float32, torch.float64, torch.bfloat16)


def attend(
    packed: Float[Tensor, "b l n h k"],
    query: Float[Tensor, "b q h k"] | None = None,
    bias: Float[Tensor, "#b #h #q l"] | None = None,
    padding: Float[Tensor, "b 1 1 l"] | None = None,
    *,
    scale: float,
    dropout: float,
) -> Float[Tensor, "b q h k"]:
    """softmax(q k^T * scale + bias + padding) with dropout, times v, in float32 or float64 on a CPU.

    From bf16 to bf16, too, computed in float32 all the same. A bias that all examples share stays
    one: it is never added to their padding, which is a constant. `packed` has keys and values as the last two of
    dimension 2, and the queries before them unless `query` is given.
    """
    return _Attention.apply(packed, query, bias, padding, scale, dropout)


class _Attention(torch.autograd.Function):
    """Head by head, with products over the batch: those read slices of any layout, but write contiguous ones only."""

    @staticmethod
    def forward(
        ctx: Any,
        packed: Tensor,
        query: Tensor | None,
        bias: Tensor | None,
        padding: Tensor | None,
        scale: float,
        dropout: float,
    ) -> Tensor:
        queries, keys, values = _parts(packed, query)
        batch, rows, heads, size = queries.shape
        weights = queries.new_empty(heads, batch, rows, keys.shape[1])
        for h in range(heads):
            _product(queries[:, :, h], keys[:, :, h].mT, weights[h], scale)
        for scores in (bias, padding):
            if scores is not None:
                weights += scores.transpose(0, 1)
        torch.softmax(weights, dim=-1, out=weights)
        kept = draw_kept(weights.shape, dropout) if dropout else None
        dropped = weights if kept is None else keep_factors(kept, dropout, weights.dtype).mul_(weights)
        mixed = queries.new_empty(heads, batch, rows, size)
        for h in range(heads):
            _product(dropped[h], values[:, :, h], mixed[h])
        ctx.save_for_backward(packed, query, bias, weights, kept)
        ctx.scale, ctx.dropout = scale, dropout
        return packed.new_empty(batch, rows, heads, size).copy_(rearrange(mixed, "h b q k -> b q h k"))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        packed, query, bias, weights, kept = ctx.saved_tensors
        queries, keys, values = _parts(packed, query)
        gradient = gradient.to(weights.dtype)
        heads, batch, rows, length = weights.shape
        size = packed.shape[-1]
        factors = None if kept is None else keep_factors(kept, ctx.dropout, weights.dtype)
        dropped = weights if factors is None else weights * factors
        to_scores = torch.empty_like(weights)
        to_queries = weights.new_empty(heads, batch, rows, size)
        to_keys, to_values = weights.new_empty(2, heads, batch, length, size)
        for h in range(heads):
            _product(dropped[h].mT, gradient[:, :, h], to_values[h])
            _product(gradient[:, :, h], values[:, :, h].mT, to_scores[h])
        if factors is not None:
            to_scores *= factors
        torch.ops.aten._softmax_backward_data(to_scores, weights, -1, weights.dtype, grad_input=to_scores)
        for h in range(heads):
            _product(to_scores[h], keys[:, :, h], to_queries[h], ctx.scale)
            _product(to_scores[h].mT, queries[:, :, h], to_keys[h], ctx.scale)
        to_bias = to_scores.transpose(0, 1).sum_to_size(bias.shape) if ctx.needs_input_grad[2] else None
        into = torch.empty_like(packed)
        for place, part in enumerate((to_queries, to_keys, to_values)[-packed.shape[2] :]):
            into[:, :, place] = rearrange(part, "h b l k -> b l h k")
        apart = None if query is None else rearrange(to_queries, "h b q k -> b q h k").to(query.dtype).contiguous()
        return into, apart, to_bias, None, None, None


def _parts(packed: Tensor, query: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (b, l, h, k), in float32 at least."""
    wide = torch.promote_types(packed.dtype, torch.float32)
    packed = packed.to(wide)
    return packed[:, :, 0] if query is None else query.to(wide), packed[:, :, -2], packed[:, :, -1]


def _product(left: Tensor, right: Tensor, out: Tensor, scale: float = 1.0) -> None:
    """out = left @ right * scale, batched."""
    torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)
