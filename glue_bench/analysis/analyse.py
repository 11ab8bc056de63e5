"""The inside of encoders: which measures there are, and all of them of each encoder in one long table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from glue_bench.analysis.chance import NONE, Analysis, Interval, LeftOut, Measured, Row, row
from glue_bench.analysis.layers import measure_layers
from glue_bench.analysis.positions import measure_attention, measure_position_scores, position_heads, position_rows
from glue_bench.analysis.probes import measure_decoding, measure_decoding_layers, measure_position_rows
from glue_bench.analysis.subject import FEWEST, Asked, Source, Subject, find_sources
from glue_bench.analysis.tables import measure_correlation, measure_dimensions, measure_subspaces, measure_tables
from glue_bench.analysis.terms import measure_effect, measure_terms
from glue_bench.analysis.word_order import DISTANCES, order_sums
from glue_bench.errors import UserError, unknown
from glue_bench.training.compute import choose_compute, quiet_transformers
from glue_bench.training.corpus import open_corpus

SEQUENCES = 512
DEFAULT_TEXT = Path(__file__).parent / "default_text" / "news_from_nowhere.txt"
DEFAULT_NAME = "News from Nowhere (the default text)"
LARGE = 2e7  # weights of the blocks from which on only neighbouring words are swapped, in fewer sequences
OF_ORDER, OF_LARGE = 128, 16  # sequences
TYPES: dict[str, Any] = {**dict.fromkeys(Row._fields[1:6], float), "layer": "Int64", "head": "Int64", "n": int}
"""Of the columns of rows. Without rows, too, or pandas 2 warns where checkpoints are put together."""


def analyse(
    sources: str | Path | Sequence[str | Path],
    *,
    corpus: str | Path | Sequence[str | Path] | None = None,
    sequences: int = SEQUENCES,
    only: Sequence[str] = (),
    tokenizer: str | None = None,
    device: str = "auto",
) -> Analysis:
    """Measure the inside of encoders, each number beside what chance gives.

    `sources` are checkpoints (hub ids, folders, official TUPE files), or folders of experiments whose pretrained arms
    still have theirs. Text is `corpus`, as for `run`, or the book that comes with the package; so many `sequences` of
    at most 128 tokens are read. `only` names some of MEASURES. All is computed in float32, and statistics of tables in
    float64.

    Example:
        >>> glue_bench.analyse("runs/demo", sequences=64)  # doctest: +SKIP

    Raises:
        UserError: before anything is measured, a name that stands for nothing, a checkpoint or text that cannot be
            read, or no such measure.
    """
    for name in only:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    if sequences < FEWEST:
        raise UserError(f"--sequences {sequences}: too few to measure anything; give {FEWEST} or more")
    texts = [str(name) for name in ([corpus] if isinstance(corpus, str | Path) else corpus or [DEFAULT_TEXT])]
    found, gone = find_sources([str(name) for name in ([sources] if isinstance(sources, str | Path) else sources)])
    if not found:
        raise UserError(f"nothing to analyse: {'; '.join(gone)}")
    with threadpool_limits(limits=1, user_api="blas"):
        quiet_transformers()
        asked = Asked(open_corpus(texts), sequences, tokenizer, choose_compute(device, "float32").device)
        for source in found[1:]:  # what cannot be read is said before anything is measured
            Subject(source, asked)
        measured = {source.label: _measured(source, asked, only) for source in found}
    together = {
        name: pd.concat({label: frames[name] for label, frames in measured.items() if name in frames})
        .reset_index(level=0, names="checkpoint")
        .reset_index(drop=True)
        for name in dict.fromkeys(name for frames in measured.values() for name in frames)
    }
    facts, rows, left_out = (together.pop(name) for name in ("subjects", "measures", "left_out"))
    text = DEFAULT_NAME if corpus is None else ", ".join(texts)
    return Analysis(text, asked.corpus.digest, sequences, facts, rows, left_out, together, tuple(gone))


def _measured(source: Source, asked: Asked, only: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The frames of an `Analysis`, of one checkpoint and without its name."""
    subject, rows, left_out, matrices = Subject(source, asked), list[Row](), dict[str, str](), dict[str, pd.DataFrame]()
    config = subject.model.config
    facts = {
        **{"variant": config.variant, "origin": config.origin, "blocks": config.num_hidden_layers},
        **{"heads": config.num_attention_heads, "width": config.hidden_size, "positions": subject.positions},
        **{"words": config.vocab_size, "weights": subject.weights},
    }
    for name, measure in ((name, measure) for kind in only or MEASURES for name, measure in MEASURES[kind].items()):
        try:
            measured = measure(subject)
        except LeftOut as reason:
            measured = Measured([], left_out={name: str(reason)})
        rows += measured.rows
        left_out |= measured.left_out
        matrices |= measured.matrices
    return {
        "subjects": pd.DataFrame([facts]),
        "measures": pd.DataFrame(rows, columns=Row._fields).astype(TYPES),
        "left_out": pd.DataFrame(list(left_out.items()), columns=["measure", "reason"]),
        **matrices,
    }


def measure_order(subject: Subject) -> Measured:
    """How much the encoder uses the order of words: `order_sums` on the text that is read here."""
    is_large = sum(weight.numel() for weight in subject.model.blocks.parameters()) > LARGE
    distances = DISTANCES[:1] if is_large else DISTANCES
    head, text = subject.masked_lm(OF_LARGE if is_large else OF_ORDER)
    found, rows = order_sums(head, text, subject.positions, distances), []
    for name, sums in found.items():
        kind, _, size = name.rpartition("_")
        chance: Interval = NONE if kind == "validation" else (0.5, 0.5) if kind == "swap" else (0.0, 0.0)
        measure = f"order.{kind}.{size}" if size.isdecimal() else f"order.{name}"
        interval = sums.share_interval if kind == "swap" else sums.interval
        rows.append(row(measure, sums.value, interval, chance, n=sums.n))
    lacking = [f"order.swap.{distance}" for distance in distances if f"swap_{distance}" not in found]
    return Measured(rows, left_out=dict.fromkeys(lacking, "the text has no two words to swap at this distance"))


MEASURES: dict[str, dict[str, Callable[[Subject], Measured]]] = {
    "terms": {"terms.share": measure_terms, "terms.kl": measure_effect, "layers": measure_layers},
    "subspaces": {
        "subspaces": lambda subject: measure_subspaces(subject.sum),
        "tables": lambda subject: measure_tables(subject.sum),
    },
    "decoding": {
        "decoding.sum": lambda subject: measure_decoding(subject.sum, subject.model.norm),
        "decoding.layers": measure_decoding_layers,
    },
    "positions": {
        "positions": lambda subject: measure_position_rows(
            position_rows(subject.model, subject.sum), len(subject.sum.positions)
        ),
        "positions.scores": lambda subject: measure_position_scores(*position_heads(subject.model, subject.sum)),
        "positions.attention": measure_attention,
    },
    "dimensions": {
        "dimensions.share_95": lambda subject: measure_dimensions(subject.sum),
        "dimensions.spearman": lambda subject: measure_correlation(subject.sum),
    },
    "order": {"order": measure_order},
}
"""By the name that `--only` takes: each measure, by the beginning of its rows' names."""
