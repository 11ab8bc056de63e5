"""Does a model prefer the order in which two words were written?

Two words at a distance d change places. The pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659) over the two
places, each token of the two words masked on its own,

    PLL(x) = sum over tokens t of the two words of  log p(x_t | x without x_t)

is compared: the share of texts with PLL(original) > PLL(swapped). Differences under 1e-4 nats are ties, because another
order of sums changes the last bits, and count half. An encoder without positions has exactly 50%.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from glue_bench.analysis.losses import row_losses
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.text import IGNORED, HeldOut, Probe, Row
from glue_bench.analysis.words import Span
from glue_bench.model.transformers_api import EncoderForMaskedLM

DISTANCES = (1, 2, 4, 8)
TIE = 1e-4  # nats
PER_SEQUENCE = 4  # swaps of one distance at most, where the text is short; else one


def swap_sums(model: EncoderForMaskedLM, text: HeldOut, distance: int) -> Sums:
    """Each sequence's swaps: how many originals are preferred, ties counted half, and how many there are."""
    swaps = [(index, pair) for index, probe in enumerate(text.probes) for pair in pairs(probe, distance, index, text)]
    texts = [both for index, pair in swaps for both in original_and_swapped(text.probes[index].ids, *pair)]
    original, swapped = _log_likelihoods(model, texts, text.mask_id).reshape(-1, 2).T
    better = np.where(np.abs(original - swapped) < TIE, 0.5, original > swapped)
    of, n = [index for index, _ in swaps], len(text.probes)
    return Sums(np.bincount(of, better, n), np.bincount(of, minlength=n).astype(float))


def pairs(probe: Probe, distance: int, index: int, text: HeldOut) -> list[tuple[Span, Span]]:
    """The words that change places: at random among those of one stretch that differ and have no special token."""
    found = [
        (first, second)
        for words in probe.stretches
        for first, second in zip(words, words[distance:], strict=False)
        if all(text.rule.regular[probe.ids[slice(*word)]].all() for word in (first, second))
        and probe.ids[slice(*first)].tolist() != probe.ids[slice(*second)].tolist()
    ]
    wanted = min(PER_SEQUENCE, -(-text.tokens // len(text.text.ids)), len(found))
    generator = np.random.default_rng([text.seed, distance, index])
    return [found[chosen] for chosen in generator.choice(len(found), wanted, replace=False)] if found else []


Places = tuple[np.ndarray, np.ndarray]
"""A text int64 (l,), and the places of its two words."""


def original_and_swapped(ids: np.ndarray, first: Span, second: Span) -> tuple[Places, Places]:
    """The text as it is and with two words in each other's place; what lies between them moves along."""
    (a, b), (c, d) = first, second
    swapped = np.concatenate([ids[:a], ids[c:d], ids[b:c], ids[a:b], ids[d:]])
    ends = np.r_[a : a + d - c, d - (b - a) : d]
    return (ids, np.r_[a:b, c:d]), (swapped, ends)


def _log_likelihoods(model: EncoderForMaskedLM, texts: Sequence[Places], mask_id: int) -> np.ndarray:
    """float64 (texts,): the pseudo-log-likelihood of each text over its places."""
    rows = [row for ids, places in texts for row in _masked_one_by_one(ids, places, mask_id)]
    of = np.repeat(np.arange(len(texts)), [len(places) for _, places in texts])
    return -np.bincount(of, row_losses(model, rows), len(texts))


def _masked_one_by_one(ids: np.ndarray, places: np.ndarray, mask_id: int) -> Iterator[Row]:
    for place in places:
        masked, labels = ids.copy(), np.full(len(ids), IGNORED)
        masked[place], labels[place] = mask_id, ids[place]
        yield Row(masked, labels)
