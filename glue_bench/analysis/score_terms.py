"""The terms of attention of a variant that adds positions to the scores: terms by construction, in every block.

Shapes: b batch, s sequences, h heads, l length, t terms.

    A = word_word + word_position + position_word + position_position

word_word is the scaled product of queries and keys of what enters the block, which in deeper blocks is what the words
have become. Untied and DIET add position_position; four-term and disentangled also what words and positions make
together. Each row is centred over its keys, because softmax does not see what a row has in common; then

    S_T = Cov(A^T, A) / Var(A)      over all pairs of tokens of a sequence: the share of a term, and shares sum to 1
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glue_bench.analysis.chance import EXACT, NONE, Interval, LeftOut, Measured, Row, Sums, row
from glue_bench.analysis.hooks import AT_ONCE, Scores, numpy, watching
from glue_bench.analysis.subject import Subject

Term = tuple[str, str]
"""The part that the query is of, and that of the key."""
PARTS = ("word", "position", "rest")
NINE: tuple[Term, ...] = tuple(product(PARTS, PARTS))
FOUR: tuple[Term, ...] = tuple(product(PARTS[:2], PARTS[:2]))
WORDS, BIAS = ("word", "word"), ("bias", "bias")
MIXED: tuple[Term, ...] = (("word", "position"), ("position", "word"))


def measure_score_terms(subject: Subject) -> Measured:
    """Shares in each block."""
    errors, found = list[float](), dict[int, list[dict[Term, Tensor]]]()

    def look(block: int, scores: Scores) -> None:
        terms = {name: centred(term) for name, term in terms_of(scores).items()}
        whole = sum(terms.values(), torch.zeros(()))
        errors.append(float((whole - centred(scores.logits)).abs().max() / scores.logits.abs().max()))
        found.setdefault(block + 1, []).append(shares_of_scores(terms))

    with torch.inference_mode(), watching(subject.model, look):
        for some in subject.tokens.split(AT_ONCE):
            subject.model.hidden_states(some)
    if max(errors) > EXACT:
        raise LeftOut(f"its terms are {max(errors):.1g} of the largest logit away from its own logits")
    rows = [row("terms.sum_error", max(errors), layer=1)]
    for block, batches in found.items():
        names = list(batches[0])
        by_term = numpy(torch.stack([torch.cat([batch[name] for batch in batches]) for name in names], -1))
        rows += share_rows(block, names, by_term, {})
    lacking = [named(term) for term in FOUR if term not in names]
    return Measured(rows, left_out={f"terms.share.{name}": f"its scores have no {name}" for name in lacking})


def terms_of(scores: Scores) -> dict[Term, Float[Tensor, "#b #h l l"]]:
    """The terms that a variant has; a score that is the same for all keys of a token is none, as softmax shows.

    Raises LeftOut where it has none but words, or positions turn queries and keys.
    """
    if scores.entangled:
        raise LeftOut("its positions turn queries and keys, so that no term is of words or of positions alone")
    each = (scores.content, scores.word_position, scores.position_word, scores.position_position)
    terms = {
        name: term
        for name, term in zip(FOUR, each, strict=True)
        if term is not None and centred(term).abs().max() > EXACT * term.abs().max()  # differs by more than rounding
    }
    if set(terms) <= {WORDS}:
        raise LeftOut("positions enter neither its input nor its scores")
    return terms


def centred(term: Float[Tensor, "*b l l"]) -> Float[Tensor, "*b l l"]:
    """Each row less its mean over the keys."""
    return term - term.mean(-1, keepdim=True)


def shares_of_scores(terms: Mapping[Term, Float[Tensor, "#b #h l l"]]) -> dict[Term, Float[Tensor, "b h"]]:
    """S_T of centred terms."""
    total = sum(terms.values(), torch.zeros(()))
    variance = total.square().sum((-1, -2))
    return {name: (term * total).sum((-1, -2)) / variance for name, term in terms.items()}


def named(term: Term) -> str:
    """A term as a measure's name has it: word_position, of a word's query and a position's key."""
    return "bias" if term == BIAS else "_".join(term)


def share_rows(
    block: int, terms: Sequence[Term], found: Float[np.ndarray, "s h t"], chance: Mapping[str, Interval]
) -> list[Row]:
    """The share of each term, of each head and the mean over heads, with intervals over sequences.

    Where terms are mixed, also the share of these together, and `mixed_to_words`. `chance` is of the means over heads,
    by the measure's name.
    """
    values = {f"terms.share.{named(term)}": found[..., number] for number, term in enumerate(terms)}
    if any(term in MIXED for term in terms):
        values["terms.mixed"] = found[..., [term in MIXED for term in terms]].sum(-1)
    rows = []
    for name, by_head in values.items():
        every = [by_head.mean(1), *(by_head.T if name != "terms.mixed" else ())]
        for head, each in enumerate(every):
            mean, band = Sums(each, np.ones(len(each))), NONE if head else chance.get(name, NONE)
            rows.append(row(name, mean.value, mean.interval, band, layer=block, head=head or None, n=mean.n))
    if "terms.mixed" in values:
        name, value = "terms.mixed_to_words", mixed_to_words(terms, found.mean(0))
        rows.append(row(name, value, chance=chance.get(name, NONE), layer=block, n=len(found)))
    return rows


def mixed_to_words(terms: Sequence[Term], by_head: Float[np.ndarray, "h t"]) -> float:
    """What the mixed terms have of the share of themselves and word to word, the mean over heads.

    A term's share of all falls wherever another term grows. This hardly does, because it is taken head by head without
    the terms of positions alone; only the covariance with these remains in it.
    """
    mixed = by_head[:, [term in MIXED for term in terms]].sum(-1)
    words = by_head[:, [term == WORDS for term in terms]].sum(-1)
    return float((mixed / (mixed + words)).mean())
