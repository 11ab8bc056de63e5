"""Relative keys (Shaw, Uszkoreit & Vaswani 2018)."""

import torch
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from glue_bench.model.variants.base import Dimensions, EncoderInput, Variant
from glue_bench.model.variants.relative import distances


class Shaw(Variant):
    """a_ij = (x_i W^Q)(x_j W^K + a_(j - i))^T / sqrt(k) (equation 4 of TUPE; Shaw et al. 2018, equation 4).

    Each block has its own table of keys, shared by its heads; distances beyond `max_distance` share the last.

    What is missing of the paper: the relative values a^V, which it adds to what attention mixes (its equation 3).
    """

    summary = "a learned key vector for each distance, in each block (relative keys, Shaw et al.)"
    source = "Shaw, Uszkoreit & Vaswani 2018"

    def __init__(self, dims: Dimensions, *, max_distance: PositiveInt = 16) -> None:
        super().__init__(dims)
        self.max_distance = max_distance
        rows = 2 * max_distance + 1
        self.relative_keys = nn.ModuleList(nn.Embedding(rows, dims.head_size) for _ in range(dims.num_blocks))

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:  # noqa: ARG002
        hidden = self.words_and_segments(token_ids, segment_ids)
        away = distances(token_ids.shape[1], hidden).clamp(-self.max_distance, self.max_distance)
        rows = away + self.max_distance

        def relative_scores(block: int, query: Tensor, _: Tensor) -> Tensor:
            table = self.relative_keys[block].get_parameter("weight")
            return by_distance(query * self.dims.head_size**-0.5, table, rows)

        return EncoderInput(hidden, scores=relative_scores)


def by_distance(
    heads: Float[Tensor, "b h l k"], table: Float[Tensor, "*h r k"], rows: Int[Tensor, "l l"]
) -> Float[Tensor, "b h l l"]:
    """heads_i . table[rows_ij], the table one for all heads or one a head.

    One product with the whole table, then a choice, instead of l x l keys.
    """
    products = heads @ table.mT
    return torch.gather(products, -1, rows.expand(*products.shape[:2], -1, -1))
