"""Concatenation: word, position and segment have their own dimensions.

A projection may follow.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from glue_bench.config import SCRATCH
from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant


class Concat(Add):
    """x_i = [w_i ; p_i ; s_i] M with M of shape (3d, d), or (2d, d) without segments.

    With M = [I ; I ; I] it is addition, exactly. Early form in NLP encoders: Kitaev & Klein 2018
    (without projection); with projection it is the "concatenation" arm of Hallam & Tseng 2026.

    `init` is how M starts in fresh weights. `random` is N(0, r^2) with the encoder's
    `initializer_range` r, as in every projection: tables of that scale then enter LayerNorm r
    sqrt(d) times as large as they would by addition, which is 0.55 for d = 768 and 0.23 for d =
    128, and every dimension mixes the parts. `identity` is [I ; I ; I], so that the arm starts as
    `add` does and differs only in what it may learn. A graft starts at [I ; I ; I] in either case.
    """

    summary = "token, position and segment concatenated, then projected"
    source = "Kitaev & Klein 2018; Hallam & Tseng 2026"

    def __init__(self, dims: Dimensions, *, init: Literal["random", "identity"] = "random") -> None:
        super().__init__(dims)
        parts = 2 if self.segments is None else 3
        kind: type[nn.Linear] = SumOfParts if init == "identity" else nn.Linear
        # The projection has no bias: the LayerNorm that follows has one.
        self.projection = kind(parts * dims.embedding_size, dims.embedding_size, bias=False)

    @classmethod
    def described(cls, options: Mapping[str, Any], origin: str) -> str:
        """Say how the projection starts. A checkpoint does not tell how its own started."""
        if origin not in (SCRATCH, "grafted"):
            return cls.summary
        is_sum = origin == "grafted" or options.get("init") == "identity"
        start = "as the sum, which is 'add' exactly" if is_sum else "at random"
        return f"{cls.summary}; the projection starts {start}"

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        words = self.words(token_ids)
        positions = self.positions.weight[: words.shape[1]]
        parts = [words, positions.expand_as(words)]
        if self.segments is not None:
            parts.append(self.segments(segment_ids))
        return EncoderInput(self.projection(torch.cat(parts, dim=-1)))

    def graft(self, base: Additive) -> Grafted:
        self.projection.weight.copy_(SumOfParts.fresh_weight(self.projection))
        return super().graft(base)


class SumOfParts(nn.Linear):
    """A projection of parts side by side. With fresh weights it starts as the sum of the parts."""

    def fresh_weight(self: nn.Linear) -> Float[Tensor, "d parts_d"]:
        """Return [I ; I ; ...] in the shape of the weight."""
        parts = self.in_features // self.out_features
        return torch.eye(self.out_features).repeat(1, parts)


class ConcatSplit(Variant):
    """x_i = [w_i + s_i ; p_i], with positions in `position_share` of the d dimensions.

    It is addition if every table is zero in the dimensions of the opposite part. Kitaev & Klein
    2018 give positions half of the dimensions; their factored attention keeps the parts apart in
    every block, here attention and feed-forward layers mix them (their `--no-partitioned`), so that
    any share will do. An arm with tables wider than its blocks (`embedding_size`) can give its
    tokens as many dimensions as `add` has: 128 of 160 with a share of 0.2.
    """

    summary = (
        "token and position side by side in the d dimensions, no projection; "
        "+ segment in the token part"
    )
    source = "Kitaev & Klein 2018"
    position_tables: Mapping[str, int] | None = {"positions": 1}

    def __init__(
        self, dims: Dimensions, *, position_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    ) -> None:
        width = dims.embedding_size
        positions = round(position_share * width)
        if not 0 < positions < width:
            parts = f"{width - positions} for tokens and {positions} for positions"
            fault = f"position_share {position_share} splits {width} dimensions into {parts}"
            smallest = 1 / width
            permitted = f"{smallest:.4g} to {1 - smallest:.4g}"
            raise ValueError(f"{fault}; neither may be 0, so give a share from {permitted}")
        super().__init__(dims, content_size=width - positions)
        self.positions = nn.Embedding(dims.max_positions, positions)

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        content = self.words_and_segments(token_ids, segment_ids)
        batch, length, _ = content.shape
        positions = self.positions.weight[:length].expand(batch, -1, -1)
        return EncoderInput(torch.cat([content, positions], dim=-1))

    def graft(self, base: Additive) -> Grafted:
        """Reduce the token and the position table by a truncated SVD each.

        Segments are reduced like the tokens they join. The blocks stay as they are. So the graft is
        exact only if the tables are already split.
        """
        split = self.words.embedding_dim
        content = principal_basis(base.words, slice(split))
        places = principal_basis(base.positions, slice(split, None))
        kept = {
            "tokens": reduce_table(self.words, base.words, content),
            "positions": reduce_table(self.positions, base.positions, places),
        }
        if self.segments is not None and base.segments is not None:
            kept["segments"] = reduce_table(self.segments, base.segments, content)
        return Grafted(exact=False, variance_kept=kept)


def reduce_table(
    module: nn.Embedding, table: Float[Tensor, "rows d"], basis: Float[Tensor, "d r"]
) -> float:
    """Fill a module with a table in fewer dimensions; return the share of the squares it keeps."""
    module.weight.copy_(table @ basis)
    total = float(table.double().square().sum())
    if not total:
        return 1.0
    reduced = table.double() @ basis.double()
    return float(reduced.square().sum()) / total


def principal_basis(table: Float[Tensor, "rows d"], place: slice) -> Float[Tensor, "d r"]:
    """Return orthonormal columns over the table's first r right singular vectors, not centred.

    r is the size of `place`. Every rotation of the columns keeps the same variance. The rotation
    that brings `table @ basis` nearest to `table[:, place]`, the coordinates that it replaces, is
    taken (orthogonal Procrustes, Schönemann 1966). It also makes the result independent of the
    signs that the solver chose.
    """
    # The eigenvectors of this d x d matrix are the right singular vectors of the table, which has
    # many rows. It is computed in float64, because it has squares.
    gram = table.double().mT @ table.double()
    nearest = gram[:, place]
    top = torch.linalg.eigh(gram).eigenvectors[:, -nearest.shape[1] :]
    u, _, v = torch.linalg.svd(top.mT @ nearest)
    return (top @ u @ v).to(table.dtype)
