"""Tiny random encoders whose outputs tell tokens and positions clearly apart: what the contract is checked on."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel

VOCABULARY = 50
POSITIONS = 16
HIDDEN = 24
HEADS = 3
LAYERS = 2
NARROW = 12
RESERVED = 4  # ids below are never drawn: padding, [CLS] and the like

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 40,
    "max_position_embeddings": POSITIONS,
}


def encoder_config(variant: str = "add", **changes: Any) -> EncoderConfig:
    """A configuration of these sizes."""
    return EncoderConfig(**SIZES | {"variant": variant} | changes)


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Weights far from their initialisation: matrices N(0, 0.3), LayerNorm near 1, biases N(0, 0.2)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            is_norm = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(1 + 0.1 * noise if is_norm else noise * (0.3 if weight.ndim > 1 else 0.2))


def random_model(kind: type[PreTrainedModel], config: PretrainedConfig, seed: int = 0) -> Any:
    """A model in evaluation mode with weights of `randomise`."""
    model = kind(config).eval()
    randomise(model, seed)
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


def errors(ours: Sequence[Tensor], theirs: Sequence[Tensor], mask: Tensor | None = None) -> list[float]:
    """The largest absolute difference of each layer over real tokens."""
    away = [(a - b).abs().amax(-1) for a, b in zip(ours, theirs, strict=True)]
    return [float((layer if mask is None else layer[mask.bool()]).max()) for layer in away]


def max_error(ours: Sequence[Tensor], theirs: Sequence[Tensor], mask: Tensor | None = None) -> float:
    """The largest of `errors`; NaN where one is."""
    return float(torch.tensor(errors(ours, theirs, mask), dtype=torch.float64).max())
