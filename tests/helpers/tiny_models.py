"""Tiny random encoders of other libraries, TUPE checkpoints, and the options under which
variants are tested.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    ElectraConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from glue_bench.model.checks import permutation
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.tiny import (  # noqa: F401 (which tests take from here)
    HEADS,
    HIDDEN,
    LAYERS,
    NARROW,
    POSITIONS,
    SIZES,
    VOCABULARY,
    encoder_config,
    max_error,
    pad,
    random_model,
    segments,
    tokens,
)
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.untied import ATTENTION_TERMS
from glue_bench.training.tokenizers import train_tokenizer
from helpers import tiny_runs

HEAD_SIZE = HIDDEN // HEADS
SENTENCES = (
    "The baker opens her shop at six, long before the first bus leaves the square.",
    "By noon most of the bread is gone, and she begins to clean the oven.",
    "My brother never learned to swim, although we grew up beside the lake.",
    "He says that the water was always too cold, even in the middle of August.",
    "Heavy rain closed the mountain road for three days last spring.",
    "The village could only be reached on foot, or by a small boat across the reservoir.",
    "Scientists measured the height of every tree in the forest with a laser.",
    "The oldest ones were not the tallest, which surprised nobody who worked there.",
    "Did you remember to send the letter that I left on the kitchen table?",
    "It has to arrive before Friday, otherwise we will lose our place on the list.",
    "The orchestra played the second movement so slowly that the audience grew restless.",
    "Afterwards the conductor explained that the composer had asked for exactly that.",
)


def shuffled(token_ids: Tensor) -> Tensor:
    """Return the same tokens (batch, length) in the order of `permutation`."""
    return token_ids[:, permutation(token_ids.shape[1])]


@torch.no_grad()
def states(
    model: EncoderModel,
    token_ids: Tensor,
    mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
) -> list[Tensor]:
    """Return hidden states without a graph."""
    return model.hidden_states(token_ids, mask, segment_ids)


CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "bert": lambda: BertConfig(**SIZES),
    "roberta": lambda: RobertaConfig(
        **SIZES | {"max_position_embeddings": POSITIONS + 2}, type_vocab_size=1, layer_norm_eps=1e-5
    ),
    "electra": lambda: ElectraConfig(**SIZES, embedding_size=NARROW),
    "distilbert": lambda: DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=HIDDEN,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=40,
        max_position_embeddings=16,
    ),
}


def saved(
    folder: Path, kind: type[PreTrainedModel], family: str, **options: Any
) -> tuple[PreTrainedModel, str]:
    """Save a random model of a family, and return it with its folder."""
    make_config = CONFIGS[family]
    model = random_model(kind, make_config())
    model.save_pretrained(folder, **options)
    return model, str(folder)


def save_bert(
    folder: Path,
    *,
    seed: int = 0,
    texts: Sequence[str] = (),
    vocab_size: int = 250,
    positions: int = 32,
    pooler: bool = True,
    segment_types: int = 2,
) -> Path:
    """Save a tiny random BertModel, with a tokenizer trained on `texts` beside it, and return
    its folder.
    """
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=vocab_size,
        max_position_embeddings=positions,
        type_vocab_size=segment_types,
        **tiny_runs.SIZES,
    )
    BertModel(config, add_pooling_layer=pooler).save_pretrained(folder)
    if texts:
        trained_tokenizer(tuple(texts), 200).save_pretrained(folder)
    return folder


@cache
def trained_tokenizer(texts: tuple[str, ...], size: int) -> PreTrainedTokenizerFast:
    """Train a tokenizer, once in each process. Callers save or copy it, and do not change it."""
    return train_tokenizer(texts, size)


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what the config.json of a checkpoint says."""
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return settings


def edit_settings(folder: Path, **changes: Any) -> None:
    """Change what the config.json of a checkpoint says."""
    path = folder / "config.json"
    path.write_text(json.dumps(read_settings(folder) | changes))


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change the tensors of a checkpoint, in place."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    (folder / "model.safetensors").write_bytes(save(weights, {"format": "pt"}))


