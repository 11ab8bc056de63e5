"""Other ways for word and position to meet at the input: a product, a gate."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from glue_bench.model.variants.add import Add
from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, rows_from


class Multiply(Add):
    """x_i = w_i * (1 + p_i) + s_i, element by element: positions scale words and do not shift them."""

    summary = "token * (1 + position) + segment"
    source = "this project"

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        words = self.words(token_ids)
        hidden = words * (1 + rows_from(self.positions.weight, words.shape[1], start))
        return EncoderInput(hidden if self.segments is None else hidden + self.segments(segment_ids))

    def graft(self, base: Additive) -> Grafted:
        super().graft(base)
        return Grafted(exact=False)


class Gate(Add):
    """x_i = 2 g_i w_i + 2 (1 - g_i) p_i + s_i with a scalar g_i = sigmoid(v . [w_i ; p_i] + b).

    At g = 1/2 it is addition, where a graft starts. The scalar gate of Hallam & Tseng 2026, which leaves the
    factor 2 to the LayerNorm that follows; here segments are added, and need it.
    """

    summary = "a learned scalar of each token divides the weight between token and position; + segment"
    source = "Hallam & Tseng 2026"

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.gate = nn.Linear(2 * dims.embedding_size, 1)

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        words = self.words(token_ids)
        positions = rows_from(self.positions.weight, words.shape[1], start).expand_as(words)
        gate = torch.sigmoid(self.gate(torch.cat([words, positions], dim=-1)))
        hidden = 2 * (gate * words + (1 - gate) * positions)
        return EncoderInput(hidden if self.segments is None else hidden + self.segments(segment_ids))

    def graft(self, base: Additive) -> Grafted:
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        return super().graft(base)
