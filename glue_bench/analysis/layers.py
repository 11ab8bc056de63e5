"""What of a hidden state is position, and what is context, by layer (Song & Zhong 2023, arXiv 2310.04861).

Shapes: s sequences, l places, d width. Of the hidden states h[c, t] of sequence c at place t:

    h = mean + pos_t + ctx_c + residual
    pos_t = mean over sequences of h[:, t] - mean            ctx_c = mean over places of h[c] - mean

The parts are orthogonal in the sum of squares, so that their shares sum to 1. [CLS] and the last [SEP], which always
stand at the same places, are left out. Averages of finitely many sequences are never 0: the baseline of the position's
share is that of tokens shuffled within their sequence, of the context's that of tokens shuffled between sequences.
"""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import ortho_group

from glue_bench.analysis.measured import SEED, Measured, expected
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.subspaces import VARIANCE, spectrum, unit

DRAWS = 5  # shuffles and rotations
States = Float[np.ndarray, "s l d"]


def measure_layers(subject: Subject) -> Measured:
    """The parts of each layer from what enters the first block (0) on, and the frame `layers`.

    Raises:
        LeftOut: there is no text.
    """
    numbers: dict[str, Any] = {"sequences": len(subject.deep.states[0])}
    rows = []
    for layer in (0, *subject.blocks):
        found = parts_of(subject.deep.states[layer][:, 1:-1].astype(np.float64))
        numbers[str(layer)] = found
        for part in ("position", "context", "residual"):
            low, high = found.get(f"{part}_random", (np.nan, np.nan))
            rows.append({"layer": layer, "part": part, "share": found[part], "low": low, "high": high})
        extra = {"rank": found["rank"], "cosine": found["cosine"], "cosine_random": found["cosine_random"]}
        rows[-3] |= extra
    return Measured({"layers": numbers}, {"layers": pd.DataFrame(rows)})


def parts_of(states: States) -> dict[str, Any]:
    """Shares with their baselines, the position part's rank, and how orthogonal positions and contexts are."""
    centred = states - states.mean((0, 1))
    total = np.square(centred).sum()
    position, context = share(centred, 0, total), share(centred, 1, total)
    generator = np.random.default_rng([SEED, *states.shape])
    within = [share(shuffled(centred, 1, generator), 0, total) for _ in range(DRAWS)]
    between = [share(shuffled(centred, 0, generator), 1, total) for _ in range(DRAWS)]
    places, sequences = centred.mean(0), centred.mean(1)
    variances = np.cumsum(spectrum(places)[0])
    turns = [ortho_group.rvs(states.shape[-1], random_state=generator).astype(np.float32) for _ in range(DRAWS)]
    return {
        "position": position,
        "position_random": expected(within),
        "context": context,
        "context_random": expected(between),
        "residual": 1 - position - context,
        "rank": 1 + int(np.searchsorted(variances / variances[-1], VARIANCE)),
        "cosine": mean_cosine(unit(places), unit(sequences)),
        "cosine_random": float(np.sqrt(2 / (np.pi * states.shape[-1]))),
        "cosine_random_interval": expected([mean_cosine(unit(places) @ turn, unit(sequences)) for turn in turns]),
    }


def share(centred: States, over: int, total: float) -> float:
    """The share of the means over an axis in the sum of squares: over sequences (0) of positions, else of contexts."""
    return float(np.square(centred.mean(over)).sum() * centred.shape[over] / total)


def shuffled(centred: States, axis: int, generator: np.random.Generator) -> States:
    """Tokens in random order along an axis, for each index of the other one."""
    order = generator.permuted(np.indices(centred.shape[:2])[axis], axis=axis)
    return np.take_along_axis(centred, order[..., None], axis)


def mean_cosine(first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "m d"]) -> float:
    """The mean |cos| over all pairs of rows of length 1."""
    return float(np.abs(first @ second.T).mean())