def encoder(config: EncoderConfig, weights: dict[str, Tensor]) -> EncoderModel:
    """Return our encoder with these weights.

    All weights have to be known; only the pooler may be absent.
    """
    model = EncoderModel(config).eval()
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown
    assert [name for name in missing if not name.startswith("pooler.")] == []
    return model


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "none": [{"segments": "none"}],
    "add": [
        {"segments": "scores"},
        {"segments": "none"},
        {"position_start": "sinusoids"},
        {"position_norm": "words"},
        {"position_norm": True},
    ],
    "add-sinusoidal": [{"scale": 0.1}, {"scale": "words"}],
    "multiply": [{"position_start": 4.0}],
    "concat": [{"segments": "scores"}, {"segments": "none"}, {"init": "identity"}],
    "concat-split": [{"position_share": 0.25}],
    "four-term": [
        {"terms": list(terms)}
        for count in range(1, len(ATTENTION_TERMS))
        for terms in combinations(ATTENTION_TERMS, count)
    ],
    "position-infused": [{"add_positions": True}],
    "concat-heads": [{"position_size": 0}, {"position_size": 4}],
    "untied": [
        {"share": False},
        {"segments": "scores"},
        {"blocks": [1]},
        {"share": False, "blocks": [2], "add_positions": True},
    ],
    "untied-tie-cls": [{"share": False}],
    "untied-relative": [{"share": False}, {"segments": "scores"}, {"segments": "none"}],
    "diet-abs": [{"rank": 2}, {"rank": 2, "share": False}],
    "diet-rel": [{"share": True}],
    "shaw": [{"max_distance": 3}],
    "rotary": [{"fraction": 0.0}, {"fraction": 0.5, "base": 100.0, "blocks": [2]}],
    "disentangled": [{"terms": ["content-position"]}, {"terms": ["position-content"]}],
}
ARMS = [(variant, options) for variant in VARIANTS for options in ({}, *OPTIONS.get(variant, []))]
"""Beside the defaults each way in which a variant builds other modules."""
ARM_CASES = [
    pytest.param(
        variant,
        options,
        marks=() if options in ({}, *OPTIONS.get(variant, [])[-1:]) else pytest.mark.slow,
        id=f"{variant}-{options}",
    )
    for variant, options in ARMS
]
"""The same as cases of a test: in the usual suite each variant with its defaults and with the last
of its options.
"""

TUPE_ARGS: dict[str, Any] = {
    "arch": "bert_base",
    "encoder_layers": 2,
    "encoder_embed_dim": 16,
    "encoder_ffn_embed_dim": 32,
    "encoder_attention_heads": 2,
    "activation_fn": "gelu",
    "max_positions": 20,
    "rel_pos": True,
    "embedding_normalize": True,
    "encoder_normalize_before": False,
    "dropout": 0.2,
    "attention_dropout": 0.3,
}


def tupe_shapes() -> dict[str, tuple[int, ...]]:
    """Return every weight of an official TUPE-R checkpoint with these settings and 250 tokens,
    by fairseq's names.
    """
    encoder, lm_head = "decoder.sentence_encoder.", "decoder.lm_head."
    linears = dict.fromkeys(
        (f"{encoder}pos_q_linear", f"{encoder}pos_k_linear", f"{lm_head}dense"), (16, 16)
    )
    norms = [f"{encoder}pos_ln", f"{encoder}emb_layer_norm", f"{lm_head}layer_norm"]

    shapes: dict[str, tuple[int, ...]] = {
        f"{encoder}embed_tokens.weight": (250, 16),
        f"{encoder}pos.weight": (21, 16),
        f"{encoder}relative_attention_bias.weight": (33, 2),
    }
    shapes |= {"decoder.lm_head.weight": (250, 16), "decoder.lm_head.bias": (250,)}

    for block in (f"{encoder}layers.0.", f"{encoder}layers.1."):
        shapes |= {
            f"{block}self_attn.in_proj_weight": (48, 16),
            f"{block}self_attn.in_proj_bias": (48,),
        }
        linears |= {
            f"{block}self_attn.out_proj": (16, 16),
            f"{block}fc1": (32, 16),
            f"{block}fc2": (16, 32),
        }
        norms += [f"{block}self_attn_layer_norm", f"{block}final_layer_norm"]

    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes | {f"{name}.{part}": (16,) for name in norms for part in ("weight", "bias")}


def save_tupe(
    path: Path, spoil: Callable[[dict[str, Any]], Any] = lambda _: None, **changes: Any
) -> Path:
    """Save a random checkpoint of such args; `spoil` may change what is saved, and None takes
    one of them away.
    """
    generator = torch.Generator().manual_seed(0)
    model = {
        key: torch.randn(shape, generator=generator) * 0.3 for key, shape in tupe_shapes().items()
    }
    model["decoder.lm_head.weight"] = model["decoder.sentence_encoder.embed_tokens.weight"]
    args = {key: value for key, value in (TUPE_ARGS | changes).items() if value is not None}
    saved = {"args": argparse.Namespace(**args), "model": model, "extra_state": {}}
    spoil(saved)
    torch.save(saved, path)
    return path
