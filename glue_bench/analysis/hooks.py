"""What enters the first block of an encoder, as a sum of tables, and what its blocks compute, seen while it reads.

Shapes: b batch, h heads, l length, k head size, v words, n positions, e width of the tables.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glue_bench.analysis.chance import EXACT, SEED, LeftOut
from glue_bench.model.encoder import Attention, EncoderModel

AT_ONCE = 16  # sequences that go through together
MIXED = ("word_position", "position_word")
FOUR = ("word_word", *MIXED, "position_position")
Terms = dict[str, Float[Tensor, "#b #h l l"]]
"""Terms of attention's scores, by the part that the query is of and that of the key."""


def float64(tensor: Tensor) -> np.ndarray:
    """The tensor as a float64 array. It goes to the CPU first, because Apple GPUs have no float64."""
    return tensor.cpu().double().numpy()


@dataclass(frozen=True)
class InputSum:
    """What enters LayerNorm is words[i] + positions[j] + mean for token i at position j of the first segment.

    The rows of both tables are centred: w_i - w_mean over the vocabulary, p_j - p_mean over the positions; `mean` has
    both means and the segment. For `concat` they are the images w M_w and p M_p, for `concat-split` the tables with
    zeros in the dimensions of the other. `positions` are zeros where no position enters.
    """

    words: Float[Tensor, "v e"]
    positions: Float[Tensor, "n e"]
    mean: Float[Tensor, " e"]

    @property
    def has_positions(self) -> bool:
        """Whether the rows of `positions` differ by more than rounding."""
        return bool(self.positions.abs().max() > EXACT * self.words.abs().max())

    def check(self, *, shared: bool = False) -> None:
        """Raises LeftOut where no position enters; of `shared` dimensions, where words have others: R must be 0."""
        if not self.has_positions:
            raise LeftOut(
                "no position enters at the input, which positions would share with the words"
            )
        if shared and not (moving(float64(self.words)) & moving(float64(self.positions))).any():
            raise LeftOut("words and positions have dimensions of their own")


def moving(table: Float[np.ndarray, "n e"]) -> Bool[np.ndarray, " e"]:
    """In which dimensions centred rows differ by more than rounding; a table of zeros moves in all of them."""
    largest = np.abs(table).max(0)
    return np.asarray(largest >= EXACT * largest.max())


@torch.inference_mode()
def input_sum(model: EncoderModel, positions: int) -> InputSum:
    """The input taken apart, over the first `positions`, in float32 on the encoder's device.

    With f(i, j) what the variant makes of token i at position j: p_j = f(0, j), and w_i = f(i, j) - f(0, j), which is
    the same at every j if the input is a sum; else raises LeftOut. Nothing is asked of a variant but its `forward`.
    """

    def entering(ids: Int[Tensor, "b l"]) -> Float[Tensor, "b l e"]:
        ids = ids.to(model.device)
        return model.variant(ids, torch.zeros_like(ids)).hidden.float()

    vocabulary = model.config.vocab_size
    first = entering(torch.zeros(1, positions, dtype=torch.long))[0]
    rows = -(-vocabulary // positions)
    ids = torch.arange(rows * positions).clamp(max=vocabulary - 1).view(rows, positions)
    words = torch.cat([entering(some) - first for some in ids.split(64)]).flatten(0, 1)[:vocabulary]
    drawn = torch.randint(
        vocabulary, (4, positions), generator=torch.Generator().manual_seed(SEED)
    ).to(model.device)
    actual = entering(drawn)
    if (actual - words[drawn] - first).abs().max() > EXACT * actual.abs().max():
        raise LeftOut(
            "what enters the encoder is no sum of a row of the token and a row of its position"
        )
    mean = words.mean(0) + first.mean(0)
    return InputSum(words - words.mean(0), first - first.mean(0), mean)


class BlockTerms(NamedTuple):
    """One block's scores of a batch: `logits`, of which softmax is taken, are the sum of the `terms` of FOUR there are.

    word_word is the scaled product of queries and keys; the others are what a variant adds: of queries and positions,
    of positions and keys, and of positions alone. `entangled`: queries and keys are rotated by their positions, so that
    word_word is not of words alone.
    """

    logits: Float[Tensor, "b h l l"]
    terms: Terms
    entangled: bool


@contextmanager
def watching(model: EncoderModel, look: Callable[[int, BlockTerms], None]) -> Iterator[None]:
    """In this block, `look` is given the number of each block, from 1, and its scores, as they are computed."""

    def watch(number: int, attention: Attention, inputs: tuple[Any, ...]) -> None:
        hidden, changes = inputs[:2]
        queries, keys = (part.transpose(1, 2) for part in attention.project(hidden)[:2])
        rotated = changes.rotate(queries, keys) if changes.rotate else (queries, keys)
        entangled = bool(rotated[0].any()) and not all(map(torch.equal, rotated, (queries, keys)))
        content = rotated[0] @ rotated[1].mT * attention.scale
        bias = changes.bias
        extra = (None, None)
        if changes.scores:
            extra = changes.scores(queries, 0 * keys), changes.scores(0 * queries, keys)
            both = changes.scores(queries, keys)
            bias = both if bias is None else bias + both
        each = zip(FOUR, (content, *extra, changes.bias), strict=True)
        terms = {name: term for name, term in each if term is not None}
        look(number, BlockTerms(content if bias is None else content + bias, terms, entangled))

    with ExitStack() as hooks:
        for number, block in enumerate(model.blocks, 1):
            hooks.enter_context(block.attention.register_forward_pre_hook(partial(watch, number)))  # type: ignore[union-attr]
        yield
