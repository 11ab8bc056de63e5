"""Take an encoder apart: its input into a sum of tables, the scores of its blocks into terms.

Shapes: b batch, h heads, l length, k head size, v words, n positions, e width of the tables.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glue_bench.analysis.chance import CHANCE_SEED, ROUNDING_ERROR, LeftOut
from glue_bench.model.encoder import Attention, Block, BlockScores, EncoderModel

BATCH_SEQUENCES = 16  # sequences that go through the encoder together
BATCH_ROWS = 64  # the same for the rows of all tokens of the vocabulary
MIXED_TERMS = ("word_position", "position_word")
FOUR_TERMS = ("word_word", *MIXED_TERMS, "position_position")
"""The terms of attention's scores: each is named by its part of the query, then of the key."""
Terms = dict[str, Float[Tensor, "#b #h l l"]]
"""Terms of attention's scores by their names."""


def to_float64(tensor: Tensor) -> np.ndarray:
    """Return the tensor as a float64 array.

    It goes to the CPU first, because Apple GPUs have no float64.
    """
    return tensor.cpu().double().numpy()


@dataclass(frozen=True)
class InputSum:
    """The input of an encoder as the sum of a row for the token and a row for its position.

    For token i at position j, words[i] + positions[j] + mean enters LayerNorm. The token is of the
    first segment. The rows of both tables are centred: w_i - w_mean over the vocabulary, p_j -
    p_mean over the positions; `mean` has both means and the segment. For `concat` the rows are the
    images w M_w and p M_p; for `concat-split` each table has zeros in the dimensions of the other
    table. `positions` are zeros if no position enters at the input.
    """

    words: Float[Tensor, "v e"]
    positions: Float[Tensor, "n e"]
    mean: Float[Tensor, " e"]

    @property
    def has_positions(self) -> bool:
        """Whether the rows of `positions` differ by more than rounding."""
        return bool(self.positions.abs().max() > ROUNDING_ERROR * self.words.abs().max())

    def check_positions(self) -> None:
        """Raise LeftOut if no position enters at the input."""
        if not self.has_positions:
            raise LeftOut(
                "no position enters at the input, so that it has no sum of words and positions"
            )

    def check_overlap(self) -> None:
        """Raise LeftOut if no position enters, or words and positions share no dimension.

        Without a shared dimension their overlap is 0, whatever the weights are.
        """
        self.check_positions()
        of_words = varying_dimensions(to_float64(self.words))
        of_positions = varying_dimensions(to_float64(self.positions))
        if not (of_words & of_positions).any():
            raise LeftOut("words and positions have dimensions of their own")


def varying_dimensions(table: Float[np.ndarray, "n e"]) -> Bool[np.ndarray, " e"]:
    """Return a mask of the dimensions in which centred rows differ by more than rounding.

    For a table of zeros the mask has all dimensions.
    """
    largest = np.abs(table).max(0)
    return np.asarray(largest >= ROUNDING_ERROR * largest.max())


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
    of_first_token = read_input(torch.zeros(1, positions, dtype=torch.long))[0]

    # All tokens stand in rows of `positions` tokens; the last token fills the last row.
    rows = math.ceil(vocabulary / positions)
    ids = torch.arange(rows * positions).clamp(max=vocabulary - 1).view(rows, positions)
    batches = [read_input(batch) - of_first_token for batch in ids.split(BATCH_ROWS)]
    words = torch.cat(batches).flatten(0, 1)[:vocabulary]

    generator = torch.Generator().manual_seed(CHANCE_SEED)
    sample = torch.randint(vocabulary, (4, positions), generator=generator).to(model.device)
    actual = read_input(sample)
    error = (actual - words[sample] - of_first_token).abs().max()
    if error > ROUNDING_ERROR * actual.abs().max():
        raise LeftOut(
            "the input of the encoder is not the sum of a row for the token and "
            "a row for its position"
        )

    mean = words.mean(0) + of_first_token.mean(0)
    return InputSum(words - words.mean(0), of_first_token - of_first_token.mean(0), mean)


class BlockTerms(NamedTuple):
    """The scores of a batch in one block.

    Attention is the softmax of the `logits`, which are the sum of the `terms`. The names of the
    terms are some or all of FOUR_TERMS. word_word is the scaled product of queries and keys. A
    variant adds the other terms: of queries and positions, of positions and keys, of positions
    alone. If `entangled`, positions rotate queries and keys, or are added to them, so that
    word_word does not depend on words alone.
    """

    logits: Float[Tensor, "b h l l"]
    terms: Terms
    entangled: bool


@contextmanager
def watch_scores(model: EncoderModel, receive: Callable[[int, BlockTerms], None]) -> Iterator[None]:
    """Give `receive` the scores of each block, whenever the encoder reads a batch in this block.

    Args:
        model: The encoder.
        receive: A function of the number of the block, from 1, and its scores.
    """

    def hook(number: int, attention: Attention, inputs: tuple[Any, ...]) -> None:
        hidden, changes = inputs[:2]
        receive(number, _block_terms(attention, hidden, changes))

    with ExitStack() as hooks:
        for number, block in enumerate(model.blocks, 1):
            attention = cast(Block, block).attention
            hooks.enter_context(attention.register_forward_pre_hook(partial(hook, number)))
        yield


def _block_terms(
    attention: Attention, hidden: Float[Tensor, "b l d"], changes: BlockScores
) -> BlockTerms:
    """Compute the scores of a block as the sum of its terms, with a variant's changes of them."""
    projected = attention.project(hidden, infused=changes.infused)
    queries, keys = (part.transpose(1, 2) for part in projected[:2])
    rotated_queries, rotated_keys = queries, keys
    if changes.rotate:
        rotated_queries, rotated_keys = changes.rotate(queries, keys)

    terms: Terms = {"word_word": rotated_queries @ rotated_keys.mT * attention.scale}
    added = changes.bias
    if changes.scores:
        terms["word_position"] = changes.scores(queries, 0 * keys)
        terms["position_word"] = changes.scores(0 * queries, keys)
        scores = changes.scores(queries, keys)
        added = scores if added is None else added + scores
    if changes.bias is not None:
        terms["position_position"] = changes.bias
    logits = terms["word_word"] if added is None else terms["word_word"] + added

    is_rotated = not (torch.equal(rotated_queries, queries) and torch.equal(rotated_keys, keys))
    entangled = changes.infused is not None or (is_rotated and bool(rotated_queries.any()))
    if changes.scores and changes.scores(0 * queries, 0 * keys).any():
        # Each mixed term is a product with a query or a key, and would be 0 here.
        entangled = True
    return BlockTerms(logits, terms, entangled)
