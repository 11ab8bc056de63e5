"""The tables whose rows are added at an encoder's input, told from what the input computes.

Shapes: b batch, l length, v vocabulary, n positions, e width of the tables.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glue_bench.analysis.measured import EXACT, SEED, LeftOut, moving, numpy
from glue_bench.model.encoder import EncoderModel


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

    def check_positions(self) -> None:
        """Raises LeftOut where no position enters at the input."""
        if not self.has_positions:
            raise LeftOut("no position enters at the input, which positions would share with the words")

    def check_shared(self) -> None:
        """Raises LeftOut where no position enters, or where words and positions move in no dimension together."""
        self.check_positions()
        if not (moving(numpy(self.words)) & moving(numpy(self.positions))).any():
            raise LeftOut("words and positions have dimensions of their own")


@torch.inference_mode()
def input_sum(model: EncoderModel, positions: int) -> InputSum:
    """The input taken apart, over the first `positions`, in float32 on the encoder's device.

    With f(i, j) what the variant makes of token i at position j: p_j = f(0, j), and w_i = f(i, j) - f(0, j), which is
    the same at every j if the input is a sum. Nothing is asked of a variant but its `forward`.

    Raises:
        LeftOut: the input is no sum of a row of the token and a row of its position.
    """

    def entering(ids: Int[Tensor, "b l"]) -> Float[Tensor, "b l e"]:
        ids = ids.to(model.device)
        return model.variant(ids, torch.zeros_like(ids)).hidden.float()

    vocabulary = model.config.vocab_size
    first = entering(torch.zeros(1, positions, dtype=torch.long))[0]
    rows = -(-vocabulary // positions)
    ids = torch.arange(rows * positions).clamp(max=vocabulary - 1).view(rows, positions)
    words = torch.cat([entering(some) - first for some in ids.split(64)]).flatten(0, 1)[:vocabulary]
    drawn = torch.randint(vocabulary, (4, positions), generator=torch.Generator().manual_seed(SEED)).to(model.device)
    found = entering(drawn)
    if (found - words[drawn] - first).abs().max() > EXACT * found.abs().max():
        raise LeftOut("what enters the encoder is no sum of a row of the token and a row of its position")
    mean = words.mean(0) + first.mean(0)
    return InputSum(words - words.mean(0), first - first.mean(0), mean)
