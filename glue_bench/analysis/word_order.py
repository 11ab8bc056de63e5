"""How much does a masked-LM encoder use the order of words? Its loss on a text, and on the same words in other orders.

    loss     mean over masked tokens of  -log p(x_t | text with its masks),  in nats
    shuffle  rise of the loss with the n-grams of words in random order (Sinha et al. 2021, arXiv 2104.06644)
    reverse  rise of the loss with the words in reverse
    start    rise of the loss with the first word at position s + 1 (Sinha et al. 2022, arXiv 2210.12574)
    swap     how often the text as it was written is preferred to the text with two words exchanged

Words move as a whole within what lies between two separators, and labels move with them: the same tokens are masked
and predicted. [CLS] stays first. For the moved start, texts are cut to the positions less the largest start, so that
all starts read the same tokens. Texts are compared by their pseudo-log-likelihood (Salazar et al. 2020, arXiv
1910.14659) over the two words, each of their tokens masked on its own. Differences under 1e-4 nats are ties, because
another order of sums changes the last bits, and count half. An encoder without positions has exactly 50%, and rises
of 0; one that knows distances alone has a rise of 0 for a moved start.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from glue_bench.analysis.chance import Sums
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.training.masking import VALIDATION_SEED, Vocabulary, masked_evaluation_batches
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import Span, WordRule

DISTANCES = (1, 2, 4, 8)
N_GRAMS = (1, 2, 3)
STARTS = (8, 16, 32, 64)
TIE = 1e-4  # nats
PER_SEQUENCE = 4  # swaps of one distance at most, where the text is short; else one
TOKENS_AT_ONCE = 8192
TOKENS = 24_576  # 384 sequences of 64 tokens, 192 of 128: all measures of a tiny encoder within 20 s on one thread
IGNORED = -100  # a label that no loss is taken of


class MaskedRow(NamedTuple):
    """What a model is given: `ids`, `segments` and `labels` (what to predict, or IGNORED), int64 (l,)."""

    ids: np.ndarray
    segments: np.ndarray
    labels: np.ndarray


class Probe(NamedTuple):
    """A held-out sequence: its `ids` int64 (l,), the same with masks and labels, and its words by stretches.

    A stretch is what lies between two separators, and so within one segment; words never leave theirs.
    """

    ids: np.ndarray
    masked: MaskedRow
    stretches: list[list[Span]]


@dataclass(frozen=True)
class HeldOut:
    """Text to measure on, of `tokenizer`. Of a longer text as many sequences as have TOKENS, spread evenly.

    Of each sequence `mask_probability` of the tokens is to be predicted, masked as in pretraining. Masks, swaps and
    shuffles follow from the text alone.
    """

    text: PackedText
    tokenizer: PreTrainedTokenizerBase
    mask_probability: float = 0.15

    @cached_property
    def rule(self) -> WordRule:
        """Which of its tokens begin words."""
        return WordRule.of(self.tokenizer)

    @cached_property
    def probes(self) -> list[Probe]:
        """The sequences, each with its masks and words."""
        text, probes = self.text, list[Probe]()
        count = max(1, TOKENS * len(text) // len(text.ids))
        if count < len(
            text
        ):  # so many sequences as have the tokens, spread evenly over the text, in its order
            chosen = np.arange(count) * len(text) // count
            places, offsets = text.end_to_end(chosen)
            text = PackedText(
                text.ids[places], offsets, cuts=None if text.cuts is None else text.cuts[chosen]
            )
        for batch in masked_evaluation_batches(
            text, Vocabulary.of(self.tokenizer), self.mask_probability, VALIDATION_SEED
        ):
            labels = np.full(batch.ids.shape, IGNORED)
            labels.flat[batch.places.numpy()] = batch.targets.numpy()
            segments = np.zeros_like(labels) if batch.segments is None else batch.segments.numpy()
            for row in zip(batch.ids.numpy(), segments, labels, strict=True):
                first, stop = text.offsets[len(probes) : len(probes) + 2]
                ids = text.ids[first:stop].astype(np.int64)
                probes.append(
                    Probe(
                        ids,
                        MaskedRow(*(part[: len(ids)] for part in row)),
                        self.rule.stretches(ids),
                    )
                )
        return probes


def order_sums(
    model: EncoderForMaskedLM, text: HeldOut, positions: int, distances: Sequence[int] = DISTANCES
) -> dict[str, Sums]:
    """Every measure by name: validation_loss, swap_1, ..., shuffle_1, ..., reverse, start_8, ...

    `positions` are those that the model was trained on. Words at `distances` are swapped, which takes most of the time.
    What the text or the model cannot be measured by is left out: no two such words, too few positions for a start.
    """

    def rise(rows: Sequence[MaskedRow], base: Sums) -> Sums:
        return Sums(loss_sums(model, rows).sums - base.sums, base.counts)

    model.eval()
    base = loss_sums(model, [probe.masked for probe in text.probes])
    by_measure = {"validation_loss": base} | {
        f"swap_{each}": swap_sums(model, text, each) for each in distances
    }
    for n in N_GRAMS:
        generators = [
            np.random.default_rng([VALIDATION_SEED, n, index]) for index in range(len(text.probes))
        ]
        orders = [partial(in_n_grams, n=n, generator=generator) for generator in generators]
        rows = [reordered(probe, order) for probe, order in zip(text.probes, orders, strict=True)]
        by_measure[f"shuffle_{n}"] = rise(rows, base)
    by_measure["reverse"] = rise(
        [reordered(probe, lambda words: words[::-1]) for probe in text.probes], base
    )
    starts = [
        start for start in STARTS if 4 * start <= positions
    ]  # three quarters are left to the text
    if starts and model.base.variant.position_tables is not None:
        most = positions - starts[-1]
        # What is left of a longer text ends with a separator, as it did.
        ends = [[*range(min(most, len(probe.ids)) - 1), -1] for probe in text.probes]
        rows = [
            MaskedRow(*(part[end] for part in probe.masked))
            for probe, end in zip(text.probes, ends, strict=True)
        ]
        base = loss_sums(model, rows)
        for start in starts:
            with model.base.variant.starting_at(start):
                by_measure[f"start_{start}"] = rise(rows, base)
    return {name: sums for name, sums in by_measure.items() if sums.counts.any()}


@torch.inference_mode()
def loss_sums(model: EncoderForMaskedLM, rows: Sequence[MaskedRow]) -> Sums:
    """Of each row the sum over its labels of -log p(label | row), in nats, and the number of its labels.

    Rows of about one length go through together, at most TOKENS_AT_ONCE tokens,
    in float32, and the head runs only at the places that are predicted.
    """
    lengths = np.array([len(row.ids) for row in rows], dtype=int)
    sums = np.zeros(len(rows))
    order = np.argsort(lengths, kind="stable")
    while len(order):
        # The longest of the next rows decides how many of them there may be.
        size = int(
            np.searchsorted(
                lengths[order] * (np.arange(len(order)) + 1), TOKENS_AT_ONCE, side="right"
            )
        )
        chosen, order = np.split(order, [max(size, 1)])
        parts = [
            [torch.from_numpy(part) for part in parts]
            for parts in zip(*(rows[i] for i in chosen), strict=True)
        ]
        ids, segments, labels = (
            pad_sequence(part, batch_first=True, padding_value=value)
            for part, value in zip(parts, (0, 0, IGNORED), strict=True)
        )
        mask = torch.arange(ids.shape[1]) < torch.from_numpy(lengths[chosen])[:, None]
        ids, mask, segments = (each.to(model.device) for each in (ids, mask, segments))
        states = model.base.hidden_states(ids, mask, segments)[-1].flatten(0, 1)
        places = torch.nonzero(labels.flatten() != IGNORED)[:, 0]
        logits = model.predict(states[places.to(model.device)]).float()
        losses = (
            F.cross_entropy(logits, labels.flatten()[places].to(model.device), reduction="none")
            .cpu()
            .double()
        )
        sums[chosen] = np.bincount(
            places.numpy() // ids.shape[1], losses.numpy(), minlength=len(chosen)
        )
    return Sums(sums, np.array([(row.labels != IGNORED).sum() for row in rows], dtype=float))


def in_n_grams(words: list[Span], n: int, generator: np.random.Generator) -> list[Span]:
    """Words cut into runs of n, the last one of what is left, and the runs in random order."""
    grams = [words[first : first + n] for first in range(0, len(words), n)]
    return [word for index in generator.permutation(len(grams)) for word in grams[index]]


def reordered(probe: Probe, order: Callable[[list[Span]], list[Span]]) -> MaskedRow:
    """The masked row with the words of each stretch in another order; their labels go with them."""
    places = np.arange(len(probe.ids))
    for words in probe.stretches:
        first, stop = words[0][0], words[-1][1]
        places[first:stop] = [place for word in order(words) for place in range(*word)]
    return probe.masked._replace(ids=probe.masked.ids[places], labels=probe.masked.labels[places])


def swap_sums(model: EncoderForMaskedLM, text: HeldOut, distance: int) -> Sums:
    """Each sequence's swaps: how many originals are preferred, ties counted half, and how many there are."""
    rows, versions = (
        list[MaskedRow](),
        list[int](),
    )  # of each row, the version of the text that lacks a token in it
    of = list[int]()  # of each swap, the sequence
    for index, probe in enumerate(text.probes):
        for (a, b), (c, d) in pairs(probe, distance, index, text):
            ids = probe.ids
            swapped = np.concatenate([ids[:a], ids[c:d], ids[b:c], ids[a:b], ids[d:]])
            both = (ids, np.r_[a:b, c:d]), (swapped, np.r_[a : a + d - c, d - (b - a) : d])
            for version, (tokens, places) in enumerate(both, 2 * len(of)):
                versions += [version] * len(places)
                for place in places:  # each token of the two words is masked on its own
                    masked, labels = tokens.copy(), np.full(len(ids), IGNORED)
                    masked[place], labels[place] = text.tokenizer.mask_token_id, tokens[place]
                    rows.append(MaskedRow(masked, probe.masked.segments, labels))
            of.append(index)
    likelihoods = -np.bincount(
        np.array(versions, dtype=int), loss_sums(model, rows).sums, 2 * len(of)
    )
    original, swapped = likelihoods.reshape(-1, 2).T
    better = np.where(np.abs(original - swapped) < TIE, 0.5, original > swapped)
    sequence, n = np.array(of, dtype=int), len(text.probes)
    return Sums(np.bincount(sequence, better, n), np.bincount(sequence, minlength=n).astype(float))


def pairs(probe: Probe, distance: int, index: int, text: HeldOut) -> list[tuple[Span, Span]]:
    """The words that change places: at random among those of one stretch that differ and have no special token."""
    candidates = [
        (first, second)
        for words in probe.stretches
        for first, second in zip(words, words[distance:], strict=False)
        if all(text.rule.regular[probe.ids[slice(*word)]].all() for word in (first, second))
        and probe.ids[slice(*first)].tolist() != probe.ids[slice(*second)].tolist()
    ]
    wanted = min(PER_SEQUENCE, -(-TOKENS // len(text.text.ids)), len(candidates))
    generator = np.random.default_rng([VALIDATION_SEED, distance, index])
    return (
        [candidates[i] for i in generator.choice(len(candidates), wanted, replace=False)]
        if candidates
        else []
    )
