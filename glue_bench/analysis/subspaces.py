"""Do words and positions lie in different subspaces? Then their sum would be nearly a concatenation.

Shapes: v words, n positions, d width. W (v, d) and P (n, d) have centred rows, Sigma_w = W'W / v, Sigma_p = P'P / n.

    R     = d tr(Sigma_w Sigma_p) / (tr Sigma_w tr Sigma_p)      1 of a random rotation, 0 of disjoint subspaces
    s_m   = |P U_m|^2 / |P|^2                                    U_m the m leading directions of the words, m = 1..d
    |cos| = mean over words and positions of |cos(w, p)|         sqrt(2 / (pi d)) of random directions
    (sum lambda)^2 / sum lambda^2                                participation ratio of a table's eigenvalues lambda

The baseline of R, s_m and |cos| is the table of positions turned by a random rotation. In the eigenvectors of both
covariances the turned Sigma_p is Q diag(mu) Q' with Q of Haar's measure, so that R and s_m of a rotation follow from Q
and the eigenvalues alone.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.linalg import eigh, subspace_angles
from scipy.stats import ortho_group, wishart

from glue_bench.analysis.input_sum import InputSum
from glue_bench.analysis.measured import SEED, Measured, expected, middle, moving, numpy

ROTATIONS = 200
DRAWS = 20  # of tables of random numbers for the participation ratio, of random subspaces for their angles
PAIRED_WORDS = 1_000  # of the vocabulary, evenly spread, for the cosines
VARIANCE = 0.95  # of a table, in the leading directions whose angles are told
Array = Float[np.ndarray, "..."]


def measure_subspaces(table: InputSum) -> Measured:
    """All numbers of this file, and the frames `subspace_curve` and `spectrum`.

    Raises:
        LeftOut: no position enters at the input, or words and positions have dimensions of their own, as in
            `concat-split`, where R and |cos| are 0 by construction.
    """
    table.check_shared()
    words, positions = (numpy(part) for part in (table.words, table.positions))
    return subspaces(words, positions)


def subspaces(words: Float[np.ndarray, "v d"], positions: Float[np.ndarray, "n d"]) -> Measured:
    """The measures of two tables with centred rows."""
    (of_words, directions), (of_positions, axes) = spectrum(words), spectrum(positions)
    inside = np.square(directions.T @ axes)
    sample = unit(words[np.linspace(0, len(words) - 1, min(len(words), PAIRED_WORDS)).astype(int)])
    rows = unit(positions)
    leading = dimensions_held(of_words), dimensions_held(of_positions)
    overlaps, curves, cosines = [], [], []
    medians: list[float] = []
    for turn in rotations(words.shape[1]):
        overlaps.append(overlap(of_words, of_positions, np.square(turn)))
        curves.append(curve(of_positions, np.square(turn)))
        if len(medians) < DRAWS:
            medians.append(median_angle(turn[: leading[0], : leading[1]]))
        cosines.append(np.abs((sample @ turn.astype(np.float32)) @ rows.T).mean())
    band = np.quantile(curves, [0.025, 0.975], axis=0)
    numbers = {
        "overlap": overlap(of_words, of_positions, inside),
        "overlap_random": middle(overlaps),
        "mean_abs_cosine": float(np.abs(sample @ rows.T).mean()),
        "mean_abs_cosine_random": float(np.sqrt(2 / (np.pi * words.shape[1]))),
        "mean_abs_cosine_random_interval": middle(cosines),
        "angles": angles(directions[:, : leading[0]], axes[:, : leading[1]]) | {"median_random": expected(medians)},
        "rotations": ROTATIONS,
        "words": len(words),
        "positions": len(positions),
        "width": words.shape[1],
        "norm_ratio": float(np.sqrt(np.trace(positions.T @ positions) / len(positions) / of_words.sum())),
    }
    steps = np.arange(1, words.shape[1] + 1)
    shares = pd.DataFrame({"m": steps, "share": curve(of_positions, inside), "low": band[0], "high": band[1]})
    spectra = [
        pd.DataFrame({"table": name, "index": steps, "variance": values / values.sum()})
        for name, values in (("words", of_words), ("positions", of_positions))
    ]
    return Measured({"subspaces": numbers}, {"subspace_curve": shares, "spectrum": pd.concat(spectra)})


def measure_tables(table: InputSum) -> Measured:
    """The participation ratio of each table, beside that of a table of independent normal numbers of its shape.

    Dimensions in which a table does not move, because they are of other tables alone, are none of its shape.

    Raises:
        LeftOut: no position enters at the input.
    """
    table.check_positions()
    tables = {"words": numpy(table.words), "positions": numpy(table.positions)}
    tables = {name: rows[:, moving(rows)] for name, rows in tables.items()}
    ratios = {name: participation_ratio(rows) for name, rows in tables.items()}
    bands = {name: random_participation(*rows.shape) for name, rows in tables.items()}
    return Measured({"tables": {"participation_ratio": ratios, "participation_ratio_random": bands}})


def spectrum(table: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Eigenvalues of the covariance, falling, and their directions as columns."""
    values, vectors = eigh(table.T @ table / len(table))
    return values[::-1].clip(min=0), vectors[:, ::-1]


