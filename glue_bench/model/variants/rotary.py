"""Queries and keys turned by their positions.

Shapes: b batch, l length, h heads, k head size.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveFloat
from torch import Tensor

from glue_bench.model.variants.additive import angles, check_pairs
from glue_bench.model.variants.base import (
    Blocks,
    Dimensions,
    EncoderInput,
    Variant,
    chosen_blocks,
    in_blocks,
)


class Rotary(Variant):
    """q_i and k_j rotated by their positions, so that q_i k_j depends on j - i alone.

    RoFormer, Su et al. 2021. Pairs (x, y) of neighbours in each head become
    (x cos - y sin, y cos + x sin) of position * base^(-2m / r) for the m-th pair of r dimensions.

    With a `fraction` below 1 only the first r = int(fraction * k) dimensions of a head are rotated
    (partial RoPE, `rotary_pct` of GPT-NeoX, Black et al. 2022); with 0 it is `none`, exactly. The
    `base` is 10,000 in RoFormer, and 160,000 in the global blocks of ModernBERT (Warner et al.
    2024). Only the chosen `blocks` rotate. GPT-NeoX and ModernBERT pair dimension m with m + r / 2
    where RoFormer and this variant pair neighbours: the same up to the order of dimensions.
    """

    summary = "queries and keys rotated by position (RoPE)"
    source = "Su et al. 2021"
    position_tables: Mapping[str, int] | None = {}

    def __init__(
        self,
        dims: Dimensions,
        *,
        fraction: Annotated[float, Field(ge=0, le=1)] = 1.0,
        base: PositiveFloat = 10_000.0,
        blocks: Blocks = "all",
    ) -> None:
        super().__init__(dims)
        self.rotated_size = int(fraction * dims.head_size)
        owner = "a head" if fraction == 1 else f"fraction {fraction:g} of a head"
        check_pairs(self.rotated_size, owner)
        self.uses_position = self.rotated_size > 0
        self.base = base
        self.blocks = frozenset(chosen_blocks(blocks, dims.num_blocks))

    @classmethod
    def described(cls, options: Mapping[str, Any], origin: str) -> str:  # noqa: ARG003
        """Say what is rotated: which part of a head, in which blocks, and with which base."""
        text = f"{cls.summary}{in_blocks(options)}"
        if "fraction" in options:
            text = f"{text}, {options['fraction']:g} of each head"
        if "base" in options:
            text = f"{text}, base {options['base']:g}"
        return text

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        if not self.uses_position:
            return EncoderInput(hidden)
        size = self.rotated_size
        sine, cosine = angles(token_ids.shape[1], size, hidden, self.base)

        def rotated(heads: Float[Tensor, "b h l k"]) -> Float[Tensor, "b h l k"]:
            x = heads[..., :size:2]
            y = heads[..., 1:size:2]
            pairs = [x * cosine - y * sine, y * cosine + x * sine]
            turned = torch.stack(pairs, dim=-1).flatten(-2)
            if size == heads.shape[-1]:
                return turned
            return torch.cat([turned, heads[..., size:]], dim=-1)

        def rotate(block: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            if block not in self.blocks:
                return query, key
            return rotated(query), rotated(key)

        return EncoderInput(hidden, rotate=rotate)
