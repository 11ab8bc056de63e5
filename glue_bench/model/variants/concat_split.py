"""Concatenation without a projection: some dimensions hold the token, the others the position."""

from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant, copy, rows_from


class ConcatSplit(Variant):
    """x_i = [w_i + s_i ; p_i], positions in `position_share` of the d dimensions, tokens and segments in the rest.

    It is addition where every table is zero in the other part's dimensions. Kitaev & Klein 2018 give positions
    half of the dimensions; their factored attention keeps the parts apart in every block, here attention and
    feed-forward layers mix them (their `--no-partitioned`), so that any share will do. Theirs is the default; what it
    takes from the tokens is part of the comparison. An arm with tables wider than its blocks (`embedding_size`) can
    give its tokens as many dimensions as `add` has: 160 with a share of 0.2 for tokens of 128. It is projected back to
    128 after LayerNorm, which adds 160 x 128 weights and a bias that `add` does not have.
    """

    summary = "token and position side by side in the d dimensions, no projection; + segment in the token part"
    source = "Kitaev & Klein 2018"

    def __init__(self, dims: Dimensions, *, position_share: Annotated[float, Field(gt=0, lt=1)] = 0.5) -> None:
        width = position_width(dims.embedding_size, position_share)
        super().__init__(dims, content_size=dims.embedding_size - width)
        self.positions = nn.Embedding(dims.max_positions, width)

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        content = self.words_and_segments(token_ids, segment_ids)
        batch, length, _ = content.shape
        positions = rows_from(self.positions.weight, length, start).expand(batch, -1, -1)
        return EncoderInput(torch.cat([content, positions], dim=-1))

    def graft(self, base: Additive) -> Grafted:
        """Reduce the token and the position table by a truncated SVD each, segments like the tokens they join.

        The blocks stay as they are and read dimensions that have lost part of their meaning, so that it is never
        exact; only where the tables are already split does it compute the same.
        """
        split = self.words.embedding_dim
        content, places = principal_basis(base.words, slice(split)), principal_basis(base.positions, slice(split, None))
        copy(self.words, base.words @ content)
        copy(self.positions, base.positions @ places)
        kept = {"tokens": variance_kept(base.words, content), "positions": variance_kept(base.positions, places)}
        if self.segments is not None and base.segments is not None:
            copy(self.segments, base.segments @ content)
            kept["segments"] = variance_kept(base.segments, content)
        return Grafted(exact=False, variance_kept=kept)


def position_width(width: int, share: float) -> int:
    """Dimensions of the position part: `share` of `width`, rounded.

    Raises:
        ValueError: a part has no dimensions.
    """
    positions = round(share * width)
    if not 0 < positions < width:
        raise ValueError(
            f"position_share {share} splits {width} dimensions into {width - positions} for tokens and {positions} for "
            f"positions; neither may be 0, so give a share from {1 / width:.4g} to {1 - 1 / width:.4g}"
        )
    return positions


def principal_basis(table: Float[Tensor, "rows d"], place: slice) -> Float[Tensor, "d r"]:
    """Orthonormal columns over the span of the table's first r right singular vectors, not centred.

    r is the size of `place`. Every rotation of the columns keeps the same variance; of these, the one is taken that
    brings `table @ basis` nearest to `table[:, place]`, the coordinates whose place it takes (orthogonal Procrustes,
    Schönemann 1966). It also makes the result independent of the signs that the solver chose.
    """
    # Of d x d instead of rows x d: its eigenvectors are the right singular vectors. In float64, as it squares.
    gram = table.double().mT @ table.double()
    nearest = gram[:, place]
    top = torch.linalg.eigh(gram).eigenvectors[:, -nearest.shape[1] :]
    left, _, right = torch.linalg.svd(top.mT @ nearest)
    return (top @ left @ right).to(table.dtype)


def variance_kept(table: Float[Tensor, "rows d"], basis: Float[Tensor, "d r"]) -> float:
    """The share of the table's sum of squares that its projection onto the basis has; 1 for a table of zeros."""
    total = float(table.double().square().sum())
    return float((table.double() @ basis.double()).square().sum()) / total if total else 1.0
