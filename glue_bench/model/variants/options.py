"""A variant's options, declared by its constructor's keywords; and from a name and options to the module.

An option has a default, and the type of its annotation or, without one, of its default. What a file gives is held to
that type as JSON has it: `"false"` is no bool, and `true` no number. There is one form to compare: JSON values, without
the options that equal their default, so that to write a default out changes nothing.
"""

import inspect
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError

from glue_bench.config import NATIVE
from glue_bench.errors import UserError, first_line, quoted, unknown
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Dimensions, Variant

SEGMENTS = "segments"
PLACES = ("input", "scores", "none")
"""Where segments enter, an axis of its own: `input` adds (or concatenates) their embedding, as BERT; `scores` gives
each head a scalar for each pair of segments, as DIET; `none` drops them, as TUPE.
"""


class Option(NamedTuple):
    """One keyword of a variant's constructor: its type and, as JSON, its default."""

    kind: Any  # a TypeAdapter, which the tests' type checks do not know as a type
    default: Any


@cache
def declared(variant: type[Variant], name: str) -> Mapping[str, Option]:
    """The options of a variant, called `name` in errors: its own, then `segments`, which all have.

    Raises UserError where one stands before the `*`, has no default, or a type that cannot be checked.
    """
    options, inherited = {}, inspect.signature(Variant.__init__).parameters
    for option, each in [*inspect.signature(variant.__init__).parameters.items()][
        2:
    ]:  # after self and dims
        if each == inherited.get(option) or each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        default = each.default
        try:
            if each.kind is not each.KEYWORD_ONLY:
                raise TypeError("it stands before the `*`")
            hints = get_type_hints(variant.__init__, include_extras=True)
            kind = TypeAdapter(hints.get(option, Any if default is None else type(default)))
            kind.validate_python(default, strict=True)
            options[option] = Option(kind, kind.dump_python(default, mode="json", warnings=False))
            json.dumps(options[option].default, allow_nan=False)
        except Exception as error:  # what an annotation that is text may raise is anything
            needs = f"option '{option}' needs a `*` before it, a default, and a type that JSON has: {first_line(error)}"
            raise UserError(f"variant '{name}': {needs}") from error
    return options | {SEGMENTS: Option(TypeAdapter(str), "input")}


def check_variant(name: str, options: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Options as the constructor takes them, `segments` among them; `where` they stand goes before an error.

    Raises UserError for a variant or an option that does not exist, or a value that is not of its option's type.
    """
    place, variant = f"{where}: " if where else "", f"variant '{name}'"
    if name not in VARIANTS:
        error = unknown("variant", name, [*VARIANTS, NATIVE], where)
        advice = "a variant of your own needs its file: --plugin FILE, or glue_bench.load_plugins([FILE])"
        raise UserError(f"{error} ({advice})")
    known, parsed = declared(VARIANTS[name], name), {}
    for option, value in options.items():
        if option not in known:
            raise UserError(place + str(unknown("option", option, known, variant)))
        if option == SEGMENTS and value not in PLACES:
            raise UserError(
                place + str(unknown("value", value, PLACES, f"option '{option}' of {variant}"))
            )
        try:
            parsed[option] = known[option].kind.validate_json(
                json.dumps(value, allow_nan=False), strict=True
            )
        except (ValueError, TypeError) as error:  # the second where JSON has no such value
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            reason = reason.removeprefix("Value error, ")
            reason = reason[:1].lower() + reason[1:]
            raise UserError(
                f"{place}option '{option}' of {variant}: {reason}, not {quoted(value)}"
            ) from error
    return parsed


def canonical_options(name: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """A variant's options in the form to compare, hash and store: JSON's, without defaults; raises as check_variant."""
    plain = {}
    for option, value in check_variant(name, options or {}).items():
        kind, default = declared(VARIANTS[name], name)[option]
        if (written := kind.dump_python(value, mode="json", warnings=False)) != default:
            plain[option] = written
    return plain


def segments_enter(config: EncoderConfig) -> str:
    """Where segments enter: one of PLACES; `none` for an encoder that has no segments.

    Raises UserError where they are to enter the scores of an encoder that has fewer than two: nothing is learned there.
    """
    place = (config.variant_options or {}).get(SEGMENTS, "input")
    if config.type_vocab_size < 2 and place == "scores":
        has = "only one" if config.type_vocab_size else "none"
        raise UserError(
            f"variant '{config.variant}': segments cannot enter the scores, the encoder has {has}"
        )
    return place if config.type_vocab_size else "none"


def build_variant(config: EncoderConfig) -> Variant:
    """The variant that a configuration names, with fresh weights; raises as `check_variant`."""
    options = check_variant(config.variant, config.variant_options or {})
    options.pop(SEGMENTS, None)
    dims = Dimensions(
        vocab_size=config.vocab_size,
        embedding_size=config.embedding_size,
        num_heads=config.num_attention_heads,
        head_size=config.hidden_size // config.num_attention_heads,
        max_positions=config.max_position_embeddings,
        segment_types=config.type_vocab_size if segments_enter(config) == "input" else 0,
        num_blocks=config.num_hidden_layers,
        layer_norm_eps=config.layer_norm_eps,
        initializer_range=config.initializer_range,
        padding_id=config.pad_token_id,
    )
    try:
        return VARIANTS[config.variant](dims, **options)
    except Exception as error:  # what the code of a plugin raises is anything
        reason = f"cannot be made with options {config.variant_options or {}}: {' '.join(str(error).split())}"
        raise UserError(f"variant '{config.variant}' {reason}") from error
