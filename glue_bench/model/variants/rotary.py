"""Queries and keys turned by their positions: RoPE and PoPE.

Shapes: b batch, l length, h heads, k head size.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

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


class Polar(Variant):
    """PoPE, polar coordinate position embedding (Gopalakrishnan et al. 2025):

        a_ij = sum over c of softplus(q_ic) softplus(k_jc) cos((j - i) theta_c + delta_c) / sqrt(k)

    with theta_c = base^(-c/k) for each of the k dimensions c of a head. In RoPE the angle of a
    query and a key depends on their content as well as on their positions. Here magnitudes depend
    on the words alone, and angles on the positions alone. The delta_c are learned, start at 0 and
    are held within -2 pi and 0. Each block and head has its own. The paper's models are decoders.
    """

    summary = "magnitudes of words and angles of positions make the scores (PoPE)"
    source = "Gopalakrishnan et al. 2025"
    position_tables: Mapping[str, int] | None = {}

    def __init__(self, dims: Dimensions, *, base: PositiveFloat = 10_000.0) -> None:
        super().__init__(dims)
        self.base = base
        shape = (dims.num_heads, 1, dims.head_size)
        self.deltas = nn.ParameterList(torch.zeros(shape) for _ in range(dims.num_blocks))

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        # Each dimension has an angle, but `angles` gives one for each pair of dimensions.
        sine, cosine = angles(token_ids.shape[1], 2 * self.dims.head_size, hidden, self.base)

        def polar_scores(block: int, query: Tensor, key: Tensor) -> Tensor:
            delta = self.deltas[block].clamp(-2 * math.pi, 0)
            key_cosine = cosine * delta.cos() - sine * delta.sin()
            key_sine = sine * delta.cos() + cosine * delta.sin()
            of_query = F.softplus(query) * self.score_scale
            of_key = F.softplus(key)
            queries = torch.cat([of_query * cosine, of_query * sine], dim=-1)
            keys = torch.cat([of_key * key_cosine, of_key * key_sine], dim=-1)
            return queries @ keys.mT

        def without_product(_: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            return query * 0, key

        return EncoderInput(hidden, rotate=without_product, scores=polar_scores)
