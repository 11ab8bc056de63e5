"""The input of an encoder as a sum of tables, and the scores of its blocks while it reads.

Shapes: b batch, h heads, l length, k head size, v words, n positions, e width of the tables.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glue_bench.analysis.chance import EXACT, SEED, LeftOut
from glue_bench.model.encoder import Attention, Block, EncoderModel

BATCH_SEQUENCES = 16  # sequences that go through together
MIXED = ("word_position", "position_word")
FOUR = ("word_word", *MIXED, "position_position")
Terms = dict[str, Float[Tensor, "#b #h l l"]]
"""Terms of attention's scores, by the parts of the query and of the key."""


def float64(tensor: Tensor) -> np.ndarray:
    """Return the tensor as a float64 array.

    It goes to the CPU first, because Apple GPUs have no float64.
    """
    return tensor.cpu().double().numpy()


@dataclass(frozen=True)
class InputSum:
    """The input as a sum.

    For token i at position j, words[i] + positions[j] + mean enters LayerNorm. The token is of the
    first segment. The rows of both tables are centred: w_i - w_mean over the vocabulary, p_j -
    p_mean over the positions; `mean` has both means and the segment. For `concat` they are the
    images w M_w and p M_p, for `concat-split` each table has zeros in the dimensions of the other
    table. `positions` are zeros if no position enters.
    """

    words: Float[Tensor, "v e"]
    positions: Float[Tensor, "n e"]
    mean: Float[Tensor, " e"]

    @property
    def has_positions(self) -> bool:
        """Whether the rows of `positions` differ by more than rounding."""
        return bool(self.positions.abs().max() > EXACT * self.words.abs().max())

    def check(self, *, shared: bool = False) -> None:
        """Raise LeftOut if no position enters.

        With `shared`, also raise it if words and positions have no dimension in common: R would
        have to be 0.
        """
        if not self.has_positions:
            raise LeftOut(
                "no position enters at the input, so that it has no sum of words and positions"
            )
        if shared:
            common = moving(float64(self.words)) & moving(float64(self.positions))
            if not common.any():
                raise LeftOut("words and positions have dimensions of their own")


def moving(table: Float[np.ndarray, "n e"]) -> Bool[np.ndarray, " e"]:
    """Return in which dimensions centred rows differ by more than rounding.

    For a table of zeros these are all dimensions.
    """
    largest = np.abs(table).max(0)
    return np.asarray(largest >= EXACT * largest.max())


@torch.inference_mode()
def input_sum(model: EncoderModel, positions: int) -> InputSum:
    """Take the input apart, over the first `positions`, in float32 on the encoder's device.

    Let f(i, j) be the input that the variant computes for token i at position j. Then p_j = f(0, j)
    and w_i = f(i, j) - f(0, j). If the input is a sum, w_i is the same at every j; if it is not,
    LeftOut is raised. Only the variant's `forward` is called.
    """

    def read_input(ids: Int[Tensor, "b l"]) -> Float[Tensor, "b l e"]:
        ids = ids.to(model.device)
        return model.variant(ids, torch.zeros_like(ids)).hidden.float()

    vocabulary = model.config.vocab_size
    first = read_input(torch.zeros(1, positions, dtype=torch.long))[0]
    rows = -(-vocabulary // positions)
    ids = torch.arange(rows * positions).clamp(max=vocabulary - 1).view(rows, positions)
    batches = [read_input(batch) - first for batch in ids.split(64)]
    words = torch.cat(batches).flatten(0, 1)[:vocabulary]
    generator = torch.Generator().manual_seed(SEED)
    sample = torch.randint(vocabulary, (4, positions), generator=generator).to(model.device)
    actual = read_input(sample)
    if (actual - words[sample] - first).abs().max() > EXACT * actual.abs().max():
        raise LeftOut(
            "the input of the encoder is not the sum of a row for the token and "
            "a row for its position"
        )
    mean = words.mean(0) + first.mean(0)
    return InputSum(words - words.mean(0), first - first.mean(0), mean)


class BlockTerms(NamedTuple):
    """The scores of a batch in one block.

    Attention is the softmax of the `logits`, which are the sum of the `terms`. The names of the
    terms are some or all of FOUR. word_word is the scaled product of queries and keys. A variant
    adds the other terms: of queries and positions, of positions and keys, of positions alone. If
    `entangled`, positions rotate queries and keys, or are added to them, so that word_word does not
    depend on words alone.
    """

    logits: Float[Tensor, "b h l l"]
    terms: Terms
    entangled: bool


@contextmanager
def watching(model: EncoderModel, look: Callable[[int, BlockTerms], None]) -> Iterator[None]:
    """Call `look` with the number of each block, from 1, and its scores, as they are computed."""

    def watch(number: int, attention: Attention, inputs: tuple[Any, ...]) -> None:
        hidden, changes = inputs[:2]
        projected = attention.project(hidden, infused=changes.infused)
        queries, keys = (part.transpose(1, 2) for part in projected[:2])

        rotated_queries, rotated_keys = queries, keys
        if changes.rotate:
            rotated_queries, rotated_keys = changes.rotate(queries, keys)
        is_rotated = not (torch.equal(rotated_queries, queries) and torch.equal(rotated_keys, keys))
        turns = is_rotated and bool(rotated_queries.any())
        entangled = turns or changes.infused is not None
        if changes.scores and changes.scores(0 * queries, 0 * keys).any():
            entangled = True  # a product of queries and keys would be 0

        terms: Terms = {"word_word": rotated_queries @ rotated_keys.mT * attention.scale}

        bias = changes.bias
        if changes.scores:
            terms["word_position"] = changes.scores(queries, 0 * keys)
            terms["position_word"] = changes.scores(0 * queries, keys)
            scores = changes.scores(queries, keys)
            bias = scores if bias is None else bias + scores
        if changes.bias is not None:
            terms["position_position"] = changes.bias

        logits = terms["word_word"] if bias is None else terms["word_word"] + bias
        look(number, BlockTerms(logits, terms, entangled))

    with ExitStack() as hooks:
        for number, block in enumerate(model.blocks, 1):
            attention = cast(Block, block).attention
            hooks.enter_context(attention.register_forward_pre_hook(partial(watch, number)))
        yield
