"""Do the scores of positions alone depend on distance, and fall with it (Wang et al. 2021, "On position embeddings")?

Shapes: h heads, n positions, k head size. G_h = Q_h K_h', of the queries and keys of positions in the first block.

    toeplitz  = 1 - |G - T(G)|^2 / |G - mean(G)|^2        T(G) the means of the diagonals; 1 where only j - i counts
    locality  = Spearman's correlation of G[i, j] and -|i - j|, over |i - j| <= 50
    symmetric = |(G + G') / 2|^2 / |G|^2                  1/2 of independent entries

Baselines: of the first two, positions in random order; of the last, keys turned at random.
"""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import ortho_group, spearmanr

from glue_bench.analysis.measured import SEED, Measured, expected

DRAWS = 20
REACH = 50
MOST = 128  # positions, the first ones
Matrix = Float[np.ndarray, "n n"]
MEASURES = ("toeplitz", "locality", "symmetric")


def measure_position_scores(queries: Float[np.ndarray, "h n k"], keys: Float[np.ndarray, "h n k"]) -> Measured:
    """The three measures of each head and their means over heads, and the frame `positions_scores`."""
    queries, keys = queries[:, :MOST], keys[:, :MOST]
    scores = [query @ key.T for query, key in zip(queries, keys, strict=True)]
    found = np.array([[toeplitz(each), locality(each), symmetric(each)] for each in scores])
    draws = np.array([_random(queries, keys, np.random.default_rng([SEED, draw])) for draw in range(DRAWS)])
    numbers: dict[str, Any] = {"positions": queries.shape[1]}
    frame = pd.DataFrame({"block": 1, "head": np.arange(1, 1 + len(found))})
    for column, name in enumerate(MEASURES):
        numbers |= {name: float(found[:, column].mean()), f"{name}_random": expected(draws[..., column].mean(1))}
        bands = np.array([expected(each) for each in draws[..., column].T])
        frame = frame.assign(**{name: found[:, column], f"{name}_low": bands[:, 0], f"{name}_high": bands[:, 1]})
    return Measured({"positions": {"scores": numbers}}, {"positions_scores": frame})


def toeplitz(scores: Matrix) -> float:
    """The share of the variance that depends on j - i alone."""
    away = _distances(len(scores)) + len(scores) - 1
    means = np.bincount(away.ravel(), scores.ravel()) / np.bincount(away.ravel())
    return float(1 - np.square(scores - means[away]).sum() / np.square(scores - scores.mean()).sum())


def locality(scores: Matrix) -> float:
    """Spearman's correlation of a score with nearness."""
    far = np.abs(_distances(len(scores)))
    near = far <= REACH
    return float(spearmanr(scores[near], -far[near]).statistic)


def symmetric(scores: Matrix) -> float:
    """The share of the symmetric part in the sum of squares."""
    return float(np.square((scores + scores.T) / 2).sum() / np.square(scores).sum())


def _random(
    queries: Float[np.ndarray, "h n k"], keys: Float[np.ndarray, "h n k"], generator: np.random.Generator
) -> list[list[float]]:
    """The three measures of each head with positions in random order, and with keys turned."""
    order = generator.permutation(queries.shape[1])
    turn = ortho_group.rvs(queries.shape[2], random_state=generator)
    found = []
    for query, key in zip(queries, keys, strict=True):
        moved = (query @ key.T)[np.ix_(order, order)]
        found.append([toeplitz(moved), locality(moved), symmetric(query @ (key @ turn).T)])
    return found


def _distances(n: int) -> np.ndarray:
    return np.arange(n) - np.arange(n)[:, None]
