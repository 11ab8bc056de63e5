"""From a checkpoint of any known family to an encoder with any variant: translate, then graft."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.activations import ACT2FN

from glue_bench.errors import UserError, quoted
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.families import FAMILIES
from glue_bench.model.foreign import check_tied, translate_config, translate_weights
from glue_bench.model.fresh import drawing, fresh, on_meta, one_thread
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import fingerprint, locate, read_json, read_weights
from glue_bench.model.reference import check_against_transformers
from glue_bench.model.tupe import read_tupe
from glue_bench.model.variants.base import Additive, Grafted
from glue_bench.model.variants.options import canonical_options, segments_enter


@dataclass(frozen=True)
class Checkpoint:
    """An encoder in our names: `weights` of EncoderModel, `head` of EncoderForMaskedLM where there is one.

    `weights` has no pooler where the checkpoint has none.
    """

    name: str
    config: EncoderConfig
    weights: dict[str, Tensor]
    head: dict[str, Tensor]


@dataclass(frozen=True)
class Start:
    """What an arm starts from: a configuration, and weights of EncoderModel (none: all fresh).

    `head` is that of EncoderForMaskedLM, where the checkpoint has one that fits. `exact` and `variance_kept` are a
    graft's (`Grafted`); without one nothing is lost.
    """

    config: EncoderConfig
    weights: dict[str, Tensor]
    origin: str
    exact: bool = True
    variance_kept: Mapping[str, float] = field(default_factory=dict)
    head: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def positions(self) -> int | None:
        """The longest text in tokens that the encoder takes; None where nothing bounds it."""
        return self.config.max_position_embeddings

    @property
    def segment_types(self) -> int:
        """How many segments the encoder tells apart; 0 where it is given none."""
        return self.config.type_vocab_size


def read_config(name: str, revision: str | None = None) -> EncoderConfig:
    """The configuration of a checkpoint, in our names, without reading the weights of a folder.

    Raises:
        UserError: no such checkpoint, no readable config.json, a family that is not known, or settings that this
            encoder does not compute; of a file, as `read_tupe`.
    """
    place = locate(name, revision)
    return read_tupe(place)[0] if place.is_file() else _config_of(read_json(place / "config.json"), name)


def _config_of(raw: dict[str, Any], name: str) -> EncoderConfig:
    kind = raw.get("model_type")
    if kind not in [*FAMILIES, EncoderConfig.model_type]:
        known = ", ".join([*FAMILIES, EncoderConfig.model_type])
        raise UserError(f"checkpoint '{name}' is of model_type {quoted(kind)}; glue-bench reads {known}")
    try:
        if kind in FAMILIES:
            return translate_config(raw, name)
        return EncoderConfig(**{key: raw[key] for key in EncoderConfig.__annotations__ if key in raw})
    except UserError:
        raise
    except Exception as error:  # what transformers raises for a value that it did not expect is anything
        raise UserError(f"checkpoint '{name}': config.json does not fit: {' '.join(str(error).split())}") from error


def read_checkpoint(name: str, revision: str | None = None, digest: str | None = None) -> Checkpoint:
    """A checkpoint from the hub, a folder or an official TUPE file, in our names.

    One of another library is compared with transformers' own model when it is read for the first time.

    Raises:
        UserError: as `read_config` and `check_against_transformers`; weights that are absent, unreadable or
            incomplete; or files that are no longer of `digest`, their `fingerprint` when they were chosen.
    """
    place = locate(name, revision)
    checkpoint = Checkpoint(name, *read_tupe(place)) if place.is_file() else _read_folder(place, name)
    if digest is not None and fingerprint(place) != digest:
        raise UserError(f"checkpoint '{name}' has changed while it was in use; start again")
    return checkpoint


def _read_folder(folder: Path, name: str) -> Checkpoint:
    settings = read_json(folder / "config.json")
    config, raw = _config_of(settings, name), read_weights(folder)
    family = FAMILIES.get(settings["model_type"])
    weights, head = _our_own(raw) if family is None else translate_weights(raw, family, config.pad_token_id)
    _check_complete(config, weights, name)
    checkpoint = Checkpoint(name, config, weights, head)
    if family is not None:
        if head:
            check_tied(settings, raw, weights["variant.words.weight"], family, name)
        check_against_transformers(folder, config, weights, _fitting_head(checkpoint, config), name)
    return checkpoint


def graft(checkpoint: Checkpoint, variant: str, options: Mapping[str, Any]) -> Start:
    """Start `variant` from a checkpoint: as it is where it is of that variant, else by a graft from `add`.

    Blocks are kept. Where the variant scales scores by 1 / sqrt(terms * k), queries grow by sqrt(terms), so
    that the word-word scores stay those of the checkpoint. What a graft leaves fresh is as `fresh` draws it: the
    start is a function of the checkpoint, the variant and its options alone.

    Raises:
        UserError: the checkpoint is of another variant that is not `add`, or of this one with other options.
    """
    config = checkpoint.config
    options = canonical_options(variant, options)
    if variant == config.variant and options == canonical_options(variant, config.variant_options):
        return Start(config, checkpoint.weights, config.origin, head=_fitting_head(checkpoint, config))
    if config.variant != "add":
        raise UserError(
            f"cannot start variant {_titled(variant, options)} from '{checkpoint.name}', which is "
            f"{_titled(config.variant, config.variant_options)}; only additive checkpoints can be grafted"
        )
    return _graft(checkpoint, variant, options)


def _titled(variant: str, options: Mapping[str, Any] | None) -> str:
    return f"'{variant}'" + (f" with {dict(options)}" if options else "")


def with_variant(config: EncoderConfig, variant: str, options: Mapping[str, Any], origin: str) -> EncoderConfig:
    """A copy of a configuration for another variant."""
    changes = {"variant": variant, "variant_options": dict(options), "origin": origin}
    return EncoderConfig.from_dict(config.to_dict() | changes)


def encoder(checkpoint: Checkpoint | Start) -> EncoderModel:
    """The encoder of a checkpoint or a start; what it has no weights for, such as a pooler, is fresh."""
    model = fresh(EncoderModel, checkpoint.config)
    model.load_state_dict(checkpoint.weights, strict=False)
    return model


def masked_lm(checkpoint: Checkpoint) -> EncoderForMaskedLM:
    """The checkpoint as it is, with its masked-LM head; the decoder is tied to the token table.

    Raises:
        UserError: the checkpoint has no such head, or not all of it.
    """
    head = _fitting_head(checkpoint, checkpoint.config)
    if not head:
        what = "an incomplete" if checkpoint.head else "no"
        raise UserError(
            f"checkpoint '{checkpoint.name}' has {what} masked-LM head; give one that was saved with its head"
        )
    model = fresh(EncoderForMaskedLM, checkpoint.config)
    state = {f"base.{name}": tensor for name, tensor in checkpoint.weights.items()} | head
    model.load_state_dict(state, strict=False)
    return model


def _graft(checkpoint: Checkpoint, variant: str, options: Mapping[str, Any]) -> Start:
    config = with_variant(checkpoint.config, variant, options, origin="grafted")
    model = fresh(EncoderModel, config)
    with drawing(), one_thread():
        grafted = model.variant.graft(_additive(checkpoint))
    if not isinstance(grafted, Grafted):  # a plugin's, which no type check has seen
        raise TypeError(f"graft returns {type(grafted).__name__}, not Grafted")
    enter = segments_enter(checkpoint.config), segments_enter(config)
    if model.segment_scores is not None:
        torch.nn.init.zeros_(model.segment_scores.table.weight)
    replaced = ("variant.",) if enter == ("scores", "scores") else ("variant.", "segment_scores.")
    weights = {name: tensor for name, tensor in checkpoint.weights.items() if not name.startswith(replaced)}
    for name, tensor in weights.items():
        if ".attention.qkv." in name:
            query, key_value = tensor.split([len(tensor) // 3, 2 * len(tensor) // 3])
            weights[name] = torch.cat([query * model.variant.score_terms**0.5, key_value])
    weights |= {name: tensor for name, tensor in model.state_dict().items() if name.startswith(replaced)}
    keeps_segments = enter[0] == enter[1] or enter == ("none", "scores")  # a table of zeros adds nothing
    exact = grafted.exact and keeps_segments
    return Start(config, weights, "grafted", exact, grafted.variance_kept, _fitting_head(checkpoint, config))


def _fitting_head(checkpoint: Checkpoint, config: EncoderConfig) -> dict[str, Tensor]:
    """The masked-LM head if it is whole and of this encoder's shapes; its decoder is tied to the words."""
    if not checkpoint.head:
        return {}
    expected = on_meta(EncoderForMaskedLM, config).state_dict()
    names = [name for name in expected if not name.startswith(("base.", "decoder.weight"))]
    found = {name: checkpoint.head[name] for name in names if name in checkpoint.head}
    fits = len(found) == len(names) and all(found[name].shape == expected[name].shape for name in names)
    return found if fits else {}


