"""Positions as attention reads them, their scores of one another, and where attention goes.

Shapes: n positions, e width of the table, h heads, k head size, l length. G_h = Q_h K_h', of the queries and keys of
positions in the first block; a[i, j] is the mean over sequences of the attention of token i to token j, without [CLS]
and the last [SEP], rows scaled to 1.

    toeplitz  = 1 - |G - T(G)|^2 / |G - mean(G)|^2        T(G) the means of the diagonals; 1 where only j - i counts
    locality  = Spearman's correlation of G[i, j] and -|i - j|, over |i - j| <= 50
    symmetric = |(G + G') / 2|^2 / |G|^2                  1/2 of independent entries
    within_m  = mean over i of the sum of a[i, j] over |i - j| <= m, the token itself included
    left_minus_right = mean over i of the sum over j < i less the sum over j > i, where both sides are as wide

The first three are those of Wang et al. 2021 ("On position embeddings in BERT"), the others of Chen et al. 2023 (arXiv
2310.12864). Chance is positions in random order; of the symmetric share, keys turned at random.

Where a variant resets the scores of [CLS] (TUPE-A, TUPE-R), no row is read as place 0: the rows are those from place 1.
"""

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from scipy.stats import ortho_group, spearmanr
from torch import Tensor

from glue_bench.analysis.chance import NONE, SEED, LeftOut, Measured, expected, middle, row
from glue_bench.analysis.hooks import numpy
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.tables import InputSum
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.variants.base import rows_from
from glue_bench.model.variants.untied import DietAbs, FourTerm, Untied, UntiedTieCls

ORDERS = 20  # random ones, of positions' scores
ATTENTION_ORDERS = 200
REACH = 50
MOST = 128  # positions, the first ones
WITHIN = (1, 2, 5)
NAMES = ("toeplitz", "locality", "symmetric")
Matrix = Float[np.ndarray, "n n"]
Heads = Float[np.ndarray, "h n k"]


def measure_position_scores(queries: Heads, keys: Heads) -> Measured:
    """The three measures of positions' scores, of each head and the mean over heads."""
    queries, keys = queries[:, :MOST], keys[:, :MOST]
    scores = [query @ key.T for query, key in zip(queries, keys, strict=True)]
    found = np.array([[toeplitz(each), locality(each), symmetric(each)] for each in scores])
    drawn = []
    for generator in (np.random.default_rng([SEED, draw]) for draw in range(ORDERS)):
        order = generator.permutation(queries.shape[1])
        turned = keys @ ortho_group.rvs(queries.shape[2], random_state=generator)
        moved = [each[np.ix_(order, order)] for each in scores]
        others = zip(moved, queries, turned, strict=True)
        drawn.append([[toeplitz(each), locality(each), symmetric(query @ key.T)] for each, query, key in others])
    draws = np.array(drawn)
    found, draws = np.vstack([found.mean(0), found]), np.hstack([draws.mean(1, keepdims=True), draws])
    rows = [
        row(f"positions.scores.{name}", value, chance=expected(draws[:, head, column]), layer=1, head=head or None)
        for column, name in enumerate(NAMES)
        for head, value in enumerate(found[:, column])
    ]
    return Measured(rows)


def measure_attention(subject: Subject) -> Measured:
    """Where attention goes in each block, of each head and the mean over heads."""
    rows = []
    for block, attention in enumerate(subject.deep.attention, 1):
        inside = attention[:, 1:-1, 1:-1]
        inside = inside / inside.sum(-1, keepdims=True)
        mean = inside.mean(0)
        generator = np.random.default_rng([SEED, len(mean)])
        orders = [generator.permutation(len(mean)) for _ in range(ATTENTION_ORDERS)]
        drawn = [attended(mean[np.ix_(order, order)]) for order in orders]
        for head, each in enumerate([mean, *inside]):
            for name, value in attended(each).items():
                chance = NONE if head else middle([draw[name] for draw in drawn])
                rows.append(row(f"positions.attention.{name}", value, chance=chance, layer=block, head=head or None))
    return Measured(rows)


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


def attended(attention: Matrix) -> dict[str, float]:
    """within_1 and its like, and left_minus_right, over as many tokens on each side as both have."""
    away, length = _distances(attention.shape[-1]), attention.shape[-1]
    place = np.arange(length)
    both = np.minimum(place, length - 1 - place)[:, None]
    found = {f"within_{m}": float((attention * (np.abs(away) <= m)).sum(-1).mean()) for m in WITHIN}
    sides = np.where(np.abs(away) <= both, -np.sign(away), 0)
    return found | {"left_minus_right": float((attention * sides).sum(-1).mean())}


def _distances(n: int) -> np.ndarray:
    """j - i."""
    return np.arange(n) - np.arange(n)[:, None]


@torch.no_grad()
def position_rows(model: EncoderModel, table: InputSum) -> Float[np.ndarray, "n e"]:
    """Centred rows: of the table that is added at the input; of untied variants after their LayerNorm; DIET's P_Q, P_K.

    The last is that of the last position. Raises LeftOut where there is none.
    """
    variant, length = model.variant, len(table.positions)
    if table.has_positions:
        found = table.positions
    elif isinstance(variant, Untied) and hasattr(variant, "position_norm"):
        found = _untied(variant, length)
    elif isinstance(variant, DietAbs):
        found = torch.cat(_diet(variant, length), dim=1)
    else:
        raise LeftOut("it has no row for each position")
    return numpy(found - found.mean(0))


@torch.no_grad()
def position_heads(model: EncoderModel, table: InputSum) -> tuple[Heads, Heads]:
    """Queries and keys of positions in the first block, but for a constant factor; raises LeftOut where there are none.

    Of an additive encoder those of gamma * C(p - p_mean), whose sigma_i is not the position's own.
    """
    variant, length = model.variant, len(table.positions)
    if table.has_positions:
        centred = model.norm.weight * (table.positions - table.positions.mean(-1, keepdim=True))
        centred = centred if model.project is None else F.linear(centred, model.project.weight)
        attention = model.blocks[0].attention
        both = F.linear(centred, attention.qkv.weight[: 2 * centred.shape[-1]])  # type: ignore[union-attr,index]
        queries, keys = both.chunk(2, dim=-1)
    elif isinstance(variant, Untied) and (not isinstance(variant, FourTerm) or "position-position" in variant.terms):
        found = _untied(variant, length)
        width = model.config.hidden_size  # of the first block, where each has its own
        queries, keys = variant.position_query(found)[:, :width], variant.position_key(found)[:, :width]
    elif isinstance(variant, DietAbs):
        queries, keys = _diet(variant, length)
    else:
        raise LeftOut("its scores have no product of two positions")
    heads = model.config.num_attention_heads
    return numpy(rearrange(queries, "n (h k) -> h n k", h=heads)), numpy(rearrange(keys, "n (h k) -> h n k", h=heads))


def _untied(variant: Untied, length: int) -> Tensor:
    first = 1 if isinstance(variant, UntiedTieCls | FourTerm) else 2  # rows 0 and 1 are the constants of the reset
    return variant.position_norm(rows_from(variant.positions.weight, length, fixed=2)[first:])


def _diet(variant: DietAbs, length: int) -> list[Tensor]:
    return [rows_from(part[0].get_parameter("weight").detach(), length) for part in (variant.queries, variant.keys)]
