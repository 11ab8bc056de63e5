"""The contract: what every variant promises, as clauses that are tried on tiny encoders."""

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from glue_bench.errors import line_of
from glue_bench.model.clauses import (
    autocast,
    draws,
    gradients,
    graft_leaves_source,
    meta_device,
    padding,
    position,
    save_and_load,
    shapes,
    start,
)
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.fresh import fixed_seed
from glue_bench.model.tiny import NARROW, encoder_config
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import check_variant

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ENCODERS: dict[str, dict[str, Any]] = {
    "like BERT": {},
    "without segments": {"type_vocab_size": 0},
    "with tables narrower than its blocks": {"embedding_size": NARROW},
    "without LayerNorm at its input": {"embedding_norm": False},
    "with blocks of recent encoders": {"norm_first": True, "gated": True},
}
IN_ONE = {"save and load", "draws", "meta device"}
"""The clauses that take longest. They are tried on the first of ENCODERS alone."""
CLAUSES: dict[str, Callable[[EncoderConfig], str | None]] = {
    "shapes": shapes,
    "gradients": gradients,
    "padding": padding,
    "save and load": save_and_load,
    "autocast": autocast,
    "graft": graft_leaves_source,
    "draws": draws,
    "meta device": meta_device,
    "position": position,
    "start": start,
}
"""The clauses by name: functions that say what is wrong with a configuration's variant, or None."""


class ContractError(Exception):
    """A variant breaks a clause: the message says which, what is wrong, and where."""


def check_contract(
    variant: str, options: Mapping[str, Any] | None = None, clauses: Iterable[str] | None = None
) -> None:
    """Hold a variant to the contract in every kind of encoder that its options permit.

    Args:
        variant: The name of the variant.
        options: Its options.
        clauses: The clauses to check; by default all.

    Raises:
        ContractError: the first clause that the variant breaks, and where.
    """
    if variant not in VARIANTS:
        check_variant(variant, {})
    options = options or {}
    for clause, encoder in product(clauses or CLAUSES, ENCODERS):
        sizes = ENCODERS[encoder]
        lacks_segments = options.get("segments") == "scores" and "type_vocab_size" in sizes
        if lacks_segments or (sizes and clause in IN_ONE):
            continue
        config = encoder_config(variant, variant_options=dict(options), **NO_DROPOUT, **sizes)
        _check_clause(clause, encoder, config)


def _check_clause(clause: str, encoder: str, config: EncoderConfig) -> None:
    """Raise ContractError if the variant of a configuration breaks a clause."""
    broken_by = CLAUSES[clause]
    cause: Exception | None = None
    try:
        with fixed_seed():
            fault = broken_by(config)
    except Exception as error:
        module = sys.modules.get(VARIANTS[config.variant].__module__)
        file = getattr(module, "__file__", None)  # a module of a notebook has no file
        message = " ".join(str(error).split())
        fault = f"{type(error).__name__}: {message}{line_of(error, file)}"
        cause = error
    if fault:
        raise ContractError(f"clause '{clause}', encoder {encoder}: {fault}") from cause
