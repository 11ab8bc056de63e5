"""DIET: absolute or relative positions as a learned bias of the scores.

Shapes: l length, h heads, r columns of a table.
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial

from einops import rearrange
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from glue_bench.model.variants.base import Dimensions, EncoderInput, Variant
from glue_bench.model.variants.relative import offsets


class Diet(Variant):
    """DIET (Chen et al. 2021): a_ij = (x_i W^Q)(x_j W^K)^T / sqrt(k) + a position bias.

    With `share` all blocks have the same bias.
    """

    source = "Chen et al. 2021"

    def __init__(self, dims: Dimensions, *, share: bool) -> None:
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
        super().__init__(dims, share=share)
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
        super().__init__(dims, share=share)
        rows = 2 * dims.max_positions - 1
        self.distances = nn.ModuleList(
            nn.Embedding(rows, dims.num_heads) for _ in range(self.num_biases)
        )

    def position_bias(self, block: int, length: int) -> Float[Tensor, "1 h l l"]:
        table = self.distances[block].get_parameter("weight")
        rows = offsets(length, table) + self.dims.max_positions - 1
        return rearrange(table[rows], "i j h -> 1 h i j")
