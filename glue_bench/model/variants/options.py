"""A variant's options, declared by its constructor's keywords; and the module that they make.

An option has a default, and the type of its annotation or, without one, of its default. A value
from a file must have that type in JSON: `"false"` is no bool, and `true` is no number. Options are
compared in one form: as JSON values, without options that equal their default. So writing a default
into a file changes nothing.
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
SEGMENT_PLACES = ("input", "scores", "none")
"""Where segments enter, an axis of its own.

`input` adds (or concatenates) their embedding, as BERT does. `scores` gives each head a scalar for
each pair of segments, as DIET does. `none` drops them, as TUPE does.
"""


class Option(NamedTuple):
    """One keyword of a variant's constructor: its type and, as JSON, its default."""

    kind: Any  # a TypeAdapter, which the type checks of tests do not know
    default: Any


@cache
def declared_options(variant: type[Variant], name: str) -> Mapping[str, Option]:
    """Return the options of a variant: its own, then `segments`, which every variant has.

    Args:
        variant: The class.
        name: The name of the variant in errors.

    Returns:
        The options by name.

    Raises:
        UserError: an option stands before the `*`, has no default, or a type that cannot be
            checked.
    """
    options: dict[str, Option] = {}
    inherited = inspect.signature(Variant.__init__).parameters
    parameters = list(inspect.signature(variant.__init__).parameters.items())
    for option, parameter in parameters[2:]:  # the first two are self and dims
        is_open_ended = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_open_ended or parameter == inherited.get(option):
            continue
        try:
            options[option] = _option(variant, option, parameter)
        except Exception as error:  # an annotation that is a text may raise anything
            needs = "needs a `*` before it, a default, and a type that JSON has"
            reason = first_line(error)
            fault = f"option '{option}' {needs}: {reason}"
            raise UserError(f"variant '{name}': {fault}") from error
    options[SEGMENTS] = Option(TypeAdapter(str), "input")
    return options


def _option(variant: type[Variant], name: str, parameter: inspect.Parameter) -> Option:
    """Return the option that a keyword declares."""
    if parameter.kind is not parameter.KEYWORD_ONLY:
        raise TypeError("it stands before the `*`")
    default = parameter.default
    default_hint = Any if default is None else type(default)
    hints = get_type_hints(variant.__init__, include_extras=True)
    kind: TypeAdapter[Any] = TypeAdapter(hints.get(name, default_hint))
    kind.validate_python(default, strict=True)
    written = kind.dump_python(default, mode="json", warnings=False)
    json.dumps(written, allow_nan=False)
    return Option(kind, written)


def check_variant(name: str, options: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Parse options as the constructor takes them, `segments` among them.

    Args:
        name: The name of the variant.
        options: The options, as a file has them.
        place: The place of the options, for messages.

    Returns:
        The values by name.

    Raises:
        UserError: a variant or an option does not exist, or a value is not of its option's type.
    """
    prefix = f"{place}: " if place else ""
    if name not in VARIANTS:
        fault = unknown("variant", name, [*VARIANTS, NATIVE], place)
        advice = "a variant of your own needs its file: --plugin FILE"
        raise UserError(f"{fault} ({advice}, or glue_bench.load_plugins([FILE]))")

    variant = f"variant '{name}'"
    permitted = declared_options(VARIANTS[name], name)
    parsed: dict[str, Any] = {}

    for option, value in options.items():
        if option not in permitted:
            raise UserError(f"{prefix}{unknown('option', option, permitted, variant)}")
        about = f"option '{option}' of {variant}"
        if option == SEGMENTS and value not in SEGMENT_PLACES:
            raise UserError(f"{prefix}{unknown('value', value, SEGMENT_PLACES, about)}")
        try:
            written = json.dumps(value, allow_nan=False)
            parsed[option] = permitted[option].kind.validate_json(written, strict=True)
        except (ValueError, TypeError) as error:  # TypeError if JSON has no such value
            reason = _reason(error)
            raise UserError(f"{prefix}{about}: {reason}, not {quoted(value)}") from error
    return parsed


def _reason(error: Exception) -> str:
    """Say why a value is refused, in a clause that follows a colon."""
    reason = str(error)
    if isinstance(error, ValidationError):
        reason = error.errors()[0]["msg"]
    reason = reason.removeprefix("Value error, ")
    return reason[:1].lower() + reason[1:]


def canonical_options(name: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a variant's options in the form to compare, hash and store.

    The form is JSON values without defaults. Raises UserError as `check_variant` does.
    """
    canonical: dict[str, Any] = {}
    for option, value in check_variant(name, options or {}).items():
        kind, default = declared_options(VARIANTS[name], name)[option]
        written = kind.dump_python(value, mode="json", warnings=False)
        if written != default:
            canonical[option] = written
    return canonical


def segments_enter(config: EncoderConfig) -> str:
    """Return where segments enter: one of SEGMENT_PLACES; `none` if the encoder has no segments.

    Raises UserError if segments should enter the scores of an encoder that has fewer than two
    segments: nothing would be learned.
    """
    options = config.variant_options or {}
    place = options.get(SEGMENTS, "input")
    if config.type_vocab_size < 2 and place == "scores":
        count = "only one" if config.type_vocab_size else "none"
        fault = f"segments cannot enter the scores, the encoder has {count}"
        raise UserError(f"variant '{config.variant}': {fault}")
    return place if config.type_vocab_size else "none"


def build_variant(config: EncoderConfig) -> Variant:
    """Build the variant that a configuration names, with fresh weights.

    Raises UserError as `check_variant` does.
    """
    options = check_variant(config.variant, config.variant_options or {})
    options.pop(SEGMENTS, None)

    adds_segments = segments_enter(config) == "input"
    dims = Dimensions(
        vocab_size=config.vocab_size,
        embedding_size=config.embedding_size,
        num_heads=config.num_attention_heads,
        head_size=config.hidden_size // config.num_attention_heads,
        max_positions=config.max_position_embeddings,
        segment_types=config.type_vocab_size if adds_segments else 0,
        num_blocks=config.num_hidden_layers,
        layer_norm_eps=config.layer_norm_eps,
        initializer_range=config.initializer_range,
        padding_id=config.pad_token_id,
    )

    variant = VARIANTS[config.variant]
    try:
        return variant(dims, **options)
    except Exception as error:  # the code of a plugin may raise anything
        cause = " ".join(str(error).split())
        reason = f"cannot be made with options {config.variant_options or {}}: {cause}"
        raise UserError(f"variant '{config.variant}' {reason}") from error
