"""The encoder's configuration, in transformers' public names. Imports no torch."""

from collections.abc import Iterator
from typing import Any, no_type_check

from transformers import AutoConfig, PretrainedConfig

from glue_bench.errors import quoted

COUNT_LIMITS = {
    "vocab_size": (1, 10**7),
    **dict.fromkeys(("hidden_size", "embedding_size"), (1, 2**16)),
    **dict.fromkeys(("num_hidden_layers", "num_attention_heads"), (1, 2**10)),
    "intermediate_size": (1, 2**18),
    "max_position_embeddings": (1, 2**17),
    "type_vocab_size": (0, 2**10),
}
"""The smallest and the largest permitted count. The largest is far above any known encoder."""
RATE_SETTINGS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
SETTING_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("hidden_act", "variant", "origin"), (str, "a text")),
    "head_act": (str | None, "a text"),
    "variant_options": (dict | None, "a mapping"),
    **dict.fromkeys(("embedding_norm", "norm_first", "gated"), (bool, "true or false")),
}


# transformers makes this a dataclass that takes any keyword, which the tests' type checks would
# refuse.
@no_type_check
class EncoderConfig(PretrainedConfig):
    """Sizes of an encoder, and the variant that feeds it.

    The names are the same as in `transformers.BertConfig`. `embedding_size` is the width of the
    tables (0: `hidden_size`; ELECTRA's may be smaller). `max_position_embeddings` counts usable
    positions, without RoBERTa's reserved rows. `type_vocab_size` 0 means no segment table.
    `head_act` is the activation of the masked-LM head (None: `hidden_act`). `embedding_norm` says
    that the input is normalised, as in all encoders but some of TUPE's. `norm_first` and `gated`
    make the blocks of recent encoders: LayerNorm before attention and feed-forward layers, and
    GeGLU. `origin` is the origin of the weights: pretrained, adapted, grafted or scratch.

    Raises ValueError for settings that no encoder can have, or that this encoder cannot compute.
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
    embedding_norm: bool = True
    norm_first: bool = False
    gated: bool = False
    variant: str = "add"
    variant_options: dict[str, Any] | None = None
    origin: str = "scratch"

    def __post_init__(self, **kwargs: Any) -> None:
        self.embedding_size = self.embedding_size or self.hidden_size
        for key, problem in self.problems():
            raise ValueError(f"{key} is {quoted(getattr(self, key))}; it must be {problem}")
        super().__post_init__(**kwargs)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that no encoder can have, with the values that they may have."""
        for key, (low, high) in COUNT_LIMITS.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= high:
                yield key, f"a whole number from {low} to {high}"
        for key, (kind, description) in SETTING_TYPES.items():
            if not isinstance(getattr(self, key), kind):
                yield key, description

        for key in (*RATE_SETTINGS, "initializer_range", "layer_norm_eps"):
            value = getattr(self, key)
            if value is None and key == "classifier_dropout":
                continue
            is_rate = key in RATE_SETTINGS
            is_number = type(value) in (int, float)
            if not is_number or not 0 <= value <= 1 or (is_rate and value == 1):
                yield key, "at least 0 and below 1" if is_rate else "from 0 to 1"

        if self.tie_word_embeddings is not True:
            yield "tie_word_embeddings", "true, as the decoder is the token table"
        if self.hidden_size % self.num_attention_heads:
            yield "hidden_size", f"a multiple of num_attention_heads {self.num_attention_heads}"
        padding = self.pad_token_id
        if padding is not None and (type(padding) is not int or not 0 <= padding < self.vocab_size):
            yield "pad_token_id", f"one of its {self.vocab_size} tokens"


AutoConfig.register(EncoderConfig.model_type, EncoderConfig, exist_ok=True)
