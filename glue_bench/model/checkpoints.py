"""Read checkpoints of all known families: translate their names and settings, and check them."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig
from transformers.activations import ACT2FN

from glue_bench.errors import UserError, first_line, quoted
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.families import FAMILIES, TUPE, Family
from glue_bench.model.fresh import on_meta
from glue_bench.model.locate import (
    checked_weights,
    fingerprint,
    locate,
    read_json,
    read_weights,
    unpickle,
)
from glue_bench.model.parity import check_parity
from glue_bench.model.relative_bert import (
    DISTANCE_TABLES,
    check_relative,
    relative_family,
    to_relative,
)
from glue_bench.model.start import Start, fitting_head

TUPE_DECODER = "decoder.lm_head.weight"
POOLER_PREFIX = "pooler."
BASE_PREFIX = "base."
"""How the names of an encoder's weights begin in a file that we have saved with a head."""
TUPE_VALUES = {"encoder_normalize_before": False, "rel_pos_bins": 32, "max_rel_pos": 128}
"""The only values of these TUPE settings that are read; a file without a setting has its value."""
TUPE_DEFAULTS = {"dropout": 0.1, "attention_dropout": 0.1}
"""Values that TUPE's code uses if a file does not have them."""
FAIRSEQ_METERS = [
    (type(name, (), {}), f"fairseq.meters.{name}")
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
]
"""Classes that replace fairseq's meters, which its trainer stores: attributes and no behaviour."""


def read_checkpoint(name: str, revision: str | None = None, digest: str | None = None) -> Start:
    """Read a checkpoint from the hub, a folder or an official TUPE file, in our names and as it is.

    Args:
        name: A hub id, a folder or a file.
        revision: The revision of a hub id.
        digest: The `fingerprint` of the files when they were chosen.

    Returns:
        The start with the weights of the checkpoint.

    Raises:
        UserError: there is no such checkpoint; its family is not known; this encoder cannot compute
            its settings; its weights are absent, unreadable, incomplete, or not read as
            transformers reads them (`check_parity`, for relative positions `check_relative`); or
            its files no longer have the `digest`.
    """
    place = locate(name, revision)
    start = _read_tupe(place, name) if place.is_file() else _read_folder(place, name)
    if digest is not None and fingerprint(place) != digest:
        raise UserError(f"checkpoint '{name}' has changed while it was in use; start again")
    return start


def _read_folder(folder: Path, name: str) -> Start:
    """Read a folder of transformers or of ours."""
    settings = read_json(folder / "config.json")
    family = _family(settings, name)
    positions = settings.get("position_embedding_type")

    try:
        config = _our_config(settings) if family is None else _translated_config(settings, family)
    except Exception as error:  # for an unexpected value transformers may raise anything
        reason = " ".join(str(error).split())
        raise UserError(f"checkpoint '{name}': config.json does not fit: {reason}") from error

    raw = read_weights(folder)
    has_unused_head = any(key.startswith("classifier.") for key in raw)

    if family is None:
        weights, head = _our_weights(raw)
        start = _checked_start(name, config, weights, head)
    elif positions in DISTANCE_TABLES:
        check_relative(name, settings, raw, family)
        weights, head = family.translate(raw, config.pad_token_id)
        to_relative(config, weights, positions)
        start = _checked_start(name, config, weights, head)
    else:
        weights, head = family.translate(raw, config.pad_token_id)
        start = _checked_start(name, config, weights, head)
        check_parity(folder, start)

    return replace(start, has_unused_head=has_unused_head)


def _family(settings: Mapping[str, Any], name: str) -> Family | None:
    """Return the family of a configuration, None for one of ours. Raises UserError for others."""
    model_type = settings.get("model_type")
    positions = settings.get("position_embedding_type", "absolute")
    known_types = [*FAMILIES, EncoderConfig.model_type]
    if model_type not in known_types:
        advice = f"only {', '.join(known_types)} can become a variant, others run as they are"
        fault = f"is of model_type {quoted(model_type)}"
        raise UserError(f"checkpoint '{name}' {fault}; {advice}: native")
    if model_type == "bert" and positions in DISTANCE_TABLES:
        return relative_family(positions)
    if positions != "absolute":  # transformers 5 silently reads them as absolute ones
        fault = f"has {quoted(positions)} positions; only absolute are read"
        raise UserError(
            f"checkpoint '{name}' {fault}, and of BERT also {' and '.join(DISTANCE_TABLES)}"
        )
    return FAMILIES.get(model_type)


def _our_config(settings: Mapping[str, Any]) -> EncoderConfig:
    """Take our own settings from a configuration that we have saved."""
    names = EncoderConfig.__annotations__
    return EncoderConfig(**{key: settings[key] for key in names if key in settings})


def _translated_config(settings: Mapping[str, Any], family: Family) -> EncoderConfig:
    """Translate a configuration of transformers, whose class fills in what the file leaves out."""
    config = AutoConfig.for_model(**settings)
    values = {name: getattr(config, name) for name in family.settings.values()}
    return family.configure(values)


