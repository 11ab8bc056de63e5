"""How much does a masked-LM encoder use the order of words?

Its loss on a text is compared with its loss on the same words in other orders:

    loss     mean over masked tokens of  -log p(x_t | text with its masks),  in nats
    shuffle  rise of the loss with the n-grams of words in random order (Sinha et al. 2021,
             arXiv 2104.06644)
    reverse  rise of the loss with the words in reverse
    start    rise of the loss with the first word at position s + 1 (Sinha et al. 2022,
             arXiv 2210.12574)
    swap     how often the text as it was written is preferred to the text with two words exchanged

Words move as a whole, and never beyond a separator. Labels move with them, so that the same tokens
are masked and predicted. [CLS] stays first. For the moved start, texts are cut to the positions
less the largest start, so that all starts read the same tokens. Texts are compared by their
pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659) over the two words, where one token at
a time is masked. Differences under 1e-4 nats are ties, because another order of sums changes the
last bits, and count half. An encoder without positions prefers exactly 50% of the texts, and has
rises of 0. An encoder that uses distances alone has a rise of 0 for a moved start.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from glue_bench.analysis.chance import NO_INTERVAL, Interval, Measured, Sums, row
from glue_bench.analysis.held_out import (
    IGNORED_LABEL,
    MAX_HELD_OUT_TOKENS,
    HeldOut,
    MaskedRow,
    Probe,
    loss_sums,
)
from glue_bench.analysis.subject import Subject
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training.masking import VALIDATION_SEED
from glue_bench.training.words import Span

SWAP_DISTANCES = (1, 2, 4, 8)
N_GRAMS = (1, 2, 3)
START_SHIFTS = (8, 16, 32, 64)
TIE = 1e-4  # nats
MAX_SWAPS = 4  # swaps of a distance in each sequence of a short text; a long text has one
LARGE_WEIGHTS = 2e7
"""If the blocks have so many weights, only neighbouring words are swapped, in fewer sequences."""
ORDER_SEQUENCES = 128
LARGE_ORDER_SEQUENCES = 16


def measure_order(subject: Subject) -> Measured:
    """Measure how much the encoder uses the order of words, on the subject's text."""
    weights = sum(weight.numel() for weight in subject.model.blocks.parameters())
    is_large = weights > LARGE_WEIGHTS
    distances = SWAP_DISTANCES[:1] if is_large else SWAP_DISTANCES
    head, text = subject.head_and_text(LARGE_ORDER_SEQUENCES if is_large else ORDER_SEQUENCES)

    sums_by_measure = order_sums(head, text, subject.positions, distances)
    rows = []
    for name, sums in sums_by_measure.items():
        kind, _, size = name.rpartition("_")
        chance: Interval = (0.0, 0.0)
        interval = sums.interval
        if kind == "validation":
            chance = NO_INTERVAL
        elif kind == "swap":
            chance = (0.5, 0.5)
            interval = sums.share_interval
        measure = f"order.{kind}.{size}" if size.isdecimal() else f"order.{name}"
        rows.append(row(measure, sums.value, interval, chance, n=sums.n))

    left_out = {}
    for distance in distances:
        if f"swap_{distance}" not in sums_by_measure:
            reason = "the text has no two words to swap at this distance"
            left_out[f"order.swap.{distance}"] = reason
    return Measured(rows, left_out=left_out)


def order_sums(
    model: EncoderForMaskedLM,
    text: HeldOut,
    positions: int,
    distances: Sequence[int] = SWAP_DISTANCES,
) -> dict[str, Sums]:
    """Take every measure: validation_loss, swap_1, ..., shuffle_1, ..., reverse, start_8, ...

    Measures that the text or the model does not permit are left out: without two words at a
    distance, or with too few positions for a start.

    Args:
        model: The encoder with its masked-LM head.
        text: The text to measure on.
        positions: The number of positions that the model was trained on.
        distances: The distances of swapped words, which take most of the time.
    """

    def rise(rows: Sequence[MaskedRow], base: Sums) -> Sums:
        return Sums(loss_sums(model, rows).sums - base.sums, base.counts)

    model.eval()
    probes = text.probes
    base = loss_sums(model, [probe.masked for probe in probes])
    measures = {"validation_loss": base}
    for distance in distances:
        measures[f"swap_{distance}"] = swap_sums(model, text, distance)
    for n in N_GRAMS:
        rows = []
        for index, probe in enumerate(probes):
            generator = np.random.default_rng([VALIDATION_SEED, n, index])
            rows.append(reorder_words(probe, partial(shuffle_n_grams, n=n, generator=generator)))
        measures[f"shuffle_{n}"] = rise(rows, base)
    reversed_rows = [reorder_words(probe, lambda words: words[::-1]) for probe in probes]
    measures["reverse"] = rise(reversed_rows, base)
    # A start may skip a quarter of the positions, so that three quarters are left for the text.
    starts = [start for start in START_SHIFTS if 4 * start <= positions]
    if starts and model.base.variant.position_tables is not None:
        room = positions - starts[-1]
        rows = [probe.masked.cut(room) for probe in probes]
        base = loss_sums(model, rows)
        for start in starts:
            with model.base.variant.starting_at(start):
                measures[f"start_{start}"] = rise(rows, base)
    return {name: sums for name, sums in measures.items() if sums.counts.any()}


