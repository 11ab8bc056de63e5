"""Fixed sinusoids: added at the input (Transformer), or rotating queries and keys (RoFormer).

Shapes: b batch, l length, d width of the tables, h heads, k head size.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glue_bench.model.variants.base import (
    Additive,
    Dimensions,
    EncoderInput,
    Grafted,
    Variant,
    check_positions,
    rows_from,
)


class AddSinusoidal(Variant):
    """x_i = w_i + c PE_i + s_i with PE of Vaswani et al. 2017, section 3.5; nothing is learned.

    `scale` c is the root mean square of what is added. (The standard deviation over positions is smaller, because the
    slow dimensions hardly move: a cosine that stays near 1 counts in the first and not in the second.) Vaswani et al.
    scale the words up instead, by sqrt(d); BERT's words start at 0.02, and so do these positions (as Wang & Chen 2020's
    code rescales them). With `scale: words` it is the deviation that the word table starts with: the encoder's
    `initializer_range` where weights are fresh, and in a graft that of the checkpoint's word table. It stays what it
    was at the start.
    """

    summary = "token + fixed sinusoid + segment, as the original Transformer"
    source = "Vaswani et al. 2017"

    def __init__(self, dims: Dimensions, *, scale: float | Literal["words"] = 0.02) -> None:
        super().__init__(dims)
        check_pairs(dims.embedding_size, "its embeddings")
        self.scale: float | Tensor
        if scale == "words":
            self.register_buffer("scale", torch.tensor(dims.initializer_range))  # saved with the weights
        else:
            self.scale = scale

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:
        hidden, length = self.words_and_segments(token_ids, segment_ids), token_ids.shape[1]
        check_positions(length, start, self.dims.max_positions)
        sine, cosine = angles(start + length, self.dims.embedding_size, hidden)
        table = rows_from(torch.stack([sine, cosine], dim=-1).flatten(1), length, start)
        return EncoderInput(
            hidden + self.scale * 2**0.5 * table
        )  # sin^2 + cos^2 = 1: the root mean square of a row is 1 / sqrt(2)

    def graft(self, base: Additive) -> Grafted:
        if isinstance(self.scale, Tensor):
            self.scale.copy_(base.words.std())
        return super().graft(base)


class Rotary(Variant):
    """q_i and k_j turned by their positions, so that q_i k_j depends on j - i alone (RoFormer, Su et al. 2021).

    Pairs (0, 1), (2, 3), ... of each head turn by position * 10000^(-2m/k); values are not turned.
    """

    summary = "queries and keys rotated by position (RoPE)"
    source = "Su et al. 2021"

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        check_pairs(dims.head_size, "a head")

    def forward(self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"], start: int = 0) -> EncoderInput:  # noqa: ARG002
        hidden = self.words_and_segments(token_ids, segment_ids)
        sine, cosine = angles(token_ids.shape[1], self.dims.head_size, hidden)

        def rotate_both(_: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            return rotate(query, sine, cosine), rotate(key, sine, cosine)

        return EncoderInput(hidden, rotate=rotate_both)


def check_pairs(size: int, what: str) -> None:
    """Raises ValueError where dimensions do not come in pairs, of which each has one angle."""
    if size % 2:
        raise ValueError(f"{what} of {size} dimensions cannot be split into pairs; give an even number")


def rotate(
    heads: Float[Tensor, "b h l k"], sine: Float[Tensor, "l k2"], cosine: Float[Tensor, "l k2"]
) -> Float[Tensor, "b h l k"]:
    """Each pair (x, y) of the last axis becomes (x cos - y sin, y cos + x sin)."""
    x, y = heads[..., ::2], heads[..., 1::2]
    return torch.stack([x * cosine - y * sine, y * cosine + x * sine], dim=-1).flatten(-2)


def angles(length: int, width: int, like: Tensor) -> tuple[Float[Tensor, "l w2"], Float[Tensor, "l w2"]]:
    """Sine and cosine of position * 10000^(-2m / width), m from 0 to width / 2 - 1; made anew on every call.

    A stored buffer would be lost when transformers loads a model on the meta device.
    """
    places = torch.arange(length, device=like.device, dtype=torch.float32)
    rates = 10_000 ** (-torch.arange(0, width, 2, device=like.device, dtype=torch.float32) / width)
    turns = places[:, None] * rates
    return turns.sin().to(like.dtype), turns.cos().to(like.dtype)
