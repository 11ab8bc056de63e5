"""Content and relative position with projections of their own (DeBERTa)."""

from collections.abc import Sequence
from typing import Annotated

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from glue_bench.model.variants.base import Dimensions, EncoderInput, Variant
from glue_bench.model.variants.options import some_of
from glue_bench.model.variants.relative import distances
from glue_bench.model.variants.shaw import by_distance

TERMS = ("content-position", "position-content")


class Disentangled(Variant):
    """DeBERTa (He et al. 2021, equation 4), with n positions and d = i - j + n:

        a_ij = (Q^c_i K^c_j + Q^c_i K^r_d + K^c_j Q^r_d) / sqrt(3k)

    K^r = P W_kr without bias and Q^r = P W_qr with bias, of their own in each block; P has 2n rows and is shared.
    The paper writes j - i + n for Q^r; its code, followed here, takes i - j + n for both. With one of the two
    `terms` the scale is 1 / sqrt(2k), as in the code too.

    What is missing of the paper: its enhanced mask decoder, which gives absolute positions to the masked-LM head
    (section 3.2). Here they do not enter at all.
    """

    summary = "content-position and position-content scores over relative distances (DeBERTa)"
    source = "He et al. 2021"

    def __init__(self, dims: Dimensions, *, terms: Annotated[Sequence[str], some_of(*TERMS)] = TERMS) -> None:
        super().__init__(dims)
        self.terms = frozenset(terms)
        self.score_terms = 1 + len(self.terms)
        scores = dims.num_heads * dims.head_size
        self.distances = nn.Embedding(2 * dims.max_positions, dims.embedding_size)
        self.keys = self._projections("content-position", scores, bias=False)
        self.queries = self._projections("position-content", scores, bias=True)

    def _projections(self, term: str, scores: int, bias: bool) -> nn.ModuleList:
        blocks = range(self.dims.num_blocks if term in self.terms else 0)
        return nn.ModuleList(nn.Linear(self.dims.embedding_size, scores, bias=bias) for _ in blocks)

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:  # noqa: ARG002
        hidden, length = self.words_and_segments(token_ids, segment_ids), token_ids.shape[1]
        # Only the 2l - 1 distances that occur are projected: row i - j + l - 1.
        middle = self.dims.max_positions
        table = self.distances.weight[middle - length + 1 : middle + length]
        rows = length - 1 - distances(length, hidden)

        def relative_scores(block: int, query: Tensor, key: Tensor) -> Tensor:
            scale = (self.score_terms * self.dims.head_size) ** -0.5
            return self._scores(block, query * scale, key * scale, table, rows)

        return EncoderInput(hidden, scores=relative_scores)

    def _scores(
        self, block: int, query: Tensor, key: Tensor, table: Float[Tensor, "r d"], rows: Int[Tensor, "l l"]
    ) -> Float[Tensor, "b h l l"]:
        """Scaled content-position and position-content scores of one block."""
        wanted = []
        if len(self.keys):
            wanted.append(by_distance(query, self._heads(self.keys[block](table)), rows))
        if len(self.queries):
            # Gathered with a row a key and a column a query, so both the choice and the result are transposed.
            wanted.append(by_distance(key, self._heads(self.queries[block](table)), rows.mT).mT)
        return torch.stack(wanted).sum(0)

    def _heads(self, projected: Float[Tensor, "r hk"]) -> Float[Tensor, "h r k"]:
        return rearrange(projected, "r (h k) -> h r k", h=self.dims.num_heads)
