"""The terms of attention as pictures: what each pair of positions gets from each term, over sequences.

    RMS[i, j] = sqrt(mean over sequences of A^T[i, j]^2)          mean[i, j] = mean over sequences of A^T[i, j]

The RMS, because the mean over sequences leaves of a term with words only what all words have in common: w_mean against
the positions. Both are shown, so that it can be seen.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

TOGETHER, OF_A_HEAD = 32, 8  # cells of a panel, along each side, at most


class Panels:
    """Sums over sequences, float64 (h, l, l), of each term and of its square."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, str], np.ndarray] = {}
        self.squares: dict[tuple[str, str], np.ndarray] = {}
        self.sequences: dict[tuple[str, str], int] = {}

    def add(self, query: str, key: str, term: Float[Tensor, "b h l l"]) -> None:
        """Take in a batch of a term whose rows are centred."""
        name = (query, key)
        self.sums[name] = self.sums.get(name, 0) + term.sum(0).double().cpu().numpy()
        self.squares[name] = self.squares.get(name, 0) + term.square().sum(0).double().cpu().numpy()
        self.sequences[name] = self.sequences.get(name, 0) + len(term)

    def frames(self, block: int) -> dict[str, pd.DataFrame]:
        """`terms`, all heads together, and `terms_heads`."""
        together, apart = [], []
        for name, squares in self.squares.items():
            rms, mean = squares / self.sequences[name], self.sums[name] / self.sequences[name]
            together.append(_cells(rms.mean(0), mean.mean(0), TOGETHER).assign(query=name[0], key=name[1]))
            for head in range(len(rms)):
                cells = _cells(rms[head], mean[head], OF_A_HEAD)
                apart.append(cells.assign(head=head + 1, query=name[0], key=name[1]))
        columns = ["query", "key", "i", "j", "rms", "mean"]
        return {
            "terms": _of_block(together, block, columns),
            "terms_heads": _of_block(apart, block, ["head", *columns]),
        }


def _of_block(frames: Iterable[pd.DataFrame], block: int, columns: list[str]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True).assign(block=block)[["block", *columns]]


def _cells(squares: Float[np.ndarray, "l l"], mean: Float[np.ndarray, "l l"], most: int) -> pd.DataFrame:
    """At most most x most evenly wide cells: `i` and `j` are the first positions of each, `rms` and `mean` over it."""
    starts = np.unique(np.arange(most) * len(mean) // min(most, len(mean)))
    starts = starts[starts < len(mean)]
    sizes = np.diff([*starts, len(mean)])
    area = np.outer(sizes, sizes)
    rms, average = (np.add.reduceat(np.add.reduceat(part, starts, 0), starts, 1) / area for part in (squares, mean))
    places = {"i": np.repeat(starts, len(starts)), "j": np.tile(starts, len(starts))}
    return pd.DataFrame(places | {"rms": np.sqrt(rms).ravel(), "mean": average.ravel()})
