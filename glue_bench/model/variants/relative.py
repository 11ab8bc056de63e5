"""A bias a_ij += b_(j - i) on the scores: T5's buckets, ALiBi's slopes.

Shapes: l length, h heads.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from glue_bench.model.variants.add import Add
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant

BUCKETS = 32
MAX_DISTANCE = 128
"""Those of T5."""


class RelativeBias(nn.Module):
    """T5's bucketed bias (Raffel et al. 2020, section 2.1), one scalar a head and bucket, not scaled by 1 / sqrt(k).

    Half of the buckets are for keys to the right; of each half, half are for single distances and the rest
    grow logarithmically up to MAX_DISTANCE, beyond which all distances share the last one. `extra` rows at
    the end of the table belong to no distance.
    """

    def __init__(self, num_heads: int, extra: int = 0) -> None:
        super().__init__()
        self.table = nn.Embedding(BUCKETS + extra, num_heads)

    def forward(self, length: int) -> Float[Tensor, "1 h l l"]:
        buckets = relative_buckets(distances(length, self.table.weight), BUCKETS, MAX_DISTANCE)
        return rearrange(self.table(buckets), "i j h -> 1 h i j")


class AddRelative(Add):
    """BERT-R of TUPE's table 1: learned positions at the input, and T5's bias, shared by all blocks (equation 5)."""

    summary = "token + position + segment, and T5's bucketed bias on the scores (BERT-R)"
    source = "Raffel et al. 2020; Ke, He & Liu 2021"

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.relative = RelativeBias(dims.num_heads)

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        hidden = super().forward(token_ids, segment_ids, start).hidden
        return EncoderInput(hidden, self.relative(token_ids.shape[1]))

    def graft(self, base: Additive) -> Grafted:
        nn.init.zeros_(self.relative.table.weight)
        return super().graft(base)


class Alibi(Variant):
    """a_ij -= m_h |i - j| with fixed slopes (Press, Smith & Lewis 2022), symmetric as encoders use it.

    The paper's model is a decoder, which sees only what is to the left. Here both sides get the same bias, so that a
    head cannot tell a token's left neighbour from its right one: direction shows in the distance to [CLS] alone.

    The slopes are the paper's: for h heads the geometric sequence that starts at 2^(-8/h) with that ratio,
    interleaved where h is no power of two.
    """

    summary = (
        "no position table: scores fall linearly with distance, with a fixed slope for each head (ALiBi, symmetric)"
    )
    source = "Press, Smith & Lewis 2022"

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:  # noqa: ARG002
        hidden = self.words_and_segments(token_ids, segment_ids)
        # Filled in place: a list would be copied from the host, which waits for a GPU.
        slopes = torch.cat([hidden.new_full((1,), slope) for slope in alibi_slopes(self.dims.num_heads)])
        away = distances(token_ids.shape[1], hidden).abs()
        return EncoderInput(hidden, -rearrange(slopes, "h -> 1 h 1 1") * away)


def distances(length: int, like: Tensor) -> Int[Tensor, "l l"]:
    """j - i for query i and key j, on the device of `like`."""
    places = torch.arange(length, device=like.device)
    return places - places[:, None]


def relative_buckets(away: Int[Tensor, "i j"], buckets: int, max_distance: int) -> Int[Tensor, "i j"]:
    """T5's bidirectional bucket of each distance j - i, from 0 to `buckets` - 1."""
    half = buckets // 2
    exact = half // 2
    far = away.abs()
    # In float32 like T5, whose rounding at a bucket's edge is part of what a trained table expects.
    ratio = torch.log(far.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    logarithmic = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
    return (away > 0) * half + torch.where(far < exact, far, logarithmic)


def alibi_slopes(num_heads: int) -> list[float]:
    """One slope a head, steepest first within each sequence."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return slopes + between[: num_heads - power]
