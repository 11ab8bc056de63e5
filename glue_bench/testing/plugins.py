"""Plugins held to the contract before they are used; glue-bench's own variants are held to it by its tests."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from glue_bench.errors import UserError
from glue_bench.model.plugins import PLUGINS, load_file, remove_plugins
from glue_bench.model.variants.options import canonical_options
from glue_bench.testing.contract import ContractError, check_contract

# Names, digests and options: loaded again, the same code is not checked again.
_met: set[tuple[str, str, str]] = set()


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
