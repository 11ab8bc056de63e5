"""The encoder's configuration, in transformers' public names. Imports no torch."""

from typing import Any, no_type_check

from transformers import AutoConfig, PretrainedConfig

from glue_bench.errors import quoted

SIZES = {
    **{"vocab_size": 10**7, "hidden_size": 2**16, "embedding_size": 2**16, "num_hidden_layers": 2**10},
    **{"num_attention_heads": 2**10, "intermediate_size": 2**18, "max_position_embeddings": 2**17},
}
"""The largest that each may be; 1 is the smallest."""
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")


# transformers makes this a dataclass that takes any keyword, which the tests' type checks would refuse.
@no_type_check
class EncoderConfig(PretrainedConfig):
    """Sizes of a post-layer-norm encoder, and the variant that feeds it.

    Names are those of `transformers.BertConfig`. `embedding_size` is the width of the tables (ELECTRA's
    may be smaller than `hidden_size`; 0 means equal). `max_position_embeddings` counts usable positions,
    without RoBERTa's reserved rows. `type_vocab_size` 0 means no segment table. `head_act` is the activation
    of the masked-LM head; None means that it is `hidden_act`, too.
    `origin` is how the weights came to be: pretrained, adapted, grafted or scratch.

    Raises:
        ValueError: a size or a rate that no encoder can have (the bounds are many times what the largest one has), or
            a setting that this encoder does not compute.
    """

    model_type = "glue_bench"

    vocab_size: int = 30522
    hidden_size: int = 768
    embedding_size: int = 0
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    head_act: str | None = None
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    tie_word_embeddings: bool = True
    variant: str = "add"
    variant_options: dict[str, Any] | None = None
    origin: str = "scratch"

    def __post_init__(self, **kwargs: Any) -> None:
        self.embedding_size = self.embedding_size or self.hidden_size
        _check_ranges(self)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        super().__post_init__(**kwargs)


def _check_ranges(config: EncoderConfig) -> None:
    for key, most in SIZES.items():
        value = getattr(config, key)
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"{key} is {quoted(value)}; it must be a whole number from 1 to {most}")
    kinds = config.type_vocab_size
    if type(kinds) is not int or not 0 <= kinds <= 2**10:
        raise ValueError(f"type_vocab_size is {quoted(kinds)}; it must be a whole number from 0 to {2**10}")
    for key in RATES:
        value = getattr(config, key)
        if not (value is None and key == "classifier_dropout") and not (_is_number(value) and 0 <= value < 1):
            raise ValueError(f"{key} is {quoted(value)}; it must be at least 0 and below 1")
    for key in ("initializer_range", "layer_norm_eps"):
        value = getattr(config, key)
        if not _is_number(value) or not 0 <= value <= 1:
            raise ValueError(f"{key} is {quoted(value)}; it must be from 0 to 1")
    for key in ("hidden_act", "variant"):
        if not isinstance(getattr(config, key), str):
            raise ValueError(f"{key} is {quoted(getattr(config, key))}; it must be a text")
    if not isinstance(config.head_act, str | None):
        raise ValueError(f"head_act is {quoted(config.head_act)}; it must be a text")
    if config.tie_word_embeddings is not True:
        given = quoted(config.tie_word_embeddings)
        raise ValueError(f"tie_word_embeddings is {given}; it must be true, as the decoder is the token table")
    if not isinstance(config.origin, str):
        raise ValueError(f"origin is {quoted(config.origin)}; it must be text")
    if not isinstance(config.variant_options, dict | None):
        raise ValueError(f"variant_options is {quoted(config.variant_options)}; it must be a mapping")
    padding = config.pad_token_id
    if padding is not None and (type(padding) is not int or not 0 <= padding < config.vocab_size):
        raise ValueError(f"pad_token_id {quoted(padding)} is not one of its {config.vocab_size} tokens")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


AutoConfig.register(EncoderConfig.model_type, EncoderConfig, exist_ok=True)
