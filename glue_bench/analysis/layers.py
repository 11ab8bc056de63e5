"""The parts of hidden states by layer: the part of the position, and the part of the context.

After Song & Zhong 2023 (arXiv 2310.04861). Shapes: s sequences, l places, d width. With h[c, t] the
hidden state of sequence c at place t:

    h = mean + pos_t + ctx_c + residual
    pos_t = mean over sequences of h[:, t] - mean            ctx_c = mean over places of h[c] - mean

The parts are orthogonal in the sum of squares, so that their shares sum to 1. [CLS] and the last
[SEP], which always stand at the same places, are left out. Averages of finitely many sequences are
never 0. So the chance of the position's share is its value after tokens are shuffled within their
sequence. The chance of the context's share is its value after tokens are shuffled between
sequences. `rank` is the number of directions that hold 95% of the variance of pos_t. `cosine` is
the mean |cos| of pos_t and ctx_c over all pairs, and its chance is its value after positions are
rotated at random.
"""

import numpy as np
from jaxtyping import Float
from scipy.stats import ortho_group

from glue_bench.analysis.chance import Measured, Row, prediction_band, row, seeded_generator
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.subspaces import count_leading, spectrum, unit

LAYER_DRAWS = 5  # shuffles and rotations of hidden states
BY_SEQUENCE = 0  # the axis of sequences in centred states
BY_PLACE = 1  # the axis of places
States = Float[np.ndarray, "s l d"]


def measure_layers(subject: Subject) -> Measured:
    """Measure the parts of each layer."""
    rows = []
    for layer, states in enumerate(subject.deep[0]):
        rows += parts_of(states[:, 1:-1], layer)
    return Measured(rows)


def parts_of(states: States, layer: int = 0) -> list[Row]:
    """Measure the shares of position, context and the rest, the rank, and the cosine."""
    centred = states.astype(np.float64)
    centred = centred - centred.mean((0, 1))
    generator = seeded_generator(*states.shape)

    position = share(centred, BY_SEQUENCE)
    context = share(centred, BY_PLACE)
    shuffled_positions = [
        share(shuffled(centred, BY_PLACE, generator), BY_SEQUENCE) for _ in range(LAYER_DRAWS)
    ]
    shuffled_contexts = [
        share(shuffled(centred, BY_SEQUENCE, generator), BY_PLACE) for _ in range(LAYER_DRAWS)
    ]

    places = centred.mean(0)
    unit_places = unit(places)
    unit_contexts = unit(centred.mean(1))
    rotated_cosines = []
    for _ in range(LAYER_DRAWS):
        rotation = ortho_group.rvs(states.shape[-1], random_state=generator).astype(np.float32)
        rotated_cosines.append(float(np.abs(unit_places @ rotation @ unit_contexts.T).mean()))

    products = unit_places @ unit_contexts.T
    sizes = np.abs(products)
    cosine = float(sizes.mean())
    rank = count_leading(spectrum(places).variances)

    n = len(states)
    return [
        row(
            "layers.position",
            position,
            chance=prediction_band(shuffled_positions),
            layer=layer,
            n=n,
        ),
        row("layers.context", context, chance=prediction_band(shuffled_contexts), layer=layer, n=n),
        row("layers.residual", 1 - position - context, layer=layer, n=n),
        row("layers.rank", rank, layer=layer, n=n),
        row("layers.cosine", cosine, chance=prediction_band(rotated_cosines), layer=layer, n=n),
    ]


def shuffled(centred: States, axis: int, generator: np.random.Generator) -> States:
    """Put the tokens in random order along an axis, for each index of the other axis on its own.

    Args:
        centred: The states less their mean.
        axis: BY_SEQUENCE or BY_PLACE.
        generator: Draws the orders.
    """
    order = generator.permuted(np.indices(centred.shape[:2])[axis], axis=axis)
    return np.take_along_axis(centred, order[..., None], axis)


def share(centred: States, axis: int) -> float:
    """Return the share of the means over an axis in the sum of squares.

    Over sequences it is the share of positions, over places it is the share of contexts.
    """
    squares = np.square(centred.mean(axis)).sum() * centred.shape[axis]
    return float(squares / np.square(centred).sum())
