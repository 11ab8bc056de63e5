"""Tiny encoders with random weights, and tokens for them, for the contract and for tests."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.fresh import build_unfilled

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
    """Return a configuration of the tiny sizes, with changes."""
    settings = SIZES | {"variant": variant} | changes
    return EncoderConfig(**settings)


def random_model(kind: Any, config: Any) -> Any:
    """Build a model in evaluation mode with large weights.

    Matrices are N(0, 0.3), LayerNorms near 1, biases N(0, 0.2).
    """
    if isinstance(config, EncoderConfig):
        model = build_unfilled(kind, config)
        model.tie_weights()  # which transformers does where it draws weights
    else:
        model = kind(config)
    model.eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 1 and name.endswith("weight"):
                weight.copy_(1 + 0.1 * noise)
            else:
                weight.copy_(noise * (0.3 if weight.ndim > 1 else 0.2))
    return model


def tokens(batch: int = 3, length: int = 11) -> Tensor:
    """Draw token ids (batch, length). Ids below 4 are reserved and are not drawn."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(4, VOCABULARY, (batch, length), generator=generator)


def segments(token_ids: Tensor, types: int = 2) -> Tensor:
    """Return segment ids: the first four tokens are of segment 0, the rest of the last type."""
    ids = torch.zeros_like(token_ids)
    ids[:, 4:] = max(types - 1, 0)
    return ids


def pad(token_ids: Tensor, lengths: list[int], padding_id: int = 0) -> tuple[Tensor, Tensor]:
    """Return token ids with padding from each length on, and their attention mask."""
    columns = torch.arange(token_ids.shape[1])
    mask = (columns < torch.tensor(lengths)[:, None]).long()
    return token_ids.masked_fill(mask == 0, padding_id), mask


def max_error(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest absolute difference, or NaN if any difference is NaN."""
    errors = [(a - b).detach().abs().max().double() for a, b in zip(actual, expected, strict=True)]
    return float(torch.stack(errors).max())
