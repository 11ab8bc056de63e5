"""Checkpoints of other libraries in our names: what their config.json changes is done here too, or refused."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig

from glue_bench.errors import UserError
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.families import FAMILIES, Family, rename

# Settings that, where they are set, make of a checkpoint what no encoder of ours computes.
_OTHERWISE = {
    "is_decoder": "it is a decoder, whose tokens see only the tokens before them",
    "add_cross_attention": "it attends to the states of another model too",
    "quantization_config": "its weights are quantised",
    "pruned_heads": "some of its attention heads are pruned",
    "per_layer_config": "its blocks have different settings",
    "auto_map": "it names code of its own, which is not run",
}


def translate_config(raw: Mapping[str, Any], name: str) -> EncoderConfig:
    """The content of a config.json of one of FAMILIES as ours.

    Raises:
        UserError: it sets what this encoder does not compute.
        ValueError: a size or a rate that no encoder can have; transformers raises errors of its own, too.
    """
    for key, reason in _OTHERWISE.items():
        if raw.get(key):
            raise UserError(f"checkpoint '{name}' cannot be read: {reason} ({key} in its config.json)")
    if raw.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(f"checkpoint '{name}' has {raw['position_embedding_type']} positions; only absolute are read")
    family = FAMILIES[raw["model_type"]]
    theirs = AutoConfig.for_model(**raw)
    settings = {ours: getattr(theirs, key) for ours, key in family.settings.items()}
    if settings["pad_token_id"] is None and family.counts_from_padding:
        raise ValueError("it has no pad_token_id, from which positions are counted")
    settings["max_position_embeddings"] -= _unused_positions(settings["pad_token_id"], family)
    return EncoderConfig(**settings, **family.fixed, variant="add", origin="pretrained")


def translate_weights(
    raw: Mapping[str, Tensor], family: Family, padding_id: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of EncoderModel and of EncoderForMaskedLM's head, in float32, from those of a family."""
    weights = {ours: raw[theirs].float() for ours, theirs in rename(raw, family.encoder, family.prefix).items()}
    weights = _stack_qkv(weights)
    unused, positions = _unused_positions(padding_id, family), weights.get("variant.positions.weight")
    if unused and positions is not None:
        weights["variant.positions.weight"] = positions[unused:].clone()
    return weights, {ours: raw[theirs].float() for ours, theirs in rename(raw, family.head).items()}


def check_tied(
    settings: Mapping[str, Any], raw: Mapping[str, Tensor], words: Tensor, family: Family, name: str
) -> None:
    """Refuse a masked-LM head whose decoder is not the table of the words, as that of every encoder here is.

    Raises:
        UserError: it has a decoder of its own.
    """
    decoder = raw.get(family.decoder)
    if settings.get("tie_word_embeddings") is False or not (decoder is None or torch.equal(decoder.float(), words)):
        raise UserError(
            f"checkpoint '{name}' cannot be read: the decoder of its masked-LM head is not tied to its words; save its "
            "encoder alone (with transformers' AutoModel), and give that"
        )


def _unused_positions(padding_id: int | None, family: Family) -> int:
    """Rows at the start of the position table that no token ever has."""
    return padding_id + 1 if family.counts_from_padding and padding_id is not None else 0


def _stack_qkv(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Query, key and value of a block as one; left out where one is absent or of another width."""
    stacked = {name: tensor for name, tensor in weights.items() if name.split(".")[-2] not in {"query", "key", "value"}}
    for name in weights:
        parts = [weights.get(name.replace(".query.", f".{part}.")) for part in ("query", "key", "value")]
        whole = [part for part in parts if part is not None]
        if ".attention.query." in name and len(whole) == 3 and len({part.shape[1:] for part in whole}) == 1:
            stacked[name.replace(".query.", ".qkv.")] = torch.cat(whole)
    return stacked
