"""The effect of each term of attention's scores: what changes without it.

`terms.py` defines the terms A^T of an additive encoder's first block. A is their sum.

    KL   = KL(softmax(A) || softmax(A - A^T))      the mean over rows and heads, in nats
    rise = mean over masked tokens of -log p(x_t | without the term) + log p(x_t | with it), in nats

Shapes: b batch, l length, t terms.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glue_bench.analysis.chance import LeftOut, Measured, Sums, mean_row, row
from glue_bench.analysis.held_out import loss_sums
from glue_bench.analysis.hooks import BATCH_SEQUENCES, FOUR_TERMS, InputSum, to_float64
from glue_bench.analysis.subject import MAX_DEEP_SEQUENCES, Subject
from glue_bench.analysis.terms import NINE_TERMS, check_sum, sum_of, terms_of_input
from glue_bench.model.encoder import Attention, Block, EncoderModel

MASKED_SEQUENCES = 32  # sequences on which the loss is computed


@torch.no_grad()
def measure_effect(subject: Subject) -> Measured:
    """Measure the effect of the nine terms on attention, and of the four on the masked-LM loss."""
    model = subject.model
    table = subject.sum
    table.check_positions()
    check_sum(model, table, subject.tokens[:BATCH_SEQUENCES])
    batches = subject.tokens[:MAX_DEEP_SEQUENCES].split(BATCH_SEQUENCES)
    kl = to_float64(torch.cat([divergences(model, table, batch) for batch in batches]))

    rows = []
    for term, values in zip(NINE_TERMS, kl.T, strict=True):
        rows.append(mean_row(f"terms.kl.{term}", values, layer=1))

    try:
        head, text = subject.head_and_text(MASKED_SEQUENCES)
    except LeftOut as reason:
        return Measured(rows, left_out={"terms.loss_rise": str(reason)})

    masked = [probe.masked for probe in text.probes]
    base = loss_sums(head, masked)
    for term in FOUR_TERMS:
        with _leave_term_out(model, table, term):
            rise = Sums(loss_sums(head, masked).sums - base.sums, base.counts)
        rows.append(row(f"terms.loss_rise.{term}", rise.value, rise.interval, layer=1, n=rise.n))

    return Measured(rows)


def divergences(
    model: EncoderModel, table: InputSum, ids: Int[Tensor, "b l"]
) -> Float[Tensor, "b t"]:
    """Return the divergence KL of each of the nine terms, the mean over rows and heads.

    Args:
        model: The encoder.
        table: The encoder's input as a sum.
        ids: The tokens, all of one segment.
    """
    terms = terms_of_input(model, table, ids)
    logits = sum_of(terms)
    log_attention = logits.log_softmax(-1)
    divergences = []
    for term in NINE_TERMS:
        without_term = (logits - terms[term]).log_softmax(-1)
        of_rows = (log_attention.exp() * (log_attention - without_term)).sum(-1)
        divergences.append(of_rows.mean((-1, -2)))
    return torch.stack(divergences, -1)


@contextmanager
def _leave_term_out(model: EncoderModel, table: InputSum, term: str) -> Iterator[None]:
    """In this block, leave a term out of the first block's logits, whatever text is read."""
    ids_of_batch: list[Tensor] = []

    def keep_ids(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        ids_of_batch[:] = [inputs[0]]

    def remove_term(_: Attention, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, changes, *rest = inputs
        bias = -terms_of_input(model, table, ids_of_batch[0])[term]
        if changes.bias is not None:
            bias = changes.bias + bias
        return (hidden, changes._replace(bias=bias), *rest)

    attention = cast(Block, model.blocks[0]).attention
    with (
        model.variant.register_forward_pre_hook(keep_ids),
        attention.register_forward_pre_hook(remove_term),
    ):
        yield
