"""Distances in the scores: a bias for each, or keys and queries of their own.

Shapes: b batch, l length, d width of the tables, h heads, k head size, r rows of a table.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import torch
from einops import rearrange
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import (
    Additive,
    Dimensions,
    EncoderInput,
    Grafted,
    Variant,
    some_of,
)

BUCKETS = 32
MAX_DISTANCE = 128
"""The distance from which on all distances share a bucket, as in T5."""
DISENTANGLED_TERMS = ("content-position", "position-content")


class RelativeBias(nn.Module):
    """T5's bucketed bias (Raffel et al. 2020, section 2.1), one scalar a head and bucket.

    It is not scaled by 1 / sqrt(k). Half of the buckets are for keys to the right. In each half,
    half of the buckets are for single distances. The other buckets grow logarithmically up to
    MAX_DISTANCE, and the last one has all larger distances. `extra` rows at the end of the table
    belong to no distance.
    """

    def __init__(self, num_heads: int, extra: int = 0) -> None:
        super().__init__()
        self.table = nn.Embedding(BUCKETS + extra, num_heads)

    def forward(self, length: int) -> Float[Tensor, "1 h l l"]:
        offset = offsets(length, self.table.weight)
        distance = offset.abs()
        half = BUCKETS // 2
        exact = half // 2
        # It is computed in float32 like T5: a trained table expects T5's rounding at the edge of a
        # bucket.
        ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact)
        growing = exact + (ratio * (half - exact)).long()
        logarithmic = growing.clamp(max=half - 1)
        in_half = torch.where(distance < exact, distance, logarithmic)
        buckets = (offset > 0) * half + in_half
        return rearrange(self.table(buckets), "i j h -> 1 h i j")


class Relative(Variant):
    """T5's bias alone (Raffel et al. 2020, section 2.1): no position enters anywhere else.

    All blocks share the bias, as in T5. T5 also leaves out the scale 1 / sqrt(k) and has another
    LayerNorm; here the blocks are the same as in all arms. With a bias of zero, where a graft
    starts, it is `none`, exactly.
    """

    summary = "T5's bucketed bias on the scores alone, no position table"
    source = "Raffel et al. 2020"
    position_tables: Mapping[str, int] | None = {}

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.relative = RelativeBias(dims.num_heads)

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        return EncoderInput(hidden, self.relative(token_ids.shape[1]))

    def graft(self, base: Additive) -> Grafted:
        nn.init.zeros_(self.relative.table.weight)
        return super().graft(base)


class AddRelative(Add):
    """BERT-R of TUPE's table 1 (equation 5): learned positions at the input, and T5's bias.

    All blocks share the bias.
    """

    summary = "token + position + segment, and T5's bucketed bias on the scores (BERT-R)"
    source = "Raffel et al. 2020; Ke, He & Liu 2021"

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.relative = RelativeBias(dims.num_heads)

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = super().forward(token_ids, segment_ids).hidden
        return EncoderInput(hidden, self.relative(token_ids.shape[1]))

    def graft(self, base: Additive) -> Grafted:
        nn.init.zeros_(self.relative.table.weight)
        return super().graft(base)


class Alibi(Variant):
    """a_ij -= m_h |i - j| with fixed slopes (Press, Smith & Lewis 2022), as encoders use it.

    The paper's model is a decoder, which sees only what is to the left. Here both sides get the
    same bias, so that a head cannot tell a token's left neighbour from its right one: only the
    distance to [CLS] shows the direction. The slopes are the paper's, the geometric sequence from
    2^(-8/h) on, interleaved where h is no power of two.
    """

    summary = (
        "no position table: scores fall linearly with distance, "
        "with a fixed slope for each head (ALiBi, symmetric)"
    )
    source = "Press, Smith & Lewis 2022"
    position_tables: Mapping[str, int] | None = {}

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        # Slopes are filled on the device: a list would be copied from the host, which waits for a
        # GPU.
        slopes = torch.cat([hidden.new_full((1,), slope) for slope in self.slopes()])
        distance = offsets(token_ids.shape[1], hidden).abs()
        return EncoderInput(hidden, -rearrange(slopes, "h -> 1 h 1 1") * distance)

    def slopes(self) -> list[float]:
        """Return m_h of each head."""
        heads = self.dims.num_heads
        power = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
        remaining = heads - power
        slopes += [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * remaining, 2)]
        return slopes


class Shaw(Variant):
    """a_ij = (x_i W^Q)(x_j W^K + a_(j - i))^T / sqrt(k).

    Equation 4 of TUPE, and equation 4 of Shaw et al. 2018. Each block has its own table of keys,
    shared by its heads; j - i is clipped to -max_distance and +max_distance.

    What is missing: the paper's relative values a^V, which the paper adds to the output of
    attention (its equation 3).
    """

    summary = "a learned key vector for each distance, in each block (relative keys, Shaw et al.)"
    source = "Shaw, Uszkoreit & Vaswani 2018"
    position_tables: Mapping[str, int] | None = {}

    def __init__(self, dims: Dimensions, *, max_distance: PositiveInt = 16) -> None:
        super().__init__(dims)
        self.max_distance = max_distance
        rows = 2 * max_distance + 1
        self.relative_keys = nn.ModuleList(
            nn.Embedding(rows, dims.head_size) for _ in range(dims.num_blocks)
        )

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        offset = offsets(token_ids.shape[1], hidden)
        rows = offset.clamp(-self.max_distance, self.max_distance) + self.max_distance

        def relative_scores(block: int, query: Tensor, _: Tensor) -> Tensor:
            table = self.relative_keys[block].get_parameter("weight")
            return by_distance(query * self.score_scale, table, rows)

        return EncoderInput(hidden, scores=relative_scores)


class RelativeKeyQuery(Variant):
    """Method 4 of Huang et al. 2020:

        a_ij = (q_i . k_j + q_i . e_(j - i) + e_(j - i) . k_j) / sqrt(k)

    Each block has its own table e, shared by its heads and not clipped: 2n - 1 rows for n
    positions. The scale is the same as in the paper and in transformers 4, although there are three
    terms. Row j - i + n - 1 here is row i - j + n - 1 of transformers' `distance_embedding`; a BERT
    checkpoint with `position_embedding_type: relative_key_query` is read as this variant, and one
    with `relative_key` as `shaw` with `max_distance` n - 1. With a table of zeros it is `none`.
    """

    summary = "a learned vector for each distance meets queries and keys, in each block (method 4)"
    source = "Huang et al. 2020"
    position_tables: Mapping[str, int] | None = {}

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        rows = 2 * dims.max_positions - 1
        self.distances = nn.ModuleList(
            nn.Embedding(rows, dims.head_size) for _ in range(dims.num_blocks)
        )

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        length = token_ids.shape[1]
        middle = self.dims.max_positions - 1
        # Only the 2l - 1 occurring distances are multiplied.
        rows = offsets(length, hidden) + length - 1

        def relative_scores(block: int, query: Tensor, key: Tensor) -> Tensor:
            weight = self.distances[block].get_parameter("weight")
            table = weight[middle - length + 1 : middle + length]
            of_query = by_distance(query * self.score_scale, table, rows)
            # The result has a row per key and a column per query.
            of_key = by_distance(key * self.score_scale, table, rows.mT).mT
            return of_query + of_key

        return EncoderInput(hidden, scores=relative_scores)


class Disentangled(Variant):
    """DeBERTa (He et al. 2021, equation 4), with n positions and m = i - j + n:

        a_ij = (Q^c_i K^c_j + Q^c_i K^r_m + K^c_j Q^r_m) / sqrt(3k)

    K^r = P W_kr (`keys`) without bias and Q^r = P W_qr (`queries`) with bias, each block has its
    own; P (`distances`) has 2n rows and is shared. The paper writes j - i + n for Q^r; its code,
    followed here, takes i - j + n for both. With one of the two `terms` the scale is 1 / sqrt(2k),
    as in that code.

    What is missing: the enhanced mask decoder, which gives absolute positions to the masked-LM head
    (section 3.2; here they do not enter at all), and the code's dropout of P. K^c has a bias here,
    which enters the last term, and none in the code.
    """

    summary = "content-position and position-content scores over relative distances (DeBERTa)"
    source = "He et al. 2021"
    position_tables: Mapping[str, int] | None = {}

    def __init__(
        self,
        dims: Dimensions,
        *,
        terms: Annotated[Sequence[str], some_of(*DISENTANGLED_TERMS)] = DISENTANGLED_TERMS,
    ) -> None:
        super().__init__(dims)
        self.terms = frozenset(terms)
        self.score_terms = 1 + len(self.terms)
        self.distances = nn.Embedding(2 * dims.max_positions, dims.embedding_size)
        project = partial(nn.Linear, dims.embedding_size, dims.num_heads * dims.head_size)
        blocks = range(dims.num_blocks)
        self.keys = nn.ModuleList()
        self.queries = nn.ModuleList()
        if "content-position" in self.terms:
            self.keys.extend(project(bias=False) for _ in blocks)
        if "position-content" in self.terms:
            self.queries.extend(project() for _ in blocks)

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        length = token_ids.shape[1]
        # Only the 2l - 1 distances that occur are projected: row i - j + l - 1 here is row
        # i - j + n of P.
        middle = self.dims.max_positions
        table = self.distances.weight[middle - length + 1 : middle + length]
        rows = length - 1 - offsets(length, hidden)
        heads = partial(rearrange, pattern="r (h k) -> h r k", h=self.dims.num_heads)

        def relative_scores(block: int, query: Tensor, key: Tensor) -> Tensor:
            # Content-position reads the query alone, and position-content reads the key alone, so
            # each term is scaled once.
            terms: list[Tensor] = []
            if self.keys:
                project = self.keys[block]
                relative_keys = heads(project(table))
                terms.append(by_distance(query * self.score_scale, relative_keys, rows))
            if self.queries:
                # The result has a row per key and a column per query, so that rows and result are
                # transposed.
                project = self.queries[block]
                relative_queries = heads(project(table))
                terms.append(by_distance(key * self.score_scale, relative_queries, rows.mT).mT)
            return torch.stack(terms).sum(0)

        return EncoderInput(hidden, scores=relative_scores)


def offsets(length: int, like: Tensor) -> Int[Tensor, "l l"]:
    """Return the offsets j - i for query i and key j, on the device of `like`."""
    places = torch.arange(length, device=like.device)
    return places - places[:, None]


def by_distance(
    heads: Float[Tensor, "b h l k"], table: Float[Tensor, "*h r k"], rows: Int[Tensor, "l l"]
) -> Float[Tensor, "b h l l"]:
    """Compute heads_i . table[rows_ij]: one product with all rows, and then a selection.

    There is one table for all heads, or one per head.
    """
    products = heads @ table.mT
    return torch.gather(products, -1, rows.expand(*products.shape[:2], -1, -1))
