"""From a variant's name and options to the module, built-in or from a plugin, with every wrong name refused."""

from collections.abc import Mapping
from typing import Any

from glue_bench.config import NATIVE
from glue_bench.errors import UserError, unknown
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Dimensions, Variant
from glue_bench.model.variants.options import SEGMENTS, canonical, parsed


def check_variant(name: str, options: Mapping[str, Any], where: str = "") -> None:
    """Refuse a variant or an option that does not exist, or a value that is not of its option's type.

    Raises:
        UserError: with the near match.
    """
    if name not in VARIANTS:
        error = unknown("variant", name, [*VARIANTS, NATIVE], where)
        raise UserError(f"{error}; one of your own needs its file: --plugin FILE, or glue_bench.load_plugins([FILE])")
    parsed(VARIANTS[name], name, options, where)


def canonical_options(name: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """A variant's options in the form to compare, hash and store: JSON's, without those that equal their default.

    Raises:
        UserError: as `check_variant`.
    """
    check_variant(name, options or {})
    return canonical(VARIANTS[name], name, options or {})


def segments_enter(config: EncoderConfig) -> str:
    """Where segments enter: one of PLACES; `none` for an encoder that has no segments.

    Raises:
        UserError: they are to enter the scores of an encoder that has fewer than two, which has nothing to learn there.
    """
    place = (config.variant_options or {}).get("segments", "input")
    if config.type_vocab_size < 2 and place == "scores":
        has = "only one" if config.type_vocab_size else "none"
        raise UserError(f"variant '{config.variant}': segments cannot enter the scores, the encoder has {has}")
    return place if config.type_vocab_size else "none"


def build_variant(config: EncoderConfig) -> Variant:
    """The variant that a configuration names, with fresh weights.

    Raises:
        UserError: an unknown variant or option, or an option of a wrong type or value.
    """
    given = config.variant_options or {}
    check_variant(config.variant, given)
    options = parsed(VARIANTS[config.variant], config.variant, given)
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
        said = f"cannot be made with options {dict(given)}: {' '.join(str(error).split())}"
        raise UserError(f"variant '{config.variant}' {said}") from error
