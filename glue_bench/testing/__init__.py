"""For authors of variants: the contract that every variant meets, and the tiny encoders on which it is checked.

`check_contract("my-variant")` raises `ContractError` with the first of `CLAUSES` that the variant breaks, once it is in
`VARIANTS`, where `load_plugins` puts it. `tokens` and `segments` make inputs (batch, length) for a `random_model` of an
`encoder_config`, in which any variant can be looked at.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from glue_bench.errors import UserError
from glue_bench.model.fresh import drawing
from glue_bench.model.plugins import PLUGINS, load_file, place, remove_plugins
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import canonical_options, check_variant
from glue_bench.testing.clauses import CLAUSES, Subject
from glue_bench.testing.tiny import NARROW, encoder_config, random_model, segments, tokens

__all__ = [
    "CLAUSES",
    "ContractError",
    "check_clause",
    "check_contract",
    "encoder_config",
    "load_plugins",
    "random_model",
    "segments",
    "tokens",
]

ENCODERS: dict[str, dict[str, Any]] = {
    "like BERT": {},
    "without segments": {"type_vocab_size": 0},
    "with tables narrower than its blocks": {"embedding_size": NARROW},
    "without LayerNorm at its input": {"embedding_norm": False},
    "with blocks of recent encoders": {"norm_first": True, "gated": True},
}
IN_ONE = {"save and load", "bfloat16", "wrong shapes", "draws"}
"""Clauses that the first of ENCODERS is enough for: no size reaches what they ask, and they take the longest."""
_met: set[tuple[str, str, str]] = set()
"""Names, digests and options of plugins: loaded again, the same code is not checked again."""


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
    file = getattr(sys.modules.get(VARIANTS[variant].__module__), "__file__", None)  # none of a notebook's class
    for encoder, sizes in ENCODERS.items():
        if sizes and clause in IN_ONE:
            continue
        if (options or {}).get("segments") == "scores" and "type_vocab_size" in sizes:
            continue
        try:
            with drawing():
                wrong = CLAUSES[clause](Subject(variant, options or {}, sizes))
        except Exception as error:
            said = " ".join(str(error).split())
            wrong = f"{type(error).__name__}: {said}{place(error, file)}"
            raise ContractError(f"clause '{clause}', encoder {encoder}: {wrong}") from error
        if wrong:
            raise ContractError(f"clause '{clause}', encoder {encoder}: {wrong}")


def load_plugins(paths: Iterable[str | Path]) -> None:
    """Add the variants of these Python files to VARIANTS. A file is loaded anew only if it has changed.

    Every concrete subclass of Variant that a file defines is one variant, called by its class attribute `name`.
    Its `summary` defaults to the first line of its docstring, its `source` to the file's name.

    Example:
        >>> glue_bench.load_plugins(["my_variant.py"])  # doctest: +SKIP

    Raises:
        UserError: a file that cannot be read or imported, or that defines no variant; a name that is absent or
            taken; a clause of the contract that is broken. Says which, and in which line where there is one.
    """
    for path in paths:
        added = load_file(Path(path).expanduser())
        try:
            for name in added:
                check_plugin(name)
        except UserError:
            remove_plugins(added)
            raise


def check_plugin(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Hold a plugin's variant to the contract, once with each set of options.

    Options that the tiny encoders of the contract are too small for are left to the encoder that has them.

    Raises:
        UserError: the first clause that it breaks, and where; an option that it does not have.
    """
    plugin = PLUGINS.get(name)
    if plugin is None:
        return
    options = canonical_options(name, options) if options else {}
    key = (name, plugin.digest, json.dumps(options, sort_keys=True))
    if key in _met:
        return
    try:
        check_contract(name, options)
    except ContractError as error:
        if options and isinstance(error.__cause__, UserError):  # it cannot be made
            return
        said = f"with {options}, {error}" if options else error
        raise UserError(f"plugin '{plugin.file}': variant '{name}' does not meet the contract: {said}") from error
    _met.add(key)
