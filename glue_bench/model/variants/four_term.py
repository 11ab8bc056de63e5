"""The four terms of an attention score, each kept or dropped."""

from collections.abc import Sequence
from typing import Annotated

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant, rows_from
from glue_bench.model.variants.options import some_of
from glue_bench.model.variants.untied import Untied

TERMS = ("word-word", "word-position", "position-word", "position-position")
_CROSS = {"word-position", "position-word"}


class FourTerm(Untied):
    """BERT-A^d of TUPE's table 1, with any subset of its terms T:

        a_ij = 1 / sqrt(|T| k) * sum over T of
            (x_i W^Q)(x_j W^K)^T, (x_i W^Q)(p_j U^K)^T, (p_i U^Q)(x_j W^K)^T, (p_i U^Q)(p_j U^K)^T

    U^Q and U^K are shared by all blocks and p is normalised, as in TUPE; [CLS] is not untied. The terms that
    hold x are computed in every block, the last one once. What none of the terms reads is not there: U^Q only with
    a term whose query is a position, U^K only with one whose key is, and no table of positions for words alone.
    Row 0 of the table, p_theta1 of TUPE-A, is there, saved and counted, too; no term reads it.
    """

    summary = (
        "attention scores are a sum of word-word, word-position, position-word and position-position; positions have "
        "their own projections (TUPE's BERT-A-d)"
    )

    def __init__(self, dims: Dimensions, *, terms: Annotated[Sequence[str], some_of(*TERMS)] = TERMS) -> None:
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

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        if not self.uses_position:
            return EncoderInput(hidden)
        heads = self.position_heads(token_ids.shape[1], start)
        bias = heads["query"] @ heads["key"].mT if "position-position" in self.terms else None

        def drop_words(_: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            return query * 0, key

        def cross_terms(_: int, query: Tensor, key: Tensor) -> Tensor:
            wanted = []
            if "word-position" in self.terms:
                wanted.append((query * self._scale) @ heads["key"].mT)
            if "position-word" in self.terms:
                wanted.append(heads["query"] @ key.mT)
            return torch.stack(wanted).sum(0)

        rotate = None if "word-word" in self.terms else drop_words
        return EncoderInput(hidden, bias, rotate, cross_terms if self.terms & _CROSS else None)

    def position_heads(self, length: int, start: int = 0) -> dict[str, Float[Tensor, "1 h l k"]]:
        """Of the first `length` positions `query`, p U^Q scaled, and `key`, p U^K; without what no term reads."""
        rows = self.position_norm(rows_from(self.positions.weight, length, start, fixed=2)[1:])
        heads = {}
        if hasattr(self, "position_query"):
            heads["query"] = self.position_query(rows) * self._scale
        if hasattr(self, "position_key"):
            heads["key"] = self.position_key(rows)
        return {side: rearrange(head, "l (h k) -> 1 h l k", h=self.dims.num_heads) for side, head in heads.items()}

    @property
    def _scale(self) -> float:
        return (self.score_terms * self.dims.head_size) ** -0.5

    def graft(self, base: Additive) -> Grafted:
        return super().graft(base) if self.uses_position else Variant.graft(self, base)
