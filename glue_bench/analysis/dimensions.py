"""Do only some dimensions move? The standard deviation of each dimension over positions and over words.

Shapes: n positions, v words, d width.

    sd_j = standard deviation over rows of a table's dimension j
    share_95 = the smallest share that holds 95% of the positions' variance, of the dimensions in which they move
    rho = Spearman's correlation of sd over positions and sd over words, d pairs

Baselines: of share_95 a table of independent normal numbers of the same shape; of rho, permutations of the dimensions.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import rankdata

from glue_bench.analysis.input_sum import InputSum
from glue_bench.analysis.measured import SEED, Measured, middle, moving, numpy
from glue_bench.analysis.subspaces import VARIANCE

PERMUTATIONS = 10_000
DRAWS = 200
TIMESCALE = 10_000.0
PRINTED = {(-1, 63): 0.99998015, (-1, 127): 0.99991935, (-16, 63): 0.9984067, (-16, 127): 0.9935305}
"""(dimension, position) -> what the thread prints of tensor2tensor's sinusoids, for d = 512 as it says."""
Deviations = Float[np.ndarray, " d"]


def measure_dimensions(table: InputSum) -> Measured:
    """share_95 and the seed's sinusoids, and the frame `dimensions`.

    Raises:
        LeftOut: no position enters at the input.
    """
    table.check_positions()
    positions = numpy(table.positions)
    of_words, of_positions = numpy(table.words).std(0), positions.std(0)
    moves = moving(positions)
    numbers = {
        "share_95": share_of_variance(of_positions[moves]),
        "share_95_random": random_share(len(positions), int(moves.sum())),
        "width": len(of_words),
        "moving": int(moves.sum()),
        "sinusoid": printed_sinusoids(),
    }
    places = {"dimension": np.arange(len(of_words)), "sd_words": of_words, "sd_positions": of_positions}
    return Measured({"dimensions": numbers}, {"dimensions": pd.DataFrame(places)})


def measure_correlation(table: InputSum) -> Measured:
    """rho with its baseline.

    Raises:
        LeftOut: no position enters at the input, or words and positions have dimensions of their own.
    """
    table.check_shared()
    rho, band, p = correlation(numpy(table.words).std(0), numpy(table.positions).std(0))
    numbers = {"spearman": rho, "spearman_random": band, "spearman_p": p, "permutations": PERMUTATIONS}
    return Measured({"dimensions": numbers})


def share_of_variance(deviations: Deviations) -> float:
    """share_95 of a table with these standard deviations; of the last dimension only the part that is needed."""
    falling = np.sort(np.square(deviations))[::-1].cumsum()
    return float(np.interp(VARIANCE, [0, *falling / falling[-1]], np.arange(1 + len(deviations)) / len(deviations)))


def random_share(rows: int, width: int) -> list[float]:
    """The band of share_95 of independent normal numbers, whose variances are chi-squared with n - 1 degrees."""
    drawn = np.random.default_rng([SEED, rows, width]).chisquare(rows - 1, (DRAWS, width))
    return middle([share_of_variance(np.sqrt(each)) for each in drawn])


def correlation(first: Deviations, second: Deviations) -> tuple[float, list[float], float]:
    """Spearman's rho, the band of 10,000 permutations, and how many of them are as far from 0: the p-value."""
    a, b = (standard(rankdata(each)) for each in (first, second))
    generator = np.random.default_rng([SEED, len(a)])
    drawn = np.array([generator.permutation(a) @ b for _ in range(PERMUTATIONS)])
    rho = float(a @ b)
    return rho, middle(drawn), float((1 + (np.abs(drawn) >= abs(rho)).sum()) / (1 + PERMUTATIONS))


def standard(ranks: Deviations) -> Deviations:
    """Centred and of length 1, so that a product is a correlation; zeros where all are equal."""
    away = ranks - ranks.mean()
    return away / (np.linalg.norm(away) or 1)


def sinusoids(positions: int, width: int) -> Float[np.ndarray, "n d"]:
    """tensor2tensor's layout: sines first, then cosines, of position / 10000^(m / (d / 2 - 1)), 0 <= m < d / 2."""
    steps = np.arange(width // 2) / max(width // 2 - 1, 1)
    turns = np.arange(positions)[:, None] * TIMESCALE**-steps
    return np.concatenate([np.sin(turns), np.cos(turns)], axis=1)


def printed_sinusoids() -> list[dict[str, float | int | bool]]:
    """The values that the thread prints, beside those of d = 512, which it names, and d = 128, for which they hold."""
    found = []
    for width in (512, 128):
        table = sinusoids(128, width)
        for (dimension, position), printed in PRINTED.items():
            value = float(table[position, dimension])
            holds = abs(value - printed) < 1e-6
            place = {"width": width, "dimension": width + dimension, "position": position}
            found.append({**place, "printed": printed, "value": value, "holds": holds})
    return found
