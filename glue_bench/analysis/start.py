"""How much the masked-LM loss rises when the same text begins at a later position (Sinha et al. 2022).

arXiv 2210.12574:

    rise_s = mean over masked tokens of  -log p(x_t | first word at position s + 1) + log p(x_t | at position 1)

[CLS] stays first. Texts are cut to the positions less the largest start, so that all starts read the same tokens. What
knows distances alone rises by 0.
"""

from collections.abc import Iterator

import numpy as np

from glue_bench.analysis.losses import row_losses
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.text import HeldOut, Row, predicted
from glue_bench.model.heads import EncoderForMaskedLM

STARTS = (8, 16, 32, 64)


def starts_within(positions: int) -> list[int]:
    """The starts that leave three quarters of the positions to the text."""
    return [start for start in STARTS if 4 * start <= positions]


def start_sums(model: EncoderForMaskedLM, text: HeldOut, positions: int) -> Iterator[tuple[int, Sums]]:
    """Each start with its rise; none of a variant that cannot be moved, or with too few `positions`."""
    starts = starts_within(positions) if model.base.variant.takes_start() else []
    if not starts:
        return
    rows = [_cut(probe.masked, positions - starts[-1]) for probe in text.probes]
    counts = predicted(rows)
    base = row_losses(model, rows)
    for start in starts:
        yield start, Sums(row_losses(model, rows, start) - base, counts)


def _cut(row: Row, length: int) -> Row:
    """The first `length` tokens, the last of them a separator as it was."""
    if len(row.ids) <= length:
        return row
    return Row(*(np.append(part[: length - 1], part[-1]) for part in (row.ids, row.segments, row.labels)))
