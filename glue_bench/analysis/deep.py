"""What all blocks compute of some sequences: hidden states, and where attention goes.

Shapes: s sequences, l length, d width, h heads.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glue_bench.analysis.watching import Scores, watching
from glue_bench.model.encoder import EncoderModel

AT_ONCE = 16


@dataclass(frozen=True)
class Deep:
    """`states` by layer, float32 on the CPU: what enters the first block, then what each block leaves.

    `attention` has the mean over sequences of each block's attention: row i says where token i looks.
    """

    states: list[Float[np.ndarray, "s l d"]]
    attention: list[Float[np.ndarray, "h l l"]]


@torch.inference_mode()
def read_deep(model: EncoderModel, ids: Tensor) -> Deep:
    """Read sequences (s, l) of one length without padding."""
    attention: list[Tensor] = [torch.zeros(())] * len(model.blocks)

    def look(block: int, scores: Scores) -> None:
        attention[block] = attention[block] + scores.logits.softmax(-1).sum(0).double().cpu() / len(ids)

    with watching(model, look):
        read = [[state.cpu() for state in model.hidden_states(some)] for some in ids.split(AT_ONCE)]
    states = [torch.cat(of_layer).numpy() for of_layer in zip(*read, strict=True)]
    return Deep(states, [each.numpy() for each in attention])
