"""What the blocks of an encoder compute, seen while it reads.

Shapes: b batch, s sequences, h heads, l length, k head size, d width.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glue_bench.model.encoder import Attention, EncoderModel

AT_ONCE = 16  # sequences that go through together


def numpy(tensor: Tensor) -> np.ndarray:
    """A tensor's numbers in float64."""
    return tensor.double().cpu().numpy()


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

    def watch(number: int, attention: Attention, inputs: tuple[Any, ...]) -> None:
        hidden, given = inputs[:2]
        queries, keys = (part.transpose(1, 2) for part in attention.project(hidden)[:2])
        bias, extra = given.bias, {"word_position": None, "position_word": None}
        if given.scores:
            extra = {"word_position": given.scores(queries, 0 * keys), "position_word": given.scores(0 * queries, keys)}
            both = given.scores(queries, keys)
            bias = both if bias is None else bias + both
        turned = given.rotate(queries, keys) if given.rotate else (queries, keys)
        entangled = bool(turned[0].any()) and not all(map(torch.equal, turned, (queries, keys)))
        content = turned[0] @ turned[1].mT * attention.scale
        logits = content if bias is None else content + bias
        look(number, Scores(logits, content, position_position=given.bias, entangled=entangled, **extra))

    with ExitStack() as hooks:
        for number, block in enumerate(model.blocks):
            hooks.enter_context(block.attention.register_forward_pre_hook(partial(watch, number)))  # type: ignore[union-attr]
        yield
