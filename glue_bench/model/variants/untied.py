"""Positions untied from words: they enter the scores alone, by their own projections (TUPE).

Shapes: l length, n = l + 1 rows of the table, h heads, k head size, u sets of projections.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Int
from pydantic import NonNegativeInt
from torch import Tensor, nn

from glue_bench.model.variants.base import (
    Additive,
    Blocks,
    Dimensions,
    EncoderInput,
    Grafted,
    Variant,
    chosen_blocks,
    in_blocks,
    some_of,
)
from glue_bench.model.variants.relative import BUCKETS, RelativeBias

ATTENTION_TERMS = ("word-word", "word-position", "position-word", "position-position")


class PositionModules(NamedTuple):
    """The modules by which TUPE computes the scores of positions.

    Attributes:
        table: The p_i.
        norm: The LayerNorm that is applied to them (appendix B).
        query: U^Q.
        key: U^K.
    """

    table: nn.Embedding
    norm: nn.LayerNorm
    query: nn.Linear
    key: nn.Linear

    @classmethod
    def built(cls, dims: Dimensions, rows: int, width: int) -> "PositionModules":
        """Build the modules with a table of `rows` rows and projections to `width` dimensions."""
        size = dims.embedding_size
        return cls(
            nn.Embedding(rows, size),
            nn.LayerNorm(size, eps=dims.layer_norm_eps),
            nn.Linear(size, width),
            nn.Linear(size, width),
        )


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
    `share`, else the number of blocks that have these scores.

    No paper has the next two options, which take TUPE apart. Only the chosen `blocks` have the
    scores of positions; all blocks keep the scale 1 / sqrt(2k). (The scores of an untied [CLS] have
    no position, so that [CLS] hears of positions one block later.) With `add_positions` p_i is also
    added to w_i + s_i at the input, as BERT adds it: row i + 1 of the same table, without its
    LayerNorm.
    """

    score_terms = 2
    summary = "TUPE-A: positions only in the scores, own projections, [CLS] untied"
    source = "Ke, He & Liu 2021"
    position_tables: Mapping[str, int] | None = {"positions": 2}

    def __init__(
        self,
        dims: Dimensions,
        *,
        share: bool = True,
        blocks: Blocks = "all",
        add_positions: bool = False,
    ) -> None:
        super().__init__(dims)
        self.share = share
        self.blocks = chosen_blocks(blocks, dims.num_blocks)
        self.add_positions = add_positions
        self.sets = 1 if share else len(self.blocks)
        width = self.sets * dims.num_heads * dims.head_size
        modules = PositionModules.built(dims, dims.max_positions + 1, width)
        self.positions = modules.table
        self.position_norm = modules.norm
        self.position_query = modules.query
        self.position_key = modules.key

    @classmethod
    def described(cls, options: Mapping[str, Any], origin: str) -> str:  # noqa: ARG003
        """Say which blocks have the scores, and whether positions are also added at the input."""
        added = "; positions are also added at the input" if options.get("add_positions") else ""
        return f"{cls.summary}{in_blocks(options)}{added}"

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        length = token_ids.shape[1]
        if self.add_positions:
            hidden = hidden + self.positions.weight[1 : length + 1]
        # The biases are split once: an index for each block would allocate a gradient for all
        # blocks, (u h l l), each time.
        biases = self.score_bias(length).split(1)
        if len(self.blocks) == self.dims.num_blocks:
            return EncoderInput(hidden, biases[0] if self.share else biases)
        of_blocks: list[Tensor | None] = [None] * self.dims.num_blocks
        for index, block in enumerate(self.blocks):
            of_blocks[block] = biases[0 if self.share else index]
        return EncoderInput(hidden, of_blocks)

    def score_bias(self, length: int) -> Float[Tensor, "u h l l"]:
        """Return what positions add to the scaled scores of blocks: reset_theta of equation 9.

        theta_1 = (p_theta1 U^Q)(p_theta1 U^K)^T / sqrt(2k) fills row 0, including the score of
        [CLS] to [CLS]. theta_2 is the same product of p_theta2, and fills the rest of column 0. A
        constant row does not change softmax, so theta_1 never learns.
        """
        scores = self.position_scores(length)
        theta_1 = scores[:, :, 0, 0]
        theta_2 = scores[:, :, 1, 1]
        return reset(theta_1, theta_2, scores[:, :, 2:, 2:])

    def position_scores(self, length: int) -> Float[Tensor, "u h n n"]:
        """Return (p_i U^Q)(p_j U^K)^T / sqrt(2k) over n = l + 1 rows of the table."""
        rows = self.position_norm(self.positions.weight[: length + 1])
        heads = {"u": self.sets, "h": self.dims.num_heads}
        query = rearrange(self.position_query(rows), "n (u h k) -> u h n k", **heads)
        key = rearrange(self.position_key(rows), "n (u h k) -> u h n k", **heads)
        return (query * self.score_scale) @ key.mT

    def graft(self, base: Additive) -> Grafted:
        """Start at the position-position term of the additive encoder's first block (equation 6).

        Every block starts with the same weights: see `start_positions` and `start_projection`.
        """
        start_positions(base, self.positions, self.position_norm)
        query = base.query * self.score_terms**0.5
        start_projection(self.position_query, query)
        start_projection(self.position_key, base.key)
        return super().graft(base)


