"""The nine terms of the first block's attention, of an encoder that adds words and positions at its input.

Shapes: b batch, l length, e width of the tables, d width of the blocks, h heads, k head size, t terms.

    x_i = gamma * C(w_i + p_i + s) / sigma_i + beta          C = I - 11'/e; sigma_i of the row as it is, kept fixed
        = w^_i + p^_i + c^_i
    w^_i = gamma * C(w_i - w_mean) / sigma_i                 the word's part
    p^_i = gamma * C(p_i - p_mean) / sigma_i                 the position's part
    c^_i = the rest: both means, the segment, beta
    A^{ab}_h[i, j] = (a_i W_Q,h)(b_j W_K,h)' / sqrt(score_terms * k)      a, b in {w^, p^, c^}; biases belong to c^

The logits are A = sum of the nine, which is checked at every run. Shares are those of `score_terms`. TUPE (Ke, He &
Liu 2021), equation 6 and figure 2, has the four terms of w and p. What a term does is told by what changes without it:

    KL   = KL(softmax(A) || softmax(A - A^T))       in nats, the mean over rows and heads
    rise = mean over masked tokens of  -log p(x_t | without the term) + log p(x_t | with it)       in nats

Chance is the same positions turned by a random rotation. Beside it stand positions permuted, positions drawn from a
normal distribution with their covariance, and fresh weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from scipy.stats import ortho_group
from torch import Tensor

from glue_bench.analysis.chance import EXACT, SEED, LeftOut, Measured, Sums, expected, row
from glue_bench.analysis.hooks import AT_ONCE, Scores, numpy, watching
from glue_bench.analysis.score_terms import (
    BIAS,
    FOUR,
    MIXED,
    NINE,
    PARTS,
    centred,
    measure_score_terms,
    mixed_to_words,
    named,
    share_rows,
)
from glue_bench.analysis.subject import FEW, Subject
from glue_bench.analysis.tables import InputSum, input_sum
from glue_bench.analysis.word_order import loss_sums, row_losses
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import Attention, EncoderModel
from glue_bench.model.fresh import fresh

DRAWS = 10  # rotations of the positions, for the band
FEWER = 3  # tables with their covariance, for a mean
MASKED = 32  # sequences of which a loss is taken
Queries = Float[Tensor, "3 b h l k"]


@torch.no_grad()
def measure_terms(subject: Subject) -> Measured:
    """Shares of the first block's terms; where positions enter the scores instead, `measure_score_terms`.

    The band of chance is that of turned positions. Beside it stand the mean shares of each baseline; among positions of
    fresh weights, the table's own are any others.
    """
    model, table, ids = subject.model, subject.sum, subject.tokens
    if not table.has_positions:
        return measure_score_terms(subject)
    error = check_sum(model, table, ids[:AT_ONCE])
    by_term, ids = sequence_shares(model, table, ids), ids[:FEW]
    start = fresh(EncoderModel, cast(EncoderConfig, model.config), SEED).eval().to(model.device)
    by_head = np.array([head_shares(model, turned(table, draw), ids) for draw in range(DRAWS)])
    draws = by_head.mean(1)
    chance = {f"terms.share.{named(term)}": expected(each) for term, each in zip(NINE, draws.T, strict=True)}
    chance["terms.mixed"] = expected(draws[:, [term in MIXED for term in NINE]].sum(1))
    chance["terms.mixed_to_words"] = expected([mixed_to_words(NINE, draw) for draw in by_head])
    found = {
        "turned": draws.mean(0),
        "permuted": head_shares(model, permuted(table, ids.shape[1]), ids).mean(0),
        "covariance": np.mean([head_shares(model, redrawn(table, draw), ids) for draw in range(FEWER)], axis=(0, 1)),
        "fresh": head_shares(start, input_sum(start, ids.shape[1]), ids).mean(0),
    }
    others = [
        row(f"terms.share_{name}.{named(term)}", value, layer=1, n=len(ids))
        for name, values in found.items()
        for term, value in zip(NINE, values, strict=True)
    ]
    rows = share_rows(1, [*NINE, BIAS][: by_term.shape[-1]], by_term, chance)
    return Measured([row("terms.sum_error", error, layer=1), *rows, *others])


def sequence_shares(model: EncoderModel, table: InputSum, ids: Tensor) -> Float[np.ndarray, "s h t"]:
    """The `shares` of each sequence, in logits with their bias where the variant has one."""
    bias = position_bias(model, ids.shape[1])
    return numpy(torch.cat([shares(*heads(model, table, some), bias) for some in ids.split(AT_ONCE)]))


def head_shares(model: EncoderModel, table: InputSum, ids: Tensor) -> Float[np.ndarray, "h t"]:
    """The shares of the nine terms, the mean over sequences."""
    return sequence_shares(model, table, ids).mean(0)[:, : len(NINE)]


@torch.no_grad()
def measure_effect(subject: Subject) -> Measured:
    """What each of the nine terms changes in attention, and each of the four in the masked-LM loss."""
    model, table = subject.model, subject.sum
    table.check()
    found = numpy(torch.cat([divergences(model, table, some) for some in subject.tokens[:FEW].split(AT_ONCE)]))
    measures = {
        f"terms.kl.{named(term)}": Sums(each, np.ones(len(each))) for term, each in zip(NINE, found.T, strict=True)
    }
    left_out = {}
    try:
        head, text = subject.masked_lm(MASKED)
        masked = [probe.masked for probe in text.probes]
        base = loss_sums(head, masked)
        for term in FOUR:
            with _without(model, table, *term):
                rise = Sums(row_losses(head, masked) - base.sums, base.counts)
            measures[f"terms.loss_rise.{named(term)}"] = rise
    except LeftOut as reason:
        left_out["terms.loss_rise"] = str(reason)
    rows = [row(name, sums.value, sums.interval, layer=1, n=sums.n) for name, sums in measures.items()]
    return Measured(rows, left_out=left_out)


def divergences(model: EncoderModel, table: InputSum, ids: Tensor) -> Float[Tensor, "b t"]:
    """The divergence of each of the nine terms, the mean over rows and heads."""
    bias = position_bias(model, ids.shape[1])
    queries, keys = heads(model, table, ids)
    logits = queries.sum(0) @ keys.sum(0).mT + (0 if bias is None else bias)
    before = logits.log_softmax(-1)
    found = []
    for query, key in product(queries, keys):
        without = (logits - query @ key.mT).log_softmax(-1)
        found.append((before.exp() * (before - without)).sum(-1).mean((-1, -2)))
    return torch.stack(found, -1)


@contextmanager
def _without(model: EncoderModel, table: InputSum, query: str, key: str) -> Iterator[None]:
    """In this block, the first block's logits lack a term, of whatever text is read."""
    ids: list[Tensor] = []

    def lack(_: Attention, given: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, scores, *rest = given
        queries, keys = heads(model, table, ids.pop())
        term = queries[PARTS.index(query)] @ keys[PARTS.index(key)].mT
        return hidden, scores._replace(bias=-term if scores.bias is None else scores.bias - term), *rest

    with (
        model.variant.register_forward_pre_hook(lambda _, given: ids.append(given[0])),
        model.blocks[0].attention.register_forward_pre_hook(lack),  # type: ignore[union-attr]
    ):
        yield


def heads(model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]) -> tuple[Queries, Queries]:
    """The scaled queries and the keys of w^, p^ and c^; their products are the nine terms.

    Where an encoder projects its input to the blocks' width, the parts are projected, too.
    """
    norm, attention = model.norm, model.blocks[0].attention
    words, positions = table.words[ids], table.positions[: ids.shape[1]]
    entering = words + positions + table.mean
    scale = (entering.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()

    def normed(rows: Tensor) -> Tensor:
        return norm.weight * (rows - rows.mean(-1, keepdim=True)) * scale

    def linear(parts: Tensor, weight: Any, bias: Any) -> Tensor:
        projected = F.linear(parts, weight)
        return torch.cat([projected[:2], projected[2:] + bias])

    parts = torch.stack([normed(words), normed(positions), normed(table.mean) + norm.bias])
    if model.project is not None:
        parts = linear(parts, model.project.weight, model.project.bias)
    both, width = attention.qkv, 2 * parts.shape[-1]  # type: ignore[union-attr]
    both = linear(parts, both.weight[:width], both.bias[:width])  # type: ignore[union-attr,index]
    queries, keys = rearrange(both, "p b l (n h k) -> n p b h l k", n=2, h=attention.num_heads)  # type: ignore[union-attr]
    return queries * attention.scale, keys  # type: ignore[union-attr]


def shares(queries: Queries, keys: Queries, bias: Tensor | None = None) -> Float[Tensor, "b h t"]:
    """S_T of the nine terms, by query and key, and of a `bias` on the scores, last.

    The sum over i, j of A^{ab} A is that of a_i W_Q (A K_b)_i, which needs no term as a matrix.
    """
    keys = keys - keys.mean(-2, keepdim=True)  # then every row of every product is centred
    total = queries.sum(0) @ keys.sum(0).mT
    added = None if bias is None else centred(bias)
    if added is not None:
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
    """How far the nine terms and a bias are from the largest logit, as its share; raises LeftOut beyond EXACT."""
    seen: list[Scores] = []
    with watching(model, lambda block, scores: seen.append(scores) if block == 0 else None):
        model.hidden_states(ids)
    queries, keys = heads(model, table, ids)
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
