"""The conversion of an encoder to another variant: blocks stay, and tables are taken over."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from glue_bench.errors import UserError
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import fixed_seed, fresh, on_threads
from glue_bench.model.start import Start, fitting_head, with_variant
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import Additive, Grafted
from glue_bench.model.variants.options import build_variant, canonical_options, segments_enter

VARIANT_PREFIX = "variant."
SEGMENT_PREFIX = "segment_scores."


def graft(start: Start, variant: str, options: Mapping[str, Any]) -> Start:
    """Start a variant from a checkpoint.

    A checkpoint of the variant with these options stays as it is. From an `add` checkpoint the
    variant is grafted: blocks are kept. Where the variant scales scores by 1 / sqrt(terms * k),
    queries grow by sqrt(terms), so that the word-word scores stay those of the checkpoint. Weights
    that a graft leaves fresh are drawn by `fresh`.

    Args:
        start: The checkpoint.
        variant: The name of the variant.
        options: Its options.

    Returns:
        The start of the variant, which says whether the graft is exact.

    Raises:
        UserError: the checkpoint has another variant that is not `add`, or this variant with other
            options; or an option says how fresh weights start, and a checkpoint has none.
    """
    new_options = canonical_options(variant, options)
    if _is_as_it_is(start, variant, new_options):
        return start

    config = with_variant(start.config, variant, new_options, origin="grafted")
    model = fresh(EncoderModel, config)
    additive = additive_weights(start)
    with fixed_seed(), on_threads(1), torch.no_grad():
        grafted = model.variant.graft(additive)
        if model.segment_scores is not None:
            torch.nn.init.zeros_(model.segment_scores.table.weight)

    if not isinstance(grafted, Grafted):  # a plugin may return another type
        raise TypeError(f"graft returns {type(grafted).__name__}, not Grafted")

    old_place = segments_enter(start.config)
    new_place = segments_enter(config)
    prefixes: tuple[str, ...] = (VARIANT_PREFIX, SEGMENT_PREFIX)
    if old_place == new_place == "scores":
        prefixes = (VARIANT_PREFIX,)
    segments_stay = old_place == new_place
    adds_zeros = (old_place, new_place) == ("none", "scores")

    return replace(
        start,
        config=config,
        weights=_merged(start, model, prefixes),
        origin="grafted",
        exact=grafted.exact and (segments_stay or adds_zeros),
        variance_kept=grafted.variance_kept,
        head=fitting_head(config, start.head),
    )


def _is_as_it_is(start: Start, variant: str, new_options: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint already has a variant with these options.

    Raises UserError, as `graft` does, for a checkpoint that cannot get this variant.
    """
    old_variant = start.config.variant
    old_options = canonical_options(old_variant, start.config.variant_options)
    if (old_variant, old_options) == (variant, new_options):
        return True
    fresh_options = VARIANTS[variant].fresh_options
    for option in sorted(fresh_options & new_options.keys()):
        fault = f"option '{option}' of variant '{variant}' says how fresh weights start"
        advice = f"it changes nothing of '{start.name}'; leave it out"
        raise UserError(f"{fault}; {advice}")
    lasting_options = {key: old_options[key] for key in old_options if key not in fresh_options}
    if (old_variant, lasting_options) == (variant, new_options):
        return True
    if old_variant != "add":
        old_name = _with_options(old_variant, old_options)
        new_name = _with_options(variant, new_options)
        refusal = f"cannot start variant {new_name} from '{start.name}', which is {old_name}"
        raise UserError(f"{refusal}; only additive checkpoints can be grafted")
    return False


def _with_options(variant: str, options: Mapping[str, Any]) -> str:
    """Name a variant, with its options if it has any."""
    return f"'{variant}' with {options}" if options else f"'{variant}'"


def additive_weights(start: Start) -> Additive:
    """Return the weights of an encoder of variant `add` that a graft starts from."""
    weights = start.weights
    words = weights["variant.words.weight"]
    query, key, _ = weights["blocks.0.attention.qkv.weight"].chunk(3)
    norm = weights.get("norm.weight")
    return Additive(
        words=words,
        positions=added_positions(start),
        segments=weights.get("variant.segments.weight"),
        norm=torch.ones(words.shape[1]) if norm is None else norm,
        query=query,
        key=key,
    )


def added_positions(start: Start) -> Float[Tensor, "n d"]:
    """Return the p_i that an encoder of variant `add` adds.

    With `position_norm` these are not the rows of the encoder's table.
    """
    with fixed_seed():
        variant = build_variant(start.config)
    assert isinstance(variant, Add)
    variant_weights: dict[str, Tensor] = {}
    for name, tensor in start.weights.items():
        if name.startswith(VARIANT_PREFIX):
            variant_weights[name.removeprefix(VARIANT_PREFIX)] = tensor
    variant.load_state_dict(variant_weights, assign=True)  # this copies no weights
    return variant.position_rows(start.config.max_position_embeddings).detach()


def _merged(start: Start, model: EncoderModel, prefixes: tuple[str, ...]) -> dict[str, Tensor]:
    """Take the weights with these prefixes from the grafted model, and all others from the start.

    Queries grow by sqrt(terms).
    """
    growth = model.variant.score_terms**0.5
    weights: dict[str, Tensor] = {}
    for name, tensor in start.weights.items():
        if name.startswith(prefixes):
            continue
        if ".attention.qkv." in name:
            query, key_value = tensor.split([len(tensor) // 3, 2 * len(tensor) // 3])
            tensor = torch.cat([query * growth, key_value])
        weights[name] = tensor
    for name, tensor in model.state_dict().items():
        if name.startswith(prefixes):
            weights[name] = tensor
    return weights
