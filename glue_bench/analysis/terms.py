"""The terms of attention's scores: in the first block of an additive encoder, or in every block by construction.

Shapes: b batch, s sequences, m draws, l length, e width of the tables, d width of the blocks, h heads, k head size, t
terms. An encoder that adds words and positions at its input has nine terms in its first block:

    x_i = gamma * C(w_i + p_i + s) / sigma_i + beta          C = I - 11'/e; sigma_i of the row as it is, kept fixed
        = w^_i + p^_i + c^_i
    w^_i = gamma * C(w_i - w_mean) / sigma_i                 the word's part
    p^_i = gamma * C(p_i - p_mean) / sigma_i                 the position's part
    c^_i = the rest: both means, the segment, beta
    A^{ab}_h[i, j] = (a_i W_Q,h)(b_j W_K,h)' / sqrt(score_terms * k)      a, b in {w^, p^, c^}; biases belong to c^

TUPE (Ke, He & Liu 2021), equation 6 and figure 2, has the four terms of w and p. A variant that adds positions to the
scores has those four by construction, in every block; word_word is the scaled product of queries and keys of what
enters the block, which in deeper blocks is what the words have become. Untied and DIET add position_position;
four-term and disentangled also what words and positions make together.

That terms add up to the encoder's own logits A is checked at every run. Each row is centred over its keys, because
softmax does not see what a row has in common. What a term has, and what changes without it:

    S_T  = Cov(A^T, A) / Var(A)                     over all pairs of tokens of a sequence; shares sum to 1
    KL   = KL(softmax(A) || softmax(A - A^T))       in nats, the mean over rows and heads
    rise = mean over masked tokens of  -log p(x_t | without the term) + log p(x_t | with it)       in nats

Chance is the same positions rotated at random. Beside it stand positions permuted, positions drawn from a
normal distribution with their covariance, and fresh weights.
"""

from collections.abc import Iterator, Sequence
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
from torch import Tensor, nn

from glue_bench.analysis.chance import (
    EXACT,
    NONE,
    SEED,
    LeftOut,
    Measured,
    Row,
    Sums,
    expected,
    mean_row,
    row,
)
from glue_bench.analysis.hooks import (
    AT_ONCE,
    FOUR,
    MIXED,
    BlockTerms,
    InputSum,
    Terms,
    float64,
    input_sum,
    watching,
)
from glue_bench.analysis.subject import MOST_DEEP, Subject
from glue_bench.analysis.word_order import loss_sums
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import Attention, Block, EncoderModel
from glue_bench.model.fresh import fresh

PARTS = ("word", "position", "rest")
NINE, BIAS = tuple(map("_".join, product(PARTS, PARTS))), "bias"
DRAWS = 10  # rotations of the positions, for the band
COVARIANCE_DRAWS = 3  # tables with their covariance, for a mean
MASKED = 32  # sequences of which a loss is taken
Shares = Float[np.ndarray, "n h t"]


@torch.no_grad()
def measure_terms(subject: Subject) -> Measured:
    """Shares of the first block's terms; where positions enter the scores instead, `measure_score_terms`.

    The band of chance is that of rotated positions. Beside it stand the mean shares of each baseline; for positions of
    fresh weights, the table's own are any others.
    """
    model, table, ids = subject.model, subject.sum, subject.tokens
    if not table.has_positions:
        return measure_score_terms(subject)
    error = check_sum(model, table, ids[:AT_ONCE])
    measured = sequence_shares(model, table, ids)
    ids = ids[:MOST_DEEP]
    start = fresh(EncoderModel, cast(EncoderConfig, model.config), SEED).eval().to(model.device)
    length = ids.shape[1]
    order = np.random.default_rng([SEED, length]).permutation(length).tolist()

    def by_head(
        model: EncoderModel, table: InputSum
    ) -> Float[np.ndarray, "h t"]:  # the mean over sequences
        return sequence_shares(model, table, ids).mean(0)[:, : len(NINE)]

    draws = np.array([by_head(model, rotated(table, draw)) for draw in range(DRAWS)])
    baselines = {
        "turned": draws,
        "permuted": by_head(model, replace(table, positions=table.positions[:length][order]))[None],
        "covariance": np.array(
            [by_head(model, redrawn(table, draw)) for draw in range(COVARIANCE_DRAWS)]
        ),
        "fresh": by_head(start, input_sum(start, length))[None],
    }
    others = [
        row(f"terms.share_{name}.{term}", value, layer=1, n=len(ids))
        for name, each in baselines.items()
        for term, value in zip(NINE, each.mean((0, 1)), strict=True)
    ]
    rows = share_rows(1, [*NINE, BIAS][: measured.shape[-1]], measured, draws)
    return Measured([row("terms.sum_error", error, layer=1), *rows, *others])


