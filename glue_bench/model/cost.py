"""What an arm costs, from its configuration alone: parameters and floating-point operations."""

import json
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from glue_bench.model.checkpoints import with_variant
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import on_meta
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import Variant

TABLES = ("variant.words.", "variant.positions.", "variant.segments.")
BATCH = 32


def budget(config: EncoderConfig, length: int) -> dict[str, Any]:
    """Sizes of the encoder without heads, and operations of its training.

    `parameters`; `non_embedding_parameters`, without the token, position and segment tables; `added_over_add`,
    against `add` at the same sizes; `flops_per_token`, matrix products of one forward and backward pass over
    `BATCH` sequences of `length` tokens, counted by PyTorch (a multiply-add is two).
    """
    return dict(_budget(config.to_json_string(use_diff=False), length, VARIANTS.get(config.variant)))


@cache
def _budget(settings: str, length: int, _: type[Variant] | None) -> dict[str, Any]:
    """Counted once per process; a plugin that was edited is another class under the same name."""
    config = EncoderConfig.from_dict(json.loads(settings))
    encoder, add = (on_meta(EncoderModel, each) for each in (config, with_variant(config, "add", {}, config.origin)))
    total = sum(parameter.numel() for parameter in encoder.parameters())
    tables = sum(p.numel() for name, p in encoder.named_parameters() if name.startswith(TABLES))
    tokens = torch.zeros(BATCH, length, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        encoder(tokens).last_hidden_state.sum().backward()
    return {
        "parameters": total,
        "non_embedding_parameters": total - tables,
        "added_over_add": total - sum(parameter.numel() for parameter in add.parameters()),
        "flops_per_token": counter.get_total_flops() // (BATCH * length),
        "length": length,
    }
