"""Dropout whose random numbers are cheap on a CPU.

torch's own draws one Bernoulli number an element, one after the other: a quarter of a fine-tuning step. Here one
64-bit number of the same generator makes four elements' 16 bits each.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LANES = 4
STEPS = 2**16


def draws_cheaply(tensor: Tensor) -> bool:
    """Whether random numbers are drawn as here: on an accelerator torch's own are made in parallel."""
    return tensor.device.type == "cpu"


def keep_factors(shape: torch.Size | tuple[int, ...], rate: float, dtype: torch.dtype) -> Tensor:
    """Independent factors on the CPU: 0 with probability `rate`, else 1 / (1 - rate), so that their mean is 1.

    `rate` is met to the nearest 2^-16 (0.1 is 0.100006), and the factor is that of the rate that is met.
    """
    dropped = min(round(rate * STEPS), STEPS - 1)
    count = math.prod(shape)
    words = torch.empty(-(-count // LANES), dtype=torch.int64)
    words.random_(-(2**63), None)  # the whole range: without a lower end the top bit would always be 0
    bits = words.view(torch.int16)[:count].view(shape)
    kept = torch.empty(shape, dtype=dtype)
    torch.ge(bits, dropped - STEPS // 2, out=kept)
    return kept.mul_(STEPS / (STEPS - dropped))


class Dropout(nn.Module):
    """Dropout of activations at a rate of 0 to below 1, in training only (Srivastava et al. 2014)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not (self.training and self.rate):
            return values
        if not draws_cheaply(values):
            return F.dropout(values, self.rate)
        return values * keep_factors(values.shape, self.rate, values.dtype)

    def add(self, residual: Float[Tensor, "*shape"], values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """residual + dropout(values), in one pass over memory where random numbers are cheap."""
        if not (self.training and self.rate and draws_cheaply(values)):
            return residual + self(values)
        return torch.addcmul(residual, values, keep_factors(values.shape, self.rate, values.dtype))