def measure_score_terms(subject: Subject) -> Measured:
    """Shares in each block."""
    errors, by_block = list[float](), dict[tuple[int, tuple[str, ...]], list[np.ndarray]]()

    def look(block: int, scores: BlockTerms) -> None:
        terms = terms_of(scores)
        errors.append(sum_error(terms, scores.logits))
        by_block.setdefault((block, tuple(terms)), []).append(float64(shares(terms)))

    with torch.inference_mode(), watching(subject.model, look):
        for some in subject.tokens.split(AT_ONCE):
            subject.model.hidden_states(some)
    rows = [row("terms.sum_error", max(errors), layer=1)]
    for (block, names), batches in by_block.items():
        rows += share_rows(block, names, np.concatenate(batches))
    _, has = max(by_block)
    lacking = [term for term in FOUR if term not in has]
    return Measured(
        rows, left_out={f"terms.share.{name}": f"its scores have no {name}" for name in lacking}
    )


@torch.no_grad()
def measure_effect(subject: Subject) -> Measured:
    """What each of the nine terms changes in attention, and each of the four in the masked-LM loss."""
    model, table = subject.model, subject.sum
    table.check()
    check_sum(model, table, subject.tokens[:AT_ONCE])
    kl = float64(
        torch.cat(
            [divergences(model, table, some) for some in subject.tokens[:MOST_DEEP].split(AT_ONCE)]
        )
    )
    rows = [
        mean_row(f"terms.kl.{term}", each, layer=1) for term, each in zip(NINE, kl.T, strict=True)
    ]
    try:
        head, text = subject.head_and_text(MASKED)
    except LeftOut as reason:
        return Measured(rows, left_out={"terms.loss_rise": str(reason)})
    masked = [probe.masked for probe in text.probes]
    base = loss_sums(head, masked)
    for term in FOUR:
        with _without(model, table, term):
            rise = Sums(loss_sums(head, masked).sums - base.sums, base.counts)
        rows.append(row(f"terms.loss_rise.{term}", rise.value, rise.interval, layer=1, n=rise.n))
    return Measured(rows)


def divergences(model: EncoderModel, table: InputSum, ids: Tensor) -> Float[Tensor, "b t"]:
    """The divergence of each of the nine terms, the mean over rows and heads."""
    terms, kl = terms_of_input(model, table, ids), []
    logits = sum_of(terms)
    before = logits.log_softmax(-1)
    for term in NINE:
        without = (logits - terms[term]).log_softmax(-1)
        kl.append((before.exp() * (before - without)).sum(-1).mean((-1, -2)))
    return torch.stack(kl, -1)


@contextmanager
def _without(model: EncoderModel, table: InputSum, term: str) -> Iterator[None]:
    """In this block, the first block's logits lack a term, of whatever text is read."""
    read: dict[str, Tensor] = {}

    def lack(_: Attention, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, scores, *rest = inputs
        lacking = -terms_of_input(model, table, read["ids"])[term]
        return (
            hidden,
            scores._replace(bias=lacking if scores.bias is None else scores.bias + lacking),
            *rest,
        )

    with (
        model.variant.register_forward_pre_hook(lambda _, inputs: read.update(ids=inputs[0])),
        model.blocks[0].attention.register_forward_pre_hook(lack),  # type: ignore[union-attr]
    ):
        yield


# Terms


def terms_of_input(model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]) -> Terms:
    """The nine terms of the first block, and the BIAS on its scores where the variant has one; rows are centred.

    The parts go through a projection to the blocks' width, and the LayerNorm of blocks that have it first, too.
    """
    block = cast(Block, model.blocks[0])
    attention, tables = (
        block.attention,
        (table.words[ids], table.positions[: ids.shape[1]], table.mean),
    )

    def linear(parts: Tensor, weight: Any, bias: Any) -> Tensor:
        projected = F.linear(parts, weight)
        return torch.cat([projected[:2], projected[2:] + bias])

    parts = normalised(model.norm, torch.stack(torch.broadcast_tensors(*tables)))
    if model.project is not None:
        parts = linear(parts, model.project.weight, model.project.bias)
    if block.norm_first:
        parts = normalised(block.attention_norm, parts)
    width = 2 * parts.shape[-1]
    both = linear(parts, attention.qkv.weight[:width], attention.qkv.bias[:width])
    queries, keys = rearrange(both, "p b l (n h k) -> n p b h l k", n=2, h=attention.num_heads)
    pairs = product(queries * attention.scale, keys - keys.mean(-2, keepdim=True))
    terms = dict(zip(NINE, (query @ key.mT for query, key in pairs), strict=True))
    zeros = torch.zeros_like(ids[:1])  # a bias is that of any text
    bias = model.variant(zeros, zeros).biases()[0]
    return terms if bias is None else terms | {BIAS: centred(bias)}


