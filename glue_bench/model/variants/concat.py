"""Concatenation, then a projection to the hidden size."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant, copy, rows_from


class Concat(Variant):
    """x_i = [w_i ; p_i ; s_i] M with M of shape (3d, d), or (2d, d) without segments.

    With M = [I ; I ; I] it is addition, exactly. Early form in NLP encoders: Kitaev & Klein 2018 (without
    projection); with projection it is the "concatenation" arm of Hallam & Tseng 2026.
    """

    summary = "token, position and segment concatenated, then projected"
    source = "Kitaev & Klein 2018; Hallam & Tseng 2026"

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.positions = nn.Embedding(dims.max_positions, dims.embedding_size)
        parts = 2 if self.segments is None else 3
        # No bias: the LayerNorm that follows has one.
        self.projection = nn.Linear(parts * dims.embedding_size, dims.embedding_size, bias=False)

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        words = self.words(token_ids)
        parts = [words, rows_from(self.positions.weight, words.shape[1], start).expand_as(words)]
        if self.segments is not None:
            parts.append(self.segments(segment_ids))
        return EncoderInput(self.projection(torch.cat(parts, dim=-1)))

    def graft(self, base: Additive) -> Grafted:
        self.graft_content(base)
        copy(self.positions, base.positions)
        size = self.dims.embedding_size
        copy(self.projection, torch.eye(size).repeat(1, self.projection.in_features // size))
        return Grafted(exact=True)
