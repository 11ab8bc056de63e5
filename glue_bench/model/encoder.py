"""Post-layer-norm Transformer blocks (Vaswani et al. 2017; BERT). They know no variant by name.

Shapes: b batch, l length, d hidden size, h heads, k head size.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers.activations import ACT2FN

from glue_bench.model.cpu.dropout import Dropout

Kernel = Callable[..., Tensor]  # with the arguments of `attend_by_torch`
Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Scores = Callable[[Tensor, Tensor], Tensor]


def attend_by_torch(
    packed: Float[Tensor, "b l n h k"],
    query: Float[Tensor, "b q h k"] | None,
    bias: Float[Tensor, "#b #h #q l"] | None,
    padding: Float[Tensor, "b 1 1 l"] | None,
    *,
    scale: float,
    dropout: float,
) -> Float[Tensor, "b q h k"]:
    """softmax(q k^T * scale + bias + padding) with dropout, times v; arguments as `cpu.attention.attend`."""
    queries = packed[:, :, 0] if query is None else query
    mixed = F.scaled_dot_product_attention(
        rearrange(queries, "b q h k -> b h q k"),
        rearrange(packed[:, :, -2], "b l h k -> b h l k"),
        rearrange(packed[:, :, -1], "b l h k -> b h l k"),
        attn_mask=together(bias, padding, packed.dtype),
        dropout_p=dropout,
        scale=scale,
    )
    return rearrange(mixed, "b h q k -> b q h k")


class Attention(nn.Module):
    """Multi-head attention by a kernel, whichever is fastest; query, key and value in one projection."""

    def __init__(self, *, hidden_size: int, num_heads: int, score_terms: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = (score_terms * (hidden_size // num_heads)) ** -0.5
        self.dropout = dropout
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(
        self,
        hidden: Float[Tensor, "b l d"],
        kernel: Kernel = attend_by_torch,
        bias: Float[Tensor, "#b #h #l l"] | None = None,
        padding: Float[Tensor, "b 1 1 l"] | None = None,
        rotate: Rotate | None = None,
        scores: Scores | None = None,
        rows: int | None = None,
    ) -> Float[Tensor, "b q d"]:
        """What the first `rows` positions attend to; without `rows` all do.

        `bias`, `padding` and what `scores` makes of queries and keys are added to the scaled scores; `rotate` gives the
        queries and keys whose product is taken.
        """
        turned = rotate is not None or scores is not None
        packed, query = self._project(hidden, None if turned else rows)
        if turned:
            queries, keys = rearrange(packed[:, :, :2], "b l n h k -> n b h l k")
            if scores is not None:
                extra = scores(queries, keys)
                bias = extra if bias is None else bias + extra
            if rotate is not None:
                queries, keys = rotate(queries, keys)
            # As they came: under autocast a variant that turns them would attend in float32, where others do in bf16.
            queries, keys = queries.to(packed.dtype), keys.to(packed.dtype)
            query = rearrange(queries[:, :, :rows], "b h q k -> b q h k")
            packed = torch.stack([rearrange(keys, "b h l k -> b l h k"), packed[:, :, 2]], dim=2)
        bias = None if bias is None else bias[:, :, :rows]
        dropout = self.dropout if self.training else 0.0
        mixed = kernel(packed, query, bias, padding, scale=self.scale, dropout=dropout)
        return self.out(rearrange(mixed, "b q h k -> b q (h k)"))

    def _project(
        self, hidden: Float[Tensor, "b l d"], rows: int | None
    ) -> tuple[Float[Tensor, "b l n h k"], Float[Tensor, "b q h k"] | None]:
        """Queries, keys and values packed; or keys and values packed, and the queries of the first `rows` positions."""
        heads = {"h": self.num_heads}
        if rows is None:
            return rearrange(self.qkv(hidden), "b l (n h k) -> b l n h k", n=3, **heads), None
        width = hidden.shape[-1]
        weight, bias = self.qkv.weight.split([width, 2 * width]), self.qkv.bias.split([width, 2 * width])
        query = F.linear(hidden[:, :rows], weight[0], bias[0])
        packed = F.linear(hidden, weight[1], bias[1])
        query = rearrange(query, "b q (h k) -> b q h k", **heads)
        return rearrange(packed, "b l (n h k) -> b l n h k", n=2, **heads), query


class Block(nn.Module):
    """LN(x + attention(x)), then LN(x + feed-forward(x))."""

    def __init__(
        self,
        *,
        attention: Attention,
        hidden_size: int,
        intermediate_size: int,
        act: str,
        dropout: float,
        eps: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(hidden_size, eps=eps)
        self.up = nn.Linear(hidden_size, intermediate_size)
        self.act = ACT2FN[act]
        self.down = nn.Linear(intermediate_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=eps)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        hidden: Float[Tensor, "b l d"],
        kernel: Kernel = attend_by_torch,
        bias: Float[Tensor, "#b #h #l l"] | None = None,
        padding: Float[Tensor, "b 1 1 l"] | None = None,
        rotate: Rotate | None = None,
        scores: Scores | None = None,
        rows: int | None = None,
    ) -> Float[Tensor, "b q d"]:
        """The first `rows` positions after this block, computed for no other; without `rows` all of them."""
        # Sliced before: this order decides in which order the gradients of `hidden` are summed, hence their last bits.
        residual = hidden[:, :rows]
        attended = self.attention(hidden, kernel, bias, padding, rotate, scores, rows)
        hidden = self.attention_norm(self.dropout.add(residual, attended))
        return self.norm(self.dropout.add(hidden, self.down(self.act(self.up(hidden)))))


def padding_scores(mask: Bool[Tensor, "b l"] | None, dtype: torch.dtype) -> Float[Tensor, "b 1 1 l"] | None:
    """Padding keys at the lowest finite value (not -inf: a row of those would be NaN)."""
    if mask is None:
        return None
    scores = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
    return rearrange(scores, "b l -> b 1 1 l")


def together(
    bias: Float[Tensor, "#b #h #q l"] | None, padding: Float[Tensor, "b 1 1 l"] | None, dtype: torch.dtype
) -> Float[Tensor, "#b #h #q l"] | None:
    """The one mask that torch's attention takes."""
    parts = [part.to(dtype) for part in (bias, padding) if part is not None]
    return sum(parts[1:], parts[0]) if parts else None
