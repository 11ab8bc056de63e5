"""The encoder's configuration, in transformers' public names. Imports no torch."""

from typing import Any, no_type_check

from transformers import AutoConfig, PretrainedConfig


# transformers makes this a dataclass that takes any keyword, which the tests' type checks would refuse.
@no_type_check
class EncoderConfig(PretrainedConfig):
    """Sizes of a post-layer-norm encoder, and the variant that feeds it.

    Names are those of `transformers.BertConfig`. `embedding_size` is the width of the tables (ELECTRA's
    may be smaller than `hidden_size`; 0 means equal). `max_position_embeddings` counts usable positions,
    without RoBERTa's reserved rows. `type_vocab_size` 0 means no segment table. `head_act` is the activation
    of the masked-LM head; None means that it is `hidden_act`, too.
    `origin` is how the weights came to be: pretrained, adapted, grafted or scratch.
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
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        super().__post_init__(**kwargs)


AutoConfig.register(EncoderConfig.model_type, EncoderConfig, exist_ok=True)
