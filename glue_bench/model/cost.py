"""What an arm costs: parameters and floating-point operations; of a native arm found by running its model."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from glue_bench.errors import UserError, first_line
from glue_bench.model.checkpoints import with_variant
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import drawing, on_meta
from glue_bench.model.native import NativeStart
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
    return dict(_counted(config.to_json_string(use_diff=False), length, VARIANTS.get(config.variant)))


@cache
def _counted(settings: str, length: int, _: type[Variant] | None) -> dict[str, Any]:
    """Counted once per process; a plugin that was edited is another class under the same name."""
    config = EncoderConfig.from_dict(json.loads(settings))
    encoder, add = (on_meta(EncoderModel, each) for each in (config, with_variant(config, "add", {}, config.origin)))
    total = encoder.num_parameters()
    tables = sum(p.numel() for name, p in encoder.named_parameters() if name.startswith(TABLES))
    tokens = torch.zeros(BATCH, length, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        encoder(tokens).last_hidden_state.sum().backward()
    return {
        "parameters": total,
        "non_embedding_parameters": total - tables,
        "added_over_add": total - add.num_parameters(),
        "flops_per_token": counter.get_total_flops() // (BATCH * length),
        "length": length,
    }


def native_budget(start: NativeStart, ids: Tensor, mask: Tensor | None, segments: Tensor, arm: str) -> dict[str, Any]:
    """The same of a native arm, found by running its model on two texts (2, length), the second shorter.

    `non_embedding_parameters` are those outside of embeddings of any kind. `flops_per_token` are three times those of a
    forward pass, because a backward pass computes two products for each of its products. `added_over_add` is not known.
    Raises UserError where the model cannot run, or its output is not finite.
    """
    try:
        with drawing(), torch.no_grad(), FlopCounterMode(display=False) as counter:
            # Without a gradient anywhere, else the counter expects some of what DeBERTa computes to have one.
            model = start.classifier(("one", "other"), seed=0).eval().requires_grad_(False)
            logits = model(ids, mask, segments).logits
    except Exception as error:  # what some family's code raises is anything
        said = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"arm '{arm}': its model cannot run on {ids.shape[1]} tokens: {said}") from error
    if logits.shape != (2, 2) or not logits.isfinite().all():
        raise UserError(f"arm '{arm}': its model gives no finite logits for two texts, but {logits.tolist()}")
    tables = {part.weight for part in model.base.modules() if isinstance(part, nn.Embedding)}
    total = model.base.num_parameters()
    return {
        "parameters": total,
        "non_embedding_parameters": total - sum(table.numel() for table in tables),
        "flops_per_token": 3 * counter.get_total_flops() // ids.numel(),
        "length": ids.shape[1],
    }
