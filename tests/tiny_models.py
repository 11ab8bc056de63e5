"""Tiny random encoders of other libraries beside those of `glue_bench.testing`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, DistilBertConfig, ElectraConfig, PretrainedConfig, PreTrainedModel, RobertaConfig

from glue_bench.model.checks import permutation
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.testing import (
    HEADS,
    HIDDEN,
    LAYERS,
    NARROW,
    POSITIONS,
    SIZES,
    VOCABULARY,
    encoder_config,
    max_error,
    pad,
    random_model,
    segments,
    tokens,
)

__all__ = [  # with what the tests take from there through here
    "HEADS",
    "HIDDEN",
    "NARROW",
    "POSITIONS",
    "encoder_config",
    "max_error",
    "pad",
    "random_model",
    "segments",
    "shuffled",
    "states",
    "tokens",
]

HEAD_SIZE = HIDDEN // HEADS


def shuffled(token_ids: Tensor) -> Tensor:
    """The same tokens (batch, length) in the order of `permutation`."""
    return token_ids[:, permutation(token_ids.shape[1])]


@torch.no_grad()
def states(
    model: EncoderModel,
    token_ids: Tensor,
    mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
    start: int = 0,
) -> list[Tensor]:
    """Hidden states without a graph."""
    return model.hidden_states(token_ids, mask, segment_ids, start=start)


def bert_config() -> BertConfig:
    return BertConfig(**SIZES)


def roberta_config() -> RobertaConfig:
    return RobertaConfig(**SIZES | {"max_position_embeddings": POSITIONS + 2}, type_vocab_size=1, layer_norm_eps=1e-5)


def electra_config() -> ElectraConfig:
    return ElectraConfig(**SIZES, embedding_size=NARROW)


def distilbert_config() -> DistilBertConfig:
    return DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=HIDDEN,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=40,
        max_position_embeddings=POSITIONS,
    )


CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "bert": bert_config,
    "roberta": roberta_config,
    "electra": electra_config,
    "distilbert": distilbert_config,
}


def saved(folder: Path, kind: type[PreTrainedModel], family: str, **options: Any) -> tuple[PreTrainedModel, str]:
    """A random model of a family, and the folder it was saved in."""
    model = random_model(kind, CONFIGS[family]())
    model.save_pretrained(folder, **options)
    return model, str(folder)


def encoder(config: EncoderConfig, weights: dict[str, Tensor]) -> EncoderModel:
    """Our encoder with these weights, all of which are known and of which only the pooler may be absent."""
    model = EncoderModel(config).eval()
    lacking, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown
    assert all(name.startswith("pooler.") for name in lacking)
    return model
