"""Variants of a user's own, from a Python file."""

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from glue_bench.config import NATIVE
from glue_bench.config.load import Names, listed
from glue_bench.errors import UserError, line_of
from glue_bench.files import read_file
from glue_bench.model.contract import ContractError, check_contract
from glue_bench.model.fresh import drawing
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.options import canonical_options

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # as arms are named


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

    A file with a variant that breaks the contract adds none.
    """
    for path in listed(paths):
        file = Path(path).expanduser()
        load_file(file)
        names = [name for name, plugin in PLUGINS.items() if plugin.file == file.resolve()]
        try:
            for name in names:
                check_plugin(name)
        except UserError:
            remove_plugins(names)
            raise


def check_plugin(name: str, options: Mapping[str, Any] | None = None) -> None:
    """Hold a plugin's variant to the contract, once with each set of options that the tiny encoders permit.

    Raises UserError with the first clause that it breaks, and where, or for an option that it does not have.
    """
    if name in PLUGINS:
        other_than_default = canonical_options(name, options) if options else {}
        hold_to_contract(name, PLUGINS[name], json.dumps(other_than_default, sort_keys=True))


@cache
def hold_to_contract(name: str, plugin: Plugin, settings: str) -> None:
    """Check the contract once for a file's content and a set of options, which `settings` has as JSON."""
    options = json.loads(settings)
    try:
        check_contract(name, options)
    except ContractError as error:
        if options and isinstance(error.__cause__, UserError):  # it cannot be made
            return
        fault = f"with {options}, {error}" if options else error
        raise UserError(
            f"plugin '{plugin.file}': variant '{name}' does not meet the contract: {fault}"
        ) from error


def load_file(path: Path) -> None:
    """Add the variants that a Python file defines to VARIANTS, if they are not there already.

    Every concrete subclass of Variant that the file defines is one variant, called by its class attribute `name`. Its
    `summary` defaults to the first line of its docstring, its `source` to the file's name. Raises UserError for a file
    that cannot be read or imported, or that defines no variant, and for a name that is absent or taken.
    """
    try:
        code = read_file(path)
    except OSError as error:
        raise UserError(
            f"cannot read plugin '{path}': {error.strerror}; looked from {Path.cwd()}"
        ) from error
    file, digest = path.resolve(), hashlib.sha256(code).hexdigest()
    before = [name for name, plugin in PLUGINS.items() if plugin.file == file]
    if before and all(PLUGINS[name].digest == digest for name in before):
        return
    remove_plugins(before)
    variants: dict[str, type[Variant]] = {}
    for variant in variants_in(file, code):
        name = vars(variant).get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            needs = (
                "needs a class attribute `name` of letters, digits, '_', '.' and '-', "
                f"for arms to use; not {name!r}"
            )
            raise UserError(f"plugin '{path}': class {variant.__name__} {needs}")
        if name in (*VARIANTS, NATIVE, *variants):
            raise UserError(
                f"plugin '{path}': the name '{name}' is taken by another variant; choose another"
            )
        variants[name] = variant
    for name, variant in variants.items():
        if "summary" not in vars(variant):
            variant.summary = (variant.__doc__ or variant.__name__).strip().partition("\n")[0]
        if "source" not in vars(variant):
            variant.source = file.name
        PLUGINS[name], VARIANTS[name] = Plugin(variant, file, code, digest), variant


def remove_plugins(names: Iterable[str]) -> None:
    """Take these variants out of VARIANTS again."""
    for name in names:
        del PLUGINS[name], VARIANTS[name]


def plugin_digest(name: str) -> str | None:
    """The SHA-256 of the file that a variant comes from; None for glue-bench's own."""
    return PLUGINS[name].digest if name in PLUGINS else None


def variants_in(file: Path, code: bytes) -> list[type[Variant]]:
    """The concrete variants that code defines, run as a module of its own name: an import might take an older cache."""
    module = ModuleType(f"glue_bench_plugin_{hashlib.sha256(bytes(file) + code).hexdigest()[:12]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        with drawing():  # what the file draws where it is loaded is the same in every process
            exec(compile(code, str(file), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        message = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
        reason = f"{type(error).__name__}: {message}{line_of(error, str(file))}"
        raise UserError(f"plugin '{file}' cannot be imported: {reason}") from error
    classes = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Variant)
    ]
    own = [each for each in dict.fromkeys(classes) if each.__module__ == module.__name__]
    if concrete := [each for each in own if not inspect.isabstract(each)]:
        return concrete
    lacking = [
        f"; {each.__name__} lacks {', '.join(sorted(each.__abstractmethods__))}" for each in own
    ]
    raise UserError(
        f"plugin '{file}' defines no variant: a subclass of Variant with a forward{''.join(lacking)}"
    )
