"""The masked-LM loss of held-out text.

loss = mean over masked tokens of  -log p(x_t | text with its masks),  in nats
"""

import numpy as np

from glue_bench.analysis.losses import row_losses
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.text import IGNORED, HeldOut
from glue_bench.model.transformers_api import EncoderForMaskedLM


def validation_sums(model: EncoderForMaskedLM, text: HeldOut) -> Sums:
    """Each sequence's summed loss and its number of masked tokens."""
    rows = [probe.masked for probe in text.probes]
    counts = np.array([(row.labels != IGNORED).sum() for row in rows], dtype=float)
    return Sums(row_losses(model, rows), counts)
