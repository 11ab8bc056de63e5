"""Concatenation, then a projection to the width of one table."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glue_bench.config import SCRATCH
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant, copy, rows_from


class Concat(Variant):
    """x_i = [w_i ; p_i ; s_i] M with M of shape (3d, d), or (2d, d) without segments.

    With M = [I ; I ; I] it is addition, exactly. Early form in NLP encoders: Kitaev & Klein 2018 (without
    projection); with projection it is the "concatenation" arm of Hallam & Tseng 2026.

    `init` is how M starts in fresh weights. `random` is N(0, r^2) with the encoder's `initializer_range` r, as every
    other projection: tables of that scale then enter LayerNorm r sqrt(d) times as large as they would by addition,
    which is 0.55 for d = 768 and 0.23 for d = 128, and every dimension mixes the parts. `identity` is [I ; I ; I], so
    that the arm starts as `add` does and differs only in what it may learn. A graft starts there in either case.
    """

    summary = "token, position and segment concatenated, then projected"
    source = "Kitaev & Klein 2018; Hallam & Tseng 2026"

    def __init__(self, dims: Dimensions, *, init: Literal["random", "identity"] = "random") -> None:
        super().__init__(dims)
        self.positions = nn.Embedding(dims.max_positions, dims.embedding_size)
        parts = 2 if self.segments is None else 3
        kind: type[nn.Linear] = SumOfParts if init == "identity" else nn.Linear
        # No bias: the LayerNorm that follows has one.
        self.projection = kind(parts * dims.embedding_size, dims.embedding_size, bias=False)

    @classmethod
    def described(cls, options: Mapping[str, Any], origin: str) -> str:
        """Says how the projection starts; of a checkpoint's own projection nothing is known."""
        is_sum = origin == "grafted" or options.get("init") == "identity"
        starts = "as the sum, which is 'add' exactly" if is_sum else "at random"
        return cls.summary + f"; the projection starts {starts}" * (origin in (SCRATCH, "grafted"))

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        words = self.words(token_ids)
        parts = [words, rows_from(self.positions.weight, words.shape[1], start).expand_as(words)]
        if self.segments is not None:
            parts.append(self.segments(segment_ids))
        return EncoderInput(self.projection(torch.cat(parts, dim=-1)))

    def graft(self, base: Additive) -> Grafted:
        self.graft_content(base)
        copy(self.positions, base.positions)
        copy(self.projection, sum_of_parts(self.projection))
        return Grafted(exact=True)


class SumOfParts(nn.Linear):
    """A projection of parts side by side that starts as their sum, wherever fresh weights are drawn."""

    def fresh_weight(self) -> Float[Tensor, "d parts_d"]:
        """What the weight is before any training."""
        return sum_of_parts(self)


def sum_of_parts(projection: nn.Linear) -> Float[Tensor, "d parts_d"]:
    """[I ; I ; ...] in the shape of the projection's weight: its output is the sum of the parts of its input."""
    size = projection.out_features
    return torch.eye(size).repeat(1, projection.in_features // size)
