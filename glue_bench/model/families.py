"""Other libraries' weight names and settings, translated into ours: one table a family.

Names are those of transformers' BERT, RoBERTa, ELECTRA and DistilBERT; XLM-RoBERTa and CamemBERT are RoBERTa. A rule
is a regular expression on the checkpoint's name and what replaces it; the first match wins, a name without a match is
ignored (buffers, task heads). Query, key and value are stacked into `qkv` afterwards.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Rules = tuple[tuple[str, str], ...]

_TABLES: Rules = (
    (r"embeddings\.word_embeddings\.weight", "variant.words.weight"),
    (r"embeddings\.position_embeddings\.weight", "variant.positions.weight"),
    (r"embeddings\.token_type_embeddings\.weight", "variant.segments.weight"),
    (r"embeddings\.LayerNorm\.(.*)", r"norm.\1"),
)
_BERT_BLOCKS: Rules = (
    (r"encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)\.(.*)", r"blocks.\1.attention.\2.\3"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense\.(.*)", r"blocks.\1.attention.out.\2"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.(.*)", r"blocks.\1.attention_norm.\2"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense\.(.*)", r"blocks.\1.up.\2"),
    (r"encoder\.layer\.(\d+)\.output\.dense\.(.*)", r"blocks.\1.down.\2"),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm\.(.*)", r"blocks.\1.norm.\2"),
)
_DISTILBERT_BLOCKS: Rules = (
    (r"transformer\.layer\.(\d+)\.attention\.q_lin\.(.*)", r"blocks.\1.attention.query.\2"),
    (r"transformer\.layer\.(\d+)\.attention\.k_lin\.(.*)", r"blocks.\1.attention.key.\2"),
    (r"transformer\.layer\.(\d+)\.attention\.v_lin\.(.*)", r"blocks.\1.attention.value.\2"),
    (r"transformer\.layer\.(\d+)\.attention\.out_lin\.(.*)", r"blocks.\1.attention.out.\2"),
    (r"transformer\.layer\.(\d+)\.sa_layer_norm\.(.*)", r"blocks.\1.attention_norm.\2"),
    (r"transformer\.layer\.(\d+)\.ffn\.lin1\.(.*)", r"blocks.\1.up.\2"),
    (r"transformer\.layer\.(\d+)\.ffn\.lin2\.(.*)", r"blocks.\1.down.\2"),
    (r"transformer\.layer\.(\d+)\.output_layer_norm\.(.*)", r"blocks.\1.norm.\2"),
)
_BERT_SETTINGS = {
    name: name
    for name in [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
        "max_position_embeddings",
        "type_vocab_size",
        "initializer_range",
        "layer_norm_eps",
        "pad_token_id",
    ]
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
    encoder: Rules
    head: Rules
    decoder: str
    settings: Mapping[str, str]
    fixed: Mapping[str, Any]
    counts_from_padding: bool = False


_ROBERTA = Family(
    prefix="roberta.",
    # Released RoBERTa files carry a pooler that no objective trained; like transformers, start afresh.
    encoder=(*_TABLES, *_BERT_BLOCKS),
    head=(
        (r"lm_head\.dense\.(.*)", r"dense.\1"),
        (r"lm_head\.layer_norm\.(.*)", r"head_norm.\1"),
        (r"lm_head\.bias", "decoder.bias"),
    ),
    decoder="lm_head.decoder.weight",
    settings=_BERT_SETTINGS,
    fixed={"head_act": "gelu"},
    counts_from_padding=True,
)
FAMILIES: dict[str, Family] = {
    "bert": Family(
        prefix="bert.",
        encoder=(*_TABLES, *_BERT_BLOCKS, (r"pooler\.dense\.(.*)", r"pooler.dense.\1")),
        head=(
            (r"cls\.predictions\.transform\.dense\.(.*)", r"dense.\1"),
            (r"cls\.predictions\.transform\.LayerNorm\.(.*)", r"head_norm.\1"),
            (r"cls\.predictions\.bias", "decoder.bias"),
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
        encoder=(*_TABLES, *_BERT_BLOCKS, (r"embeddings_project\.(.*)", r"project.\1")),
        head=(
            (r"generator_predictions\.dense\.(.*)", r"dense.\1"),
            (r"generator_predictions\.LayerNorm\.(.*)", r"head_norm.\1"),
            (r"generator_lm_head\.bias", "decoder.bias"),
        ),
        decoder="generator_lm_head.weight",
        settings=_BERT_SETTINGS | {"embedding_size": "embedding_size"},
        fixed={"head_act": "gelu"},
    ),
    "distilbert": Family(
        prefix="distilbert.",
        encoder=(*_TABLES, *_DISTILBERT_BLOCKS),
        head=(
            (r"vocab_transform\.(.*)", r"dense.\1"),
            (r"vocab_layer_norm\.(.*)", r"head_norm.\1"),
            (r"vocab_projector\.bias", "decoder.bias"),
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


def rename(names: Iterable[str], rules: Rules, prefix: str = "") -> dict[str, str]:
    """Our name -> the checkpoint's name, for every name that some rule matches."""
    found: dict[str, str] = {}
    for name in names:
        # Checkpoints converted from TensorFlow (bert-base-uncased) say gamma and beta.
        bare = name.removeprefix(prefix).replace("LayerNorm.gamma", "LayerNorm.weight")
        bare = bare.replace("LayerNorm.beta", "LayerNorm.bias")
        for pattern, replacement in rules:
            match = re.fullmatch(pattern, bare)
            if match:
                found[match.expand(replacement)] = name
                break
    return found
