"""Plugins held to the contract before they are used; glue-bench's own variants are held to it by its tests."""

from collections.abc import Iterable
from pathlib import Path

from glue_bench.errors import UserError
from glue_bench.model.plugins import PLUGINS, load_file, remove_plugins
from glue_bench.testing.contract import ContractError, check_contract

_met: set[tuple[str, str]] = set()  # names and digests: loaded again, the same code is not checked again


def load_plugins(paths: Iterable[str | Path]) -> None:
    """Add the variants of these Python files to VARIANTS. A file is loaded anew only if it has changed.

    Every concrete subclass of Variant that a file defines is one variant, called by its class attribute `name`.
    Its `summary` defaults to the first line of its docstring, its `source` to the file's name.

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


def check_plugin(name: str) -> None:
    """Hold a plugin's variant to the contract, once.

    Raises:
        UserError: the first clause that it breaks, and where.
    """
    plugin = PLUGINS.get(name)
    if plugin is None or (name, plugin.digest) in _met:
        return
    try:
        check_contract(name)
    except ContractError as error:
        raise UserError(f"plugin '{plugin.file}': variant '{name}' does not meet the contract: {error}") from error
    _met.add((name, plugin.digest))
