"""All measures of one masked-LM encoder on held-out text, by their names in tables."""

from collections.abc import Iterator, Sequence

from glue_bench.analysis.shuffle import N_GRAMS, reverse_sums, shuffle_sums
from glue_bench.analysis.start import start_sums
from glue_bench.analysis.sums import Sums
from glue_bench.analysis.swap import DISTANCES, swap_sums
from glue_bench.analysis.text import HeldOut
from glue_bench.analysis.validation import validation_sums
from glue_bench.model.heads import EncoderForMaskedLM


def intrinsic_sums(
    model: EncoderForMaskedLM, text: HeldOut, positions: int, distances: Sequence[int] = DISTANCES
) -> dict[str, Sums]:
    """Every measure by name: validation_loss, swap_1, ..., shuffle_1, ..., reverse, start_8, ...

    `positions` are those that the model was trained on, and words at `distances` are swapped, which takes most of the
    time. A swap test of a text that has no such two words is left out.
    """
    model.eval()
    return {name: sums for name, sums in _measured(model, text, positions, distances) if sums.counts.any()}


def _measured(
    model: EncoderForMaskedLM, text: HeldOut, positions: int, distances: Sequence[int]
) -> Iterator[tuple[str, Sums]]:
    base = validation_sums(model, text)
    yield "validation_loss", base
    for distance in distances:
        yield f"swap_{distance}", swap_sums(model, text, distance)
    for n in N_GRAMS:
        yield f"shuffle_{n}", shuffle_sums(model, text, n, base)
    yield "reverse", reverse_sums(model, text, base)
    for start, sums in start_sums(model, text, positions):
        yield f"start_{start}", sums
