"""Positions untied from words, in the scores alone.

They have projections of their own (TUPE), or are a learned bias (DIET).

Shapes: l length, n = l + 1 rows of the table, h heads, k head size, u sets of projections.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import torch
from einops import rearrange
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from glue_bench.model.variants.base import (
    Additive,
    Dimensions,
    EncoderInput,
    Grafted,
    Variant,
    some_of,
)
from glue_bench.model.variants.relative import BUCKETS, RelativeBias, offsets

TERMS = ("word-word", "word-position", "position-word", "position-position")


class Untied(Variant):
    """TUPE-A (Ke, He & Liu 2021, equation 10):

        a_ij = (x_i W^Q)(x_j W^K)^T / sqrt(2k) + reset_theta((p_i U^Q)(p_j U^K)^T / sqrt(2k), i, j)

    per head, with LayerNorm on p (appendix B). As in the official code (guolinke/TUPE at 4c64ff7,
    `transformer_sentence_encoder.py`) U^Q and U^K have biases and are shared by all blocks, and the
    table has one row more than positions: rows 0 and 1 are p_theta1 ([CLS] to others) and p_theta2
    (others to [CLS]), position i >= 1 is row i + 1. [CLS] must be the first token and padding on
    the right. TUPE itself has no segments.

    The paper shares U^Q and U^K "for efficiency". Without `share` each block has its own, stacked
    block by block in one projection; the table and its LayerNorm stay shared. Shapes: u is 1 with
    `share`, else the number of blocks.
    """

    score_terms = 2
    summary = "TUPE-A: positions only in the scores, own projections, [CLS] untied"
    source = "Ke, He & Liu 2021"
    position_tables: Mapping[str, int] | None = {"positions": 2}

    def __init__(self, dims: Dimensions, *, share: bool = True) -> None:
        super().__init__(dims)
        self.share = share
        self.projections = 1 if share else dims.num_blocks
        width = self.projections * dims.num_heads * dims.head_size
        self.positions = nn.Embedding(dims.max_positions + 1, dims.embedding_size)
        self.position_norm = nn.LayerNorm(dims.embedding_size, eps=dims.layer_norm_eps)
        self.position_query = nn.Linear(dims.embedding_size, width)
        self.position_key = nn.Linear(dims.embedding_size, width)

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        # Split once: an index for each block would allocate the gradient of all of them, (u h l l),
        # each time.
        biases = self.score_bias(token_ids.shape[1]).split(1)
        return EncoderInput(hidden, biases[0] if self.share else biases)

    def score_bias(self, length: int) -> Float[Tensor, "u h l l"]:
        """Return what positions add to the scaled scores of blocks: reset_theta of equation 9.

        theta_1 = (p_theta1 U^Q)(p_theta1 U^K)^T / sqrt(2k) fills row 0, that of [CLS] to [CLS]
        included. theta_2, the same of p_theta2, fills the rest of column 0. A constant row changes
        no softmax, so theta_1 never learns.
        """
        scores = self.position_scores(length)
        theta_1 = scores[:, :, 0, 0]
        theta_2 = scores[:, :, 1, 1]
        return reset(theta_1, theta_2, scores[:, :, 2:, 2:])

    def position_scores(self, length: int) -> Float[Tensor, "u h n n"]:
        """Return (p_i U^Q)(p_j U^K)^T / sqrt(2k) over n = l + 1 rows of the table."""
        rows = self.position_norm(self.positions.weight[: length + 1])
        heads = {"u": self.projections, "h": self.dims.num_heads}
        query = rearrange(self.position_query(rows), "n (u h k) -> u h n k", **heads)
        key = rearrange(self.position_key(rows), "n (u h k) -> u h k n", **heads)
        return (query * self.score_scale) @ key

    def graft(self, base: Additive) -> Grafted:
        """Start at the position-position term of the additive encoder's first block (equation 6).

        There p enters as norm * p / std(w + p + s); here LayerNorm makes it p / std(p). The norm's
        weight makes up for the ratio, and sqrt(score_terms) for the larger divisor of the scores.
        Every block starts at the same.

        Where the encoder projects its embeddings (ELECTRA-small), its W^Q and W^K take what is
        projected and do not fit p. U^Q and U^K then stay fresh, and positions start at scores that
        are not those of the checkpoint.
        """
        self.positions.weight.copy_(torch.cat([base.positions[:1], base.positions]))
        # Each word is paired with a position.
        pairs = torch.arange(len(base.words)) % len(base.positions)
        total = base.words + base.positions[pairs]
        if base.segments is not None:
            total = total + base.segments[0]
        share = float(base.positions.std(dim=1).mean() / total.std(dim=1).mean())
        self.position_norm.weight.copy_(base.norm * share)
        query = base.query * self.score_terms**0.5
        # `four-term` has only the projections that its terms read.
        self._start_projection(getattr(self, "position_query", None), query)
        self._start_projection(getattr(self, "position_key", None), base.key)
        return super().graft(base)

    def _start_projection(self, projection: nn.Linear | None, weight: Tensor) -> None:
        """Let a projection of positions start at the first block's, if the widths agree."""
        if projection is None:
            return
        projection.bias.zero_()
        if weight.shape[1] == projection.in_features:
            projection.weight.copy_(weight.repeat(self.projections, 1))


