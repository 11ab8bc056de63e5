"""The official TUPE checkpoints (guolinke/TUPE at 4c64ff7, built on fairseq) as encoders of ours.

A file is a `torch.save`d dictionary: `args`, an argparse.Namespace of the training's settings, and `model`, the
weights by fairseq's names; what else a training leaves there (optimiser, meters) is not used. TUPE has no segments,
and its masked-LM decoder is tied to the words.
"""

import argparse
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers.activations import ACT2FN

from glue_bench.errors import UserError, quoted
from glue_bench.files import check_file
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.families import exchange, rename
from glue_bench.model.fresh import on_meta
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import LARGEST_WEIGHTS, checked_weights, refuse_compressed

_ENCODER = "decoder.sentence_encoder."
WORDS, DECODER = f"{_ENCODER}embed_tokens.weight", "decoder.lm_head.weight"
# fairseq's names and ours, as the pairs of `families`.
NAMES = (
    (f"{_ENCODER}embed_tokens.", "base.variant.words."),
    (f"{_ENCODER}pos.", "base.variant.positions."),
    (f"{_ENCODER}pos_q_linear.", "base.variant.position_query."),
    (f"{_ENCODER}pos_k_linear.", "base.variant.position_key."),
    (f"{_ENCODER}pos_ln.", "base.variant.position_norm."),
    (f"{_ENCODER}relative_attention_bias.", "base.variant.relative.table."),
    (f"{_ENCODER}emb_layer_norm.", "base.norm."),
    (f"{_ENCODER}layers.#.self_attn.in_proj_", "base.blocks.#.attention.qkv."),
    (f"{_ENCODER}layers.#.self_attn.out_proj.", "base.blocks.#.attention.out."),
    (f"{_ENCODER}layers.#.self_attn_layer_norm.", "base.blocks.#.attention_norm."),
    (f"{_ENCODER}layers.#.fc1.", "base.blocks.#.up."),
    (f"{_ENCODER}layers.#.fc2.", "base.blocks.#.down."),
    (f"{_ENCODER}layers.#.final_layer_norm.", "base.blocks.#.norm."),
    ("decoder.lm_head.dense.", "dense."),
    ("decoder.lm_head.layer_norm.", "head_norm."),
    ("decoder.lm_head.", "decoder."),
)
_IGNORED = "classification_heads."  # what fine-tuning adds; every cell trains its own
_SIZES = {
    "hidden_size": "encoder_embed_dim",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_embed_dim",
    "max_position_embeddings": "max_positions",
}
_PADDING = 1  # fairseq's dictionaries begin with <s>, <pad>, </s>, <unk>
_LAYOUT = {"embedding_normalize": True, "encoder_normalize_before": False}
_SHOWN = 12


class _Meter:
    """Stands in for fairseq's meters, which its trainer stores with the weights: attributes and no behaviour."""


_SAFE: list[Any] = [
    argparse.Namespace,
    *((_Meter, f"fairseq.meters.{name}") for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")),
]


def read_tupe(path: Path) -> tuple[EncoderConfig, dict[str, Tensor], dict[str, Tensor]]:
    """Configuration, weights of EncoderModel and masked-LM head of an official checkpoint, float32 on the CPU.

    Nothing that the file pickles is executed.

    Raises:
        UserError: not such a file, settings that this encoder has not, or weights that do not fit them.
    """
    args, raw = _load(path)
    config = _read_args(args, raw, path)
    _check_weights(raw, config, path)
    ours = {mine: raw[theirs].float() for mine, theirs in rename(raw, NAMES).items()}
    weights = {name.removeprefix("base."): tensor for name, tensor in ours.items() if name.startswith("base.")}
    head = {name: tensor for name, tensor in ours.items() if not name.startswith(("base.", "decoder.weight"))}
    return config, weights, head


def _load(path: Path) -> tuple[argparse.Namespace, dict[str, Tensor]]:
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_SAFE):
            warnings.simplefilter("ignore")  # torch warns of what it then refuses
            check_file(path, LARGEST_WEIGHTS)
            refuse_compressed(path)
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(_why_unreadable(path, error)) from error
    if not isinstance(saved, dict) or not {"args", "model"} <= saved.keys():
        keys = ", ".join(map(str, list(saved)[:_SHOWN])) if isinstance(saved, dict) else f"a {type(saved).__name__}"
        raise UserError(f"'{path}' is no official TUPE checkpoint: it holds {keys or 'nothing'}, not args and model")
    args, model = saved["args"], saved["model"]
    if not isinstance(args, argparse.Namespace):
        raise UserError(f"'{path}' is no official TUPE checkpoint: its args are no argparse.Namespace")
    try:
        return args, checked_weights(model)
    except ValueError as error:
        said = f"its model is no dictionary of tensors ({error})"
        raise UserError(f"'{path}' is no official TUPE checkpoint: {said}") from error


