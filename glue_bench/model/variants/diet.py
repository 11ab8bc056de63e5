"""DIET (Chen et al. 2021): positions as a bias on the scores of every block, unscaled and without LayerNorm."""

from abc import abstractmethod

from einops import rearrange
from jaxtyping import Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from glue_bench.model.variants.base import Dimensions, EncoderInput, Variant, rows_from
from glue_bench.model.variants.relative import offsets


class Diet(Variant):
    """a_ij = (x_i W^Q)(x_j W^K)^T / sqrt(k) + a position bias; with `share` all blocks have the same one."""

    source = "Chen et al. 2021"

    def __init__(self, dims: Dimensions, share: bool) -> None:
        super().__init__(dims)
        self.share = share

    @abstractmethod
    def position_bias(self, block: int, length: int, start: int = 0) -> Float[Tensor, "1 h l l"]:
        """What positions add to one block's scores."""

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        hidden, length = self.words_and_segments(token_ids, segment_ids), token_ids.shape[1]
        if self.share:
            return EncoderInput(hidden, self.position_bias(0, length, start))
        return EncoderInput(hidden, [self.position_bias(block, length, start) for block in range(self.dims.num_blocks)])

    def _tables(self, rows: int, columns: int) -> nn.ModuleList:
        """One table, or one per block."""
        return nn.ModuleList(nn.Embedding(rows, columns) for _ in range(1 if self.share else self.dims.num_blocks))


class DietAbs(Diet):
    """DIET-ABS (equation 1), per head, with P_Q and P_K of `rank` columns; the paper's is shared, rank 128:

        a_ij = (x_i W^Q)(x_j W^K)^T / sqrt(k) + (P_Q P_K^T)_ij

    The paper's term of segments is the option `segments: scores` (`SegmentScores` of the encoder).
    """

    summary = "absolute positions as a low-rank bias P_Q P_K^T of each head (DIET-ABS)"

    def __init__(self, dims: Dimensions, *, rank: PositiveInt = 128, share: bool = True) -> None:
        super().__init__(dims, share)
        self.queries = self._tables(dims.max_positions, dims.num_heads * rank)
        self.keys = self._tables(dims.max_positions, dims.num_heads * rank)

    def position_bias(self, block: int, length: int, start: int = 0) -> Float[Tensor, "1 h l l"]:
        query = rows_from(self.queries[block].get_parameter("weight"), length, start)
        key = rows_from(self.keys[block].get_parameter("weight"), length, start)
        heads = {"h": self.dims.num_heads}
        return rearrange(query, "l (h r) -> 1 h l r", **heads) @ rearrange(key, "l (h r) -> 1 h r l", **heads)


class DietRel(Diet):
    """DIET-REL (equation 3): R_(i - j) of each head, a scalar per distance, no buckets, others in each block."""

    summary = "one learned scalar for each head and distance, in each block (DIET-REL)"

    def __init__(self, dims: Dimensions, *, share: bool = False) -> None:
        super().__init__(dims, share)
        self.distances = self._tables(2 * dims.max_positions - 1, dims.num_heads)

    def position_bias(self, block: int, length: int, start: int = 0) -> Float[Tensor, "1 h l l"]:  # noqa: ARG002
        table = self.distances[block].get_parameter("weight")
        return rearrange(table[offsets(length, table) + self.dims.max_positions - 1], "i j h -> 1 h i j")
