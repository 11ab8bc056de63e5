"""An encoder under its masked-LM head: how it is built, and its losses."""

from copy import deepcopy

import torch.nn.functional as F
from torch import Tensor

from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.start import Start, under_head
from glue_bench.training.arm_inputs import TRAINED_ORIGINS
from glue_bench.training.device import Compute
from glue_bench.training.masking import IGNORED_TARGET, MaskedBatch

DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def build_masked_lm(start: Start, seed: int, dropout: float | None = None) -> EncoderForMaskedLM:
    """Build the start's encoder under its masked-LM head.

    Args:
        start: weights and configuration; weights that it lacks are fresh.
        seed: decides the fresh weights.
        dropout: the rate of dropout in pretraining; None for the start's own rate. The
            configuration keeps the start's rates, because fine-tuning uses them.
    """
    start_rates = {name: getattr(start.config, name) for name in DROPOUTS}
    rates = start_rates if dropout is None else dict.fromkeys(DROPOUTS, dropout)
    config = deepcopy(start.config)
    config.update(rates)
    model = under_head(start, config, seed)
    model.config.update(start_rates)
    model.base.pooler.requires_grad_(False)  # the pooler gets no gradient
    model.config.origin = TRAINED_ORIGINS.get(start.origin, start.origin)
    return model


def masked_losses(
    model: EncoderForMaskedLM, batch: MaskedBatch, compute: Compute, reduction: str
) -> Tensor:
    """Compute the loss of a batch's targets.

    Args:
        model: the encoder under its head.
        batch: token ids (b, l) with the places and the true ids of its targets (t,).
        compute: where to compute.
        reduction: `sum`, `mean` or `none`, as of `F.cross_entropy`.

    Returns:
        The sum or mean over all targets, or for `none` the loss of each target (t,), with zeros at
        the end if `compute` rounds sizes up.
    """
    padding = (0, compute.round_up_size(len(batch.places)) - len(batch.places))
    batch = batch.to(compute.device)
    places = F.pad(batch.places, padding)
    with compute.autocast():
        logits = model(batch.ids, batch.mask, batch.segments, places=places).logits
    targets = F.pad(batch.targets, padding, value=IGNORED_TARGET)
    return F.cross_entropy(logits.float(), targets, reduction=reduction)
