"""Every name of the package that the frozen comparisons use. Where the package moves, only this file changes.

`original.py` does the same for commit d9d4906 and never changes.
"""

from typing import Any

from torch import nn

from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.fresh import fresh
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification

HEADS = {"ForSequenceClassification": EncoderForSequenceClassification, "ForMaskedLM": EncoderForMaskedLM}


def build_encoder(head: str, seed: int, settings: dict[str, Any]) -> nn.Module:
    """A model with fresh weights; called with ids, mask, segments and labels it gives a loss and logits."""
    return fresh(HEADS[head], EncoderConfig(**settings), seed)
