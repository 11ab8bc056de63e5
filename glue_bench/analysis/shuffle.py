"""How much the masked-LM loss rises when words change their order (Sinha et al. 2021, arXiv 2104.06644).

    rise = mean over masked tokens of  -log p(x_t | shuffled text) + log p(x_t | text)

Words move as a whole, and labels move with them: the same tokens are masked and predicted as before. Here words move
within what lies between two separators, Sinha et al. shuffle sentences. An encoder without positions rises by 0.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from glue_bench.analysis.losses import row_losses
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.text import HeldOut, Probe, Row
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training.words import Span

N_GRAMS = (1, 2, 3)
Order = Callable[[list[Span]], list[Span]]
"""The words of a stretch in another order."""


def shuffle_sums(model: EncoderForMaskedLM, text: HeldOut, n: int, base: Sums) -> Sums:
    """The rise over `base`, the loss of the text as it is, with the n-grams of words in random order."""
    rows = [
        moved(probe, partial(in_n_grams, n=n, generator=np.random.default_rng([text.seed, n, index])))
        for index, probe in enumerate(text.probes)
    ]
    return _rise(model, rows, base)


def reverse_sums(model: EncoderForMaskedLM, text: HeldOut, base: Sums) -> Sums:
    """The rise over `base` with the words in reverse."""
    return _rise(model, [moved(probe, lambda words: words[::-1]) for probe in text.probes], base)


def in_n_grams(words: list[Span], n: int, generator: np.random.Generator) -> list[Span]:
    """Words cut into runs of n, the last one of what is left, and the runs in random order."""
    grams = [words[first : first + n] for first in range(0, len(words), n)]
    return [word for index in generator.permutation(len(grams)) for word in grams[index]]


def moved(probe: Probe, order: Order) -> Row:
    """The masked row with the words of each stretch in another order; their labels go with them."""
    places = np.arange(len(probe.ids))
    for words in probe.stretches:
        first, stop = words[0][0], words[-1][1]
        places[first:stop] = [place for word in order(words) for place in range(*word)]
    return Row(probe.masked.ids[places], probe.masked.segments, probe.masked.labels[places])


def _rise(model: EncoderForMaskedLM, rows: Sequence[Row], base: Sums) -> Sums:
    return Sums(row_losses(model, rows) - base.sums, base.counts)
