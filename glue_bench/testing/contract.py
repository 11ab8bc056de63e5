"""Hold a variant to what every variant promises: the clauses, in tiny random encoders of every kind.

The tests do it for all of VARIANTS; a plugin is held to the same clauses before it is used.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from inspect import getsourcefile
from typing import Any

import torch

from glue_bench.model.fresh import drawing
from glue_bench.model.plugins import place
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.options import check_variant
from glue_bench.testing.clauses import CLAUSES, Subject
from glue_bench.testing.tiny import NARROW

ENCODERS: dict[str, dict[str, int]] = {
    "like BERT": {},
    "without segments": {"type_vocab_size": 0},
    "with tables narrower than its blocks": {"embedding_size": NARROW},
}
IN_ONE = {"save and load", "bfloat16", "wrong shapes", "draws"}
"""Clauses that the first of ENCODERS is enough for: no size reaches what they ask, and they take the longest."""


class ContractError(Exception):
    """A variant breaks a clause: the message says which, what is wrong, and where."""


def check_contract(variant: str, options: Mapping[str, Any] | None = None) -> None:
    """Hold a variant to every clause.

    Example:
        >>> glue_bench.testing.check_contract("concat", {"init": "identity"})

    Raises:
        UserError: no such variant.
        ContractError: the first clause that it breaks.
    """
    for clause in CLAUSES:
        check_clause(clause, variant, options)


def check_clause(clause: str, variant: str, options: Mapping[str, Any] | None = None) -> None:
    """Hold a variant to one clause, in every kind of encoder that its options permit.

    Raises:
        UserError: no such variant.
        ContractError: it breaks the clause, or its own code raises; then with the line that does.
    """
    if variant not in VARIANTS:
        check_variant(variant, {})
    for encoder, sizes in ENCODERS.items():
        if sizes and clause in IN_ONE:
            continue
        if (options or {}).get("segments") == "scores" and "type_vocab_size" in sizes:
            continue
        # Only where another device is the default: a mode of torch makes each of its small operations twice as slow.
        device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
        try:
            with drawing(), device:
                wrong = CLAUSES[clause](Subject(variant, options or {}, sizes))
        except Exception as error:
            said = " ".join(str(error).split())
            wrong = f"{type(error).__name__}: {said}{place(error, _file_of(VARIANTS[variant]))}"
            raise ContractError(f"clause '{clause}', encoder {encoder}: {wrong}") from error
        if wrong:
            raise ContractError(f"clause '{clause}', encoder {encoder}: {wrong}")


def _file_of(variant: type[Variant]) -> str | None:
    """Where its class is written; None for a class of a notebook."""
    try:
        return getsourcefile(variant)
    except (OSError, TypeError):
        return None
