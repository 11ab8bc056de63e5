"""What a term of the first block's attention does: what changes without it.

KL(softmax(A) || softmax(A - A^T))        in nats, the mean over rows and heads
rise = mean over masked tokens of  -log p(x_t | without the term) + log p(x_t | with it)       in nats
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from glue_bench.analysis.input_sum import InputSum
from glue_bench.analysis.measured import Measured, confidence, numpy, ratio_interval
from glue_bench.analysis.share_tables import named
from glue_bench.analysis.subject import AT_ONCE, FEW, Subject
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.terms import FOUR, NINE, PARTS, Term, heads, parts, position_bias
from glue_bench.analysis.text import HeldOut
from glue_bench.analysis.validation import validation_sums
from glue_bench.analysis.watching import changed
from glue_bench.model.encoder import EncoderModel

MASKED = 32  # sequences of which a loss is taken


@torch.no_grad()
def measure_effect(subject: Subject) -> Measured:
    """What each of the nine terms changes in attention, and each of the four in the masked-LM loss.

    Raises:
        LeftOut: no position enters at the input, or there is no text.
    """
    subject.sum.check_positions()
    ids = subject.tokens[:FEW]
    found = numpy(torch.cat([divergences(subject.model, subject.sum, some) for some in ids.split(AT_ONCE)]))
    mean, half = found.mean(0), confidence(found)
    rises = {} if subject.no_masks else _loss_rises(subject)
    intervals = {term: ratio_interval(rise) for term, rise in rises.items()}
    numbers: dict[str, Any] = {
        "kl": {named(term): float(value) for term, value in zip(NINE, mean, strict=True)},
        "kl_interval": {named(term): [float(m - r), float(m + r)] for term, m, r in zip(NINE, mean, half, strict=True)},
        "kl_sequences": len(ids),
        "loss_rise": {named(term): rise.value for term, rise in rises.items()} or {"left_out": subject.no_masks},
        "loss_rise_interval": {named(term): interval for term, interval in intervals.items() if interval},
    }
    frame = pd.DataFrame(NINE, columns=["query", "key"]).assign(kl=mean, kl_low=mean - half, kl_high=mean + half)
    bounds = [intervals.get(term) or (np.nan, np.nan) for term in NINE]
    frame["loss_rise"] = [rises[term].value if term in rises else np.nan for term in NINE]
    frame["loss_rise_low"], frame["loss_rise_high"] = zip(*bounds, strict=True)
    return Measured({"terms": numbers}, {"terms_effect": frame})


def divergences(model: EncoderModel, table: InputSum, ids: Tensor) -> Float[Tensor, "b t"]:
    """The divergence of each of the nine terms, the mean over rows and heads."""
    bias = position_bias(model, ids.shape[1])
    queries, keys = heads(model, parts(model, table, ids))
    logits = queries.sum(0) @ keys.sum(0).mT + (0 if bias is None else bias)
    before = logits.log_softmax(-1)
    found = []
    for query, key in product(queries, keys):
        without = (logits - query @ key.mT).log_softmax(-1)
        found.append((before.exp() * (before - without)).sum(-1).mean((-1, -2)))
    return torch.stack(found, -1)


def _loss_rises(subject: Subject) -> dict[Term, Sums]:
    """The rise of the masked-LM loss with one of the four terms taken out, paired by sequence."""
    assert subject.head is not None, "a loss needs a head"
    text = HeldOut(subject.reading.packed(MASKED), subject.tokenizer)
    base = validation_sums(subject.head, text)
    rises = {}
    for query, key in FOUR:
        with _without(subject.model, subject.sum, PARTS.index(query), PARTS.index(key)):
            rises[query, key] = Sums(validation_sums(subject.head, text).sums - base.sums, base.counts)
    return rises


@contextmanager
def _without(model: EncoderModel, table: InputSum, query: int, key: int) -> Iterator[None]:
    """In this block, the first block's logits lack a term, of whatever text is read."""
    ids: list[Tensor] = []

    def lacking() -> Tensor:
        queries, keys = heads(model, parts(model, table, ids.pop()))
        return -(queries[query] @ keys[key].mT)

    hook = model.variant.register_forward_pre_hook(lambda _, given: ids.append(given[0]))
    try:
        with changed(model, 0, lacking):
            yield
    finally:
        hook.remove()
