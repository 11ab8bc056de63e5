"""Dropout whose random numbers are cheap on a CPU.

torch's own draws one Bernoulli number an element, one after the other: a quarter of a fine-tuning step. Here one
64-bit number of the same generator makes four elements' 16 bits each.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

LANES = 4
STEPS = 2**16


def draws_cheaply(tensor: Tensor) -> bool:
    """Whether random numbers are drawn as here: on an accelerator torch's own are made in parallel."""
    return tensor.device.type == "cpu"


def draw_kept(shape: torch.Size | tuple[int, ...], rate: float) -> UInt8[Tensor, "*shape"]:
    """Independent numbers on the CPU: 0 (dropped) with probability `rate`, else 1.

    The rate is met to the nearest 2^-16 (0.1 is 0.100006).
    """
    count = math.prod(shape)
    words = torch.empty(-(-count // LANES), dtype=torch.int64)
    words.random_(-(2**63), None)  # the whole range: without a lower end the top bit would always be 0
    bits = words.view(torch.int16)[:count].view(shape)
    return torch.ge(bits, _dropped(rate) - STEPS // 2, out=torch.empty(shape, dtype=torch.uint8))


def keep_factors(
    kept: UInt8[Tensor, "*shape"], rate: float, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*shape"]:
    """0, or for what is kept 1 / (1 - rate) with the rate that is met, so that the mean is 1.

    Made anew wherever they are needed: to keep them from the forward to the backward pass takes four times the memory.
    """
    return kept.to(dtype).mul_(STEPS / (STEPS - _dropped(rate)))


def _dropped(rate: float) -> int:
    return min(round(rate * STEPS), STEPS - 1)


def drop(values: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Dropout of values on the CPU at a rate above 0 and below 1."""
    return _AddDropped.apply(None, values, rate)


class Dropout(nn.Module):
    """Dropout of activations at a rate of 0 to below 1, in training only (Srivastava et al. 2014)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not (self.training and self.rate):
            return values
        return drop(values, self.rate) if draws_cheaply(values) else F.dropout(values, self.rate)

    def add(self, residual: Float[Tensor, "*shape"], values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """residual + dropout(values), in one pass over memory where random numbers are cheap."""
        if not (self.training and self.rate and draws_cheaply(values)):
            return residual + self(values)
        return _AddDropped.apply(residual, values, self.rate)


class _AddDropped(torch.autograd.Function):
    """dropout(values), added to a residual if there is one; of bf16 values computed in float32."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, values: Tensor, rate: float) -> Tensor:
        kept = draw_kept(values.shape, rate)
        ctx.save_for_backward(kept)
        ctx.rate, ctx.dtype = rate, values.dtype
        wide = torch.promote_types(values.dtype, torch.float32)
        factors = keep_factors(kept, rate, wide)
        if residual is None:
            return factors.mul_(values).to(values.dtype)
        return torch.addcmul(residual.to(wide), values.to(wide), factors).to(residual.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        wide = torch.promote_types(gradient.dtype, torch.float32)
        to_values = keep_factors(kept, ctx.rate, wide).mul_(gradient).to(ctx.dtype)
        return gradient if ctx.needs_input_grad[0] else None, to_values, None
