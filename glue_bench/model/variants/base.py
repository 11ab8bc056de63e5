"""The contract that every variant meets.

Shapes: b batch, l length, d width of the embedding tables, h heads, k head size, n positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The sizes a variant is built for. `segment_types` 0 means that the encoder has no segments."""

    vocab_size: int
    embedding_size: int
    num_heads: int
    head_size: int
    max_positions: int
    segment_types: int
    num_blocks: int = 1
    layer_norm_eps: float = 1e-12
    padding_id: int | None = None


ScoreTerms = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor, Tensor | None]]
"""(block, queries, keys) -> (queries, keys, extra): each (b, h, l, k), extra scores (#b, h, l, l) already scaled."""


@dataclass(frozen=True)
class EncoderInput:
    """What a variant hands to the encoder.

    `hidden` is the sum before LayerNorm and dropout. `bias` is added to the scaled scores of every block and
    computed once. `terms`, where a variant needs queries and keys, is called in every block.
    """

    hidden: Float[Tensor, "b l d"]
    bias: Float[Tensor, "#b h l l"] | None = None
    terms: ScoreTerms | None = None


@dataclass(frozen=True, kw_only=True)
class Additive:
    """The weights of an additive encoder that a graft starts from.

    `query` and `key` are the first block's projections, the ones that meet p_i in BERT (TUPE, equation 3);
    `norm` is the LayerNorm weight applied to the sum.
    """

    words: Float[Tensor, "vocab d"]
    positions: Float[Tensor, "n d"]
    segments: Float[Tensor, "types d"] | None
    norm: Float[Tensor, " d"]
    query: Float[Tensor, "hk d2"]
    key: Float[Tensor, "hk d2"]


@dataclass(frozen=True)
class Grafted:
    """What a graft kept.

    `exact` says that nothing was lost. `variance_kept` has, for each table that was reduced, the share of its sum
    of squares (not centred) that is left, 0 to 1.
    """

    exact: bool
    variance_kept: Mapping[str, float] = field(default_factory=dict)


class Variant(nn.Module, ABC):
    """One answer to: how do token, segment and position embeddings meet?

    A subclass has a `words` table (the masked-LM head is tied to it), takes `Dimensions` and plain keyword
    options, and scores are scaled by 1 / sqrt(score_terms * head_size). `uses_position` says whether the order of
    tokens may change the output; arms call a plugin's variant by its `name`. `content_size` is the width of the
    token and segment tables where it is not the embedding size. What else is promised: `glue_bench.testing.contract`.
    """

    name: str
    score_terms: int = 1
    uses_position: bool = True
    summary: str
    source: str

    def __init__(self, dims: Dimensions, content_size: int | None = None) -> None:
        super().__init__()
        self.dims = dims
        width = content_size or dims.embedding_size
        self.words = nn.Embedding(dims.vocab_size, width, padding_idx=dims.padding_id)
        self.segments = nn.Embedding(dims.segment_types, width) if dims.segment_types else None

    @abstractmethod
    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]) -> EncoderInput:
        """Token ids and segment ids to what enters the first block."""

    def graft(self, base: Additive) -> Grafted:
        """Take over an additive encoder's weights as closely as possible.

        Here: the tables that every variant has, and positions as they are in fresh weights.
        """
        self.graft_content(base)
        return Grafted(exact=False)

    def words_and_segments(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> Float[Tensor, "b l d"]:
        """The content that every variant shares: w_i + s_i."""
        words = self.words(token_ids)
        return words if self.segments is None else words + self.segments(segment_ids)

    def graft_content(self, base: Additive) -> None:
        """Copy the token and segment tables."""
        copy(self.words, base.words)
        if self.segments is not None and base.segments is not None:
            copy(self.segments, base.segments)


def copy(module: nn.Embedding | nn.Linear, weight: Tensor) -> None:
    """Overwrite a table's or projection's weight."""
    with torch.no_grad():
        module.weight.copy_(weight)
