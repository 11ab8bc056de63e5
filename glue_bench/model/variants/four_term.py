"""The four terms of an attention score, each kept or dropped."""

from collections.abc import Sequence
from typing import Annotated

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from glue_bench.model.variants.base import Dimensions, EncoderInput
from glue_bench.model.variants.options import some_of
from glue_bench.model.variants.untied import Untied

TERMS = ("word-word", "word-position", "position-word", "position-position")


class FourTerm(Untied):
    """BERT-A^d of TUPE's table 1, with any subset of its terms T:

        a_ij = 1 / sqrt(|T| k) * sum over T of
            (x_i W^Q)(x_j W^K)^T, (x_i W^Q)(p_j U^K)^T, (p_i U^Q)(x_j W^K)^T, (p_i U^Q)(p_j U^K)^T

    U^Q and U^K are shared by all blocks and p is normalised, as in TUPE; [CLS] is not untied. The terms that
    hold x are computed in every block, the last one once.
    """

    summary = "any of the terms word-word, word-position, position-word, position-position (BERT-A^d)"

    def __init__(self, dims: Dimensions, *, terms: Annotated[Sequence[str], some_of(*TERMS)] = TERMS) -> None:
        super().__init__(dims)
        self.terms = frozenset(terms)
        self.score_terms = len(self.terms)
        self.uses_position = self.terms != {"word-word"}

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        query, key = self.position_heads(token_ids.shape[1])
        scale = (self.score_terms * self.dims.head_size) ** -0.5
        bias = query * scale @ key.mT if "position-position" in self.terms else None

        def add_terms(_: int, words_query: Tensor, words_key: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
            extra = self._cross_terms(words_query * scale, words_key, query * scale, key)
            return (words_query if "word-word" in self.terms else words_query * 0), words_key, extra

        return EncoderInput(hidden, bias, add_terms)

    def position_heads(self, length: int) -> tuple[Float[Tensor, "1 h l k"], Float[Tensor, "1 h l k"]]:
        """p U^Q and p U^K of the first `length` positions."""
        rows = self.position_norm(self.positions.weight[1 : length + 1])
        heads = (projection(rows) for projection in (self.position_query, self.position_key))
        query, key = (rearrange(head, "l (h k) -> 1 h l k", h=self.dims.num_heads) for head in heads)
        return query, key

    def _cross_terms(self, words_query: Tensor, words_key: Tensor, query: Tensor, key: Tensor) -> Tensor | None:
        """Scaled word-position and position-word scores; the queries come scaled."""
        wanted = []
        if "word-position" in self.terms:
            wanted.append(words_query @ key.mT)
        if "position-word" in self.terms:
            wanted.append(query @ words_key.mT)
        return torch.stack(wanted).sum(0) if wanted else None
