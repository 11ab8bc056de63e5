"""What have position embeddings learnt (Wang & Chen 2020; Dufter et al. 2022)?

Shapes: n positions, d width. P (n, d) are the rows that attention reads.

    absolute   ridge regression of j on p_j, 5-fold: mean |j^ - j|
    order      logistic regression of [i < j] on [p_i; p_j], on pairs of positions that it was not trained on: accuracy

The positions of the pairs to train on and to test on are disjoint; a split over pairs alone would leak. Baselines: a
table of independent normal numbers, the same rows with shuffled positions, and a sinusoid.
"""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from glue_bench.analysis.dimensions import sinusoids
from glue_bench.analysis.measured import SEED, LeftOut, Measured, expected, moving
from glue_bench.analysis.subspaces import unit

ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
FOLDS = 5
PAIRS = 10_000  # of which a fifth, of other positions, is to test on
DRAWS = 10  # random tables
SHOWN = 40  # positions of the matrix of cosines, at most
FEWEST = 20  # positions
Rows = Float[np.ndarray, "n d"]


def measure_positions(rows: Rows, first: int = 0) -> Measured:
    """The probes with their baselines, and the frames `positions_cosine` and `positions_probe`.

    The first row is that of place `first`. Dimensions in which no row moves are left out, of the baselines too.

    Raises:
        LeftOut: too few positions.
    """
    if len(rows) < FEWEST:
        raise LeftOut(f"{len(rows)} positions; a probe needs {FEWEST}")
    rows = rows[:, moving(rows)]
    generator = np.random.default_rng([SEED, *rows.shape])
    numbers: dict[str, Any] = {"positions": len(rows), "absolute_mae_constant": len(rows) / 4, "order_chance": 0.5}
    shuffled = generator.permutation(rows)
    others = {"shuffled": shuffled, "sinusoid": sinusoids(len(rows), rows.shape[1] // 2 * 2)}
    random = [generator.standard_normal(rows.shape) for _ in range(DRAWS)]
    found = []
    for name, probe in (("absolute_mae", absolute_error), ("order_accuracy", order_accuracy)):
        draws = [probe(table) for table in random]
        numbers |= {name: probe(rows), f"{name}_random": expected(draws)}
        numbers |= {f"{name}_{other}": probe(table) for other, table in others.items()}
        found.append((name, "own", numbers[name], np.nan, np.nan))
        found.append((name, "random", np.mean(draws), *numbers[f"{name}_random"]))
        found += [(name, other, numbers[f"{name}_{other}"], np.nan, np.nan) for other in others]
    frames = {
        "positions_cosine": cosines(rows, first),
        "positions_probe": pd.DataFrame(found, columns=["probe", "table", "value", "low", "high"]),
    }
    return Measured({"positions": numbers}, frames)


def cosines(rows: Rows, first: int = 0) -> pd.DataFrame:
    """The cosine of each two of at most 40 evenly spaced positions; the first row is that of place `first`."""
    places = np.unique(np.linspace(0, len(rows) - 1, SHOWN).astype(int))
    some = unit(rows[places]).astype(np.float64)
    i, j = (each.ravel() for each in np.meshgrid(first + places, first + places, indexing="ij"))
    return pd.DataFrame({"i": i, "j": j, "cosine": (some @ some.T).ravel()})


def absolute_error(rows: Rows) -> float:
    """The mean absolute error, in positions, of the position that ridge regression tells."""
    places = np.arange(len(rows), dtype=float)
    folds = KFold(FOLDS, shuffle=True, random_state=SEED)
    told = cross_val_predict(make_pipeline(StandardScaler(), RidgeCV(ALPHAS)), rows, places, cv=folds)
    return float(np.abs(told - places).mean())


def order_accuracy(rows: Rows) -> float:
    """How often logistic regression tells which of two positions, neither of them seen before, comes first."""
    generator = np.random.default_rng([SEED, len(rows)])
    order = generator.permutation(len(rows))
    held_out = max(len(rows) // 5, 2)
    scaled = StandardScaler().fit_transform(rows)
    test, train = (
        _pairs(scaled, some, count, generator)
        for some, count in ((order[:held_out], PAIRS // 5), (order[held_out:], PAIRS - PAIRS // 5))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # separable pairs have no largest likelihood
        told = LogisticRegression(max_iter=100, tol=1e-3).fit(*train)
    return float(told.score(*test))


def _pairs(rows: Rows, places: np.ndarray, count: int, generator: np.random.Generator) -> tuple[Rows, np.ndarray]:
    """[p_i; p_j] of different positions, and whether i < j."""
    first = generator.integers(len(places), size=count)
    second = (first + generator.integers(1, len(places), size=count)) % len(places)
    i, j = places[first], places[second]
    return np.concatenate([rows[i], rows[j]], axis=1).astype(np.float32), i < j
