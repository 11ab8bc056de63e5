"""Tiny random models of many families of transformers, each in a folder with a tiny tokenizer."""

from pathlib import Path
from typing import Any, NamedTuple

SIZES: dict[str, Any] = {
    "vocab_size": 260,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 33,  # one more than the texts have, for those that count from the padding token
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
DECODER = SIZES | {"num_key_value_heads": 1, "head_dim": 8}
BART_LIKE = {
    **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2},
    **{"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "decoder_start_token_id": 3},
}


class Family(NamedTuple):
    """The settings of a family's tiny model; whether its tokenizer gives segments, and on which side it pads."""

    settings: dict[str, Any]
    segments: bool = False
    side: str = "right"


FAMILIES: dict[str, Family] = {
    "bert": Family(SIZES, segments=True),
    "roberta": Family(SIZES | {"type_vocab_size": 1}),
    "xlm-roberta": Family(SIZES | {"type_vocab_size": 1}),
    "electra": Family(SIZES | {"embedding_size": 8}, segments=True),
    "distilbert": Family({"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, **SIZES}),
    "albert": Family(SIZES | {"embedding_size": 8}, segments=True),
    "deberta": Family(SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, segments=True),
    "deberta-v2": Family(
        SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}, segments=True
    ),
    "mpnet": Family(SIZES | {"max_position_embeddings": 35}),
    # transformers 5.4 cannot make one whose blocks all attend alike.
    "modernbert": Family(SIZES | {"num_hidden_layers": 2, "cls_token_id": 2, "sep_token_id": 3}),
    "roformer": Family(SIZES | {"embedding_size": 16}, segments=True),
    "gpt2": Family(SIZES),
    "qwen2": Family(DECODER, side="left"),
    "llama": Family(DECODER),
    "xlnet": Family(
        {"vocab_size": 260, "pad_token_id": 0, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 32},
        segments=True,
        side="left",
    ),
    "bart": Family(SIZES | BART_LIKE),
}


def save_family(folder: Path, family: str, texts: tuple[str, ...] = ("one two three",), **changes: Any) -> Path:
    """A folder with a random model of the family, without a head, and a tokenizer trained on `texts`."""
    import torch
    from transformers import AutoConfig, AutoModel

    from glue_bench.training.compute import quiet_transformers

    settings, segments, side = FAMILIES[family]
    quiet_transformers()
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(family, **settings | changes))
    model.save_pretrained(folder)
    save_tokenizer(folder, texts, segments=segments, side=side)
    return folder


def save_tokenizer(folder: Path, texts: tuple[str, ...], *, segments: bool, side: str) -> None:
    """A tokenizer of at most 250 words, which gives segments or does not, and pads on a side."""
    from transformers import PreTrainedTokenizerFast

    from glue_bench.training.tokenizers import SPECIAL, train_tokenizer

    names = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    tokenizer = train_tokenizer(texts, 250).backend_tokenizer
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **SPECIAL, model_input_names=names, padding_side=side
    ).save_pretrained(folder)
