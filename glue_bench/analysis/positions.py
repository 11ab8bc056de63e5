"""Positions: what their rows have learnt, their scores of one another, and where attention goes.

Shapes: n positions, e width of the table, h heads, k head size, l length. Of rows (Wang & Chen 2020; Dufter et al.
2022):

    absolute   ridge regression of j on p_j, 5-fold: mean |j^ - j|
    order      logistic regression of [i < j] on [p_i; p_j], on pairs of positions that it was not trained on: accuracy

The positions of the pairs to train on and to test on are disjoint; a split over pairs alone would leak. Chance is a
table of independent normal numbers; beside it stand the same rows with shuffled positions, and a sinusoid.

G_h = Q_h K_h', of the queries and keys of positions in the first block; a[i, j] is the mean over sequences of the
attention of token i to token j, without [CLS] and the last [SEP], rows scaled to 1.

    toeplitz  = 1 - |G - T(G)|^2 / |G - mean(G)|^2        T(G) the means of the diagonals; 1 where only j - i counts
    locality  = Spearman's correlation of G[i, j] and -|i - j|, over |i - j| <= 50
    symmetric = |(G + G') / 2|^2 / |G|^2                  1/2 of independent entries
    within_m  = mean over i of the sum of a[i, j] over |i - j| <= m, the token itself included
    left_minus_right = mean over i of the sum over j < i less the sum over j > i, where both sides are as wide

The first three are those of Wang et al. 2021 ("On position embeddings in BERT"), the others of Chen et al. 2023 (arXiv
2310.12864). Chance is positions in random order; of the symmetric share, keys rotated at random.

Where a variant resets the scores of [CLS] (TUPE-A, TUPE-R), no row is read as place 0: the rows are those from place 1.
"""

import warnings
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from scipy.stats import ortho_group, spearmanr
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from glue_bench.analysis.chance import SEED, LeftOut, Measured, expected, middle, row
from glue_bench.analysis.hooks import float64, moving
from glue_bench.analysis.subject import Subject
from glue_bench.model.encoder import Block
from glue_bench.model.variants.untied import DietAbs, FourTerm, Untied, UntiedTieCls

TABLES, FOLDS = 10, 5  # random tables
ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
ORDERED = 10_000  # pairs of rows, of which a fifth, of other positions, is to test on
FEWEST_POSITIONS = 20  # positions that a probe needs
ORDERS = 20  # random ones, of positions' scores
ATTENTION_ORDERS = 200
REACH = 50
MOST = 128  # positions, the first ones
WITHIN = (1, 2, 5)
Table = Float[np.ndarray, "n e"]
Matrix = Float[np.ndarray, "n n"]


# Rows


