"""Does a model prefer the order in which two words were written?

Two words at a distance d change places. The pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659) over the two
places, each token of the two words masked on its own,

    PLL(x) = sum over tokens t of the two words of  log p(x_t | x without x_t)

is compared: the share of texts with PLL(original) > PLL(swapped). Differences under 1e-4 nats are ties, because another
order of sums changes the last bits, and count half. An encoder without positions has exactly 50%.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glue_bench.analysis.losses import row_losses
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.text import IGNORED, HeldOut, Probe, Row
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training.words import Span

DISTANCES = (1, 2, 4, 8)
TIE = 1e-4  # nats
PER_SEQUENCE = 4  # swaps of one distance at most, where the text is short; else one


@dataclass(frozen=True)
class Version:
    """A text as it was written, or with two words swapped: `ids` and `segments` int64 (l,), and the words' `places`."""

    ids: np.ndarray
    segments: np.ndarray
    places: np.ndarray


def swap_sums(model: EncoderForMaskedLM, text: HeldOut, distance: int) -> Sums:
    """Each sequence's swaps: how many originals are preferred, ties counted half, and how many there are."""
    swaps = [(index, pair) for index, probe in enumerate(text.probes) for pair in pairs(probe, distance, index, text)]
    versions = [each for index, pair in swaps for each in original_and_swapped(text.probes[index], *pair)]
    original, swapped = _log_likelihoods(model, versions, text.mask_id).reshape(-1, 2).T
    better = np.where(np.abs(original - swapped) < TIE, 0.5, original > swapped)
    of, n = np.array([index for index, _ in swaps], dtype=int), len(text.probes)
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


def original_and_swapped(probe: Probe, first: Span, second: Span) -> tuple[Version, Version]:
    """The text as it is and with two words in each other's place; what lies between them moves along."""
    ids, segments, (a, b), (c, d) = probe.ids, probe.masked.segments, first, second
    swapped = np.concatenate([ids[:a], ids[c:d], ids[b:c], ids[a:b], ids[d:]])
    ends = np.r_[a : a + d - c, d - (b - a) : d]
    return Version(ids, segments, np.r_[a:b, c:d]), Version(swapped, segments, ends)


def _log_likelihoods(model: EncoderForMaskedLM, versions: Sequence[Version], mask_id: int) -> np.ndarray:
    """float64 (versions,): the pseudo-log-likelihood of each version over its places."""
    rows = []
    for version in versions:
        for place in version.places:
            masked, labels = version.ids.copy(), np.full(len(version.ids), IGNORED)
            masked[place], labels[place] = mask_id, version.ids[place]
            rows.append(Row(masked, version.segments, labels))
    of = np.repeat(np.arange(len(versions)), np.array([len(each.places) for each in versions], dtype=int))
    return -np.bincount(of, row_losses(model, rows), len(versions))