def _why_unreadable(path: Path, error: Exception) -> str:
    """torch's own message is long, and advises to load the file in a way that runs its code."""
    if isinstance(error, PermissionError):
        return f"cannot read '{path}': {error.strerror}"
    unsafe = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
    if unsafe:
        return f"'{path}' pickles {unsafe[1]}, which might run code, and is not read; official TUPE checkpoints do not"
    return (
        f"cannot read '{path}' as an official TUPE checkpoint: not a file of torch.save, or cut short "
        "(other checkpoints are given as the folder that holds them)"
    )


def _read_args(args: argparse.Namespace, raw: Mapping[str, Tensor], path: Path) -> EncoderConfig:
    values = vars(args)
    absent = [key for key in (*_SIZES.values(), "activation_fn", "rel_pos", *_LAYOUT) if key not in values]
    if absent:
        raise UserError(f"TUPE checkpoint '{path}': its args lack {', '.join(absent)}")
    sound = {key: type(values[key]) is int and values[key] > 0 for key in _SIZES.values()}
    sound |= {key: type(rate) in (int, float) and 0 <= rate < 1 for key, rate in _rates(values).items()}
    sound |= {key: values[key] is needed for key, needed in _LAYOUT.items()}
    sound["activation_fn"] = str(values["activation_fn"]) in ACT2FN
    wrong = [f"{key}={quoted(values[key])}" for key in sound if not sound[key]]
    if wrong:
        raise UserError(f"TUPE checkpoint '{path}': its args are not those of a TUPE encoder: {', '.join(wrong)}")
    try:
        return _translate_args(values, raw)
    except (StrictDataclassError, ValueError) as error:
        raise UserError(f"TUPE checkpoint '{path}': its args do not fit: {' '.join(str(error).split())}") from error


def _translate_args(args: Mapping[str, Any], raw: Mapping[str, Tensor]) -> EncoderConfig:
    # Without words any number will do: they are then found missing, whatever the vocabulary.
    vocabulary = len(raw[WORDS]) if WORDS in raw and raw[WORDS].ndim else 0
    return EncoderConfig(
        **{ours: args[theirs] for ours, theirs in _SIZES.items()},
        vocab_size=max(vocabulary, _PADDING + 1),
        hidden_act=args["activation_fn"],
        hidden_dropout_prob=_rates(args)["dropout"],
        attention_probs_dropout_prob=_rates(args)["attention_dropout"],
        type_vocab_size=0,
        layer_norm_eps=1e-5,
        pad_token_id=_PADDING,
        variant="untied-relative" if args["rel_pos"] else "untied",
        origin="pretrained",
    )


def _rates(args: Mapping[str, Any]) -> dict[str, Any]:
    """The dropout rates, which the official code fills in where they are not given."""
    return {key: args.get(key, 0.1) for key in ("dropout", "attention_dropout")}


def _check_weights(raw: Mapping[str, Tensor], config: EncoderConfig, path: Path) -> None:
    """One message for all that does not fit, in the file's names."""
    ours = on_meta(EncoderForMaskedLM, config).state_dict()
    backwards = [(mine, theirs) for theirs, mine in NAMES]
    expected = {str(exchange(name, backwards)): tensor.shape for name, tensor in ours.items() if ".pooler." not in name}
    found = {name: tensor.shape for name, tensor in raw.items() if not name.startswith(_IGNORED)}
    problems = _listed("lacks", expected.keys() - found.keys()) + _listed("unknown", found.keys() - expected.keys())
    differ = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
    shapes = [f"{name} {tuple(found[name])} where its args say {tuple(expected[name])}" for name in differ]
    problems += _listed("of another shape:", shapes)
    if problems:
        raise UserError(f"TUPE checkpoint '{path}' does not fit its args; {'; '.join(problems)}")
    if not torch.equal(raw[WORDS], raw[DECODER]):
        raise UserError(f"TUPE checkpoint '{path}': {DECODER} differs from {WORDS}, to which it should be tied")


def _listed(what: str, names: Iterable[str]) -> list[str]:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return [f"{what} {', '.join(ordered[:_SHOWN])}{more}"] if ordered else []