def measure_position_rows(subject: Subject) -> Measured:
    """The probes of centred rows; dimensions in which no row moves are left out, of the tables beside them too."""
    positions, _ = positions_of(subject)
    if positions is None:
        raise LeftOut("it has no row for each position")
    if len(positions) < FEWEST_POSITIONS:
        raise LeftOut(f"{len(positions)} positions; a probe needs {FEWEST_POSITIONS}")
    rows = float64(positions - positions.mean(0))
    rows = rows[:, moving(rows)]
    generator = np.random.default_rng([SEED, *rows.shape])
    others = {"shuffled": generator.permutation(rows)}
    if rows.shape[1] > 1:  # a sinusoid has a sine and a cosine
        others["sinusoid"] = sinusoids(len(rows), rows.shape[1] // 2 * 2)
    random = [generator.standard_normal(rows.shape) for _ in range(TABLES)]
    measured = []
    for name, probe in (("absolute_mae", absolute_error), ("order_accuracy", order_accuracy)):
        measured.append(
            row(
                f"positions.{name}",
                probe(rows),
                chance=expected([probe(table) for table in random]),
            )
        )
        measured += [
            row(f"positions.{name}_{other}", probe(table)) for other, table in others.items()
        ]
    return Measured(measured)


def sinusoids(positions: int, width: int) -> Table:
    """tensor2tensor's layout: sines first, then cosines, of position / 10000^(m / (d / 2 - 1)), 0 <= m < d / 2."""
    turns = np.arange(positions)[:, None] * 10_000.0 ** -(
        np.arange(width // 2) / max(width // 2 - 1, 1)
    )
    return np.concatenate([np.sin(turns), np.cos(turns)], axis=1)


def absolute_error(rows: Table) -> float:
    """The mean absolute error, in positions, of the position that ridge regression tells."""
    places = np.arange(len(rows), dtype=float)
    folds = KFold(FOLDS, shuffle=True, random_state=SEED)
    predicted = cross_val_predict(
        make_pipeline(StandardScaler(), RidgeCV(ALPHAS)), rows, places, cv=folds
    )
    return float(np.abs(predicted - places).mean())


def order_accuracy(rows: Table) -> float:
    """How often logistic regression tells which of two positions, neither of them seen before, comes first."""
    generator = np.random.default_rng([SEED, len(rows)])
    order = generator.permutation(len(rows))
    held_out = max(len(rows) // 5, 2)
    scaled = StandardScaler().fit_transform(rows)

    def pairs(places: Int[np.ndarray, " t"], count: int) -> tuple[np.ndarray, np.ndarray]:
        """[p_i; p_j] of different positions, and whether i < j."""
        first = generator.integers(len(places), size=count)
        i, j = (
            places[first],
            places[(first + generator.integers(1, len(places), size=count)) % len(places)],
        )
        return np.concatenate([scaled[i], scaled[j]], axis=1).astype(np.float32), i < j

    test, train = (
        pairs(order[:held_out], ORDERED // 5),
        pairs(order[held_out:], ORDERED - ORDERED // 5),
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # separable pairs have no largest likelihood
        model = LogisticRegression(max_iter=100, tol=1e-3).fit(*train)
    return float(model.score(*test))


# Scores


def measure_position_scores(subject: Subject) -> Measured:
    """The three measures of positions' scores, means over heads."""
    _, both = positions_of(subject)
    if both is None:
        raise LeftOut("its scores have no product of two positions")
    heads = subject.model.config.num_attention_heads
    queries, keys = rearrange(float64(both[:MOST]), "n (t h k) -> t h n k", t=2, h=heads)
    scores, drawn = queries @ keys.transpose(0, 2, 1), []
    for generator in (np.random.default_rng([SEED, draw]) for draw in range(ORDERS)):
        order = generator.permutation(queries.shape[1])
        rotated = keys @ ortho_group.rvs(queries.shape[2], random_state=generator)
        drawn.append(_means(scores[:, order][:, :, order], queries @ rotated.transpose(0, 2, 1)))
    chance = {name: expected([draw[name] for draw in drawn]) for name in drawn[0]}
    means = _means(scores, scores).items()
    return Measured(
        [
            row(f"positions.scores.{name}", value, chance=chance[name], layer=1)
            for name, value in means
        ]
    )


def _means(
    scores: Float[np.ndarray, "h n n"], rotated: Float[np.ndarray, "h n n"]
) -> dict[str, float]:
    """The measures of scores, the symmetric share of `rotated`."""
    by_head = {"toeplitz": [*map(toeplitz, scores)], "locality": [*map(locality, scores)]}
    return {
        name: float(np.mean(each))
        for name, each in (by_head | {"symmetric": [*map(symmetric, rotated)]}).items()
    }


@torch.no_grad()
def positions_of(subject: Subject) -> tuple[Tensor | None, Tensor | None]:
    """Rows (n, e) of positions, and (n, 2 h k) their queries and keys in the first block, but for a constant factor.

    Rows are those of the table that is added at the input, of untied variants after their LayerNorm, and DIET's P_Q and
    P_K; the last is that of the last position. Queries and keys of an additive encoder are those of
    gamma * C(p - p_mean), whose sigma_i is not the position's own. None stands for what there is not.
    """
    model, table = subject.model, subject.sum
    variant, length, width = model.variant, len(table.positions), model.config.hidden_size
    if table.has_positions:
        block = cast(Block, model.blocks[0])
        centred = scaled(model.norm, table.positions)
        centred = centred if model.project is None else F.linear(centred, model.project.weight)
        centred = scaled(block.attention_norm, centred) if block.norm_first else centred
        return table.positions, F.linear(centred, block.attention.qkv.weight[: 2 * width])
    if isinstance(variant, Untied) and hasattr(variant, "position_norm"):
        first = (
            1 if isinstance(variant, UntiedTieCls | FourTerm) else 2
        )  # rows 0 and 1 are the constants of the reset
        rows = variant.position_norm(variant.positions.weight[first : length + 1])
        if isinstance(variant, FourTerm) and "position-position" not in variant.terms:
            return rows, None
        # Of projections for each block, those of the first one.
        return rows, torch.cat(
            [variant.position_query(rows)[:, :width], variant.position_key(rows)[:, :width]], dim=1
        )
    if isinstance(variant, DietAbs):
        tables = (part[0].get_parameter("weight") for part in (variant.queries, variant.keys))
        both = torch.cat([each[:length] for each in tables], dim=1)
        return both, both
    return None, None


def scaled(norm: nn.LayerNorm, rows: Float[Tensor, "n e"]) -> Float[Tensor, "n e"]:
    """gamma * C(row): what LayerNorm makes of each row but for its deviation and bias."""
    return norm.weight * (rows - rows.mean(-1, keepdim=True))


def toeplitz(scores: Matrix) -> float:
    """The share of the variance that depends on j - i alone."""
    away = _distances(len(scores)) + len(scores) - 1
    means = np.bincount(away.ravel(), scores.ravel()) / np.bincount(away.ravel())
    return float(
        1 - np.square(scores - means[away]).sum() / np.square(scores - scores.mean()).sum()
    )


def locality(scores: Matrix) -> float:
    """Spearman's correlation of a score with nearness."""
    far = np.abs(_distances(len(scores)))
    near = far <= REACH
    return float(spearmanr(scores[near], -far[near]).statistic)


def symmetric(scores: Matrix) -> float:
    """The share of the symmetric part in the sum of squares."""
    return float(np.square((scores + scores.T) / 2).sum() / np.square(scores).sum())


def _distances(n: int) -> np.ndarray:
    """j - i."""
    return np.arange(n) - np.arange(n)[:, None]


# Attention


def measure_attention(subject: Subject) -> Measured:
    """Where attention goes in each block, the mean over heads."""
    rows = []
    for block, attention in enumerate(subject.deep[1], 1):
        inside = attention[:, 1:-1, 1:-1]
        mean = (inside / inside.sum(-1, keepdims=True)).mean(0)
        generator = np.random.default_rng([SEED, len(mean)])
        orders = [generator.permutation(len(mean)) for _ in range(ATTENTION_ORDERS)]
        drawn = [attended(mean[np.ix_(order, order)]) for order in orders]
        for name, value in attended(mean).items():
            chance = middle([draw[name] for draw in drawn])
            rows.append(row(f"positions.attention.{name}", value, chance=chance, layer=block))
    return Measured(rows)


def attended(attention: Matrix) -> dict[str, float]:
    """within_1 and its like, and left_minus_right, over as many tokens on each side as both have."""
    away, length = _distances(attention.shape[-1]), attention.shape[-1]
    place = np.arange(length)
    both = np.minimum(place, length - 1 - place)[:, None]
    within = {
        f"within_{m}": float((attention * (np.abs(away) <= m)).sum(-1).mean()) for m in WITHIN
    }
    sides = np.where(np.abs(away) <= both, -np.sign(away), 0)
    return within | {"left_minus_right": float((attention * sides).sum(-1).mean())}
