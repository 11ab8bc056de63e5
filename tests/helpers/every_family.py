"""Tiny models of every family that transformers classifies texts with and whose forward takes
segments.
"""

import inspect
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSES,
)

SIZES: dict[str, Any] = {
    "vocab_size": 260,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "hidden_size": 16,
    "d_model": 16,
    "emb_dim": 16,
    "n_embd": 16,
    "embedding_size": 16,
    "num_hidden_layers": 1,
    "num_layers": 1,
    "n_layers": 1,
    "n_layer": 1,
    "num_attention_heads": 2,
    "num_heads": 2,
    "n_heads": 2,
    "n_head": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "d_ff": 32,
    "decoder_start_token_id": 3,
    "intermediate_size": 32,
    "d_inner": 32,
    "dff": 32,
    "max_position_embeddings": 64,
}
"""Sizes under all names that families have for them; a configuration is given those that it has."""
XLNET = {
    "vocab_size": 260,
    "pad_token_id": 0,
    "d_model": 16,
    "n_layer": 1,
    "n_head": 2,
    "d_inner": 32,
}
FUNNEL = {
    "vocab_size": 260,
    "d_model": 16,
    "n_head": 2,
    "d_head": 8,
    "d_inner": 32,
    "block_sizes": [1, 1],
}
WHOLE = {"xlnet": XLNET, "funnel": FUNNEL | {"num_decoder_layers": 1, "pad_token_id": 0}}
"""The settings of families that refuse some of SIZES."""
CHANGES: dict[str, dict[str, Any]] = {
    "big_bird": {"attention_type": "original_full"},
    "deberta": {"type_vocab_size": 2},
    "deberta-v2": {"type_vocab_size": 2},
    "gptj": {"rotary_dim": 4},
    "gpt_neo": {"attention_types": [[["global"], 1]]},
    "layoutlmv3": {"coordinate_size": 2, "shape_size": 4},
    "lilt": {"hidden_size": 24},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "mt5": {"decoder_start_token_id": 0},
    "t5": {"decoder_start_token_id": 0},
    "umt5": {"decoder_start_token_id": 0},
    "mra": {"type_vocab_size": 2},
    "roc_bert": {"pronunciation_vocab_size": 10, "shape_vocab_size": 10},
    "roberta": {"type_vocab_size": 1},
    "xmod": {"default_language": "en_XX"},
    "yoso": {"type_vocab_size": 2},
}
LEFT_OUT = {
    "canine": "it reads characters; tests/training/test_trial.py runs it",
    "cohere_compass_text": "it cannot be made so small",
    "gemma3": "it reads pictures",
    "layoutlmv2": "it needs detectron2",
    "qwen3_5": "it reads pictures",
    "t5gemma2": "it reads pictures",
    "tapas": "it reads tables",
}
TAKE_SEGMENTS = (
    "albert",
    "bert",
    "big_bird",
    "camembert",
    "convbert",
    "ctrl",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "electra",
    "ernie",
    "flaubert",
    "fnet",
    "funnel",
    "gpt-sw3",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gptj",
    "gte",
    "ibert",
    "jina_embeddings_v3",
    "layoutlm",
    "layoutlmv3",
    "lilt",
    "longformer",
    "luke",
    "markuplm",
    "megatron-bert",
    "mobilebert",
    "mra",
    "nomic_bert",
    "nystromformer",
    "openai-gpt",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "squeezebert",
    "xlm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xlnet",
    "xmod",
    "yoso",
)
"""Families whose forward takes `token_type_ids`, whatever they do with them."""


def takes_segments(family: str) -> bool:
    """Return whether the forward of a family's classifier has a parameter for segments."""
    classifier = getattr(transformers, CLASSES[family])
    return "token_type_ids" in inspect.signature(classifier.forward).parameters


def tiny_config(family: str, **changes: Any) -> PretrainedConfig:
    """Return the configuration of a family's tiny model, with changes."""
    sizes = WHOLE.get(family)
    if sizes is None:
        default = AutoConfig.for_model(family)
        sizes = {name: value for name, value in SIZES.items() if hasattr(default, name)}
    return AutoConfig.for_model(family, **sizes | CHANGES.get(family, {}) | changes)


def random_classifier(family: str, **changes: Any) -> PreTrainedModel:
    """A family's tiny classifier with weights that are all large enough to show in its logits."""
    model = getattr(transformers, CLASSES[family])(tiny_config(family, **changes))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3)
    return model


def has_segment_weights(model: PreTrainedModel) -> bool:
    """Return whether the model has weights of its own for more than one segment."""
    for name, weight in model.named_parameters():
        is_of_segments = "token_type_embeddings" in name or name.endswith("seg_embed")
        if is_of_segments and weight.shape[0] > 1:
            return True
    return False
