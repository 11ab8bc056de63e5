"""Whether a native arm's model runs, and what it costs: asked of the model itself before a sweep spends compute."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError, first_line
from glue_bench.model.fresh import drawing
from glue_bench.model.native import NativeStart
from glue_bench.training.tokens import collate, encoded_split

LABELS = ("one", "other")


def probe(start: NativeStart, tokenizer: PreTrainedTokenizerBase, length: int, arm: str) -> dict[str, Any]:
    """What `cost.budget` says of other arms, found by running the model on a text of `length` tokens and a shorter one.

    `non_embedding_parameters` are those outside of embeddings of any kind. `flops_per_token` are three times those of a
    forward pass, because a backward pass computes two products for each of its products. `added_over_add` is not known.

    Raises:
        UserError: the model cannot run, or its output is not finite.
    """
    texts = pd.DataFrame({"text_a": ["One of the many. " * length, "A short one."], "label": [0, 1]})
    batch = collate(encoded_split(texts, tokenizer, length), np.arange(2), int(tokenizer.pad_token_id))
    try:
        with drawing(), torch.no_grad(), FlopCounterMode(display=False) as counter:
            # Without a gradient anywhere, else the counter expects some of what DeBERTa computes to have one.
            model = start.classifier(LABELS, seed=0).eval().requires_grad_(False)
            logits = model(batch.ids, batch.mask, batch.segments).logits
    except Exception as error:  # what some family's code raises is anything
        said = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"arm '{arm}': its model cannot run on {length} tokens: {said}") from error
    if logits.shape != (2, len(LABELS)) or not logits.isfinite().all():
        raise UserError(f"arm '{arm}': its model gives no finite logits for two texts, but {logits.tolist()}")
    tables = {part.weight for part in model.base.modules() if isinstance(part, nn.Embedding)}
    total = sum(parameter.numel() for parameter in model.base.parameters())
    return {
        "parameters": total,
        "non_embedding_parameters": total - sum(table.numel() for table in tables),
        "flops_per_token": 3 * counter.get_total_flops() // batch.ids.numel(),
        "length": length,
    }
