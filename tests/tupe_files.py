"""What is in an official TUPE checkpoint: the settings of its training, and the shapes of its weights."""

from typing import Any

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
_LINEARS = {"pos_q_linear": (16, 16), "pos_k_linear": (16, 16)}
_BLOCK_LINEARS = {"self_attn.out_proj": (16, 16), "fc1": (32, 16), "fc2": (16, 32)}


def tupe_shapes() -> dict[str, tuple[int, ...]]:
    """Every weight of an official TUPE-R checkpoint with these settings and 250 tokens, by fairseq's names."""
    encoder = "decoder.sentence_encoder."
    linears = {encoder + name: shape for name, shape in _LINEARS.items()} | {"decoder.lm_head.dense": (16, 16)}
    norms = [f"{encoder}pos_ln", f"{encoder}emb_layer_norm", "decoder.lm_head.layer_norm"]
    shapes: dict[str, tuple[int, ...]] = {
        f"{encoder}embed_tokens.weight": (250, 16),
        f"{encoder}pos.weight": (21, 16),
        f"{encoder}relative_attention_bias.weight": (33, 2),
        "decoder.lm_head.weight": (250, 16),
        "decoder.lm_head.bias": (250,),
    }
    for block in (f"{encoder}layers.0.", f"{encoder}layers.1."):
        shapes |= {f"{block}self_attn.in_proj_weight": (48, 16), f"{block}self_attn.in_proj_bias": (48,)}
        linears |= {block + name: shape for name, shape in _BLOCK_LINEARS.items()}
        norms += [f"{block}self_attn_layer_norm", f"{block}final_layer_norm"]
    for name, shape in linears.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes | {f"{name}.{part}": (16,) for name in norms for part in ("weight", "bias")}
