"""Measures of positions: their rows, the scores between them, and where attention goes.

Shapes: n positions, e width of the table, h heads, k head size, l length. The measures of rows are
(Wang & Chen 2020; Dufter et al. 2022):

    absolute   ridge regression of j on p_j, 5-fold: mean |j^ - j|
    order      logistic regression of [i < j] on [p_i; p_j]: accuracy on pairs of other positions

The positions of the pairs to train on and to test on are disjoint; a split over pairs alone would
leak. Chance is a table of independent normal numbers. For comparison, the same rows with shuffled
positions and a sinusoid are measured, too.

The measures of scores and attention are below. G_h = Q_h K_h', where Q_h and K_h are the queries
and keys of positions in the first block. a[i, j] is the mean over sequences of the attention of
token i to token j. [CLS] and the last [SEP] are left out, and rows are scaled to sum to 1.

    toeplitz  = 1 - |G - T(G)|^2 / |G - mean(G)|^2        T(G) the means of the diagonals
    locality  = Spearman's correlation of G[i, j] and -|i - j|, over |i - j| <= 50
    symmetric = |(G + G') / 2|^2 / |G|^2                  1/2 of independent entries
    within_m  = mean over i of the sum of a[i, j] over |i - j| <= m, the token itself included
    left_minus_right = mean over i of the sum over j < i less the sum over equally many j > i

`toeplitz` is 1 if only j - i counts. The first three measures are from Wang et al. 2021 ("On
position embeddings in BERT"), the others from Chen et al. 2023 (arXiv 2310.12864). Their chance is
the value with positions in random order. The chance of the symmetric share is the value with keys
rotated at random.

Where a variant resets the scores of [CLS] (TUPE-A, TUPE-R), the row of place 0 is not used, and the
rows begin at place 1.
"""

import warnings
from typing import NamedTuple, cast

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

from glue_bench.analysis.chance import (
    CHANCE_SEED,
    LeftOut,
    Measured,
    middle_band,
    prediction_band,
    row,
    seeded_generator,
)
from glue_bench.analysis.hooks import to_float64, varying_dimensions
from glue_bench.analysis.subject import Subject
from glue_bench.model.encoder import Block
from glue_bench.model.variants.diet import DietAbs
from glue_bench.model.variants.untied import ConcatHeads, FourTerm, Untied, UntiedTieCls

RANDOM_TABLES = 10
FOLDS = 5
RIDGE_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
ORDER_PAIRS = 10_000  # pairs of rows; a fifth of them is tested, with positions of its own
MIN_POSITIONS = 20  # fewer are too few for a probe
SCORE_ORDERS = 20  # random orders of positions
ATTENTION_ORDERS = 200
DISTANCE_REACH = 50
MAX_MEASURED_POSITIONS = 128  # the first positions
NEAR_DISTANCES = (1, 2, 5)
Table = Float[np.ndarray, "n e"]
Matrix = Float[np.ndarray, "n n"]


# Rows


