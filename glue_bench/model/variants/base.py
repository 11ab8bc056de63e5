"""The contract that every variant meets.

Shapes: b batch, l length, d width of the embedding tables, h heads, k head size, n positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import AfterValidator, PositiveInt
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """The sizes a variant is built for.

    `segment_types` 0 means that the encoder has no segments.
    """

    vocab_size: int
    embedding_size: int
    num_heads: int
    head_size: int
    max_positions: int
    segment_types: int
    num_blocks: int
    layer_norm_eps: float
    initializer_range: float
    padding_id: int | None


@dataclass(frozen=True)
class EncoderInput:
    """The output of a variant: the input of the first block, and changes of scores.

    The scores of a block are (rotated q) (rotated k)^T * scale + bias + scores(q, k), and padding.

    Attributes:
        hidden: the sum before LayerNorm and dropout.
        bias: added to the scaled scores: one tensor for all blocks, or a sequence with one tensor
            per block, None where a block has none.
        rotate: (block, queries, keys) -> (queries, keys), each (b, h, l, k): the queries and keys
            that are multiplied in place of the given ones.
        scores: (block, queries, keys) -> extra scores (#b, h, l, l), already scaled; the given
            queries and keys are not rotated.
        infused: rows that pass through the encoder's input LayerNorm and projection. They are added
            to the input of the queries and keys of every block, and not to the input of the values.
    """

    hidden: Float[Tensor, "b l d"]
    bias: Float[Tensor, "#b h l l"] | Sequence[Float[Tensor, "#b h l l"] | None] | None = None
    rotate: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    scores: Callable[[int, Tensor, Tensor], Tensor] | None = None
    infused: Float[Tensor, "#b l d"] | None = None

    def biases(self) -> list[Tensor | None]:
        """Return one bias for all blocks (a list of one), or one for each."""
        if self.bias is None or isinstance(self.bias, Tensor):
            return [self.bias]
        return list(self.bias)


@dataclass(frozen=True, kw_only=True)
class Additive:
    """The weights of an additive encoder that a graft starts from.

    Attributes:
        words: The w_i.
        positions: The p_i as they are added, normalised if the encoder normalises them.
        segments: The s_i; None if the encoder adds none.
        norm: The LayerNorm weight applied to the sum.
        query: The first block's projection of queries, which meets p_i in BERT (TUPE, equation 3).
            In an encoder that projects its embeddings, it reads the projected rows: d2 is the
            hidden size, and d is not.
        key: The first block's projection of keys.
    """

    words: Float[Tensor, "vocab d"]
    positions: Float[Tensor, "n d"]
    segments: Float[Tensor, "types d"] | None
    norm: Float[Tensor, " d"]
    query: Float[Tensor, "hk d2"]
    key: Float[Tensor, "hk d2"]


@dataclass(frozen=True)
class Grafted:
    """How much a graft kept.

    Attributes:
        exact: Whether the encoder computes the same as before.
        variance_kept: For each table that was reduced the share of its sum of squares, 0 to 1.
    """

    exact: bool
    variance_kept: Mapping[str, float] = field(default_factory=dict)


class Variant(nn.Module, ABC):
    """One answer to: how do token, segment and position embeddings meet?

    `model.contract` checks what each variant promises. A subclass has a `words` table (the
    masked-LM head is tied to it), takes `Dimensions` and plain keyword options, and scores are
    scaled by `score_scale`. `uses_position` says whether the order of tokens may change the output;
    arms call a plugin's variant by its `name`. `content_size` is the width of the token and segment
    tables where it is not the embedding size.

    `position_tables` names the modules that are tables of absolute positions, each with the number
    of its first rows that belong to [CLS]. It is empty where only distances count. Where it is
    None, the variant does not declare its tables, and `starting_at` cannot be used.

    `fresh_options` names the options that say how fresh weights start and nothing else. An arm that
    starts from a checkpoint cannot have them.
    """

    name: str
    score_terms: float = 1
    uses_position: bool = True
    position_tables: Mapping[str, int] | None = None
    fresh_options: frozenset[str] = frozenset()
    summary: str
    source: str

    def __init__(self, dims: Dimensions, content_size: int | None = None) -> None:
        super().__init__()
        self.dims = dims
        width = content_size or dims.embedding_size
        self.words = nn.Embedding(dims.vocab_size, width, padding_idx=dims.padding_id)
        self.segments = nn.Embedding(dims.segment_types, width) if dims.segment_types else None

    @property
    def score_scale(self) -> float:
        """1 / sqrt(score_terms * k): the factor of each product of queries and keys."""
        return (self.score_terms * self.dims.head_size) ** -0.5

    @abstractmethod
    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        """Return the input of the first block. The encoder has checked the ids."""

    @classmethod
    def described(cls, options: Mapping[str, Any], origin: str) -> str:  # noqa: ARG003
        """Describe an arm of the variant in words.

        Args:
            options: The arm's options; some variants need them.
            origin: The origin of the arm's weights before any pretraining of ours.
        """
        return cls.summary

    @contextmanager
    def starting_at(self, start: int) -> Iterator[None]:
        """In this block the token after [CLS] is at position `start` + 1; [CLS] stays at 0.

        Sequences may then be `start` tokens shorter than the number of positions. Parts that depend
        on distances alone do not change, because distances are computed from the places in the
        sequence. Raises ValueError where `position_tables` is None.
        """
        if self.position_tables is None:
            raise ValueError(f"{type(self).__name__} does not declare its position_tables")
        weights_before: dict[nn.Module, nn.Parameter] = {}
        for name, fixed_rows in self.position_tables.items():
            table = self.get_submodule(name)
            weight = table.get_parameter("weight")
            weights_before[table] = weight
            moved = torch.cat([weight[:fixed_rows], weight[start + fixed_rows :]])
            table.weight = nn.Parameter(moved.detach(), requires_grad=False)
        try:
            yield
        finally:
            for table, weight in weights_before.items():
                table.weight = weight

    def graft(self, base: Additive) -> Grafted:
        """Take over an additive encoder's weights as closely as possible.

        It is called without gradients. By default it takes over the tables of words and segments.
        """
        self.words.weight.copy_(base.words)
        if self.segments is not None and base.segments is not None:
            self.segments.weight.copy_(base.segments)
        return Grafted(exact=False)

    def words_and_segments(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> Float[Tensor, "b l d"]:
        """Return the content that every variant shares: w_i + s_i."""
        words = self.words(token_ids)
        if self.segments is None:
            return words
        return words + self.segments(segment_ids)


def _in_order(blocks: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of blocks in their order, each once."""
    if not blocks:
        raise ValueError("give one or more numbers of blocks")
    return tuple(sorted(set(blocks)))


Blocks = Literal["all"] | Annotated[Sequence[PositiveInt], AfterValidator(_in_order)]
"""The type of an option that chooses blocks: `all`, or a list of their numbers, from 1."""


def chosen_blocks(blocks: Blocks, num_blocks: int) -> list[int]:
    """Return the indices, from 0, of the blocks that an option chooses.

    Raises ValueError for a block that the encoder does not have.
    """
    if blocks == "all":
        return list(range(num_blocks))
    last = max(blocks)
    if last > num_blocks:
        raise ValueError(f"the encoder has {num_blocks} blocks, so there is no block {last}")
    return [number - 1 for number in blocks]


def in_blocks(options: Mapping[str, Any]) -> str:
    """Say in which blocks an arm's positions enter; empty where it is all of them."""
    blocks = options.get("blocks", "all")
    if blocks == "all":
        return ""
    numbers = ", ".join(map(str, blocks))
    return f" (only in block {numbers})" if len(blocks) == 1 else f" (only in blocks {numbers})"


def some_of(*names: str) -> AfterValidator:
    """Make the type of an option that lists one or more of `names`; their order does not count."""

    def in_order(chosen: Sequence[str]) -> tuple[str, ...]:
        if not chosen or not set(chosen) <= set(names):
            raise ValueError(f"give one or more of {', '.join(names)}")
        return tuple(name for name in names if name in chosen)

    return AfterValidator(in_order)
