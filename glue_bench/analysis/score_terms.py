"""The terms of attention of a variant that adds positions to the scores: terms by construction, in every block.

Shapes: b batch, h heads, l length.

    A = word_word + word_position + position_word + position_position

word_word is the scaled product of queries and keys of what enters the block, which in deeper blocks is what the words
have become. Untied and DIET add position_position; four-term and disentangled also what words and positions make
together. Shares are those of `terms`: S_T = Cov(A^T, A) / Var(A), each row centred over its keys.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from glue_bench.analysis.measured import EXACT, LeftOut, Measured, numpy
from glue_bench.analysis.panels import Panels
from glue_bench.analysis.share_tables import named, share_frame, share_numbers
from glue_bench.analysis.subject import AT_ONCE, Subject
from glue_bench.analysis.terms import FOUR, Term
from glue_bench.analysis.watching import Scores, watching


def measure_score_terms(subject: Subject) -> Measured:
    """Shares of each block that is asked for, and the panels of the first.

    Raises:
        LeftOut: positions enter neither input nor scores, or turn queries and keys; or there is no text.
    """
    panels, errors = Panels(), list[float]()
    found: dict[int, list[dict[Term, Tensor]]] = {block: [] for block in subject.blocks}

    def look(block: int, scores: Scores) -> None:
        if block + 1 not in found:
            return
        terms = {name: centred(term) for name, term in terms_of(scores).items()}
        whole = sum(terms.values(), torch.zeros(()))
        errors.append(float((whole - centred(scores.logits)).abs().max() / scores.logits.abs().max()))
        found[block + 1].append(shares(terms))
        for (query, key), term in terms.items() if block == 0 else ():
            panels.add(query, key, term)

    with torch.inference_mode(), watching(subject.model, look):
        for some in subject.tokens.split(AT_ONCE):
            subject.model.hidden_states(some)
    if max(errors) > EXACT:
        raise LeftOut(f"its terms are {max(errors):.1g} of the largest logit away from its own logits")
    return Measured(*_told(found, panels, max(errors)))


def terms_of(scores: Scores) -> dict[Term, Float[Tensor, "#b #h l l"]]:
    """The terms that a variant has; a score that is the same for all keys of a token is none, as softmax shows.

    Raises:
        LeftOut: it has none but words, or the positions turn queries and keys.
    """
    if scores.entangled:
        raise LeftOut("its positions turn queries and keys, so that no term is of words or of positions alone")
    named = {
        ("word", "word"): scores.content,
        ("word", "position"): scores.word_position,
        ("position", "word"): scores.position_word,
        ("position", "position"): scores.position_position,
    }
    terms = {name: term for name, term in named.items() if term is not None and _differs(term)}
    if all(name == ("word", "word") for name in terms):
        raise LeftOut("positions enter neither its input nor its scores")
    return terms


def _differs(term: Float[Tensor, "#b #h l l"]) -> bool:
    """Whether any row differs over its keys by more than rounding."""
    return bool(centred(term).abs().max() > EXACT * term.abs().max())


def centred(term: Float[Tensor, "*b l l"]) -> Float[Tensor, "*b l l"]:
    """Each row less its mean over the keys."""
    return term - term.mean(-1, keepdim=True)


def shares(terms: Mapping[Term, Float[Tensor, "#b #h l l"]]) -> dict[Term, Float[Tensor, "b h"]]:
    """S_T of centred terms."""
    total = sum(terms.values(), torch.zeros(()))
    variance = total.square().sum((-1, -2))
    return {name: (term * total).sum((-1, -2)) / variance for name, term in terms.items()}


def _told(
    found: Mapping[int, list[dict[Term, Tensor]]], panels: Panels, error: float
) -> tuple[dict, dict[str, pd.DataFrame]]:
    """Numbers of the first block that was asked for, and frames of all."""
    frames: list[pd.DataFrame] = []
    numbers: dict[str, Any] = {}
    for block, batches in found.items():
        names = list(batches[0])
        by_term = numpy(torch.stack([torch.cat([batch[name] for batch in batches]) for name in names], -1))
        frames.append(share_frame(block, names, by_term))
        if not numbers:
            numbers = share_numbers(names, by_term) | {"block": block, "sum_error": error, "sequences": len(by_term)}
            if lacking := [named(term) for term in FOUR if term not in names]:
                numbers["share"] |= dict.fromkeys(lacking) | {"left_out": f"its scores have no {', '.join(lacking)}"}
    drawn = panels.frames(block=1) if panels.sums else {}
    return {"terms": numbers}, drawn | {"terms_share": pd.concat(frames, ignore_index=True)}