def shuffle_n_grams(words: list[Span], n: int, generator: np.random.Generator) -> list[Span]:
    """Cut words into runs of n, the last run shorter, and put the runs in random order.

    Args:
        words: The words.
        n: The length of runs.
        generator: The generator that draws the order.
    """
    grams = [words[first : first + n] for first in range(0, len(words), n)]
    ordered = []
    for index in generator.permutation(len(grams)):
        ordered += grams[index]
    return ordered


def reorder_words(probe: Probe, order: Callable[[list[Span]], list[Span]]) -> MaskedRow:
    """Put the words of each stretch in another order; their labels move with them."""
    places = np.arange(len(probe.ids))
    for words in probe.stretches:
        first, _ = words[0]
        _, stop = words[-1]
        moved: list[int] = []
        for word in order(words):
            moved += range(*word)
        places[first:stop] = moved
    masked = probe.masked
    return masked._replace(ids=masked.ids[places], labels=masked.labels[places])


def swap_sums(model: EncoderForMaskedLM, text: HeldOut, distance: int) -> Sums:
    """Count the swaps of each sequence, and how often the original is preferred (ties count half).

    Args:
        model: The encoder with its masked-LM head.
        text: The text.
        distance: The distance of two swapped words; neighbours have distance 1.
    """
    rows = []
    versions: list[int] = []  # for each row, 2 i if it is the original of swap i, else 2 i + 1
    sequences: list[int] = []  # for each swap, the index of its sequence

    for index, probe in enumerate(text.probes):
        for first, second in pairs(probe, distance, index, text):
            places = [*range(*first), *range(*second)]
            original = _rows_for_each_token(text, probe, probe.ids, places)
            swapped_ids, swapped_places = _swap_words(probe.ids, first, second)
            swapped = _rows_for_each_token(text, probe, swapped_ids, swapped_places)
            rows += original + swapped
            versions += [2 * len(sequences)] * len(original)
            versions += [2 * len(sequences) + 1] * len(swapped)
            sequences.append(index)

    losses = loss_sums(model, rows).sums
    likelihoods = -np.bincount(np.array(versions, dtype=int), losses, 2 * len(sequences))
    original_likelihoods, swapped_likelihoods = likelihoods.reshape(-1, 2).T
    is_tie = np.abs(original_likelihoods - swapped_likelihoods) < TIE
    preferred = np.where(is_tie, 0.5, original_likelihoods > swapped_likelihoods)

    n = len(text.probes)
    by_sequence = np.array(sequences, dtype=int)
    hits = np.bincount(by_sequence, preferred, n)
    counts = np.bincount(by_sequence, minlength=n).astype(float)
    return Sums(hits, counts)


def _swap_words(ids: np.ndarray, first: Span, second: Span) -> tuple[np.ndarray, list[int]]:
    """Exchange two words; return the tokens, and the places of the two words."""
    a, b = first
    c, d = second
    swapped = np.concatenate([ids[:a], ids[c:d], ids[b:c], ids[a:b], ids[d:]])
    places = [*range(a, a + d - c), *range(d - (b - a), d)]
    return swapped, places


def _rows_for_each_token(
    text: HeldOut, probe: Probe, ids: np.ndarray, places: Sequence[int]
) -> list[MaskedRow]:
    """Return a row for each place, with that token masked and to be predicted.

    Args:
        text: The text that the probe belongs to.
        probe: The sequence, for its segments.
        ids: The tokens of the probe or of its swapped version, int64 (l,).
        places: The places to predict.
    """
    rows = []
    for place in places:
        masked = ids.copy()
        masked[place] = text.tokenizer.mask_token_id
        labels = np.full(len(ids), IGNORED_LABEL)
        labels[place] = ids[place]
        rows.append(MaskedRow(masked, probe.masked.segments, labels))
    return rows


def pairs(probe: Probe, distance: int, index: int, text: HeldOut) -> list[tuple[Span, Span]]:
    """Draw the pairs of words that change places.

    The two words of a pair differ, lie in one stretch, and have no special token.

    Args:
        probe: The sequence.
        distance: How many words the second word stands behind the first.
        index: The number of the sequence in the text.
        text: The text.
    """
    candidates = []
    for words in probe.stretches:
        for first, second in zip(words, words[distance:], strict=False):
            first_ids = probe.ids[slice(*first)]
            second_ids = probe.ids[slice(*second)]
            is_regular = text.rule.regular[first_ids].all() and text.rule.regular[second_ids].all()
            if is_regular and first_ids.tolist() != second_ids.tolist():
                candidates.append((first, second))
    if not candidates:
        return []
    count = min(MAX_SWAPS, math.ceil(MAX_HELD_OUT_TOKENS / len(text.text.ids)), len(candidates))
    generator = np.random.default_rng([VALIDATION_SEED, distance, index])
    chosen = generator.choice(len(candidates), count, replace=False)
    return [candidates[number] for number in chosen]