def overlap(of_words: Array, of_positions: Array, inside: Float[np.ndarray, "d d"]) -> float:
    """R, with inside[a, b] = cos^2 of the words' direction a and the positions' direction b."""
    return float(len(of_words) * (of_words @ inside @ of_positions) / (of_words.sum() * of_positions.sum()))


def curve(of_positions: Array, inside: Float[np.ndarray, "d d"]) -> Float[np.ndarray, " d"]:
    """s_m for m = 1..d."""
    return np.cumsum(inside @ of_positions) / of_positions.sum()


def participation_ratio(table: Float[np.ndarray, "n d"]) -> float:
    """(sum lambda)^2 / sum lambda^2 = (tr Sigma)^2 / tr Sigma^2 of centred rows."""
    covariance = table.T @ table
    return float(np.trace(covariance) ** 2 / np.square(covariance).sum())


def random_participation(rows: int, width: int) -> list[float]:
    """The band of tables of independent normal numbers of this shape.

    With n rows, centred, P'P is of Wishart's distribution with n - 1 degrees of freedom; where n - 1 < d, it has the
    eigenvalues of one of d degrees in n - 1 dimensions.
    """
    small, large = sorted((rows - 1, width))
    generator = np.random.default_rng([SEED, rows, width])
    drawn = wishart.rvs(large, np.eye(small), size=DRAWS, random_state=generator).reshape(DRAWS, small, small)
    return expected([float(np.trace(one) ** 2 / np.square(one).sum()) for one in drawn])


def rotations(width: int) -> Iterator[Float[np.ndarray, "d d"]]:
    """ROTATIONS random rotations (d, d), the same at every call."""
    generator = np.random.default_rng([SEED, width])
    return (ortho_group.rvs(width, random_state=generator) for _ in range(ROTATIONS))


def dimensions_held(variances: Array) -> int:
    """How many leading directions hold 95% of a table's variance."""
    return 1 + int(np.searchsorted(np.cumsum(variances) / variances.sum(), VARIANCE))


def angles(words: Float[np.ndarray, "d a"], positions: Float[np.ndarray, "d b"]) -> dict[str, Any]:
    """Principal angles, in degrees, between the leading directions that hold 95% of the variance of each table.

    Subspaces whose dimensions together exceed d meet, whatever the tables: of so many the angle is 0. The baseline is
    the median angle of random subspaces of these dimensions.
    """
    smallest, median, largest = np.quantile(np.degrees(subspace_angles(words, positions)), [0, 0.5, 1])
    sizes = {"words_dimensions": words.shape[1], "positions_dimensions": positions.shape[1]}
    return {**sizes, "smallest": float(smallest), "median": float(median), "largest": float(largest)}


def median_angle(cosines: Float[np.ndarray, "a b"]) -> float:
    """The median principal angle, in degrees, of subspaces whose orthonormal bases have these products."""
    return float(np.degrees(np.median(np.arccos(np.linalg.svd(cosines, compute_uv=False).clip(max=1)))))


def unit(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Rows of length 1 in float32; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
