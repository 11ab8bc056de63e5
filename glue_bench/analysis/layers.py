"""What of a hidden state is position, and what is context, by layer (Song & Zhong 2023, arXiv 2310.04861).

Shapes: s sequences, l places, d width. Of the hidden states h[c, t] of sequence c at place t:

    h = mean + pos_t + ctx_c + residual
    pos_t = mean over sequences of h[:, t] - mean            ctx_c = mean over places of h[c] - mean

The parts are orthogonal in the sum of squares, so that their shares sum to 1. [CLS] and the last [SEP], which always
stand at the same places, are left out. Averages of finitely many sequences are never 0: chance of the position's share
is that of tokens shuffled within their sequence, of the context's that of tokens shuffled between sequences. `rank` is
how many directions hold 95% of the variance of pos_t, `cosine` the mean |cos| of pos_t and ctx_c over all pairs, whose
chance is that of positions turned by a random rotation.
"""

import numpy as np
from jaxtyping import Float
from scipy.stats import ortho_group

from glue_bench.analysis.chance import NONE, SEED, Interval, Measured, Row, expected, row
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.tables import leading, spectrum, unit

DRAWS = 5  # shuffles and rotations
States = Float[np.ndarray, "s l d"]


def measure_layers(subject: Subject) -> Measured:
    """The parts of each layer."""
    states = enumerate(subject.deep.states)
    return Measured([each for layer, of_layer in states for each in parts_of(of_layer[:, 1:-1], layer)])


def parts_of(states: States, layer: int = 0) -> list[Row]:
    """Shares of position, context and the rest, the rank of positions, and how orthogonal they are to contexts."""
    centred = states.astype(np.float64)
    centred = centred - centred.mean((0, 1))
    total, generator = np.square(centred).sum(), np.random.default_rng([SEED, *states.shape])
    position, context = share(centred, 0, total), share(centred, 1, total)
    within = [share(_shuffled(centred, 1, generator), 0, total) for _ in range(DRAWS)]
    between = [share(_shuffled(centred, 0, generator), 1, total) for _ in range(DRAWS)]
    places, sequences = centred.mean(0), unit(centred.mean(1))
    turns = [ortho_group.rvs(states.shape[-1], random_state=generator).astype(np.float32) for _ in range(DRAWS)]
    cosines = [float(np.abs(unit(places) @ turn @ sequences.T).mean()) for turn in turns]
    cosine = float(np.abs(unit(places) @ sequences.T).mean())
    found: list[tuple[str, float, Interval]] = [
        ("position", position, expected(within)),
        ("context", context, expected(between)),
        ("residual", 1 - position - context, NONE),
        ("rank", leading(spectrum(places)[0]), NONE),
        ("cosine", cosine, expected(cosines)),
    ]
    return [row(f"layers.{name}", value, chance=chance, layer=layer, n=len(states)) for name, value, chance in found]


def share(centred: States, over: int, total: float) -> float:
    """The share of the means over an axis in the sum of squares: over sequences (0) of positions, else of contexts."""
    return float(np.square(centred.mean(over)).sum() * centred.shape[over] / total)


def _shuffled(centred: States, axis: int, generator: np.random.Generator) -> States:
    """Tokens in random order along an axis, for each index of the other one."""
    order = generator.permuted(np.indices(centred.shape[:2])[axis], axis=axis)
    return np.take_along_axis(centred, order[..., None], axis)