def normalised(norm: nn.LayerNorm, parts: Float[Tensor, "3 b l e"]) -> Float[Tensor, "3 b l e"]:
    """LayerNorm of the sum, by its parts; the bias joins the last one."""
    scale = (parts.sum(0).var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
    parts = norm.weight * (parts - parts.mean(-1, keepdim=True)) * scale
    return torch.cat([parts[:2], parts[2:] + norm.bias])


def terms_of(scores: BlockTerms) -> Terms:
    """The terms that a variant has, centred; a score that is the same for all keys of a token is none.

    Raises LeftOut where it has none but words, or positions turn queries and keys.
    """
    if scores.entangled:
        raise LeftOut(
            "its positions turn queries and keys, so that no term is of words or of positions alone"
        )
    terms = {name: centred(term) for name, term in scores.terms.items()}
    terms = {
        name: term
        for name, term in terms.items()
        if term.abs().max() > EXACT * scores.terms[name].abs().max()
    }
    if set(terms) <= {"word_word"}:
        raise LeftOut("positions enter neither its input nor its scores")
    return terms


def centred(term: Float[Tensor, "*b l l"]) -> Float[Tensor, "*b l l"]:
    """Each row less its mean over the keys."""
    return term - term.mean(-1, keepdim=True)


def sum_of(terms: Terms) -> Float[Tensor, "b h l l"]:
    """The centred logits."""
    return sum(terms.values(), torch.zeros(()))


def sum_error(terms: Terms, logits: Tensor) -> float:
    """How far the terms are from the largest logit, as its share; raises LeftOut beyond EXACT."""
    error = float((sum_of(terms) - centred(logits)).abs().max() / logits.abs().max())
    if error > EXACT:
        raise LeftOut(f"its terms are {error:.1g} of the largest logit away from the encoder's own")
    return error


def check_sum(model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]) -> float:
    """The `sum_error` of the terms of the input."""
    seen: list[BlockTerms] = []
    with watching(model, lambda _, scores: seen.append(scores)):
        model.hidden_states(ids)
    return sum_error(terms_of_input(model, table, ids), seen[0].logits)


# Shares


def shares(terms: Terms) -> Float[Tensor, "b h t"]:
    """S_T of centred terms."""
    total = sum_of(terms)
    inner = torch.stack([(term * total).sum((-1, -2)) for term in terms.values()], -1)
    return inner / total.square().sum((-1, -2))[..., None]


def sequence_shares(model: EncoderModel, table: InputSum, ids: Tensor) -> Shares:
    """The `shares` of each sequence in the first block."""
    return float64(
        torch.cat([shares(terms_of_input(model, table, some)) for some in ids.split(AT_ONCE)])
    )


def by_measure(terms: Sequence[str], by_head: Shares) -> dict[str, Float[np.ndarray, " n"]]:
    """The share of each term and, where terms are mixed, that of these together; means over heads."""
    means = dict(zip(terms, np.moveaxis(by_head.mean(1), -1, 0), strict=True))
    values = {f"terms.share.{term}": mean for term, mean in means.items()}
    mixed = [mean for term, mean in means.items() if term in MIXED]
    return values | ({"terms.mixed": np.sum(mixed, 0)} if mixed else {})


def share_rows(
    block: int, terms: Sequence[str], measured: Shares, draws: Shares | None = None
) -> list[Row]:
    """`by_measure` with intervals over sequences, and `mixed_to_words` where terms are mixed.

    `draws` are shares of NINE by chance.
    """
    values, chance, mixed = by_measure(terms, measured), {}, "terms.mixed_to_words"
    if draws is not None:
        chance = {name: expected(each) for name, each in by_measure(NINE, draws).items()}
        chance[mixed] = expected([mixed_to_words(NINE, draw) for draw in draws])
    rows = [
        mean_row(name, each, chance.get(name, NONE), layer=block) for name, each in values.items()
    ]
    if "terms.mixed" in values:
        value = mixed_to_words(terms, measured.mean(0))
        rows.append(row(mixed, value, chance=chance.get(mixed, NONE), layer=block, n=len(measured)))
    return rows


def mixed_to_words(terms: Sequence[str], by_head: Float[np.ndarray, "h t"]) -> float:
    """What the mixed terms have of the share of themselves and word to word, the mean over heads.

    A term's share of all falls wherever another term grows. This hardly does, because it is taken head by head without
    the terms of positions alone; only the covariance with these remains in it.
    """
    mixed = by_head[:, [term in MIXED for term in terms]].sum(-1)
    words = by_head[:, [term == "word_word" for term in terms]].sum(-1)
    return float((mixed / (mixed + words)).mean())


def rotated(table: InputSum, draw: int) -> InputSum:
    """The same positions, rotated at random: what they have in common with words and weights is lost."""
    width = table.positions.shape[1]
    rotation = ortho_group.rvs(width, random_state=np.random.default_rng([SEED, draw, width]))
    return replace(
        table, positions=table.positions @ torch.from_numpy(rotation).to(table.positions)
    )


def redrawn(table: InputSum, draw: int) -> InputSum:
    """Positions drawn from a normal distribution with the covariance of the table's own, and as large as those."""
    n = len(table.positions)
    mixed = torch.from_numpy(np.random.default_rng([SEED, draw]).standard_normal((n, n))).to(
        table.positions
    )
    rows = mixed @ table.positions
    rows = rows - rows.mean(0)
    return replace(table, positions=rows * (table.positions.norm() / rows.norm()))