def _our_weights(raw: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Divide the weights of a file that we have saved: those of EncoderModel, and those of a head.

    The weights of a head are all weights of the file, under the names of the model with the head.
    """
    weights: dict[str, Tensor] = {}
    base_weights: dict[str, Tensor] = {}
    for key, tensor in raw.items():
        weights[key] = tensor.float()
        if key.startswith(BASE_PREFIX):
            base_weights[key.removeprefix(BASE_PREFIX)] = weights[key]
    if not base_weights:  # the file has an encoder without a head
        return weights, {}
    return base_weights, weights


def _checked_start(
    name: str, config: EncoderConfig, weights: dict[str, Tensor], head: Mapping[str, Tensor]
) -> Start:
    """Check that the weights are those of an encoder with this configuration, and make its start.

    A head that is not whole, or not of this encoder's shapes, is left out. Raises UserError for an
    encoder that is not whole, or of other shapes.
    """
    for act in (config.hidden_act, config.head_act or config.hidden_act):
        _check_activation(name, act)

    expected = on_meta(EncoderModel, config).state_dict()
    # A missing pooler is made fresh; an incomplete pooler is damage.
    has_pooler = any(key.startswith(POOLER_PREFIX) for key in weights)

    missing: list[str] = []
    for key in expected:
        is_needed = has_pooler or not key.startswith(POOLER_PREFIX)
        if is_needed and key not in weights:
            missing.append(key)
    if missing:
        fault = f"lacks {len(missing)} weights of its encoder, such as {missing[0]}"
        raise UserError(f"checkpoint '{name}' {fault}")

    for key, tensor in weights.items():
        if key in expected and tensor.shape != expected[key].shape:
            stored_shape = tuple(tensor.shape)
            expected_shape = tuple(expected[key].shape)
            fault = f"{key} has shape {stored_shape}, its settings say {expected_shape}"
            raise UserError(f"checkpoint '{name}': {fault}")

    return Start(config, weights, config.origin, head=fitting_head(config, head), name=name)


def _check_activation(name: str, act: str) -> None:
    """Refuse an activation that transformers does not know, or that has weights."""
    if act not in ACT2FN:
        fault = "is not known to transformers"
    elif ACT2FN[act].state_dict():
        fault = "has weights of its own, which are not read"
    else:
        return
    raise UserError(f"checkpoint '{name}': its activation '{act}' {fault}")


def _read_tupe(path: Path, name: str) -> Start:
    """Read an official TUPE checkpoint.

    It is a `torch.save`d dictionary of `args`, the training's settings, and `model`.
    """
    args, raw = _unpickled_tupe(path)
    config = _tupe_config(args, name)
    # Without a table of words any number is fine here: the table is then reported as missing.
    words = raw.get(f"{TUPE.prefix}embed_tokens.weight")
    if words is not None and words.ndim:
        config.vocab_size = len(words)
    config.variant = "untied-relative" if args["rel_pos"] else "untied"
    weights, head = TUPE.translate(raw, config.pad_token_id)
    start = _checked_start(name, config, weights, head)
    _check_all_read(start, raw)
    return start


def _unpickled_tupe(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and the weights of a TUPE checkpoint."""
    try:
        saved = unpickle(path, [argparse.Namespace, *FAIRSEQ_METERS])
        args = dict(vars(saved["args"]))
        weights = checked_weights(saved["model"])
    except Exception as error:
        # torch's own message is long, and advises to load the file in a way that runs its code.
        unsafe = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
        reason = first_line(error)
        if unsafe:
            reason = f"it pickles {unsafe[1]}, which might run code"
        elif isinstance(error, UnpicklingError):
            reason = "it is damaged, or another kind of file"
        kind = "an official TUPE checkpoint, which is a file of torch.save with args and model"
        raise UserError(f"cannot read '{path}' as {kind}: {reason}") from error
    return TUPE_DEFAULTS | args, weights


def _tupe_config(args: Mapping[str, Any], name: str) -> EncoderConfig:
    """Translate the settings of a TUPE checkpoint. Raises UserError for those that do not fit."""
    faults = [f"no {key}" for key in (*TUPE.settings.values(), "rel_pos") if key not in args]
    for key, value in TUPE_VALUES.items():
        if args.get(key, value) != value:
            faults.append(f"{key}={quoted(args[key])}")
    try:
        if faults:
            raise ValueError(", ".join(faults))
        return TUPE.configure(args)
    except Exception as error:  # transformers may raise anything here, too
        reason = " ".join(str(error).split())
        raise UserError(f"TUPE checkpoint '{name}': its args do not fit: {reason}") from error


def _check_all_read(start: Start, raw: Mapping[str, Tensor]) -> None:
    """Refuse a TUPE checkpoint with weights that are not read, or whose decoder is not tied."""
    about = f"TUPE checkpoint '{start.name}'"
    read_names = {*TUPE.rename(raw).values(), TUPE_DECODER}
    our_names = on_meta(EncoderModel, start.config).state_dict()
    unknown: list[str] = []
    for key in raw:
        is_of_fine_tuning = key.startswith("classification_heads.")
        if key not in read_names and not is_of_fine_tuning:
            unknown.append(key)
    unknown.extend(key for key in start.weights if key not in our_names)
    if unknown:
        raise UserError(f"{about} has {len(unknown)} unknown weights, such as {unknown[0]}")
    if TUPE_DECODER in raw:
        words = start.weights["variant.words.weight"]
        if not torch.equal(raw[TUPE_DECODER].float(), words):
            fault = f"{TUPE_DECODER} differs from the words, to which it should be tied"
            raise UserError(f"{about}: {fault}")
