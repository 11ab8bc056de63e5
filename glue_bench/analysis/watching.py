"""What each block's attention scores are made of, seen while an encoder reads.

Shapes: b batch, h heads, l length, k head size, d width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from glue_bench.model.transformers_api import EncoderModel


@dataclass(frozen=True)
class Scores:
    """One block's scores of a batch: logits = content + word_position + position_word + position_position.

    `logits` is what softmax is taken of; `content` the scaled product of queries and keys. The others are what a
    variant adds: of queries and positions, of positions and keys, and of positions alone; None where it adds none.
    `entangled`: queries and keys are turned by their positions, so that `content` is not of words alone.
    """

    logits: Float[Tensor, "b h l l"]
    content: Float[Tensor, "b h l l"]
    word_position: Float[Tensor, "#b h l l"] | None
    position_word: Float[Tensor, "#b h l l"] | None
    position_position: Float[Tensor, "#b #h l l"] | None
    entangled: bool


@contextmanager
def watching(model: EncoderModel, look: Callable[[int, Scores], None]) -> Iterator[None]:
    """In this block, `look` is given the number of each block, from 0, and its scores, as they are computed."""
    with _before_attention(model, range(len(model.blocks)), partial(_watched, look)):
        yield


@contextmanager
def changed(model: EncoderModel, block: int, added: Callable[[], Tensor]) -> Iterator[None]:
    """In this block, the logits of one block are increased by what `added` returns, (#b, #h, l, l)."""

    def change(_: int, __: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, kernel, bias, *rest = args
        return (hidden, kernel, added() if bias is None else bias + added(), *rest)

    with _before_attention(model, [block], change):
        yield


@contextmanager
def _before_attention(model: EncoderModel, blocks: Sequence[int], do: Callable[..., Any]) -> Iterator[None]:
    hooks = [model.blocks[block].attention.register_forward_pre_hook(partial(do, block)) for block in blocks]  # type: ignore[union-attr]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _watched(look: Callable[[int, Scores], None], block: int, attention: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of `Attention.forward`, with a kernel that shows what it is given before it computes."""
    hidden, kernel, own_bias, padding, rotate, scores, rows = args
    queries, keys = rearrange(attention.qkv(hidden), "b l (n h k) -> n b h l k", n=3, h=attention.num_heads)[:2]
    extra = {"word_position": None, "position_word": None}
    if scores is not None:
        extra = {"word_position": scores(queries, 0 * keys), "position_word": scores(0 * queries, keys)}
    turned = (queries, keys) if rotate is None else rotate(queries, keys)
    entangled = bool(turned[0].any()) and not all(map(torch.equal, turned, (queries, keys)))

    def shown(packed: Tensor, query: Tensor | None, bias: Tensor | None, padding: Any, **settings: Any) -> Tensor:
        first = packed[:, :, 0] if query is None else query
        content = torch.einsum("b i h k, b j h k -> b h i j", first, packed[:, :, -2]) * settings["scale"]
        logits = content if bias is None else content + bias
        look(block, Scores(logits, content, position_position=own_bias, entangled=entangled, **extra))
        return kernel(packed, query, bias, padding, **settings)

    return hidden, shown, own_bias, padding, rotate, scores, rows