class UntiedTieCls(Untied):
    """TUPE-A without the reset function: equation 7 (`tie-cls` of TUPE's table 1).

    No score reads row 0.
    """

    summary = "TUPE-A without untying [CLS] (tie-cls)"

    def score_bias(self, length: int) -> Float[Tensor, "u h l l"]:
        return self.position_scores(length)[:, :, 1:, 1:]


class UntiedRelative(Untied):
    """TUPE-R (equation 11): TUPE-A plus T5's bias, and [CLS] reset in both.

    As in the official code the two parts are reset separately, so that the effective constant is
    theta_1 or theta_2 plus a learned scalar a head: bucket 32, one more than T5's, for others to
    [CLS]; bucket 16, of no distance, for [CLS] to others.
    """

    summary = "TUPE-R: TUPE-A, and T5's bucketed bias with [CLS] untied there too"

    def __init__(self, dims: Dimensions, *, share: bool = True) -> None:
        super().__init__(dims, share=share)
        self.relative = RelativeBias(dims.num_heads, extra=1)

    def score_bias(self, length: int) -> Float[Tensor, "u h l l"]:
        scalars = self.relative.table.weight[:, None]
        from_cls = scalars[BUCKETS // 2]
        to_cls = scalars[BUCKETS]
        relative = self.relative(length)[:, :, 1:, 1:]
        return super().score_bias(length) + reset(from_cls, to_cls, relative)

    def graft(self, base: Additive) -> Grafted:
        nn.init.zeros_(self.relative.table.weight)
        return super().graft(base)


def reset(
    from_cls: Float[Tensor, "u h"],
    to_cls: Float[Tensor, "u h"],
    between_tokens: Float[Tensor, "u h m m"],
) -> Tensor:
    """Return scores (u, h, m + 1, m + 1) in which [CLS] has constants.

    Row 0 is `from_cls`, column 0 below it `to_cls`, and the rest `between_tokens`.
    """
    length = between_tokens.shape[-1] + 1
    row = from_cls[:, :, None, None].expand(-1, -1, 1, length)
    column = to_cls[:, :, None, None].expand(-1, -1, length - 1, 1)
    rows_below = torch.cat([column, between_tokens], dim=3)
    return torch.cat([row, rows_below], dim=2)


class FourTerm(Untied):
    """BERT-A^d of TUPE's table 1, with any subset of its terms T:

        a_ij = 1 / sqrt(|T| k) * sum over T of
            (x_i W^Q)(x_j W^K)^T, (x_i W^Q)(p_j U^K)^T, (p_i U^Q)(x_j W^K)^T, (p_i U^Q)(p_j U^K)^T

    U^Q and U^K are shared by all blocks and p is normalised, as in TUPE; [CLS] is not untied, and
    no term reads row 0 of the table. The terms that hold x are computed in every block, the last
    one once. What none of the terms reads is not there: U^Q only with a term whose query is a
    position, U^K only with one whose key is, and no table of positions for words alone.
    """

    summary = (
        "attention scores are a sum of word-word, word-position, position-word and "
        "position-position; positions have their own projections (TUPE's BERT-A-d)"
    )

    def __init__(
        self, dims: Dimensions, *, terms: Annotated[Sequence[str], some_of(*TERMS)] = TERMS
    ) -> None:
        super().__init__(dims)
        self.terms = frozenset(terms)
        self.score_terms = len(self.terms)
        self.uses_position = self.terms != {"word-word"}
        if not self.terms & {"position-word", "position-position"}:
            del self.position_query
        if not self.terms & {"word-position", "position-position"}:
            del self.position_key
        if not self.uses_position:
            del self.positions, self.position_norm
            self.position_tables = {}

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        if not self.uses_position:
            return EncoderInput(hidden)
        rows = self.position_norm(self.positions.weight[1 : token_ids.shape[1] + 1])
        # By side, the heads of positions that the terms read.
        heads: dict[str, Tensor] = {}
        for side in ("query", "key"):
            project = getattr(self, f"position_{side}", None)
            if project is not None:
                heads[side] = rearrange(project(rows), "l (h k) -> 1 h l k", h=self.dims.num_heads)
        if "query" in heads:
            heads["query"] = heads["query"] * self.score_scale

        def cross_terms(_: int, query: Tensor, key: Tensor) -> Tensor:
            terms: list[Tensor] = []
            if "word-position" in self.terms:
                terms.append((query * self.score_scale) @ heads["key"].mT)
            if "position-word" in self.terms:
                terms.append(heads["query"] @ key.mT)
            return torch.stack(terms).sum(0)

        def without_words(_: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            return query * 0, key

        bias = heads["query"] @ heads["key"].mT if "position-position" in self.terms else None
        rotate = None if "word-word" in self.terms else without_words
        scores = cross_terms if self.terms & {"word-position", "position-word"} else None
        return EncoderInput(hidden, bias, rotate, scores)

    def graft(self, base: Additive) -> Grafted:
        return super().graft(base) if self.uses_position else Variant.graft(self, base)


class Diet(Variant):
    """DIET (Chen et al. 2021): a_ij = (x_i W^Q)(x_j W^K)^T / sqrt(k) + a position bias.

    With `share` all blocks have the same bias.
    """

    source = "Chen et al. 2021"

    def __init__(self, dims: Dimensions, share: bool) -> None:
        super().__init__(dims)
        self.share = share
        self.num_biases = 1 if share else dims.num_blocks

    @abstractmethod
    def position_bias(self, block: int, length: int) -> Float[Tensor, "1 h l l"]:
        """Return what positions add to one block's scores."""

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        length = token_ids.shape[1]
        biases = [self.position_bias(block, length) for block in range(self.num_biases)]
        return EncoderInput(hidden, biases[0] if self.share else biases)


class DietAbs(Diet):
    """DIET-ABS (equation 1), per head, with P_Q and P_K of `rank` columns:

        a_ij = (x_i W^Q)(x_j W^K)^T / sqrt(k) + (P_Q P_K^T)_ij

    In the paper the bias is shared, and its rank is 128. The paper's term of segments is the option
    `segments: scores` (`SegmentScores` of the encoder).
    """

    summary = "absolute positions as a low-rank bias P_Q P_K^T of each head (DIET-ABS)"

    def __init__(self, dims: Dimensions, *, rank: PositiveInt = 128, share: bool = True) -> None:
        super().__init__(dims, share)
        table = partial(nn.Embedding, dims.max_positions, dims.num_heads * rank)
        self.queries = nn.ModuleList(table() for _ in range(self.num_biases))
        self.keys = nn.ModuleList(table() for _ in range(self.num_biases))
        tables: dict[str, int] = {}
        for block in range(self.num_biases):
            tables[f"queries.{block}"] = 1
            tables[f"keys.{block}"] = 1
        self.position_tables = tables

    def position_bias(self, block: int, length: int) -> Float[Tensor, "1 h l l"]:
        query = self.queries[block].get_parameter("weight")[:length]
        key = self.keys[block].get_parameter("weight")[:length]
        queries = rearrange(query, "l (h r) -> 1 h l r", h=self.dims.num_heads)
        keys = rearrange(key, "l (h r) -> 1 h r l", h=self.dims.num_heads)
        return queries @ keys


class DietRel(Diet):
    """DIET-REL (equation 3): R_(i - j) of each head, a scalar per distance, without buckets.

    Each block has its own, unless `share`.
    """

    summary = "one learned scalar for each head and distance, in each block (DIET-REL)"
    position_tables: Mapping[str, int] | None = {}

    def __init__(self, dims: Dimensions, *, share: bool = False) -> None:
        super().__init__(dims, share)
        rows = 2 * dims.max_positions - 1
        self.distances = nn.ModuleList(
            nn.Embedding(rows, dims.num_heads) for _ in range(self.num_biases)
        )

    def position_bias(self, block: int, length: int) -> Float[Tensor, "1 h l l"]:
        table = self.distances[block].get_parameter("weight")
        rows = offsets(length, table) + self.dims.max_positions - 1
        return rearrange(table[rows], "i j h -> 1 h i j")