def _additive(checkpoint: Checkpoint) -> Additive:
    weights = checkpoint.weights
    query, key, _ = weights["blocks.0.attention.qkv.weight"].chunk(3)
    return Additive(
        words=weights["variant.words.weight"],
        positions=weights["variant.positions.weight"],
        segments=weights.get("variant.segments.weight"),
        norm=weights["norm.weight"],
        query=query,
        key=key,
    )


def _our_own(raw: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    inside = {name: tensor.float() for name, tensor in raw.items()}
    if not any(name.startswith("base.") for name in inside):
        return inside, {}
    weights = {name.removeprefix("base."): tensor for name, tensor in inside.items() if name.startswith("base.")}
    heads = ("dense.", "head_norm.", "decoder.")
    return weights, {name: tensor for name, tensor in inside.items() if name.startswith(heads)}


def _check_complete(config: EncoderConfig, weights: Mapping[str, Tensor], name: str) -> None:
    for key, act in [("hidden_act", config.hidden_act), ("head_act", config.head_act or config.hidden_act)]:
        if act not in ACT2FN:
            raise UserError(f"checkpoint '{name}': {key} '{act}' is not known to transformers")
        if ACT2FN[act].state_dict():
            raise UserError(f"checkpoint '{name}': {key} '{act}' has weights of its own, which are not read")
    expected = on_meta(EncoderModel, config).state_dict()
    has_pooler = any(key.startswith("pooler.") for key in weights)  # without one it is fresh, half of one is damaged
    missing = [key for key in expected if key not in weights and (has_pooler or not key.startswith("pooler."))]
    if missing:
        raise UserError(f"checkpoint '{name}' lacks {len(missing)} weights of its encoder, such as {missing[0]}")
    wrong = [key for key in expected if key in weights and weights[key].shape != expected[key].shape]
    if wrong:
        shapes = f"{tuple(weights[wrong[0]].shape)}, its config.json says {tuple(expected[wrong[0]].shape)}"
        raise UserError(f"checkpoint '{name}': {wrong[0]} has shape {shapes}")
