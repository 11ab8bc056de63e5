"""Tiny random encoders, theirs and ours, whose outputs tell tokens and positions clearly apart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, DistilBertConfig, ElectraConfig, PretrainedConfig, PreTrainedModel, RobertaConfig

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.transformers_api import EncoderModel

VOCABULARY = 50
POSITIONS = 16
HIDDEN = 24
HEADS = 3
HEAD_SIZE = 8
LAYERS = 2
NARROW = 12
RESERVED = 4  # ids below are never drawn: padding, [CLS] and the like

_BERT_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 40,
    "max_position_embeddings": POSITIONS,
}


def bert_config() -> BertConfig:
    return BertConfig(**_BERT_SIZES)


def roberta_config() -> RobertaConfig:
    return RobertaConfig(
        **_BERT_SIZES | {"max_position_embeddings": POSITIONS + 2}, type_vocab_size=1, layer_norm_eps=1e-5
    )


def electra_config() -> ElectraConfig:
    return ElectraConfig(**_BERT_SIZES, embedding_size=NARROW)


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


def encoder_config(variant: str = "add", **changes: Any) -> EncoderConfig:
    """Our configuration at the same sizes."""
    return EncoderConfig(**_BERT_SIZES | {"variant": variant} | changes)


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Weights far from their initialisation: matrices N(0, 0.3), LayerNorm near 1, biases N(0, 0.2)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            is_norm = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(1 + 0.1 * noise if is_norm else noise * (0.3 if weight.ndim > 1 else 0.2))


def random_model(kind: type[PreTrainedModel], config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A model in evaluation mode with weights of `randomise`."""
    model = kind(config).eval()
    randomise(model, seed)
    return model


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


def tokens(batch: int = 3, length: int = 11, seed: int = 0) -> Tensor:
    """Random token ids (batch, length), none of them reserved."""
    return torch.randint(RESERVED, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def segments(token_ids: Tensor, types: int = 2) -> Tensor:
    """Segment ids: the first four tokens are segment 0, the others the last type there is."""
    ids = torch.zeros_like(token_ids)
    ids[:, 4:] = max(types - 1, 0)
    return ids


def pad(token_ids: Tensor, lengths: list[int], padding_id: int) -> tuple[Tensor, Tensor]:
    """Token ids with padding from each length on, and their attention mask."""
    mask = (torch.arange(token_ids.shape[1]) < torch.tensor(lengths)[:, None]).long()
    return token_ids.masked_fill(mask == 0, padding_id), mask


def shuffled(token_ids: Tensor) -> Tensor:
    """The same tokens with all but the first in reverse order."""
    return torch.cat([token_ids[:, :1], token_ids[:, 1:].flip(1)], dim=1)


@torch.no_grad()
def states(model: EncoderModel, *inputs: Tensor | None) -> list[Tensor]:
    """Hidden states without a graph."""
    return model.hidden_states(*inputs)


def max_error(ours: list[Tensor], theirs: list[Tensor] | tuple[Tensor, ...], mask: Tensor | None = None) -> float:
    """Largest absolute difference over all layers' real tokens."""
    assert len(ours) == len(theirs)
    errors = [(a - b).abs().amax(-1) for a, b in zip(ours, theirs, strict=True)]
    return max(float((error if mask is None else error[mask.bool()]).max()) for error in errors)
