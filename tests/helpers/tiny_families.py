"""A tiny model of every family that transformers has a classifier of, made from its
configuration alone.
"""

import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.tokenizers import BERT_TOKENS
from helpers.tiny_models import trained_tokenizer

FAMILIES = sorted(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)
TOKENS = 250
LARGEST = 3_000_000
"""Families whose tiny model has more parameters have sizes by names that are not below."""
SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3}
SIZES = {
    "vocab_size": TOKENS,
    "vocab_size_per_layer_input": TOKENS,
    "hidden_size": 16,
    "d_model": 16,
    "dim": 16,
    "n_embd": 16,
    "emb_dim": 16,
    "embedding_size": 16,
    "word_embed_proj_dim": 16,
    "hidden_size_per_layer_input": 8,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "num_decoder_layers": 1,
    "num_attention_heads": 2,
    "n_head": 2,
    "n_heads": 2,
    "num_heads": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "d_kv": 8,
    "rotary_dim": 4,
    "intermediate_size": 32,
    "hidden_dim": 32,
    "d_inner": 32,
    "d_ff": 32,
    "dff": 32,
    "ffn_dim": 32,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "ffn_hidden_size": 32,
    "n_inner": 32,
    "max_position_embeddings": 66,
    "n_positions": 66,
    "n_ctx": 66,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "sliding_window": 8,
    "attention_window": 8,
}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
BLOCKS = {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}
NO_LANGUAGES = {"n_langs": 1}
OF_FAMILY: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 8},
    "big_bird": BLOCKS,
    "bigbird_pegasus": BLOCKS,
    "canine": {
        "num_hash_buckets": 64,
        "local_transformer_stride": 8,
        "max_position_embeddings": 64,
    },
    "convbert": {"head_ratio": 1, "conv_kernel_size": 9},
    "deberta": RELATIVE,
    "deberta-v2": RELATIVE | {"type_vocab_size": 0},
    "diffllama": {"num_key_value_heads": 2},
    "electra": {"embedding_size": 8},
    "esm": {"token_dropout": False, "mask_token_id": 4, "position_embedding_type": "rotary"},
    "esmc": {"num_key_value_heads": 2},
    "flaubert": NO_LANGUAGES,
    "funnel": {"block_sizes": [1, 1], "d_head": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "layoutlmv3": {"coordinate_size": 2, "shape_size": 4, "visual_embed": False},
    "lilt": {"hidden_size": 24},
    "longformer": {"attention_window": [8, 8]},
    "luke": {"entity_vocab_size": 4, "entity_emb_size": 8},
    "markuplm": {"max_depth": 4, "xpath_unit_hidden_size": 4},
    "mobilebert": {"true_hidden_size": 16, "intra_bottleneck_size": 16},
    "modernbert": {"cls_token_id": 2, "sep_token_id": 3},
    "mt5": {"decoder_start_token_id": 0},
    "perceiver": {"d_latents": 16, "num_latents": 4, "num_self_attends_per_block": 1},
    "reformer": {
        "attn_layers": ["local", "lsh"],
        "axial_pos_shape": [4, 8],
        "axial_pos_embds_dim": [8, 8],
        "feed_forward_size": 32,
        "attention_head_size": 8,
        "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8,
        "num_buckets": 4,
        "is_decoder": False,
    },
    "squeezebert": dict.fromkeys(
        (
            "q_groups",
            "k_groups",
            "v_groups",
            "post_attention_groups",
            "intermediate_groups",
            "output_groups",
        ),
        1,
    ),
    "t5": {"decoder_start_token_id": 200},
    "umt5": {"decoder_start_token_id": 0},
    "xlm": NO_LANGUAGES,
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "yoso": {"num_hash": 4, "hash_code_len": 5},
}
LATENT = {"axk1", "axk2", "deepseek_v2", "deepseek_v3", "minicpm3", "mistral4"}
"""Families of latent attention, whose heads have a size for each use."""
WITHOUT = {family: {"head_dim", "num_key_value_heads"} for family in LATENT} | {
    "falcon": {"head_dim"},
    "funnel": {"num_hidden_layers", "num_layers"},
    "xlnet": {"max_position_embeddings", "num_hidden_layers"},
}
NESTED = {"gemma3", "modernvbert", "qwen3_5", "t5gemma"}
"""Families whose configuration holds those of its parts."""


def tiny_configuration(family: str) -> transformers.PretrainedConfig:
    """Return a family's configuration with tiny sizes, where their names are known here."""
    usual = AutoConfig.for_model(family)
    settings = usual.to_dict()
    values = sizes_of(settings, family) | OF_FAMILY.get(family, {})
    if family in NESTED:
        for name in usual.sub_configs:
            part = getattr(usual, name).to_dict()
            kept = {
                key: value
                for key, value in part.items()
                if key not in {"model_type", "transformers_version"}
            }
            values[name] = kept | sizes_of(part, family)
    return AutoConfig.for_model(family, **values)


def sizes_of(settings: dict[str, Any], family: str) -> dict[str, Any]:
    """Return the tiny sizes that stand in these settings by name, and kinds of blocks for two
    blocks.
    """
    names = settings.keys() - WITHOUT.get(family, set())
    values = {name: value for name, value in (SIZES | SPECIAL_IDS).items() if name in names}
    if family in LATENT:
        values["num_key_value_heads"] = values["num_attention_heads"]
    if settings.get("layer_types"):
        kinds = list(dict.fromkeys(settings["layer_types"]))
        values["layer_types"] = (kinds * 2)[:2]
    return values


def tiny_model(family: str) -> transformers.PreTrainedModel | None:
    """Return a random model that is loud enough for texts to differ, or None.

    None stands for a family that cannot be made tiny here.
    """
    quiet_transformers()
    try:
        configuration = tiny_configuration(family)
        with torch.device("meta"):
            parameters = AutoModelForSequenceClassification.from_config(
                copy.deepcopy(configuration)
            ).num_parameters()
        if parameters > LARGEST:
            return None
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(configuration)
    except Exception:
        return None
    model.config.get_text_config().use_cache = False
    for weight in model.parameters():
        weight.data *= 4 if weight.ndim > 1 else 1
    return model


def save_tokenizer(folder: Path, texts: tuple[str, ...], *, segments: bool, side: str) -> Path:
    """Save a tokenizer of at most 250 words, which gives segments or does not, and pads on a
    side.
    """
    names = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    options = {
        "tokenizer_object": trained_tokenizer(texts, TOKENS).backend_tokenizer,
        "padding_side": side,
        **BERT_TOKENS,
    }
    transformers.PreTrainedTokenizerFast(**options, model_input_names=names).save_pretrained(folder)
    return folder
