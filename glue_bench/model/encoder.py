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

Terms = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor | None]]


class Attention(nn.Module):
    """Multi-head attention over q k^T * scale + bias; query, key and value in one projection."""

    def __init__(self, *, hidden_size: int, num_heads: int, score_terms: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = (score_terms * (hidden_size // num_heads)) ** -0.5
        self.dropout = dropout
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(
        self, hidden: Float[Tensor, "b l d"], bias: Float[Tensor, "#b #h #l l"] | None, terms: Terms | None = None
    ) -> Float[Tensor, "b l d"]:
        query, key, value = rearrange(self.qkv(hidden), "b l (qkv h k) -> qkv b h l k", qkv=3, h=self.num_heads)
        if terms is not None:
            query, key, extra = terms(query, key)
            bias = extra if bias is None else bias if extra is None else bias + extra
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if bias is None else bias.to(query.dtype),
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        return self.out(rearrange(mixed, "b h l k -> b l (h k)"))


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
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, hidden: Float[Tensor, "b l d"], bias: Float[Tensor, "#b #h #l l"] | None, terms: Terms | None = None
    ) -> Float[Tensor, "b l d"]:
        hidden = self.attention_norm(hidden + self.dropout(self.attention(hidden, bias, terms)))
        return self.norm(hidden + self.dropout(self.down(self.act(self.up(hidden)))))


def add_padding(
    bias: Float[Tensor, "#b h l l"] | None, mask: Bool[Tensor, "b l"] | None, dtype: torch.dtype
) -> Float[Tensor, "#b #h #l l"] | None:
    """The score bias with padding keys at the lowest finite value (not -inf: a row of those would be NaN)."""
    if mask is None:
        return bias
    padding = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
    padding = rearrange(padding, "b l -> b 1 1 l")
    return padding if bias is None else bias + padding