def measure_position_rows(subject: Subject) -> Measured:
    """Probe centred rows, without the dimensions in which no row moves."""
    positions = positions_of(subject).rows
    if positions is None:
        raise LeftOut("it has no row for each position")
    if len(positions) < MIN_POSITIONS:
        raise LeftOut(f"{len(positions)} positions; a probe needs {MIN_POSITIONS}")

    table = to_float64(positions - positions.mean(0))
    table = table[:, varying_dimensions(table)]
    generator = seeded_generator(*table.shape)
    baselines = {"shuffled": generator.permutation(table)}
    if table.shape[1] > 1:  # because a sinusoid has a sine and a cosine
        baselines["sinusoid"] = sinusoid_table(len(table), table.shape[1] // 2 * 2)

    random_tables = [generator.standard_normal(table.shape) for _ in range(RANDOM_TABLES)]

    rows = []
    for name, probe in (("absolute_mae", absolute_error), ("order_accuracy", order_accuracy)):
        measure = f"positions.{name}"
        value = probe(table)
        by_chance = [probe(random_table) for random_table in random_tables]
        rows.append(row(measure, value, chance=prediction_band(by_chance)))
        for baseline, baseline_table in baselines.items():
            rows.append(row(f"{measure}_{baseline}", probe(baseline_table)))
    return Measured(rows)


def sinusoid_table(positions: int, width: int) -> Table:
    """Return sines, then cosines, of position / 10000^(m / (d / 2 - 1)), 0 <= m < d / 2.

    This is tensor2tensor's layout.
    """
    half = width // 2
    exponents = np.arange(half) / max(half - 1, 1)
    turns = np.arange(positions)[:, None] * 10_000.0**-exponents
    return np.concatenate([np.sin(turns), np.cos(turns)], axis=1)


def absolute_error(table: Table) -> float:
    """Return the mean absolute error of the positions that ridge regression predicts."""
    positions = np.arange(len(table), dtype=float)
    folds = KFold(FOLDS, shuffle=True, random_state=CHANCE_SEED)
    model = make_pipeline(StandardScaler(), RidgeCV(RIDGE_PENALTIES))
    predicted = cross_val_predict(model, table, positions, cv=folds)
    differences = predicted - positions
    errors = np.abs(differences)
    return float(errors.mean())


def order_accuracy(table: Table) -> float:
    """Return how often logistic regression predicts which of two positions comes first.

    It was trained on other positions.
    """
    generator = seeded_generator(len(table))
    order = generator.permutation(len(table))
    held_out = max(len(table) // 5, 2)
    standard = StandardScaler().fit_transform(table)

    def draw_pairs(places: Int[np.ndarray, " t"], count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw [p_i; p_j] of different positions, and whether i < j."""
        first = generator.integers(len(places), size=count)
        steps = generator.integers(1, len(places), size=count)
        second = (first + steps) % len(places)
        i = places[first]
        j = places[second]
        pairs = [standard[i], standard[j]]
        rows = np.concatenate(pairs, axis=1)
        return rows.astype(np.float32), i < j

    test_rows, test_targets = draw_pairs(order[:held_out], ORDER_PAIRS // 5)
    train_rows, train_targets = draw_pairs(order[held_out:], ORDER_PAIRS - ORDER_PAIRS // 5)
    model = LogisticRegression(max_iter=100, tol=1e-3)
    with warnings.catch_warnings():
        # Pairs that can be separated have no largest likelihood.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train_rows, train_targets)
    return float(model.score(test_rows, test_targets))


# Scores


def measure_position_scores(subject: Subject) -> Measured:
    """Measure the scores between positions, as means over heads."""
    projected = positions_of(subject).queries_and_keys
    if projected is None:
        raise LeftOut("its scores have no product of two positions")

    heads = subject.model.config.num_attention_heads
    queries, keys = rearrange(
        to_float64(projected[:MAX_MEASURED_POSITIONS]), "n (t h k) -> t h n k", t=2, h=heads
    )
    scores = queries @ keys.transpose(0, 2, 1)

    draws = []
    for number in range(SCORE_ORDERS):
        generator = seeded_generator(number)
        tokens = queries.shape[1]
        order = generator.permutation(tokens)
        rotation = ortho_group.rvs(queries.shape[2], random_state=generator)
        rotated_keys = keys @ rotation
        rotated_scores = queries @ rotated_keys.transpose(0, 2, 1)
        reordered = scores[:, order][:, :, order]
        draws.append(_mean_measures(reordered, rotated_scores))

    rows = []
    for name, value in _mean_measures(scores, scores).items():
        chance = prediction_band([draw[name] for draw in draws])
        rows.append(row(f"positions.scores.{name}", value, chance=chance, layer=1))
    return Measured(rows)


def _mean_measures(
    scores: Float[np.ndarray, "h n n"], rotated_scores: Float[np.ndarray, "h n n"]
) -> dict[str, float]:
    """Measure scores, and the symmetric share of `rotated_scores`; means over heads."""
    return {
        "toeplitz": float(np.mean([toeplitz(head) for head in scores])),
        "locality": float(np.mean([locality(head) for head in scores])),
        "symmetric": float(np.mean([symmetric(head) for head in rotated_scores])),
    }


class PositionTables(NamedTuple):
    """The tables of an encoder's positions; a table is None if the encoder does not have it.

    `rows` (n, e) is the table that is added at the input, the rows of untied variants after their
    LayerNorm, or DIET's P_Q and P_K side by side. `queries_and_keys` (n, 2 h k) are the first
    block's queries and keys of positions, up to a constant factor. An additive encoder makes them
    from gamma * C(p - p_mean), because sigma_i depends on the word, too.
    """

    rows: Tensor | None = None
    queries_and_keys: Tensor | None = None


@torch.no_grad()
def positions_of(subject: Subject) -> PositionTables:
    """Return the tables of an encoder's positions."""
    model = subject.model
    table = subject.sum
    variant = model.variant
    width = model.config.hidden_size

    if table.has_positions:
        block = cast(Block, model.blocks[0])
        centred = scaled(model.norm, table.positions)
        if model.project is not None:
            centred = F.linear(centred, model.project.weight)
        if block.norm_first:
            centred = scaled(block.attention_norm, centred)
        projected = F.linear(centred, block.attention.qkv.weight[: 2 * width])
        return PositionTables(table.positions, projected)

    length = len(table.positions)
    if isinstance(variant, Untied | FourTerm | ConcatHeads) and variant.uses_position:
        # The rows before the first one are the constants of the reset of [CLS].
        first = 1 if isinstance(variant, UntiedTieCls | FourTerm) else 2
        chosen_rows = slice(first, length + 1)
        if isinstance(variant, ConcatHeads):
            chosen_rows = slice(length)
        rows = variant.position_norm(variant.positions.weight[chosen_rows])
        if isinstance(variant, FourTerm) and "position-position" not in variant.terms:
            return PositionTables(rows)
        projections = (variant.position_query, variant.position_key)
        # If each block has its own projections, the first columns belong to the first block.
        parts = [linear(rows)[:, :width] for linear in projections if linear is not None]
        return PositionTables(rows, torch.cat(parts, dim=1))

    if isinstance(variant, DietAbs):
        parts = []
        for tables in (variant.queries, variant.keys):
            parts.append(tables[0].get_parameter("weight")[:length])
        rows = torch.cat(parts, dim=1)
        return PositionTables(rows, rows)

    return PositionTables()


def scaled(norm: nn.LayerNorm, rows: Float[Tensor, "n e"]) -> Float[Tensor, "n e"]:
    """Return gamma * C(row): the LayerNorm of each row, without the division and the bias."""
    return norm.weight * (rows - rows.mean(-1, keepdim=True))


def toeplitz(scores: Matrix) -> float:
    """Return the share of the variance that depends on j - i alone."""
    diagonals = _distances(len(scores)) + len(scores) - 1
    sums = np.bincount(diagonals.ravel(), scores.ravel())
    counts = np.bincount(diagonals.ravel())
    means = sums / counts
    residual = np.square(scores - means[diagonals]).sum()
    total = np.square(scores - scores.mean()).sum()
    return float(1 - residual / total)


def locality(scores: Matrix) -> float:
    """Return Spearman's correlation of a score with nearness."""
    offsets = _distances(len(scores))
    distances = np.abs(offsets)
    is_near = distances <= DISTANCE_REACH
    correlation = spearmanr(scores[is_near], -distances[is_near])
    return float(correlation.statistic)


def symmetric(scores: Matrix) -> float:
    """Return the share of the symmetric part in the sum of squares."""
    symmetric_part = (scores + scores.T) / 2
    return float(np.square(symmetric_part).sum() / np.square(scores).sum())


def _distances(n: int) -> np.ndarray:
    """Return j - i, (n, n)."""
    return np.arange(n) - np.arange(n)[:, None]


# Attention


def measure_attention(subject: Subject) -> Measured:
    """Measure where attention goes in each block, as the mean over heads."""
    rows = []
    for block, attention in enumerate(subject.deep[1], 1):
        inside = attention[:, 1:-1, 1:-1]
        mean = (inside / inside.sum(-1, keepdims=True)).mean(0)
        generator = seeded_generator(len(mean))
        draws = []
        for _ in range(ATTENTION_ORDERS):
            order = generator.permutation(len(mean))
            draws.append(attention_measures(mean[np.ix_(order, order)]))
        for name, value in attention_measures(mean).items():
            chance = middle_band([draw[name] for draw in draws])
            rows.append(row(f"positions.attention.{name}", value, chance=chance, layer=block))
    return Measured(rows)


def attention_measures(attention: Matrix) -> dict[str, float]:
    """Return within_1, the other measures within_m, and left_minus_right.

    left_minus_right counts equally many tokens on both sides of a token.
    """
    length = attention.shape[-1]
    distances = _distances(length)
    measures = {}
    for m in NEAR_DISTANCES:
        is_near = np.abs(distances) <= m
        sums = (attention * is_near).sum(-1)
        measures[f"within_{m}"] = float(sums.mean())
    places = np.arange(length)
    common = np.minimum(places, length - 1 - places)[:, None]
    sides = np.where(np.abs(distances) <= common, -np.sign(distances), 0)
    differences = (attention * sides).sum(-1)
    left_minus_right = float(differences.mean())
    measures["left_minus_right"] = left_minus_right
    return measures
