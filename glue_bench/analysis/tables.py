"""The tables whose rows are added at an encoder's input: do words and positions lie in different subspaces?

Then their sum would be nearly a concatenation. Shapes: v words, n positions, e or d width of the tables. W (v, d) and
P (n, d) have centred rows, Sigma_w = W'W / v, Sigma_p = P'P / n, sd_j is the standard deviation of dimension j.

    R        = d tr(Sigma_w Sigma_p) / (tr Sigma_w tr Sigma_p)   1 of a random rotation, 0 of disjoint subspaces
    s_m      = |P U_m|^2 / |P|^2                                 U_m the m leading directions of the words, m = 1..d
    |cos|    = mean over words and positions of |cos(w, p)|      sqrt(2 / (pi d)) of random directions
    (sum lambda)^2 / sum lambda^2                                participation ratio of a table's eigenvalues lambda
    share_95 = the smallest share of the dimensions in which positions move that holds 95% of their variance
    rho      = Spearman's correlation of sd over positions and sd over words, d pairs

Chance is, of R, s_m and |cos|, the table of positions rotated at random: in the eigenvectors of both
covariances the rotated Sigma_p is Q diag(mu) Q' with Q of Haar's measure, so that R and s_m follow from Q and the
eigenvalues alone. Of a participation ratio and share_95 it is a table of independent normal numbers of the same shape,
of rho the permutations of the dimensions.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.linalg import eigh, subspace_angles
from scipy.stats import ortho_group, rankdata, wishart

from glue_bench.analysis.chance import SEED, TAILS, Measured, expected, middle, row
from glue_bench.analysis.hooks import float64, moving
from glue_bench.analysis.subject import Subject

ROTATIONS, DRAWS = (
    200,
    20,
)  # the latter of tables for the participation ratio, of subspaces for their angles
SPREAD_DRAWS, PERMUTATIONS = 200, 10_000  # of tables for share_95; of dimensions for rho
PAIRED_WORDS = 1_000  # of the vocabulary, evenly spread, for the cosines
VARIANCE = 0.95  # of a table, in the leading directions whose angles are told
Values = Float[np.ndarray, " d"]
Squared = Float[np.ndarray, "d d"]
Table = Float[np.ndarray, "n d"]


def measure_subspaces(subject: Subject) -> Measured:
    """R, |cos| and principal angles of the two tables, and the matrix `subspace_curve` (s_m).

    The angles, in degrees, are those between the leading directions that hold 95% of the variance of each table.
    Subspaces whose dimensions together exceed d meet, whatever the tables: of so many the angle is 0. The chance of
    their median is that of random subspaces of these dimensions.
    """
    subject.sum.check(shared=True)
    words, positions = float64(subject.sum.words), float64(subject.sum.positions)
    (of_words, directions), (of_positions, axes) = spectrum(words), spectrum(positions)
    inside, width = (
        np.square(directions.T @ axes),
        words.shape[1],
    )  # cos^2 of directions of words and of positions

    def overlap(inside: Squared) -> float:
        return float(
            width * (of_words @ inside @ of_positions) / (of_words.sum() * of_positions.sum())
        )

    def curve(inside: Squared) -> Values:
        return np.cumsum(inside @ of_positions) / of_positions.sum()

    sample = unit(words[np.linspace(0, len(words) - 1, min(len(words), PAIRED_WORDS)).astype(int)])
    rows, generator = unit(positions), np.random.default_rng([SEED, width])
    first, second = leading(of_words), leading(of_positions)
    overlaps, curves, cosines, medians = [], [], [], list[float]()
    for _ in range(ROTATIONS):
        turn = ortho_group.rvs(width, random_state=generator)
        overlaps.append(overlap(np.square(turn)))
        curves.append(curve(np.square(turn)))
        if len(medians) < DRAWS:
            of_random = np.linalg.svd(turn[:first, :second], compute_uv=False)
            medians.append(float(np.degrees(np.median(np.arccos(of_random.clip(max=1))))))
        cosines.append(np.abs((sample @ turn.astype(np.float32)) @ rows.T).mean())
    angles = np.degrees(subspace_angles(directions[:, :first], axes[:, :second]))
    measured = [
        row("subspaces.overlap", overlap(inside), chance=middle(overlaps)),
        row("subspaces.mean_abs_cosine", np.abs(sample @ rows.T).mean(), chance=middle(cosines)),
        row(
            "subspaces.norm_ratio",
            np.sqrt(np.square(positions).sum() / len(positions) / of_words.sum()),
        ),
        row("subspaces.angles.smallest", angles.min()),
        row("subspaces.angles.median", np.median(angles), chance=expected(medians)),
        row("subspaces.angles.largest", angles.max()),
        row("subspaces.angles.words_dimensions", first),
        row("subspaces.angles.positions_dimensions", second),
    ]
    low, high = np.quantile(curves, TAILS, axis=0)
    share = {"m": np.arange(1, width + 1), "share": curve(inside), "low": low, "high": high}
    return Measured(measured, {"subspace_curve": pd.DataFrame(share)})


def measure_tables(subject: Subject) -> Measured:
    """The participation ratio of each table; dimensions that are of other tables alone are none of its shape."""
    subject.sum.check()
    ratios = []

    def participation_ratio(covariance: Squared) -> float:  # (tr Sigma)^2 / tr Sigma^2
        return float(np.trace(covariance) ** 2 / np.square(covariance).sum())

    for name in ("words", "positions"):
        rows = float64(getattr(subject.sum, name))
        rows = rows[:, moving(rows)]
        # Of n centred rows of normal numbers, P'P is of Wishart's distribution with n - 1 degrees of freedom; where
        # n - 1 < d, it has the eigenvalues of one of d degrees in n - 1 dimensions.
        small, large = sorted((len(rows) - 1, rows.shape[1]))
        generator = np.random.default_rng([SEED, *rows.shape])
        drawn = wishart.rvs(large, np.eye(small), size=DRAWS, random_state=generator).reshape(
            DRAWS, small, small
        )
        chance = expected([participation_ratio(one) for one in drawn])
        ratios.append(
            row(
                f"tables.participation_ratio.{name}",
                participation_ratio(rows.T @ rows),
                chance=chance,
            )
        )
    return Measured(ratios)


def measure_dimensions(subject: Subject) -> Measured:
    """share_95, and in how many dimensions positions move."""
    subject.sum.check()
    positions = float64(subject.sum.positions)
    deviations = positions.std(0)[moving(positions)]
    shape = len(positions), len(deviations)
    # The variances of normal numbers are chi-squared with n - 1 degrees of freedom.
    drawn = np.random.default_rng([SEED, *shape]).chisquare(shape[0] - 1, (SPREAD_DRAWS, shape[1]))
    chance = middle([share_of_variance(np.sqrt(each)) for each in drawn])
    share_95 = row("dimensions.share_95", share_of_variance(deviations), chance=chance)
    return Measured([share_95, row("dimensions.moving", len(deviations))])


def measure_correlation(subject: Subject) -> Measured:
    """rho, the band of random orders of the dimensions, and how many of these are as far from 0: the p-value."""
    subject.sum.check(shared=True)
    ranks = [
        rankdata(float64(table).std(0)) for table in (subject.sum.words, subject.sum.positions)
    ]
    away = [each - (len(each) + 1) / 2 for each in ranks]
    a, b = (each / (np.linalg.norm(each) or 1) for each in away)  # zeros where all are equal
    generator, rho = np.random.default_rng([SEED, len(a)]), float(a @ b)
    drawn = np.array([generator.permutation(a) @ b for _ in range(PERMUTATIONS)])
    p = float((1 + (np.abs(drawn) >= abs(rho)).sum()) / (1 + PERMUTATIONS))
    return Measured(
        [row("dimensions.spearman", rho, chance=middle(drawn)), row("dimensions.spearman_p", p)]
    )


def spectrum(table: Table) -> tuple[Values, Squared]:
    """Eigenvalues of the covariance, falling, and their directions as columns."""
    values, vectors = eigh(table.T @ table / len(table))
    return values[::-1].clip(min=0), vectors[:, ::-1]


def leading(variances: Values) -> int:
    """How many directions hold 95% of the variance."""
    held = np.cumsum(variances)
    return 1 + int(np.searchsorted(held / held[-1], VARIANCE))


def share_of_variance(deviations: Values) -> float:
    """share_95 of a table with these standard deviations; of the last dimension only the part that is needed."""
    falling = np.sort(np.square(deviations))[::-1].cumsum()
    return float(
        np.interp(
            VARIANCE, [0, *falling / falling[-1]], np.arange(1 + len(deviations)) / len(deviations)
        )
    )


def unit(rows: Table) -> Table:
    """Rows of length 1 in float32; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
