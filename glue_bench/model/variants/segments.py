"""Where segments enter: an axis of their own, the same for every variant.

`input` adds (or concatenates) their embedding, as BERT; `scores` gives each head a scalar for each pair of
segments, as DIET; `none` drops them, as TUPE.
"""

from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

PLACES = ("input", "scores", "none")


class SegmentScores(nn.Module):
    """E_S(S(i), S(j)), a learned scalar a head and ordered pair of segments (Chen et al. 2021, equation 2)."""

    def __init__(self, segment_types: int, num_heads: int) -> None:
        super().__init__()
        self.segment_types = segment_types
        self.table = nn.Embedding(segment_types**2, num_heads)

    def forward(self, segment_ids: Int[Tensor, "b l"]) -> Float[Tensor, "b h l l"]:
        pairs = segment_ids[:, :, None] * self.segment_types + segment_ids[:, None, :]
        return rearrange(self.table(pairs), "b i j h -> b h i j")
