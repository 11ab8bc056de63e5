"""The weight names and settings of other libraries, translated into ours: a table per family.

The other names come from transformers' BERT, RoBERTa, ELECTRA and DistilBERT (XLM-RoBERTa and
CamemBERT are RoBERTa), and from the official TUPE (guolinke/TUPE at 4c64ff7, built on fairseq). A
pair is the checkpoint's name and ours, up to the final `weight` or `bias`; # is a block's number.
Query, key and value are stacked into `qkv` afterwards.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glue_bench.model.configuration import EncoderConfig

Pairs = tuple[tuple[str, str], ...]

HEAD_NAMES = ("dense.", "head_norm.", "decoder.bias")
"""Our names of a masked-LM head. The decoder's weight is the token table."""
TABLE_PAIRS: Pairs = (
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
_SHARED_SETTINGS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "classifier_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)
BERT_SETTINGS = {name: name for name in _SHARED_SETTINGS}
"""Our names of settings, and BERT's, which are the same."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """How one family of checkpoints is read.

    Attributes:
        prefix: The text before the encoder's names in a model with a head.
        encoder: Pairs of names of the encoder.
        head: The checkpoint's names of HEAD_NAMES.
        settings: Our names of settings, and the checkpoint's.
        fixed: Values of settings that the checkpoint does not have.
        counts_from_padding: Whether positions are counted from pad_token_id + 1 (fairseq's
            make_positions). The rows of the position table before that are never used.
    """

    prefix: str
    encoder: Pairs
    head: tuple[str, str, str]
    settings: Mapping[str, str]
    fixed: Mapping[str, Any]
    counts_from_padding: bool = False

    def configure(self, their_settings: Mapping[str, Any]) -> EncoderConfig:
        """Return our configuration of their settings; raises ValueError as `EncoderConfig` does."""
        settings: dict[str, Any] = {"variant": "add", "origin": "pretrained"}
        for our_name, their_name in self.settings.items():
            if their_name in their_settings:
                settings[our_name] = their_settings[their_name]
        if self.counts_from_padding:
            if settings["pad_token_id"] is None:
                raise ValueError("it has no pad_token_id, from which positions are counted")
            settings["max_position_embeddings"] -= settings["pad_token_id"] + 1
        settings.update(self.fixed)
        return EncoderConfig(**settings)

    def translate(
        self, raw: Mapping[str, Tensor], padding_id: int | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return weights of EncoderModel and of EncoderForMaskedLM's head, in float32.

        Names without a pair are left out.
        """
        weights: dict[str, Tensor] = {}
        head: dict[str, Tensor] = {}
        for our_name, their_name in self.rename(raw).items():
            part = head if our_name.startswith(HEAD_NAMES) else weights
            part[our_name] = raw[their_name].float()
        _stack_projections(weights)
        positions = weights.get("variant.positions.weight")
        if self.counts_from_padding and padding_id is not None and positions is not None:
            weights["variant.positions.weight"] = positions[padding_id + 1 :].clone()
        return weights, head

    def rename(self, names: Iterable[str]) -> dict[str, str]:
        """Return the checkpoint's name by our name, for every name that has a pair."""
        pairs = (*self.encoder, *zip(self.head, HEAD_NAMES, strict=True))
        their_names: dict[str, str] = {}
        for name in names:
            # Checkpoints converted from TensorFlow (bert-base-uncased) say gamma and beta.
            bare_name = name.removeprefix(self.prefix)
            bare_name = bare_name.replace("LayerNorm.gamma", "LayerNorm.weight")
            bare_name = bare_name.replace("LayerNorm.beta", "LayerNorm.bias")
            for their_part, our_part in pairs:
                pattern = re.escape(their_part).replace(r"\#", r"(?P<block>\d+)")
                match = re.fullmatch(f"{pattern}(?P<ending>weight|bias)?", bare_name)
                if match:
                    block = match.groupdict().get("block", "")
                    ending = match["ending"] or ""
                    our_name = our_part.replace("#", block) + ending
                    their_names[our_name] = name
                    break
        return their_names


def _stack_projections(weights: dict[str, Tensor]) -> None:
    """Stack queries, keys and values into one projection; parts that do not fit are dropped."""
    query_names = [name for name in weights if ".attention.query." in name]
    for name in query_names:
        parts: list[Tensor] = []
        for side in ("query", "key", "value"):
            part = weights.pop(name.replace(".query.", f".{side}."), None)
            if part is not None:
                parts.append(part)
        widths = {part.shape[1:] for part in parts}
        if len(parts) == 3 and len(widths) == 1:
            weights[name.replace(".query.", ".qkv.")] = torch.cat(parts)


ROBERTA = Family(
    prefix="roberta.",
    # The pooler of RoBERTa's files is left out: nothing has trained it. As in transformers, a
    # classifier begins with a fresh one.
    encoder=(*TABLE_PAIRS, *BERT_BLOCKS),
    head=("lm_head.dense.", "lm_head.layer_norm.", "lm_head.bias"),
    settings=BERT_SETTINGS,
    fixed={"head_act": "gelu"},
    counts_from_padding=True,
)
FAMILIES: dict[str, Family] = {
    "bert": Family(
        prefix="bert.",
        encoder=(*TABLE_PAIRS, *BERT_BLOCKS, ("pooler.dense.", "pooler.dense.")),
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
        encoder=(*TABLE_PAIRS, *BERT_BLOCKS, ("embeddings_project.", "project.")),
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
            *TABLE_PAIRS,
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
            "vocab_size": "vocab_size",
            "hidden_size": "hidden_size",
            "num_hidden_layers": "num_hidden_layers",
            "num_attention_heads": "num_attention_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "classifier_dropout": "seq_classif_dropout",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "max_position_embeddings": "max_position_embeddings",
            "initializer_range": "initializer_range",
            "pad_token_id": "pad_token_id",
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
        "pad_token_id": 1,  # fairseq's vocabularies begin with <s>, <pad>, </s>
    },
)
