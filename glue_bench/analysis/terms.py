"""The terms of attention's scores, and their shares.

Shapes: b batch, s sequences, m draws, l length, e width of the tables, d width of the blocks, h
heads, k head size, t terms. An encoder that adds words and positions at its input has nine terms in
its first block:

    x_i = gamma * C(w_i + p_i + s) / sigma_i + beta          C = I - 11'/e; sigma_i of the whole row
        = w^_i + p^_i + c^_i
    w^_i = gamma * C(w_i - w_mean) / sigma_i                 the word's part
    p^_i = gamma * C(p_i - p_mean) / sigma_i                 the position's part
    c^_i = the rest: both means, the segment, beta
    A^{ab}_h[i, j] = (a_i W_Q,h)(b_j W_K,h)' / sqrt(score_terms * k)      a, b in {w^, p^, c^}

Biases belong to c^. Equation 6 and figure 2 of TUPE (Ke, He & Liu 2021) have the four terms of w
and p. A variant that adds positions to the scores has these four terms by construction, in every
block. There word_word is the scaled product of the queries and keys of the block's input. Untied
and DIET add position_position; four-term and disentangled also add the products of words and
positions.

Every run checks that the sum of the terms is A, the encoder's own logits. Each row is centred over
its keys, because softmax does not change if a number is added to a whole row. The share of a term
is:

    S_T  = Cov(A^T, A) / Var(A)      over all pairs of tokens of a sequence; shares sum to 1

Chance is the share with the same positions rotated at random. For comparison, shares are also
computed with permuted positions, with positions drawn from a normal distribution of the same
covariance, and with fresh weights.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from scipy.stats import ortho_group
from torch import Tensor, nn

from glue_bench.analysis.chance import (
    CHANCE_SEED,
    NO_INTERVAL,
    ROUNDING_ERROR,
    LeftOut,
    Measured,
    Row,
    mean_row,
    prediction_band,
    row,
    seeded_generator,
)
from glue_bench.analysis.hooks import (
    BATCH_SEQUENCES,
    FOUR_TERMS,
    MIXED_TERMS,
    BlockTerms,
    InputSum,
    Terms,
    input_sum,
    to_float64,
    watch_scores,
)
from glue_bench.analysis.subject import MAX_DEEP_SEQUENCES, Subject
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import Block, EncoderModel
from glue_bench.model.fresh import fresh

INPUT_PARTS = ("word", "position", "rest")
NINE_TERMS = tuple(f"{query}_{key}" for query in INPUT_PARTS for key in INPUT_PARTS)
BIAS = "bias"
ENTANGLED = "its positions enter queries and keys, so that no term is of words or positions alone"
"""The reason why the terms of a variant are left out."""
ROTATION_DRAWS = 10  # rotations of the positions, from which the band is computed
COVARIANCE_DRAWS = 3  # tables with the covariance of the positions, whose shares are averaged
Shares = Float[np.ndarray, "n h t"]


@torch.no_grad()
def measure_terms(subject: Subject) -> Measured:
    """Measure the shares of the first block's terms.

    If positions enter the scores instead of the input, `measure_score_terms` measures the shares.
    The band of chance comes from rotated positions. There are also rows with the mean shares of
    each baseline.
    """
    model = subject.model
    table = subject.sum
    ids = subject.tokens
    if not table.has_positions:
        return measure_score_terms(subject)
    error = check_sum(model, table, ids[:BATCH_SEQUENCES])
    measured = sequence_shares(model, table, ids)
    names = [*NINE_TERMS, BIAS][: measured.shape[-1]]
    ids = ids[:MAX_DEEP_SEQUENCES]
    baselines = _baseline_shares(model, table, ids)
    rows = [row("terms.sum_error", error, layer=1)]
    rows += share_rows(1, names, measured, baselines["turned"])
    for baseline, draws in baselines.items():
        for term, share in zip(NINE_TERMS, draws.mean((0, 1)), strict=True):
            rows.append(row(f"terms.share_{baseline}.{term}", share, layer=1, n=len(ids)))
    return Measured(rows)


def _baseline_shares(
    model: EncoderModel, table: InputSum, ids: Int[Tensor, "n l"]
) -> dict[str, Shares]:
    """Return the shares of NINE_TERMS, the mean over sequences, of each draw of each baseline."""
    length = ids.shape[1]
    order = seeded_generator(length).permutation(length).tolist()
    permuted = replace(table, positions=table.positions[:length][order])
    fresh_model = fresh(EncoderModel, cast(EncoderConfig, model.config), CHANCE_SEED)
    fresh_model = fresh_model.eval().to(model.device)

    def mean_shares(model: EncoderModel, table: InputSum) -> Float[np.ndarray, "h t"]:
        return sequence_shares(model, table, ids).mean(0)[:, : len(NINE_TERMS)]

    rotations = [
        mean_shares(model, rotate_positions(table, draw)) for draw in range(ROTATION_DRAWS)
    ]
    redraws = [
        mean_shares(model, redraw_positions(table, draw)) for draw in range(COVARIANCE_DRAWS)
    ]
    return {
        "turned": np.array(rotations),
        "permuted": mean_shares(model, permuted)[None],
        "covariance": np.array(redraws),
        "fresh": mean_shares(fresh_model, input_sum(fresh_model, length))[None],
    }


class BlockOfTerms(NamedTuple):
    """A block, and the terms that its scores have; batches of a block may differ in their terms."""

    block: int
    terms: tuple[str, ...]


def measure_score_terms(subject: Subject) -> Measured:
    """Measure the shares of terms in each block."""
    errors = []
    shares_of: dict[BlockOfTerms, list[np.ndarray]] = {}
    reasons: list[LeftOut] = []

    def add_shares(block: int, scores: BlockTerms) -> None:
        try:
            terms = terms_of(scores)
        except LeftOut as reason:  # positions may enter only some blocks
            reasons.append(reason)
            return
        error = sum_error(terms, scores.logits)
        errors.append(error)
        batches = shares_of.setdefault(BlockOfTerms(block, tuple(terms)), [])
        of_batch = to_float64(shares(terms))
        batches.append(of_batch)

    with torch.inference_mode(), watch_scores(subject.model, add_shares):
        for batch in subject.tokens.split(BATCH_SEQUENCES):
            subject.model.hidden_states(batch)
    if not shares_of:
        raise reasons[-1]
    rows = [row("terms.sum_error", max(errors), layer=1)]
    for key, batches in shares_of.items():
        rows += share_rows(key.block, key.terms, np.concatenate(batches))
    last_block = max(shares_of)
    left_out = {}
    for term in FOUR_TERMS:
        if term not in last_block.terms:
            left_out[f"terms.share.{term}"] = f"its scores have no {term}"
    return Measured(rows, left_out=left_out)


# Terms


def terms_of_input(model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]) -> Terms:
    """Return the nine terms of the first block, and BIAS if the variant adds a bias to its scores.

    Rows are centred. If the encoder has a projection to the blocks' width, or blocks that begin
    with a LayerNorm, the parts go through these, too.

    Args:
        model: The encoder.
        table: Its input as a sum.
        ids: The tokens, of one segment.

    Raises:
        LeftOut: positions enter the queries and keys beside the input.
    """
    zeros = torch.zeros_like(ids[:1])  # a bias does not depend on the text
    entering = model.variant(zeros, zeros)
    if entering.infused is not None:
        raise LeftOut(ENTANGLED)

    block = cast(Block, model.blocks[0])
    attention = block.attention
    words = table.words[ids]
    positions = table.positions[: ids.shape[1]]

    parts = torch.stack(torch.broadcast_tensors(words, positions, table.mean))
    parts = normalised(model.norm, parts)
    if model.project is not None:
        parts = _project_parts(parts, model.project.weight, model.project.bias)
    if block.norm_first:
        parts = normalised(block.attention_norm, parts)

    width = 2 * parts.shape[-1]
    projected = _project_parts(parts, attention.qkv.weight[:width], attention.qkv.bias[:width])
    queries, keys = rearrange(projected, "p b l (n h k) -> n p b h l k", n=2, h=attention.num_heads)
    queries = queries * attention.scale
    keys = keys - keys.mean(-2, keepdim=True)

    terms: Terms = {}
    for query_part, query in zip(INPUT_PARTS, queries, strict=True):
        for key_part, key in zip(INPUT_PARTS, keys, strict=True):
            terms[f"{query_part}_{key_part}"] = query @ key.mT

    bias = entering.biases()[0]
    if bias is not None:
        terms[BIAS] = centred(bias)
    return terms


def _project_parts(
    parts: Float[Tensor, "3 b l e"], weight: Any, bias: Any
) -> Float[Tensor, "3 b l d"]:
    """Project each part; the bias of the projection is added to the last part."""
    projected = F.linear(parts, weight)
    return torch.cat([projected[:2], projected[2:] + bias])


def normalised(norm: nn.LayerNorm, parts: Float[Tensor, "3 b l e"]) -> Float[Tensor, "3 b l e"]:
    """Divide the LayerNorm of a sum into its parts; the bias is added to the last part."""
    variance = parts.sum(0).var(-1, unbiased=False, keepdim=True)
    stable_variance = variance + norm.eps
    scale = stable_variance.rsqrt()
    centred_parts = parts - parts.mean(-1, keepdim=True)
    parts = norm.weight * centred_parts * scale
    return torch.cat([parts[:2], parts[2:] + norm.bias])


def terms_of(scores: BlockTerms) -> Terms:
    """Return the terms that a variant has, centred.

    A score that is the same for all keys of a token is no term. Raises LeftOut if word_word is the
    only term, or if positions enter queries and keys.
    """
    if scores.entangled:
        raise LeftOut(ENTANGLED)
    terms: Terms = {}
    for name, term in scores.terms.items():
        centred_term = centred(term)
        if centred_term.abs().max() > ROUNDING_ERROR * term.abs().max():
            terms[name] = centred_term
    if set(terms) <= {"word_word"}:
        raise LeftOut("positions enter neither its input nor its scores")
    return terms


def centred(term: Float[Tensor, "*b l l"]) -> Float[Tensor, "*b l l"]:
    """Subtract from each row its mean over the keys."""
    return term - term.mean(-1, keepdim=True)


def sum_of(terms: Terms) -> Float[Tensor, "b h l l"]:
    """Return the centred logits."""
    return sum(terms.values(), torch.zeros(()))


def sum_error(terms: Terms, logits: Tensor) -> float:
    """Return the largest error of the sum of terms, as a share of the largest logit.

    Raises LeftOut if it is larger than ROUNDING_ERROR.
    """
    total = sum_of(terms)
    differences = total - centred(logits)
    largest_difference = differences.abs().max()
    largest_logit = logits.abs().max()
    error = float(largest_difference / largest_logit)
    if error > ROUNDING_ERROR:
        raise LeftOut(f"its terms are {error:.1g} of the largest logit away from the encoder's own")
    return error


def check_sum(model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]) -> float:
    """Return the `sum_error` of the terms of the input.

    Args:
        model: The encoder.
        table: Its input as a sum.
        ids: The tokens, of one segment.

    Raises:
        LeftOut: the error is larger than ROUNDING_ERROR.
    """
    blocks = []
    with watch_scores(model, lambda _, scores: blocks.append(scores)):
        model.hidden_states(ids)
    return sum_error(terms_of_input(model, table, ids), blocks[0].logits)


# Shares


def shares(terms: Terms) -> Float[Tensor, "b h t"]:
    """Return S_T of centred terms."""
    total = sum_of(terms)
    products = [(term * total).sum((-1, -2)) for term in terms.values()]
    squares = total.square().sum((-1, -2))
    return torch.stack(products, -1) / squares[..., None]


def sequence_shares(model: EncoderModel, table: InputSum, ids: Int[Tensor, "n l"]) -> Shares:
    """Return the `shares` of each sequence in the first block.

    Args:
        model: The encoder.
        table: Its input as a sum.
        ids: The tokens, of one segment.
    """
    batches = ids.split(BATCH_SEQUENCES)
    return to_float64(torch.cat([shares(terms_of_input(model, table, batch)) for batch in batches]))


def by_measure(terms: Sequence[str], by_head: Shares) -> dict[str, Float[np.ndarray, " n"]]:
    """Return the share of each term, the mean over heads.

    If terms are mixed, `terms.mixed` is the share of the mixed terms together.
    """
    means = np.moveaxis(by_head.mean(1), -1, 0)
    measures = {}
    mixed = []
    for term, mean in zip(terms, means, strict=True):
        measures[f"terms.share.{term}"] = mean
        if term in MIXED_TERMS:
            mixed.append(mean)
    if mixed:
        measures["terms.mixed"] = np.sum(mixed, 0)
    return measures


def share_rows(
    block: int, terms: Sequence[str], measured: Shares, draws: Shares | None = None
) -> list[Row]:
    """Make rows of `by_measure`, with intervals over sequences, and of `mixed_to_words`.

    Args:
        block: The number of the block, from 1.
        terms: The names of the terms.
        measured: The shares of each sequence.
        draws: Shares of NINE_TERMS by chance, (draws, heads, terms).
    """
    to_words = "terms.mixed_to_words"
    chance = {}
    if draws is not None:
        for name, values in by_measure(NINE_TERMS, draws).items():
            chance[name] = prediction_band(values)
        chance[to_words] = prediction_band([mixed_to_words(NINE_TERMS, draw) for draw in draws])
    rows = []
    measures = by_measure(terms, measured)
    for name, values in measures.items():
        rows.append(mean_row(name, values, chance.get(name, NO_INTERVAL), layer=block))
    if "terms.mixed" in measures:
        value = mixed_to_words(terms, measured.mean(0))
        band = chance.get(to_words, NO_INTERVAL)
        rows.append(row(to_words, value, chance=band, layer=block, n=len(measured)))
    return rows


def mixed_to_words(terms: Sequence[str], by_head: Float[np.ndarray, "h t"]) -> float:
    """Return the share of the mixed terms in themselves and word to word, the mean over heads.

    The share of a term falls when another term grows. This share hardly falls, because it is
    computed for each head without the terms of positions alone. Only their covariance with the
    other terms remains in it.
    """
    is_mixed = [term in MIXED_TERMS for term in terms]
    mixed = by_head[:, is_mixed].sum(-1)
    is_word = [term == "word_word" for term in terms]  # a variant may have no such term
    words = by_head[:, is_word].sum(-1)
    return float((mixed / (mixed + words)).mean())


def rotate_positions(table: InputSum, draw: int) -> InputSum:
    """Rotate the positions at random, so that they no longer fit the words and the weights."""
    width = table.positions.shape[1]
    generator = seeded_generator(draw, width)
    rotation = torch.from_numpy(ortho_group.rvs(width, random_state=generator))
    return replace(table, positions=table.positions @ rotation.to(table.positions))


def redraw_positions(table: InputSum, draw: int) -> InputSum:
    """Draw positions from a normal distribution with the covariance of the table's positions."""
    n = len(table.positions)
    weights = seeded_generator(draw).standard_normal((n, n))
    rows = torch.from_numpy(weights).to(table.positions) @ table.positions
    rows = rows - rows.mean(0)
    return replace(table, positions=rows * (table.positions.norm() / rows.norm()))
