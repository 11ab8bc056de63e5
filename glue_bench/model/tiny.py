"""Tiny encoders with random weights, and tokens for them: what the contract and tests of variants are run on."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glue_bench.model.configuration import EncoderConfig

VOCABULARY = 50
POSITIONS = 16
HIDDEN = 24
HEADS = 3
LAYERS = 2
NARROW = 12
"""The width of tables that are narrower than the blocks."""
SIZES = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 40,
}


def encoder_config(variant: str = "add", **changes: Any) -> EncoderConfig:
    """A configuration of the tiny sizes."""
    return EncoderConfig(**SIZES | {"variant": variant} | changes)


def random_model(kind: Callable[[Any], Any], config: Any) -> Any:
    """A model in evaluation mode with large weights: matrices N(0, 0.3), LayerNorms near 1, biases N(0, 0.2)."""
    model, generator = kind(config).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            is_norm = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(1 + 0.1 * noise if is_norm else noise * (0.3 if weight.ndim > 1 else 0.2))
    return model


def tokens(batch: int = 3, length: int = 11) -> Tensor:
    """Random token ids (batch, length), none of them reserved: padding, [CLS] and the like are below 4."""
    return torch.randint(4, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(0))


def segments(token_ids: Tensor, types: int = 2) -> Tensor:
    """Segment ids: the first four tokens are segment 0, the others the last type there is."""
    ids = torch.zeros_like(token_ids)
    ids[:, 4:] = max(types - 1, 0)
    return ids


def pad(token_ids: Tensor, lengths: list[int], padding_id: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids with padding from each length on, and their attention mask."""
    mask = (torch.arange(token_ids.shape[1]) < torch.tensor(lengths)[:, None]).long()
    return token_ids.masked_fill(mask == 0, padding_id), mask


def max_error(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """The largest absolute difference; NaN where one is."""
    return float(
        torch.stack(
            [(a - b).detach().abs().max().double() for a, b in zip(ours, theirs, strict=True)]
        ).max()
    )
