"""Addition at the input, and its floor without positions."""

from jaxtyping import Int
from torch import Tensor, nn

from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant, copy, rows_from


class Add(Variant):
    """x_i = w_i + p_i + s_i (BERT, Devlin et al. 2019, section 3)."""

    summary = "token + position + segment, as BERT"
    source = "Devlin et al. 2019"

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.positions = nn.Embedding(dims.max_positions, dims.embedding_size)

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        positions = rows_from(self.positions.weight, token_ids.shape[1], start)
        return EncoderInput(self.words_and_segments(token_ids, segment_ids) + positions)

    def graft(self, base: Additive) -> Grafted:
        self.graft_content(base)
        copy(self.positions, base.positions)
        return Grafted(exact=True)


class NoPosition(Variant):
    """x_i = w_i + s_i: an encoder that sees a bag of words (Sinha et al. 2021, `nopos`)."""

    summary = "token + segment, no position: the floor"
    source = "Sinha et al. 2021"
    uses_position = False

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:  # noqa: ARG002
        return EncoderInput(self.words_and_segments(token_ids, segment_ids))
