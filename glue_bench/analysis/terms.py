"""The nine terms of the first block's attention, of an encoder that adds words and positions at its input.

Shapes: b batch, l length, e width of the tables, d width of the blocks, h heads, k head size.

    x_i = gamma * C(w_i + p_i + s) / sigma_i + beta          C = I - 11'/e; sigma_i of the row as it is, kept fixed
        = w^_i + p^_i + c^_i
    w^_i = gamma * C(w_i - w_mean) / sigma_i                 the word's part
    p^_i = gamma * C(p_i - p_mean) / sigma_i                 the position's part
    c^_i = the rest: both means, the segment, beta
    A^{ab}_h[i, j] = (a_i W_Q,h)(b_j W_K,h)' / sqrt(score_terms * k)      a, b in {w^, p^, c^}; biases belong to c^

The logits are A = sum of the nine, which is checked at every run. Each row is centred over its keys, because softmax
does not see what a row has in common; then

    S_T = Cov(A^T, A) / Var(A)      over all pairs of tokens of a sequence: the share of a term, and shares sum to 1

TUPE (Ke, He & Liu 2021), equation 6 and figure 2, has the four terms of w and p.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from scipy.stats import ortho_group
from torch import Tensor

from glue_bench.analysis.input_sum import InputSum
from glue_bench.analysis.measured import EXACT, SEED, LeftOut
from glue_bench.analysis.watching import Scores, watching
from glue_bench.model.encoder import EncoderModel

Term = tuple[str, str]
"""The part that the query is of, and that of the key."""
PARTS = ("word", "position", "rest")
NINE: tuple[Term, ...] = tuple((query, key) for query in PARTS for key in PARTS)
FOUR: tuple[Term, ...] = tuple(term for term in NINE if "rest" not in term)
MIXED: tuple[Term, ...] = (("word", "position"), ("position", "word"))


def parts(model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]) -> Float[Tensor, "3 b l d"]:
    """w^, p^ and c^ of every token; where an encoder projects its input to the blocks' width, projected."""
    norm, length = model.norm, ids.shape[1]
    words, positions = table.words[ids], table.positions[:length]
    entering = words + positions + table.mean
    scale = (entering.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()

    def normed(rows: Tensor) -> Tensor:
        return norm.weight * (rows - rows.mean(-1, keepdim=True)) * scale

    found = torch.stack([normed(words), normed(positions), normed(table.mean) + norm.bias])
    if model.project is None:
        return found
    projected = F.linear(found, model.project.weight)
    return torch.cat([projected[:2], projected[2:] + model.project.bias])


def heads(
    model: EncoderModel, split: Float[Tensor, "3 b l d"]
) -> tuple[Float[Tensor, "3 b h l k"], Float[Tensor, "3 b h l k"]]:
    """The scaled queries and the keys of each part; their products are the nine terms."""
    attention = model.blocks[0].attention
    width = split.shape[-1]
    both = F.linear(split, attention.qkv.weight[: 2 * width])  # type: ignore[union-attr,index]
    both = torch.cat([both[:2], both[2:] + attention.qkv.bias[: 2 * width]])  # type: ignore[union-attr,index]
    queries, keys = rearrange(both, "p b l (n h k) -> n p b h l k", n=2, h=attention.num_heads)  # type: ignore[union-attr]
    return queries * attention.scale, keys  # type: ignore[union-attr]


def centred(keys: Float[Tensor, "*p h l k"]) -> Float[Tensor, "*p h l k"]:
    """Keys less their mean over the tokens: every row of every product is then centred."""
    return keys - keys.mean(-2, keepdim=True)


def shares(
    queries: Float[Tensor, "3 b h l k"], keys: Float[Tensor, "3 b h l k"], bias: Tensor | None = None
) -> Float[Tensor, "b h t"]:
    """S_T of the nine terms, by query and key, and of a `bias` on the scores, last.

    The sum over i, j of A^{ab} A is that of a_i W_Q (A K_b)_i, which needs no term as a matrix.
    """
    keys = centred(keys)
    total = queries.sum(0) @ keys.sum(0).mT
    added = None
    if bias is not None:
        added = bias - bias.mean(-1, keepdim=True)
        total = total + added
    attended = torch.einsum("bhij,cbhjk->cbhik", total, keys)
    found = torch.einsum("abhik,cbhik->bhac", queries, attended).flatten(2)
    if added is not None:
        found = torch.cat([found, (added * total).sum((-1, -2))[..., None]], -1)
    return found / total.square().sum((-1, -2))[..., None]


def position_bias(model: EncoderModel, length: int) -> Float[Tensor, "1 h l l"] | None:
    """What the variant adds to the first block's scores of any text; None where it adds nothing."""
    zeros = torch.zeros(1, length, dtype=torch.long, device=model.device)
    return model.variant(zeros, zeros).biases()[0]


def check_sum(model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]) -> float:
    """How far the nine terms, and a bias where there is one, are from the logits, as a share of the largest.

    Raises:
        LeftOut: further than EXACT.
    """
    seen: list[Scores] = []
    with watching(model, lambda block, scores: seen.append(scores) if block == 0 else None):
        model.hidden_states(ids)
    queries, keys = heads(model, parts(model, table, ids))
    found = sum(query @ key.mT for query in queries for key in keys)
    if seen[0].position_position is not None:
        found = found + seen[0].position_position
    error = float((found - seen[0].logits).abs().max() / seen[0].logits.abs().max())
    if error > EXACT:
        raise LeftOut(f"the nine terms are {error:.1g} of the largest logit away from the encoder's own")
    return error


def permuted(table: InputSum, length: int) -> InputSum:
    """The same rows of positions in another order."""
    order = np.random.default_rng([SEED, length]).permutation(length).tolist()
    return replace(table, positions=table.positions[:length][order])


def turned(table: InputSum, draw: int) -> InputSum:
    """The same positions, turned by a random rotation: what they have in common with words and weights is lost."""
    width = table.positions.shape[1]
    rotation = ortho_group.rvs(width, random_state=np.random.default_rng([SEED, draw, width]))
    return replace(table, positions=table.positions @ torch.from_numpy(rotation).to(table.positions))


def redrawn(table: InputSum, draw: int) -> InputSum:
    """Positions drawn from a normal distribution with the covariance of the table's own, and as large as those."""
    n = len(table.positions)
    mixed = torch.from_numpy(np.random.default_rng([SEED, draw]).standard_normal((n, n))).to(table.positions)
    rows = mixed @ table.positions
    rows = rows - rows.mean(0)
    return replace(table, positions=rows * (table.positions.norm() / rows.norm()))