def start_positions(base: Additive, table: nn.Embedding, norm: nn.LayerNorm) -> None:
    """Let a table and its LayerNorm start at an additive encoder's positions.

    In the additive encoder p enters as norm * p / std(w + p + s). Here LayerNorm makes it p /
    std(p). The weight of this LayerNorm starts at the ratio of the two.
    """
    extra = table.num_embeddings - len(base.positions)  # TUPE's table has one row more
    first_rows = base.positions[:1].expand(extra, -1)
    table.weight.copy_(torch.cat([first_rows, base.positions]))
    # Each word is paired with a position.
    pairs = torch.arange(len(base.words)) % len(base.positions)
    total = base.words + base.positions[pairs]
    if base.segments is not None:
        total = total + base.segments[0]
    share = float(base.positions.std(dim=1).mean() / total.std(dim=1).mean())
    norm.weight.copy_(base.norm * share)


def start_projection(projection: nn.Linear, weight: Float[Tensor, "hk d"]) -> None:
    """Let a projection of positions start at the first block's, if the widths agree.

    If the encoder projects its embeddings (ELECTRA-small), its W^Q and W^K take projected rows and
    do not fit p. Then U^Q and U^K stay fresh, and the scores of positions do not start at the
    checkpoint's.
    """
    projection.bias.zero_()
    sets, remainder = divmod(projection.out_features, len(weight))
    if weight.shape[1] == projection.in_features and not remainder:
        projection.weight.copy_(weight.repeat(sets, 1))


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
    theta_1 or theta_2 plus a learned scalar per head. For others to [CLS] it is bucket 32, one more
    than T5 has. For [CLS] to others it is bucket 16, which belongs to no distance.
    """

    summary = "TUPE-R: TUPE-A, and T5's bucketed bias with [CLS] untied there too"

    def __init__(
        self,
        dims: Dimensions,
        *,
        share: bool = True,
        blocks: Blocks = "all",
        add_positions: bool = False,
    ) -> None:
        super().__init__(dims, share=share, blocks=blocks, add_positions=add_positions)
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


class ConcatHeads(Variant):
    """Words and positions side by side inside the queries and keys of every block:

        a_ij = [q_c ; q_p] . [k_c ; k_p] / sqrt(k + r) = (q_c . k_c + q_p . k_p) / sqrt(k + r)

    per head, with q_c = x_i W^Q and k_c = x_j W^K of size k, q_p = LN(p_i) U^Q and k_p = LN(p_j)
    U^K of size r (`position_size`). Each block has its own U^Q and U^K. Values, and the input of
    the first block, come from words alone. Kitaev & Klein 2018 concatenate like this in every
    block; there positions have values and a residual stream, too.

    With r = k it is `untied-tie-cls` without `share`, exactly: TUPE's two terms are the scores of a
    concatenation with block-diagonal projections. With r = 0 it is `none`. In a graft U^Q and U^K
    start at W^Q and W^K of the first block if r = k, and stay fresh with another r.
    """

    summary = "word and position concatenated inside the queries and keys of every block"
    source = "Kitaev & Klein 2018; Ke, He & Liu 2021"

    def __init__(self, dims: Dimensions, *, position_size: NonNegativeInt = 64) -> None:
        super().__init__(dims)
        self.position_size = position_size
        self.score_terms = 1 + position_size / dims.head_size
        self.uses_position = position_size > 0
        self.position_tables = {"positions": 1} if self.uses_position else {}
        if not self.uses_position:
            return
        width = dims.num_blocks * dims.num_heads * position_size
        modules = PositionModules.built(dims, dims.max_positions, width)
        self.positions = modules.table
        self.position_norm = modules.norm
        self.position_query = modules.query
        self.position_key = modules.key

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        if not self.uses_position:
            return EncoderInput(hidden)
        rows = self.position_norm(self.positions.weight[: token_ids.shape[1]])
        heads = {"u": self.dims.num_blocks, "h": self.dims.num_heads}
        query = rearrange(self.position_query(rows), "l (u h r) -> u h l r", **heads)
        key = rearrange(self.position_key(rows), "l (u h r) -> u h l r", **heads)
        return EncoderInput(hidden, ((query * self.score_scale) @ key.mT).split(1))

    def graft(self, base: Additive) -> Grafted:
        if self.uses_position:
            start_positions(base, self.positions, self.position_norm)
        if self.position_size == self.dims.head_size:
            start_projection(self.position_query, base.query * self.score_terms**0.5)
            start_projection(self.position_key, base.key)
        return super().graft(base)


class FourTerm(Variant):
    """BERT-A^d of TUPE's table 1, with any subset of its terms T:

        a_ij = 1 / sqrt(|T| k) * sum over T of
            (x_i W^Q)(x_j W^K)^T, (x_i W^Q)(p_j U^K)^T, (p_i U^Q)(x_j W^K)^T, (p_i U^Q)(p_j U^K)^T

    U^Q and U^K are shared by all blocks and p is normalised, as in TUPE; [CLS] is not untied, and
    no term reads row 0 of the table. The terms with x are computed in every block, and the last
    term is computed once. A part that no term reads does not exist: there is U^Q only if the query
    of a term is a position, U^K only if the key of a term is a position, and a table of positions
    only with one of them.
    """

    summary = (
        "attention scores are a sum of word-word, word-position, position-word and "
        "position-position; positions have their own projections (TUPE's BERT-A-d)"
    )

    source = "Ke, He & Liu 2021"

    def __init__(
        self,
        dims: Dimensions,
        *,
        terms: Annotated[Sequence[str], some_of(*ATTENTION_TERMS)] = ATTENTION_TERMS,
    ) -> None:
        super().__init__(dims)
        self.terms = frozenset(terms)
        self.score_terms = len(self.terms)
        self.uses_position = self.terms != {"word-word"}
        self.position_tables = {"positions": 2} if self.uses_position else {}
        # All projections are drawn, and some are kept: so later modules draw the same numbers for
        # any terms.
        width = dims.num_heads * dims.head_size
        modules = PositionModules.built(dims, dims.max_positions + 1, width)
        if self.uses_position:
            self.positions = modules.table
            self.position_norm = modules.norm
        has_query = self.terms & {"position-word", "position-position"}
        has_key = self.terms & {"word-position", "position-position"}
        self.position_query = modules.query if has_query else None
        self.position_key = modules.key if has_key else None

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        if not self.uses_position:
            return EncoderInput(hidden)
        rows = self.position_norm(self.positions.weight[1 : token_ids.shape[1] + 1])
        split = partial(rearrange, pattern="l (h k) -> 1 h l k", h=self.dims.num_heads)
        # The heads of positions that the terms read, by side (query or key).
        heads: dict[str, Tensor] = {}
        if self.position_query is not None:
            heads["query"] = split(self.position_query(rows)) * self.score_scale
        if self.position_key is not None:
            heads["key"] = split(self.position_key(rows))

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
        if self.uses_position:
            start_positions(base, self.positions, self.position_norm)
        if self.position_query is not None:
            start_projection(self.position_query, base.query * self.score_terms**0.5)
        if self.position_key is not None:
            start_projection(self.position_key, base.key)
        return super().graft(base)
