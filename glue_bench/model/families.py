"""Other libraries' weight names and settings, translated into ours: one table a family.

Names are those of transformers' BERT, RoBERTa, ELECTRA and DistilBERT (XLM-RoBERTa and CamemBERT are RoBERTa), and of
the official TUPE (guolinke/TUPE at 4c64ff7, built on fairseq). A pair is the checkpoint's name and ours, up to the
final `weight` or `bias`; # is a block's number. Query, key and value are stacked into `qkv` afterwards.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glue_bench.model.configuration import EncoderConfig

Pairs = tuple[tuple[str, str], ...]

HEAD = (
    "dense.",
    "head_norm.",
    "decoder.bias",
)  # of a masked-LM head: the decoder's weight is the token table
TABLES: Pairs = (
    ("embeddings.word_embeddings.", "variant.words."),
    ("embeddings.position_embeddings.", "variant.positions."),
    ("embeddings.token_type_embeddings.", "variant.segments."),
    ("embeddings.LayerNorm.", "norm."),
)
BERT_BLOCKS: Pairs = (
    *(
        (f"encoder.layer.#.attention.self.{part}.", f"blocks.#.attention.{part}.")
        for part in ("query", "key", "value")
    ),
    ("encoder.layer.#.attention.output.dense.", "blocks.#.attention.out."),
    ("encoder.layer.#.attention.output.LayerNorm.", "blocks.#.attention_norm."),
    ("encoder.layer.#.intermediate.dense.", "blocks.#.up."),
    ("encoder.layer.#.output.dense.", "blocks.#.down."),
    ("encoder.layer.#.output.LayerNorm.", "blocks.#.norm."),
)
_SAME = """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act classifier_dropout
    hidden_dropout_prob attention_probs_dropout_prob max_position_embeddings type_vocab_size initializer_range
    layer_norm_eps pad_token_id"""
BERT_SETTINGS = {name: name for name in _SAME.split()}


@dataclass(frozen=True, kw_only=True)
class Family:
    """How one family of checkpoints is read.

    `prefix` is what a model with a head puts before the encoder's names; `head` are the checkpoint's names of HEAD.
    `settings` maps our configuration names to theirs, `fixed` gives values that theirs do not have. Where
    `counts_from_padding` is true, positions are counted from pad_token_id + 1 (fairseq's make_positions), and the rows
    of the position table before that are never used.
    """

    prefix: str
    encoder: Pairs
    head: tuple[str, str, str]
    settings: Mapping[str, str]
    fixed: Mapping[str, Any]
    counts_from_padding: bool = False

    def configure(self, theirs: Mapping[str, Any]) -> EncoderConfig:
        """Our configuration of their settings; raises ValueError as `EncoderConfig` does."""
        settings = {ours: theirs[name] for ours, name in self.settings.items() if name in theirs}
        if self.counts_from_padding:
            if settings["pad_token_id"] is None:
                raise ValueError("it has no pad_token_id, from which positions are counted")
            settings["max_position_embeddings"] -= settings["pad_token_id"] + 1
        return EncoderConfig(
            **{"variant": "add", "origin": "pretrained"} | settings | dict(self.fixed)
        )

    def translate(
        self, raw: Mapping[str, Tensor], padding_id: int | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights of EncoderModel and of EncoderForMaskedLM's head, in float32; names without a pair are left out."""
        weights = {ours: raw[name].float() for ours, name in self.rename(raw).items()}
        head = {name: weights.pop(name) for name in [*weights] if name.startswith(HEAD)}
        for name in [name for name in weights if ".attention.query." in name]:
            parts = [
                weights.pop(name.replace(".query.", f".{part}."), None)
                for part in ("query", "key", "value")
            ]
            whole = [part for part in parts if part is not None]
            if len(whole) == 3 and len({part.shape[1:] for part in whole}) == 1:
                weights[name.replace(".query.", ".qkv.")] = torch.cat(whole)
        positions = weights.get("variant.positions.weight")
        if self.counts_from_padding and padding_id is not None and positions is not None:
            weights["variant.positions.weight"] = positions[padding_id + 1 :].clone()
        return weights, head

    def rename(self, names: Iterable[str]) -> dict[str, str]:
        """Our name -> the checkpoint's name, for every name that has a pair."""
        pairs: dict[str, str] = {}
        for name in names:
            # Checkpoints converted from TensorFlow (bert-base-uncased) say gamma and beta.
            bare = name.removeprefix(self.prefix).replace("LayerNorm.gamma", "LayerNorm.weight")
            bare = bare.replace("LayerNorm.beta", "LayerNorm.bias")
            for theirs, ours in (*self.encoder, *zip(self.head, HEAD, strict=True)):
                pattern = re.escape(theirs).replace(r"\#", r"(?P<block>\d+)")
                if match := re.fullmatch(f"{pattern}(?P<ending>weight|bias)?", bare):
                    block = match.groupdict().get("block", "")
                    pairs[ours.replace("#", block) + (match["ending"] or "")] = name
                    break
        return pairs


ROBERTA = Family(
    prefix="roberta.",
    # Released RoBERTa files carry a pooler that no objective trained; like transformers, start afresh.
    encoder=(*TABLES, *BERT_BLOCKS),
    head=("lm_head.dense.", "lm_head.layer_norm.", "lm_head.bias"),
    settings=BERT_SETTINGS,
    fixed={"head_act": "gelu"},
    counts_from_padding=True,
)
FAMILIES: dict[str, Family] = {
    "bert": Family(
        prefix="bert.",
        encoder=(*TABLES, *BERT_BLOCKS, ("pooler.dense.", "pooler.dense.")),
        head=(
            "cls.predictions.transform.dense.",
            "cls.predictions.transform.LayerNorm.",
            "cls.predictions.bias",
        ),
        settings=BERT_SETTINGS,
        fixed={},
    ),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "electra": Family(
        prefix="electra.",
        encoder=(*TABLES, *BERT_BLOCKS, ("embeddings_project.", "project.")),
        head=(
            "generator_predictions.dense.",
            "generator_predictions.LayerNorm.",
            "generator_lm_head.bias",
        ),
        settings=BERT_SETTINGS | {"embedding_size": "embedding_size"},
        fixed={"head_act": "gelu"},
    ),
    "distilbert": Family(
        prefix="distilbert.",
        encoder=(
            *TABLES,
            ("transformer.layer.#.attention.q_lin.", "blocks.#.attention.query."),
            ("transformer.layer.#.attention.k_lin.", "blocks.#.attention.key."),
            ("transformer.layer.#.attention.v_lin.", "blocks.#.attention.value."),
            ("transformer.layer.#.attention.out_lin.", "blocks.#.attention.out."),
            ("transformer.layer.#.sa_layer_norm.", "blocks.#.attention_norm."),
            ("transformer.layer.#.ffn.lin1.", "blocks.#.up."),
            ("transformer.layer.#.ffn.lin2.", "blocks.#.down."),
            ("transformer.layer.#.output_layer_norm.", "blocks.#.norm."),
        ),
        head=("vocab_transform.", "vocab_layer_norm.", "vocab_projector.bias"),
        settings={
            **{
                name: name
                for name in BERT_SETTINGS
                if name not in ("type_vocab_size", "layer_norm_eps")
            },
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
        },
        fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    ),
}
TUPE = Family(
    prefix="decoder.sentence_encoder.",
    encoder=(
        ("embed_tokens.", "variant.words."),
        ("pos.", "variant.positions."),
        ("pos_q_linear.", "variant.position_query."),
        ("pos_k_linear.", "variant.position_key."),
        ("pos_ln.", "variant.position_norm."),
        ("relative_attention_bias.", "variant.relative.table."),
        ("emb_layer_norm.", "norm."),
        ("layers.#.self_attn.in_proj_", "blocks.#.attention.qkv."),
        ("layers.#.self_attn.out_proj.", "blocks.#.attention.out."),
        ("layers.#.self_attn_layer_norm.", "blocks.#.attention_norm."),
        ("layers.#.fc1.", "blocks.#.up."),
        ("layers.#.fc2.", "blocks.#.down."),
        ("layers.#.final_layer_norm.", "blocks.#.norm."),
    ),
    head=("decoder.lm_head.dense.", "decoder.lm_head.layer_norm.", "decoder.lm_head.bias"),
    settings={
        "hidden_size": "encoder_embed_dim",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "intermediate_size": "encoder_ffn_embed_dim",
        "max_position_embeddings": "max_positions",
        "hidden_act": "activation_fn",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "embedding_norm": "embedding_normalize",
    },
    fixed={
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },  # fairseq's begin with <s>, <pad>, </s>
)
