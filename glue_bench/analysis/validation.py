"""The masked-LM loss of held-out text.

loss = mean over masked tokens of  -log p(x_t | text with its masks),  in nats
"""

from glue_bench.analysis.losses import row_losses
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.text import HeldOut, predicted
from glue_bench.model.heads import EncoderForMaskedLM


def validation_sums(model: EncoderForMaskedLM, text: HeldOut) -> Sums:
    """Each sequence's summed loss and its number of masked tokens."""
    rows = [probe.masked for probe in text.probes]
    return Sums(row_losses(model, rows), predicted(rows))
