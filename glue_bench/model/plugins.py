"""Variants of a user's own, from a Python file."""

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from glue_bench.config import NATIVE
from glue_bench.config.load import Names, as_list
from glue_bench.errors import UserError, line_of
from glue_bench.files import read_file
from glue_bench.model.contract import ContractError, check_contract
from glue_bench.model.fresh import fixed_seed
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.options import canonical_options

VARIANT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""The names that a variant may have, which are the names that an arm may have."""


@dataclass(frozen=True)
class Plugin:
    """A variant, the file that defines it, and the content of that file with its SHA-256."""

    variant: type[Variant]
    file: Path
    code: bytes
    digest: str


PLUGINS: dict[str, Plugin] = {}


def add_plugins(paths: Names) -> None:
    """Add the variants of these files to VARIANTS, as `glue_bench.load_plugins` describes it.

    If a variant of a file breaks the contract, the file adds no variant.
    """
    for path in as_list(paths):
        file = Path(path).expanduser()
        load_file(file)
        names = _names_from(file.resolve())
        try:
            for name in names:
                check_plugin(name)
        except UserError:
            remove_plugins(names)
            raise


def _names_from(file: Path) -> list[str]:
    """Return the names of the variants that a file has added."""
    return [name for name, plugin in PLUGINS.items() if plugin.file == file]


def check_plugin(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Check a plugin's variant by the contract, once with each set of options.

    Options that the tiny encoders do not permit are not tried. Raises UserError with the first
    clause that it breaks, and where, or for an option that it does not have.
    """
    if name not in PLUGINS:
        return
    changed_options = canonical_options(name, options) if options else {}
    hold_to_contract(name, PLUGINS[name], json.dumps(changed_options, sort_keys=True))


@cache
def hold_to_contract(name: str, plugin: Plugin, settings: str) -> None:
    """Check the contract once for a file's content and a set of options.

    `settings` has the options as JSON.
    """
    options = json.loads(settings)
    try:
        check_contract(name, options)
    except ContractError as error:
        if options and isinstance(error.__cause__, UserError):  # these options are not permitted
            return
        fault = f"with {options}, {error}" if options else error
        about = f"plugin '{plugin.file}': variant '{name}'"
        raise UserError(f"{about} does not meet the contract: {fault}") from error


def load_file(path: Path) -> None:
    """Add the variants that a Python file defines to VARIANTS, if they are not there already.

    Every concrete subclass of Variant that the file defines is one variant, called by its class
    attribute `name`. Its `summary` defaults to the first line of its docstring, its `source` to the
    file's name. Raises UserError for a file that cannot be read or imported, or that defines no
    variant, and for a name that is absent or taken.
    """
    try:
        code = read_file(path)
    except OSError as error:
        fault = f"cannot read plugin '{path}': {error.strerror}"
        raise UserError(f"{fault}; looked from {Path.cwd()}") from error

    file = path.resolve()
    digest = hashlib.sha256(code).hexdigest()
    earlier_names = _names_from(file)
    if earlier_names and all(PLUGINS[name].digest == digest for name in earlier_names):
        return
    remove_plugins(earlier_names)

    variants: dict[str, type[Variant]] = {}
    for variant in variants_in(file, code):
        name = _checked_name(variant, path)
        if name in (*VARIANTS, NATIVE, *variants):
            fault = f"the name '{name}' is taken by another variant"
            raise UserError(f"plugin '{path}': {fault}; choose another")
        variants[name] = variant

    for name, variant in variants.items():
        if "summary" not in vars(variant):
            description = (variant.__doc__ or variant.__name__).strip()
            variant.summary = description.partition("\n")[0]
        if "source" not in vars(variant):
            variant.source = file.name
        PLUGINS[name] = Plugin(variant, file, code, digest)
        VARIANTS[name] = variant


def _checked_name(variant: type[Variant], path: Path) -> str:
    """Return the name of a variant. Raises UserError if it has none that arms can use."""
    name = vars(variant).get("name")
    if isinstance(name, str) and VARIANT_NAME.fullmatch(name):
        return name
    needs = "needs a class attribute `name` of letters, digits, '_', '.' and '-'"
    fault = f"class {variant.__name__} {needs}, for arms to use"
    raise UserError(f"plugin '{path}': {fault}; not {name!r}")


def remove_plugins(names: Iterable[str]) -> None:
    """Take these variants out of VARIANTS again."""
    for name in names:
        del PLUGINS[name], VARIANTS[name]


def plugin_digest(name: str) -> str | None:
    """Return the SHA-256 of the file that a variant comes from; None for glue-bench's own."""
    return PLUGINS[name].digest if name in PLUGINS else None


def variants_in(file: Path, code: bytes) -> list[type[Variant]]:
    """Return the concrete variants that code defines.

    The code runs as a module with its own name, because an import might take an older cache. Raises
    UserError for code that cannot run, or that defines no variant.
    """
    module = _run_as_module(file, code)
    variants = [value for value in _classes_in(module) if issubclass(value, Variant)]
    concrete = [variant for variant in variants if not inspect.isabstract(variant)]
    if concrete:
        return concrete
    fault = "defines no variant: a subclass of Variant with a forward"
    for variant in variants:
        methods = ", ".join(sorted(variant.__abstractmethods__))
        fault += f"; {variant.__name__} lacks {methods}"
    raise UserError(f"plugin '{file}' {fault}")


def _run_as_module(file: Path, code: bytes) -> ModuleType:
    """Run the code of a plugin. Raises UserError if it fails."""
    digest = hashlib.sha256(bytes(file) + code).hexdigest()
    module = ModuleType(f"glue_bench_plugin_{digest[:12]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        with fixed_seed():  # every process draws the same numbers
            exec(compile(code, str(file), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        one_line = " ".join(message.split())
        reason = f"{type(error).__name__}: {one_line}{line_of(error, str(file))}"
        raise UserError(f"plugin '{file}' cannot be imported: {reason}") from error
    return module


def _classes_in(module: ModuleType) -> Iterator[type]:
    """Yield the classes that a module defines, each once."""
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    for value in dict.fromkeys(classes):
        if value.__module__ == module.__name__:
            yield value
