"""The inside of encoders: the list of measures, and the function that applies them to encoders."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from glue_bench.analysis import (
    layers,
    positions,
    probes,
    subspaces,
    term_effects,
    terms,
    word_order,
)
from glue_bench.analysis.chance import Analysis, LeftOut, Measured, Row
from glue_bench.analysis.subject import MIN_SEQUENCES, Subject, find_sources
from glue_bench.config.load import Names, as_list
from glue_bench.errors import UserError, unknown
from glue_bench.training.corpus import open_corpus
from glue_bench.training.device import choose_compute
from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.tokenizers import load_tokenizer

DEFAULT_TEXT = Path(__file__).parent / "default_text" / "news_from_nowhere.txt"
DEFAULT_NAME = "News from Nowhere (the default text)"
COLUMN_TYPES: dict[str, Any] = {
    "value": float,
    "low": float,
    "high": float,
    "chance_low": float,
    "chance_high": float,
    "layer": "Int64",
    "n": int,
}
Measure = Callable[[Subject], Measured]


def measure_encoders(
    sources: Names,
    *,
    corpus: Names | None,
    sequences: int,
    only: Names,
    tokenizer: str | None,
    device: str,
) -> Analysis:
    """Measure the inside of encoders; `glue_bench.analyse` describes the parameters.

    Raises:
        UserError: bad input, before anything is measured.
    """
    only = as_list(only)
    for name in only:
        if name not in ENCODER_MEASURES:
            raise unknown("measure", name, ENCODER_MEASURES)
    if sequences < MIN_SEQUENCES:
        raise UserError(
            f"--sequences {sequences}: too few to measure anything; give {MIN_SEQUENCES} or more"
        )

    texts = as_list(corpus or DEFAULT_TEXT)
    checkpoints, gone = find_sources(as_list(sources))
    if not checkpoints:
        raise UserError(f"nothing to analyse: {'; '.join(gone)}")

    measures: dict[str, Measure] = {}
    for kind in only or ENCODER_MEASURES:
        measures |= ENCODER_MEASURES[kind]

    with threadpool_limits(limits=1, user_api="blas"):
        quiet_transformers()
        if tokenizer is not None:
            load_tokenizer(tokenizer)  # raises now, and not as something that is left out
        text = open_corpus(texts)
        compute = choose_compute(device, "float32")
        open_subject = partial(
            Subject, corpus=text, sequences=sequences, tokenizer=tokenizer, device=compute.device
        )
        for name in list(checkpoints.values())[1:]:
            open_subject(name)  # raises now, before the first one is measured
        with text.unchanged():
            subjects = ((label, open_subject(name)) for label, name in checkpoints.items())
            frames = _measure_all(subjects, measures)

    return Analysis(
        text=DEFAULT_NAME if corpus is None else ", ".join(texts),
        text_digest=text.digest,
        sequences=sequences,
        gone=tuple(gone),
        **frames,
    )


def _measure_all(
    subjects: Iterable[tuple[str, Subject]], measures: Mapping[str, Measure]
) -> dict[str, Any]:
    """Measure labelled checkpoints; return the frames of an `Analysis`."""
    facts = []
    rows = []
    left_out = []
    matrices: dict[str, dict[str, pd.DataFrame]] = {}

    for label, subject in subjects:
        facts.append({"checkpoint": label, **subject.facts})
        for name, measure in measures.items():
            try:
                measured = measure(subject)
            except LeftOut as reason:
                measured = Measured([], left_out={name: str(reason)})
            rows += [(label, *row) for row in measured.rows]
            for missing, text in measured.left_out.items():
                left_out.append((label, missing, text))
            for matrix_name, matrix in measured.matrices.items():
                matrices.setdefault(matrix_name, {})[label] = matrix

    joined = {}
    for name, by_label in matrices.items():
        frame = pd.concat(by_label, names=["checkpoint"])
        joined[name] = frame.reset_index(level=0).reset_index(drop=True)

    return {
        "subjects": pd.DataFrame(facts),
        "measures": pd.DataFrame(rows, columns=["checkpoint", *Row._fields]).astype(COLUMN_TYPES),
        "left_out": pd.DataFrame(left_out, columns=["checkpoint", "measure", "reason"]),
        "matrices": joined,
    }


ENCODER_MEASURES: dict[str, dict[str, Measure]] = {
    "terms": {
        "terms.share": terms.measure_terms,
        "terms.kl": term_effects.measure_effect,
        "layers": layers.measure_layers,
    },
    "subspaces": {"subspaces": subspaces.measure_subspaces, "tables": subspaces.measure_tables},
    "decoding": {
        "decoding.sum": probes.measure_decoding,
        "decoding.layers": probes.measure_decoding_layers,
    },
    "positions": {
        "positions": positions.measure_position_rows,
        "positions.scores": positions.measure_position_scores,
        "positions.attention": positions.measure_attention,
    },
    "dimensions": {
        "dimensions.share_95": subspaces.measure_dimensions,
        "dimensions.spearman": subspaces.measure_correlation,
    },
    "order": {"order": word_order.measure_order},
}
"""The measures by the names that `--only` takes, and then by the beginning of their rows' names."""
