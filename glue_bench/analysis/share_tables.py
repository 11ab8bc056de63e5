"""Shares of terms by sequence as numbers of analysis.json and as a tidy frame.

Shapes: s sequences, h heads, t terms.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from glue_bench.analysis.measured import confidence
from glue_bench.analysis.terms import MIXED, Term

WORDS = ("word", "word")


def named(term: Term) -> str:
    """A term as analysis.json has it: word_position, of a word's query and a position's key."""
    return "bias" if term == ("bias", "bias") else "_".join(term)


def share_numbers(terms: Sequence[Term], found: Float[np.ndarray, "s h t"]) -> dict[str, Any]:
    """The mean over heads of each term's share, and of the mixed ones together, with intervals over sequences.

    Both are left out where no term is mixed: see `mixed_to_words`.
    """
    mean, reach = found.mean((0, 1)), confidence(found.mean(1))
    each = list(zip(map(named, terms), mean, reach, strict=True))
    numbers: dict[str, Any] = {}
    if any(term in MIXED for term in terms):
        mixed = found[..., [term in MIXED for term in terms]].sum(-1).mean(1)
        value, half = float(mixed.mean()), float(confidence(mixed))
        numbers = {"mixed": value, "mixed_interval": [value - half, value + half]}
        numbers["mixed_to_words"] = mixed_to_words(terms, found.mean(0))
    return numbers | {
        "share": {name: float(value) for name, value, _ in each},
        "share_interval": {name: [float(value - half), float(value + half)] for name, value, half in each},
    }


def mixed_to_words(terms: Sequence[Term], by_head: Float[np.ndarray, "h t"]) -> float:
    """What the mixed terms have of the share of themselves and word to word, the mean over heads.

    A term's share of all falls wherever another term grows. This hardly does, because it is taken head by head without
    the terms of positions alone; only the covariance with these remains in it.
    """
    mixed = by_head[:, [term in MIXED for term in terms]].sum(-1)
    words = by_head[:, [term == WORDS for term in terms]].sum(-1)
    return float((mixed / (mixed + words)).mean())


def share_frame(block: int, terms: Sequence[Term], found: Float[np.ndarray, "s h t"]) -> pd.DataFrame:
    """One row per head and term; head 0 is the mean over heads."""
    by_head = np.concatenate([found.mean(1, keepdims=True), found], axis=1)
    mean, reach = by_head.mean(0), confidence(by_head)
    rows = [(block, head, *term) for head in range(len(mean)) for term in terms]
    frame = pd.DataFrame(rows, columns=["block", "head", "query", "key"])
    bounds = {"share": mean, "low": mean - reach, "high": mean + reach}
    return frame.assign(**{name: values.ravel() for name, values in bounds.items()}, sequences=len(found))
