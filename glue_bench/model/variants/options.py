"""A variant's options: declared by its constructor's keywords, and checked before anything compares or hashes them.

An option has a default, and the type of its annotation or, without one, of its default. What a file gives is held to
that type as JSON has it: `"false"` is no bool, and `true` no number. There is one form to compare: JSON values, without
the options that equal their default, so that to write a default out changes nothing.
"""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from glue_bench.errors import UserError, quoted, unknown
from glue_bench.model.variants.base import Variant
from glue_bench.model.variants.segments import PLACES

SEGMENTS = "segments"


@dataclass(frozen=True)
class Option:
    """One keyword of a variant's constructor: its type and, as JSON, its default."""

    kind: Any  # a TypeAdapter, which the tests' type checks do not know as a type
    default: Any

    def parse(self, value: Any) -> Any:
        """What the constructor takes for a value of JSON's or YAML's.

        Raises:
            ValueError: the value is not of the option's type.
            TypeError: JSON has no such value.
        """
        return self.kind.validate_json(json.dumps(value, allow_nan=False), strict=True)

    def plain(self, value: Any) -> Any:
        """A parsed value as JSON has it."""
        return self.kind.dump_python(value, mode="json", warnings=False)


def some_of(*names: str) -> AfterValidator:
    """For an option that lists one or more of `names`: which ones counts, and not their order."""

    def in_order(given: Sequence[str]) -> tuple[str, ...]:
        if not given or not set(given) <= set(names):
            raise ValueError(f"give one or more of {', '.join(names)}")
        return tuple(name for name in names if name in given)

    return AfterValidator(in_order)


@cache
def declared(variant: type[Variant], name: str) -> Mapping[str, Option]:
    """The options of a variant, called `name` in errors: its own, then `segments`, which all have.

    Raises:
        UserError: one has no default, or a type that cannot be checked.
    """
    own = [each for each in inspect.signature(variant.__init__).parameters.values() if each.kind is each.KEYWORD_ONLY]
    try:
        hints = get_type_hints(variant.__init__, include_extras=True)
    except Exception as error:  # what an annotation that is text may raise is anything
        raise UserError(f"variant '{name}': its options' types cannot be read: {error}") from error
    found = {each.name: _option(each, hints, name) for each in own}
    return found | {SEGMENTS: Option(TypeAdapter(str), "input")}


def _option(parameter: inspect.Parameter, hints: Mapping[str, Any], variant: str) -> Option:
    default, where = parameter.default, f"variant '{variant}': option '{parameter.name}'"
    if default is parameter.empty:
        raise UserError(f"{where} needs a default, such as `{parameter.name}: int = 1`")
    try:
        kind = TypeAdapter(hints.get(parameter.name, Any if default is None else type(default)))
        option = Option(kind, kind.dump_python(default, mode="json", warnings=False))
        json.dumps(option.default, allow_nan=False)
    except (PydanticUserError, ValueError, TypeError) as error:
        said = str(error).partition("\n")[0]
        raise UserError(f"{where} has a type that JSON has no values for: {said}") from error
    return option


def parsed(variant: type[Variant], name: str, given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The options that are given, as the constructor takes them; `segments` stays among them.

    Raises:
        UserError: an unknown option, with the near match, or a value that is not of its option's type.
    """
    options, place, mine = declared(variant, name), f"{where}: " if where else "", f"variant '{name}'"
    values = {}
    for option, value in given.items():
        if option not in options:
            raise UserError(place + str(unknown("option", option, options, mine)))
        if option == SEGMENTS and value not in PLACES:
            raise UserError(place + str(unknown("value", value, PLACES, f"option '{option}' of {mine}")))
        try:
            values[option] = options[option].parse(value)
        except (ValueError, TypeError) as error:
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            said = said.removeprefix("Value error, ")
            said = said[:1].lower() + said[1:]
            raise UserError(f"{place}option '{option}' of {mine}: {said}, not {quoted(value)}") from error
    return values


def canonical(variant: type[Variant], name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the one form that is compared, hashed and stored. Raises as `parsed`."""
    options = declared(variant, name)
    plain = {option: options[option].plain(value) for option, value in parsed(variant, name, given).items()}
    return {option: value for option, value in plain.items() if value != options[option].default}
