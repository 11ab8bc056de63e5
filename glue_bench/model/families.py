"""Other libraries' weight names and settings, translated into ours: one table a family.

Names are those of transformers' BERT, RoBERTa, ELECTRA and DistilBERT; XLM-RoBERTa and CamemBERT are RoBERTa. A pair
is the checkpoint's name and ours, up to the final `weight` or `bias`; # is a block's number. The first pair that fits
counts, a name without one is ignored (buffers, task heads). Query, key and value are stacked into `qkv` afterwards.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Pairs = tuple[tuple[str, str], ...]

_TABLES: Pairs = (
    ("embeddings.word_embeddings.", "variant.words."),
    ("embeddings.position_embeddings.", "variant.positions."),
    ("embeddings.token_type_embeddings.", "variant.segments."),
    ("embeddings.LayerNorm.", "norm."),
)
_BERT_BLOCKS: Pairs = (
    ("encoder.layer.#.attention.self.query.", "blocks.#.attention.query."),
    ("encoder.layer.#.attention.self.key.", "blocks.#.attention.key."),
    ("encoder.layer.#.attention.self.value.", "blocks.#.attention.value."),
    ("encoder.layer.#.attention.output.dense.", "blocks.#.attention.out."),
    ("encoder.layer.#.attention.output.LayerNorm.", "blocks.#.attention_norm."),
    ("encoder.layer.#.intermediate.dense.", "blocks.#.up."),
    ("encoder.layer.#.output.dense.", "blocks.#.down."),
    ("encoder.layer.#.output.LayerNorm.", "blocks.#.norm."),
)
_DISTILBERT_BLOCKS: Pairs = (
    ("transformer.layer.#.attention.q_lin.", "blocks.#.attention.query."),
    ("transformer.layer.#.attention.k_lin.", "blocks.#.attention.key."),
    ("transformer.layer.#.attention.v_lin.", "blocks.#.attention.value."),
    ("transformer.layer.#.attention.out_lin.", "blocks.#.attention.out."),
    ("transformer.layer.#.sa_layer_norm.", "blocks.#.attention_norm."),
    ("transformer.layer.#.ffn.lin1.", "blocks.#.up."),
    ("transformer.layer.#.ffn.lin2.", "blocks.#.down."),
    ("transformer.layer.#.output_layer_norm.", "blocks.#.norm."),
)
_BERT_SETTINGS = {
    name: name
    for name in (
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "max_position_embeddings"),
        *("type_vocab_size", "initializer_range", "layer_norm_eps", "pad_token_id"),
    )
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """How one family of checkpoints is read.

    `prefix` is what a model with a head puts before the encoder's names. `settings` maps our configuration
    names to theirs, `fixed` gives values that theirs do not have. `decoder` is the table that turns the head's output
    into logits, which is tied to the words. Where `counts_from_padding` is true, positions are counted from
    pad_token_id + 1 (fairseq's make_positions), and the rows of the position table before that are never used.
    """

    prefix: str
    encoder: Pairs
    head: Pairs
    decoder: str
    settings: Mapping[str, str]
    fixed: Mapping[str, Any]
    counts_from_padding: bool = False


_ROBERTA = Family(
    prefix="roberta.",
    # Released RoBERTa files carry a pooler that no objective trained; like transformers, start afresh.
    encoder=(*_TABLES, *_BERT_BLOCKS),
    head=(
        ("lm_head.dense.", "dense."),
        ("lm_head.layer_norm.", "head_norm."),
        ("lm_head.bias", "decoder.bias"),
    ),
    decoder="lm_head.decoder.weight",
    settings=_BERT_SETTINGS,
    fixed={"head_act": "gelu"},
    counts_from_padding=True,
)
FAMILIES: dict[str, Family] = {
    "bert": Family(
        prefix="bert.",
        encoder=(*_TABLES, *_BERT_BLOCKS, ("pooler.dense.", "pooler.dense.")),
        head=(
            ("cls.predictions.transform.dense.", "dense."),
            ("cls.predictions.transform.LayerNorm.", "head_norm."),
            ("cls.predictions.bias", "decoder.bias"),
        ),
        decoder="cls.predictions.decoder.weight",
        settings=_BERT_SETTINGS,
        fixed={},
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": Family(
        prefix="electra.",
        encoder=(*_TABLES, *_BERT_BLOCKS, ("embeddings_project.", "project.")),
        head=(
            ("generator_predictions.dense.", "dense."),
            ("generator_predictions.LayerNorm.", "head_norm."),
            ("generator_lm_head.bias", "decoder.bias"),
        ),
        decoder="generator_lm_head.weight",
        settings=_BERT_SETTINGS | {"embedding_size": "embedding_size"},
        fixed={"head_act": "gelu"},
    ),
    "distilbert": Family(
        prefix="distilbert.",
        encoder=(*_TABLES, *_DISTILBERT_BLOCKS),
        head=(
            ("vocab_transform.", "dense."),
            ("vocab_layer_norm.", "head_norm."),
            ("vocab_projector.bias", "decoder.bias"),
        ),
        decoder="vocab_projector.weight",
        settings={
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
            "max_position_embeddings": "max_position_embeddings",
            "initializer_range": "initializer_range",
            "pad_token_id": "pad_token_id",
        },
        fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    ),
}


def rename(names: Iterable[str], pairs: Pairs, prefix: str = "") -> dict[str, str]:
    """Our name -> the checkpoint's name, for every name that has a pair."""
    found: dict[str, str] = {}
    for name in names:
        # Checkpoints converted from TensorFlow (bert-base-uncased) say gamma and beta.
        bare = name.removeprefix(prefix).replace("LayerNorm.gamma", "LayerNorm.weight")
        ours = exchange(bare.replace("LayerNorm.beta", "LayerNorm.bias"), pairs)
        if ours:
            found[ours] = name
    return found


def exchange(name: str, pairs: Iterable[tuple[str, str]]) -> str | None:
    """A name in the other's terms, by the first pair that fits; None where none does."""
    for source, target in pairs:
        pattern = re.escape(source).replace(r"\#", r"(?P<block>\d+)")
        match = re.fullmatch(f"{pattern}(?P<ending>weight|bias)?", name)
        if match:
            return target.replace("#", match.groupdict().get("block", "")) + (match["ending"] or "")
    return None
