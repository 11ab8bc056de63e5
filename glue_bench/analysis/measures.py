"""All measures of the inside of an encoder, by the names that `--only` takes."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from glue_bench.analysis.attention import measure_attention
from glue_bench.analysis.decoding import measure_decoding
from glue_bench.analysis.decoding_layers import measure_decoding_layers
from glue_bench.analysis.dimensions import measure_correlation, measure_dimensions
from glue_bench.analysis.layers import measure_layers
from glue_bench.analysis.measure_terms import measure_terms
from glue_bench.analysis.measured import Measured, numpy
from glue_bench.analysis.order import measure_order
from glue_bench.analysis.position_rows import heads, rows
from glue_bench.analysis.position_scores import measure_position_scores
from glue_bench.analysis.positions import measure_positions
from glue_bench.analysis.share_tables import named
from glue_bench.analysis.subject import Subject
from glue_bench.analysis.subspaces import measure_subspaces, measure_tables
from glue_bench.analysis.term_effect import measure_effect
from glue_bench.analysis.terms import FOUR


class Part(NamedTuple):
    """What is measured at once, and where it stands in analysis.json: place -> the keys that are null if left out."""

    measure: Callable[[Subject], Measured]
    keys: Mapping[str, tuple[str, ...]]


def _positions(subject: Subject) -> Measured:
    """The rows that there are, of which the last is that of the last place."""
    found = numpy(rows(subject.model, subject.sum))
    return measure_positions(found, first=len(subject.sum.positions) - len(found))


_FOUR = tuple(map(named, FOUR))
_SUBSPACES = ("overlap", "overlap_random", "mean_abs_cosine", "mean_abs_cosine_random")
MEASURES: dict[str, tuple[Part, ...]] = {
    "terms": (
        Part(measure_terms, {"terms.share": _FOUR}),
        Part(measure_effect, {"terms.kl": _FOUR}),
        Part(measure_layers, {"layers": ()}),
    ),
    "subspaces": (
        Part(lambda subject: measure_subspaces(subject.sum), {"subspaces": _SUBSPACES}),
        Part(lambda subject: measure_tables(subject.sum), {"tables.participation_ratio": ("words", "positions")}),
    ),
    "decoding": (
        Part(
            lambda subject: measure_decoding(subject.sum, subject.model.norm),
            {
                "decoding.sum": ("word_accuracy", "position_accuracy", "position_mae"),
                "decoding.random": ("position_accuracy",),
            },
        ),
        Part(measure_decoding_layers, {"decoding.layers": ()}),
    ),
    "positions": (
        Part(
            _positions,
            {"positions": ("absolute_mae", "order_accuracy")},
        ),
        Part(
            lambda subject: measure_position_scores(*map(numpy, heads(subject.model, subject.sum))),
            {"positions.scores": ("toeplitz", "locality", "symmetric")},
        ),
        Part(lambda subject: measure_attention(subject.attention), {"positions.attention": ()}),
    ),
    "dimensions": (
        Part(lambda subject: measure_dimensions(subject.sum), {"dimensions": ("share_95",)}),
        Part(lambda subject: measure_correlation(subject.sum), {"dimensions": ("spearman",)}),
    ),
    "order": (Part(measure_order, {"order.swap": ("1",)}),),
}
