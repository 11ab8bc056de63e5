"""Attention of transformers' own models, computed as glue-bench's encoder computes it."""

from typing import Any

import transformers
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from glue_bench.model import cpu
from glue_bench.model.encoder import attend

ATTENTION = "glue_bench_cpu"
OUR_ATTENTION = {"bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "albert"}
"""Families whose attention gets padding, and nothing else that changes the scores."""


def attention(
    module: nn.Module,
    query: Float[Tensor, "b h q k"],
    key: Float[Tensor, "b h l k"],
    value: Float[Tensor, "b h l k"],
    attention_mask: Bool[Tensor, "b 1 q l"] | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "b q h k"], None]:
    """Compute attention of OUR_ATTENTION as transformers calls it.

    It is torch's own attention if nothing is dropped, or if the device is no CPU.
    """
    if not (dropout and cpu.is_supported(query)):
        options |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    mask = None if attention_mask is None else attention_mask[:, 0, 0]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    queries, keys, values = (part.transpose(1, 2) for part in (query, key, value))
    return attend(queries, keys, values, None, mask, scale=scale, dropout=dropout), None


transformers.AttentionInterface.register(ATTENTION, attention)
transformers.AttentionMaskInterface.register(ATTENTION, sdpa_mask)
