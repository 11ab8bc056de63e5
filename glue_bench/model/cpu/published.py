"""The kernels of this folder in a model of transformers, in training on a CPU: nothing else in it is another.

Shapes: b batch, q queries, l keys, h heads, k head size.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from glue_bench.model.bars import transformers_quiet
from glue_bench.model.cpu.attention import attend, reads_in_place
from glue_bench.model.cpu.dropout import draws_cheaply, drop
from glue_bench.model.encoder import padding_scores

ATTENTION = "glue_bench_cpu"
_OTHER_SCORES = ("position_bias", "softcap", "cache")
"""What some models give their attention function, and this one does not compute."""


def with_cpu_kernels(model: PreTrainedModel) -> None:
    """Let dropout and attention draw cheaply, in place. Weights, their names and the configuration stay as they are.

    Attention is replaced where transformers would take torch's, except in decoders: some of them ask what it is called.
    """
    for module in list(model.modules()):
        for name, part in module.named_children():
            if type(part) is nn.Dropout:
                setattr(module, name, CheapDropout(part.p, part.inplace))
    decodes = any(getattr(part, "is_causal", False) for part in model.modules())
    if model.config._attn_implementation == "sdpa" and not decodes:
        with transformers_quiet():
            model.set_attn_implementation(ATTENTION)


class CheapDropout(nn.Dropout):
    """torch's own module of dropout, whose random numbers are cheap on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Dropout of `input`; torch's where that is as good, or where it writes in place."""
        if self.training and 0 < self.p < 1 and not self.inplace and draws_cheaply(input):
            return drop(input, self.p)
        return super().forward(input)


def attention(
    module: nn.Module,
    query: Float[Tensor, "b h q k"],
    key: Float[Tensor, "b _ l k"],
    value: Float[Tensor, "b _ l _"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "b q h _"], None]:
    """Attention as transformers calls it, with its arguments: ours where there is dropout and all is plain.

    Everything else is computed by transformers' function for torch's attention.
    """
    drops = dropout > 0 and reads_in_place(query)
    if not (drops and _is_plain(module, query, key, value, attention_mask, is_causal, others)):
        others |= {"dropout": dropout, "scaling": scaling, "is_causal": is_causal}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    if torch.is_autocast_enabled("cpu"):  # as torch's attention, whatever a rotation has left them in
        query, key, value = (part.to(torch.get_autocast_dtype("cpu")) for part in (query, key, value))
    packed = torch.stack([key.transpose(1, 2), value.transpose(1, 2)], dim=2)
    padding = padding_scores(None if attention_mask is None else attention_mask[:, 0, 0], query.dtype)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(packed, query.transpose(1, 2), None, padding, scale=scale, dropout=dropout), None


def _is_plain(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool | None,
    others: Mapping[str, Any],
) -> bool:
    """Whether there are as many heads of each kind, no other scores, and the same keys for all queries of a text."""
    if query.shape[:2] != key.shape[:2] or key.shape != value.shape:
        return False
    if others.get("output_attentions") or any(others.get(name) is not None for name in _OTHER_SCORES):
        return False
    if mask is None:
        return not (getattr(module, "is_causal", True) if is_causal is None else is_causal)
    as_expected = mask.dtype == torch.bool and mask.shape == (len(query), 1, query.shape[2], key.shape[2])
    return as_expected and torch.equal(mask, mask[:, :, :1].expand_as(mask))


AttentionInterface.register(ATTENTION, attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
