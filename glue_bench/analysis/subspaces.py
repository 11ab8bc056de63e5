"""Do words and positions lie in different subspaces?

The rows of their tables are added at an encoder's input. If the subspaces are different, the sum is
nearly a concatenation. Shapes: v words, n positions, e or d width of the tables. W (v, d) and P (n,
d) have centred rows, Sigma_w = W'W / v, Sigma_p = P'P / n, sd_j is the standard deviation of
dimension j.

    R        = d tr(Sigma_w Sigma_p) / (tr Sigma_w tr Sigma_p)
    s_m      = |P U_m|^2 / |P|^2           U_m the m leading directions of the words, m = 1..d
    |cos|    = mean over words and positions of |cos(w, p)|
    ratio    = (sum lambda)^2 / sum lambda^2      participation ratio of a table's eigenvalues
    share_95 = the smallest share of the dimensions in which positions move that holds 95% of
               their variance
    rho      = Spearman's correlation of sd over positions and sd over words, d pairs

R is 1 for a random rotation and 0 for disjoint subspaces. |cos| is sqrt(2 / (pi d)) for random
directions.

The chance of R, s_m and |cos| is their value after the table of positions is rotated at random. In
the eigenvectors of both covariances the rotated Sigma_p is Q diag(mu) Q', where Q is drawn from
Haar's measure. So R and s_m follow from Q and the eigenvalues alone. The chance of a participation
ratio and of share_95 is their value for a table of independent normal numbers of the same shape.
The chance of rho is its value after the dimensions are permuted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.linalg import eigh, subspace_angles
from scipy.stats import ortho_group, rankdata, wishart

from glue_bench.analysis.chance import (
    TAILS,
    Interval,
    Measured,
    Row,
    middle_band,
    prediction_band,
    row,
    seeded_generator,
)
from glue_bench.analysis.hooks import to_float64, varying_dimensions
from glue_bench.analysis.subject import Subject

ROTATIONS = 200
SUBSPACE_DRAWS = (
    20  # random tables for the participation ratio, and random subspaces for the angles
)
SPREAD_DRAWS = 200  # random tables for share_95
PERMUTATIONS = 10_000  # permutations of the dimensions for rho
PAIRED_WORDS = 1_000  # words, evenly spread over the vocabulary, for the cosines
LEADING_SHARE = 0.95  # the leading directions hold this share of a table's variance
Values = Float[np.ndarray, " d"]
Squared = Float[np.ndarray, "d d"]
Table = Float[np.ndarray, "n d"]


class Spectrum(NamedTuple):
    """The covariance of a table: its eigenvalues, falling, and their directions as columns."""

    variances: Values
    directions: Squared

    @property
    def leading_directions(self) -> Float[np.ndarray, "d m"]:
        """The directions that hold 95% of the variance."""
        return self.directions[:, : count_leading(self.variances)]


@dataclass(frozen=True)
class Rotations:
    """The values of R, s_m, |cos| and the median angle for random rotations of the positions."""

    overlaps: list[float]
    curves: list[Values]
    cosines: list[float]
    median_angles: list[float]


def measure_subspaces(subject: Subject) -> Measured:
    """Measure R, |cos| and principal angles of the two tables, and the matrix of s_m.

    The angles, in degrees, are between the leading directions that hold 95% of the variance of each
    table. If the dimensions of the two subspaces sum to d + k, the subspaces share k directions,
    whatever the tables are, and k angles are 0. The chance of the median angle is the median angle
    of random subspaces with these dimensions.
    """
    subject.sum.check_overlap()
    words = to_float64(subject.sum.words)
    positions = to_float64(subject.sum.positions)
    of_words = spectrum(words)
    of_positions = spectrum(positions)

    chosen = np.linspace(0, len(words) - 1, min(len(words), PAIRED_WORDS)).astype(int)
    unit_words = unit(words[chosen])
    unit_positions = unit(positions)

    chance = _rotate(of_words, of_positions, unit_words, unit_positions)
    squared_cosines = np.square(of_words.directions.T @ of_positions.directions)
    ratio = overlap(of_words.variances, of_positions.variances, squared_cosines)

    products = unit_words @ unit_positions.T
    sizes = np.abs(products)
    cosine = sizes.mean()
    norm_ratio = np.square(positions).sum() / len(positions) / of_words.variances.sum()

    rows = [
        row("subspaces.overlap", ratio, chance=middle_band(chance.overlaps)),
        row("subspaces.mean_abs_cosine", cosine, chance=middle_band(chance.cosines)),
        row("subspaces.norm_ratio", np.sqrt(norm_ratio)),
    ]
    median_band = prediction_band(chance.median_angles)
    rows += _angle_rows(of_words.leading_directions, of_positions.leading_directions, median_band)

    low, high = np.quantile(chance.curves, TAILS, axis=0)
    share = {
        "m": np.arange(1, words.shape[1] + 1),
        "share": curve(of_positions.variances, squared_cosines),
        "low": low,
        "high": high,
    }
    return Measured(rows, {"subspace_curve": pd.DataFrame(share)})


def _rotate(
    words: Spectrum, positions: Spectrum, unit_words: Table, unit_positions: Table
) -> Rotations:
    """Rotate the positions at random.

    Args:
        words: The spectrum of the words.
        positions: The spectrum of the positions.
        unit_words: Rows of length 1 of some words, for |cos|.
        unit_positions: Rows of length 1 of the positions.
    """
    width = len(words.variances)
    word_dimensions = words.leading_directions.shape[1]
    position_dimensions = positions.leading_directions.shape[1]

    generator = seeded_generator(width)
    chance = Rotations([], [], [], [])
    for draw in range(ROTATIONS):
        rotation = ortho_group.rvs(width, random_state=generator)
        squares = np.square(rotation)
        chance.overlaps.append(overlap(words.variances, positions.variances, squares))

        rotated_curve = curve(positions.variances, squares)
        chance.curves.append(rotated_curve)
        single_precision = rotation.astype(np.float32)
        rotated_words = unit_words @ single_precision
        products = rotated_words @ unit_positions.T
        sizes = np.abs(products)
        cosine = sizes.mean()
        chance.cosines.append(cosine)

        if draw < SUBSPACE_DRAWS:
            corner = rotation[:word_dimensions, :position_dimensions]
            median_angle = _median_angle(corner)
            chance.median_angles.append(median_angle)

    return chance


def overlap(words: Values, positions: Values, squared_cosines: Squared) -> float:
    """Return R.

    Args:
        words: The variances of words, falling.
        positions: The variances of positions, falling.
        squared_cosines: cos^2 of the directions of words (rows) and positions (columns).
    """
    product = words @ squared_cosines @ positions
    return float(len(words) * product / (words.sum() * positions.sum()))


def curve(positions: Values, squared_cosines: Squared) -> Values:
    """Return s_m, for each m, from the variances of positions and cos^2 of the directions."""
    return np.cumsum(squared_cosines @ positions) / positions.sum()


def _median_angle(products: Float[np.ndarray, "m k"]) -> float:
    """Return the median principal angle, in degrees, from the products of two orthonormal bases."""
    cosines = np.linalg.svd(products, compute_uv=False)
    clipped = cosines.clip(max=1)
    angles = np.arccos(clipped)
    median = np.median(angles)
    return float(np.degrees(median))


def _angle_rows(
    words: Float[np.ndarray, "d m"], positions: Float[np.ndarray, "d k"], chance: Interval
) -> list[Row]:
    """Measure the principal angles of two subspaces; `chance` is the band of their median."""
    radians = subspace_angles(words, positions)
    angles = np.degrees(radians)
    return [
        row("subspaces.angles.smallest", angles.min()),
        row("subspaces.angles.median", np.median(angles), chance=chance),
        row("subspaces.angles.largest", angles.max()),
        row("subspaces.angles.words_dimensions", words.shape[1]),
        row("subspaces.angles.positions_dimensions", positions.shape[1]),
    ]


def measure_tables(subject: Subject) -> Measured:
    """Measure the participation ratio of each table, in the dimensions in which it moves."""
    subject.sum.check_positions()
    rows = []
    for name, tensor in (("words", subject.sum.words), ("positions", subject.sum.positions)):
        table = to_float64(tensor)
        table = table[:, varying_dimensions(table)]
        # If P has n centred rows of normal numbers, P'P has Wishart's distribution with n - 1
        # degrees of freedom. If n - 1 < d, it has the eigenvalues of d degrees in n - 1 dimensions.
        small, large = sorted((len(table) - 1, table.shape[1]))
        generator = seeded_generator(*table.shape)
        draws = wishart.rvs(large, np.eye(small), size=SUBSPACE_DRAWS, random_state=generator)
        by_chance = [
            _participation_ratio(draw) for draw in draws.reshape(SUBSPACE_DRAWS, small, small)
        ]
        covariance = table.T @ table
        ratio = _participation_ratio(covariance)
        measure = f"tables.participation_ratio.{name}"
        rows.append(row(measure, ratio, chance=prediction_band(by_chance)))
    return Measured(rows)


def _participation_ratio(covariance: Squared) -> float:
    """Return (tr Sigma)^2 / tr Sigma^2."""
    return float(np.trace(covariance) ** 2 / np.square(covariance).sum())


def measure_dimensions(subject: Subject) -> Measured:
    """Measure share_95, and the number of dimensions in which positions move."""
    subject.sum.check_positions()
    positions = to_float64(subject.sum.positions)
    deviations = positions.std(0)[varying_dimensions(positions)]
    n = len(positions)
    width = len(deviations)
    # The variances of normal numbers are chi-squared with n - 1 degrees of freedom.
    generator = seeded_generator(n, width)
    variances = generator.chisquare(n - 1, (SPREAD_DRAWS, width))
    by_chance = [share_of_variance(np.sqrt(draw)) for draw in variances]
    share = share_of_variance(deviations)
    rows: list[Row] = [
        row("dimensions.share_95", share, chance=middle_band(by_chance)),
        row("dimensions.moving", width),
    ]
    return Measured(rows)


def measure_correlation(subject: Subject) -> Measured:
    """Measure rho, with the band of random orders of the dimensions, and its p-value.

    The p-value is the share of these orders whose rho is at least as far from 0.
    """
    subject.sum.check_overlap()
    words = _standard_ranks(to_float64(subject.sum.words).std(0))
    positions = _standard_ranks(to_float64(subject.sum.positions).std(0))
    generator = seeded_generator(len(words))
    rho = float(words @ positions)
    by_chance = np.array([generator.permutation(words) @ positions for _ in range(PERMUTATIONS)])
    sizes = np.abs(by_chance)
    is_as_far = sizes >= abs(rho)
    as_far = is_as_far.sum()
    p = float((1 + as_far) / (1 + PERMUTATIONS))
    rows = [
        row("dimensions.spearman", rho, chance=middle_band(by_chance)),
        row("dimensions.spearman_p", p),
    ]
    return Measured(rows)


def _standard_ranks(values: Values) -> Values:
    """Return the ranks less their mean, with length 1; zeros if all values are equal."""
    ranks = rankdata(values)
    centred = ranks - (len(ranks) + 1) / 2
    return centred / (np.linalg.norm(centred) or 1)


def spectrum(table: Table) -> Spectrum:
    """Take the covariance of a table apart."""
    values, vectors = eigh(table.T @ table / len(table))
    return Spectrum(values[::-1].clip(min=0), vectors[:, ::-1])


def count_leading(variances: Values) -> int:
    """Count the directions that hold 95% of the variance, the largest first."""
    cumulative = np.cumsum(variances)
    return 1 + int(np.searchsorted(cumulative / cumulative[-1], LEADING_SHARE))


def share_of_variance(deviations: Values) -> float:
    """Return share_95 of a table with these standard deviations.

    Only the needed part of the last dimension is counted.
    """
    falling = np.sort(np.square(deviations))[::-1]
    cumulative = falling.cumsum()
    shares = [0, *cumulative / cumulative[-1]]
    dimensions = np.arange(1 + len(deviations)) / len(deviations)
    return float(np.interp(LEADING_SHARE, shares, dimensions))


def unit(rows: Table) -> Table:
    """Scale rows to length 1 in float32; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
