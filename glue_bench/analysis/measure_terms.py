"""The terms of attention on text: shares with intervals and baselines, and panels."""

from itertools import product
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from glue_bench.analysis.input_sum import InputSum, input_sum
from glue_bench.analysis.measured import SEED, Measured, expected, numpy
from glue_bench.analysis.panels import Panels
from glue_bench.analysis.score_terms import measure_score_terms
from glue_bench.analysis.share_tables import mixed_to_words, named, share_frame, share_numbers
from glue_bench.analysis.subject import AT_ONCE, FEW, Subject
from glue_bench.analysis.terms import (
    MIXED,
    NINE,
    PARTS,
    centred,
    check_sum,
    heads,
    parts,
    permuted,
    position_bias,
    redrawn,
    shares,
    turned,
)
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fresh

DRAWS = 10  # rotations of the positions, for the band
FEWER = 3  # tables with their covariance, for a mean


@torch.no_grad()
def measure_terms(subject: Subject) -> Measured:
    """Shares and panels of the first block's terms; of a variant that adds positions to the scores, of its own terms.

    Raises:
        LeftOut: there are no terms to tell apart, or no text.
    """
    table, ids = subject.sum, subject.tokens
    if not table.has_positions:
        return measure_score_terms(subject)
    error = check_sum(subject.model, table, ids[:AT_ONCE])
    found, panels = _read(subject.model, table, ids)
    names = [*NINE, ("bias", "bias")][: found.shape[-1]]
    baselines, frame = _baselines(subject.model, table, ids[:FEW])
    numbers = {"block": 1, "sum_error": error, "sequences": len(ids), "baseline_sequences": len(ids[:FEW])}
    frames = panels.frames(block=1) | {"terms_share": share_frame(1, names, found), "terms_baseline": frame}
    return Measured({"terms": share_numbers(names, found) | baselines | numbers}, frames)


def _read(model: EncoderModel, table: InputSum, ids: Tensor) -> tuple[Float[np.ndarray, "s h t"], Panels]:
    """Shares by sequence, and the panels."""
    panels, found = Panels(), []
    bias = position_bias(model, ids.shape[1])
    for some in ids.split(AT_ONCE):
        queries, keys = heads(model, parts(model, table, some))
        found.append(shares(queries, keys, bias))
        keys = centred(keys)
        for (a, query), (b, key) in product(enumerate(PARTS[:2]), repeat=2):
            panels.add(query, key, queries[a] @ keys[b].mT)
    if bias is not None:
        panels.add("bias", "bias", bias - bias.mean(-1, keepdim=True))
    return numpy(torch.cat(found)), panels


def _baselines(model: EncoderModel, table: InputSum, ids: Tensor) -> tuple[dict[str, Any], pd.DataFrame]:
    """What the shares are with positions turned, permuted, or drawn anew with their covariance; and of fresh weights.

    The band is that of turned positions: among those of fresh weights, the table's own are any others.
    """
    start = fresh(EncoderModel, cast(EncoderConfig, model.config), SEED).eval().to(model.device)
    by_head = np.array([head_shares(model, turned(table, draw), ids) for draw in range(DRAWS)])
    draws = by_head.mean(1)
    found = {
        "turned": draws.mean(0),
        "permuted": mean_shares(model, permuted(table, ids.shape[1]), ids),
        "covariance": np.mean([mean_shares(model, redrawn(table, draw), ids) for draw in range(FEWER)], axis=0),
        "fresh": mean_shares(start, input_sum(start, ids.shape[1]), ids),
    }
    numbers: dict[str, Any] = {
        f"share_{name}": {named(term): float(value) for term, value in zip(NINE, values, strict=True)}
        for name, values in found.items()
    }
    numbers["share_random"] = {named(term): expected(each) for term, each in zip(NINE, draws.T, strict=True)}
    numbers["mixed_random"] = expected(draws[:, [term in MIXED for term in NINE]].sum(1))
    numbers["mixed_to_words_random"] = expected([mixed_to_words(NINE, draw) for draw in by_head])
    rows = [(name, *term, value) for name, values in found.items() for term, value in zip(NINE, values, strict=True)]
    return numbers, pd.DataFrame(rows, columns=["baseline", "query", "key", "share"])


def mean_shares(model: EncoderModel, table: InputSum, ids: Tensor) -> Float[np.ndarray, " t"]:
    """The shares of the nine terms over heads and sequences, in logits with their bias where the variant has one."""
    return head_shares(model, table, ids).mean(0)


def head_shares(model: EncoderModel, table: InputSum, ids: Tensor) -> Float[np.ndarray, "h t"]:
    """As `mean_shares`, of each head."""
    bias = position_bias(model, ids.shape[1])
    each = [shares(*heads(model, parts(model, table, some)), bias) for some in ids.split(AT_ONCE)]
    return numpy(torch.cat(each)).mean(0)[:, : len(NINE)]
