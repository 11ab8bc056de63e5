"""The inside of encoders: which measures there are, and all of them of each encoder in one long table.

What of a hidden state is position, and what is context, by layer, is measured here (Song & Zhong 2023, arXiv
2310.04861). Shapes: s sequences, l places, d width. Of the hidden states h[c, t] of sequence c at place t:

    h = mean + pos_t + ctx_c + residual
    pos_t = mean over sequences of h[:, t] - mean            ctx_c = mean over places of h[c] - mean

The parts are orthogonal in the sum of squares, so that their shares sum to 1. [CLS] and the last [SEP], which always
stand at the same places, are left out. Averages of finitely many sequences are never 0: chance of the position's share
is that of tokens shuffled within their sequence, of the context's that of tokens shuffled between sequences. `rank` is
how many directions hold 95% of the variance of pos_t, `cosine` the mean |cos| of pos_t and ctx_c over all pairs, whose
chance is that of positions rotated at random.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import ortho_group
from threadpoolctl import threadpool_limits

from glue_bench.analysis import positions, probes, tables, terms
from glue_bench.analysis.chance import (
    NONE,
    SEED,
    Analysis,
    Interval,
    LeftOut,
    Measured,
    Row,
    expected,
    row,
)
from glue_bench.analysis.subject import FEWEST_SEQUENCES, Subject, find_sources
from glue_bench.analysis.word_order import DISTANCES, order_sums
from glue_bench.config.load import Names, listed
from glue_bench.errors import UserError, unknown
from glue_bench.training.corpus import open_corpus
from glue_bench.training.device import choose_compute
from glue_bench.training.quiet import quiet_transformers

DEFAULT_TEXT = Path(__file__).parent / "default_text" / "news_from_nowhere.txt"
DEFAULT_NAME = "News from Nowhere (the default text)"
LARGE = 2e7  # weights of the blocks from which on only neighbouring words are swapped, in fewer sequences
OF_ORDER, OF_LARGE = 128, 16  # sequences
DRAWS = 5  # shuffles and rotations of hidden states
States = Float[np.ndarray, "s l d"]
TYPES: dict[str, Any] = {
    **dict.fromkeys(Row._fields[1:6], float),
    "layer": "Int64",
    "n": int,
}  # of columns of rows


def measure_encoders(
    sources: Names,
    *,
    corpus: Names | None,
    sequences: int,
    only: Names,
    tokenizer: str | None,
    device: str,
) -> Analysis:
    """Measure the inside of encoders, as `glue_bench.analyse` describes it."""
    only = listed(only)
    for name in only:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    if sequences < FEWEST_SEQUENCES:
        raise UserError(
            f"--sequences {sequences}: too few to measure anything; give {FEWEST_SEQUENCES} or more"
        )
    texts = listed(corpus or DEFAULT_TEXT)
    checkpoints, gone = find_sources(listed(sources))
    if not checkpoints:
        raise UserError(f"nothing to analyse: {'; '.join(gone)}")
    with threadpool_limits(limits=1, user_api="blas"):
        quiet_transformers()
        text, compute = open_corpus(texts), choose_compute(device, "float32")
        open_one = partial(
            Subject, corpus=text, sequences=sequences, named=tokenizer, device=compute.device
        )
        for name in [*checkpoints.values()][
            1:
        ]:  # what cannot be read is said before anything is measured
            open_one(name)
        measures = {
            name: measure for kind in only or MEASURES for name, measure in MEASURES[kind].items()
        }
        with text.unchanged():
            frames = _measured(
                ((label, open_one(name)) for label, name in checkpoints.items()), measures
            )
    named = DEFAULT_NAME if corpus is None else ", ".join(texts)
    return Analysis(
        text=named, text_digest=text.digest, sequences=sequences, gone=tuple(gone), **frames
    )


def _measured(
    subjects: Iterable[tuple[str, Subject]], measures: Mapping[str, Callable[[Subject], Measured]]
) -> dict[str, Any]:
    """The frames of an `Analysis`, of checkpoints with their labels."""
    facts, rows, left_out = list[dict[str, Any]](), list[tuple[Any, ...]](), list[tuple[str, ...]]()
    matrices: dict[str, dict[str, pd.DataFrame]] = defaultdict(dict)
    for label, subject in subjects:
        facts.append({"checkpoint": label, **subject.facts})
        for name, measure in measures.items():
            try:
                measured = measure(subject)
            except LeftOut as reason:
                measured = Measured([], left_out={name: str(reason)})
            rows += [(label, *each) for each in measured.rows]
            left_out += [(label, *each) for each in measured.left_out.items()]
            for of, matrix in measured.matrices.items():
                matrices[of][label] = matrix
    return {
        "subjects": pd.DataFrame(facts),
        "measures": pd.DataFrame(rows, columns=["checkpoint", *Row._fields]).astype(TYPES),
        "left_out": pd.DataFrame(left_out, columns=["checkpoint", "measure", "reason"]),
        "matrices": {
            name: pd.concat(each, names=["checkpoint"]).reset_index(level=0).reset_index(drop=True)
            for name, each in matrices.items()
        },
    }


def measure_layers(subject: Subject) -> Measured:
    """The parts of each layer."""
    states = enumerate(subject.deep[0])
    return Measured(
        [each for layer, of_layer in states for each in parts_of(of_layer[:, 1:-1], layer)]
    )


def parts_of(states: States, layer: int = 0) -> list[Row]:
    """Shares of position, context and the rest, the rank of positions, and how orthogonal they are to contexts."""
    centred = states.astype(np.float64)
    centred = centred - centred.mean((0, 1))
    generator = np.random.default_rng([SEED, *states.shape])
    position, context = share(centred, 0), share(centred, 1)

    def shuffled(
        axis: int,
    ) -> States:  # tokens in random order along an axis, for each index of the other one
        order = generator.permuted(np.indices(centred.shape[:2])[axis], axis=axis)
        return np.take_along_axis(centred, order[..., None], axis)

    within, between = ([share(shuffled(1 - over), over) for _ in range(DRAWS)] for over in (0, 1))
    places, sequences = centred.mean(0), tables.unit(centred.mean(1))
    turns = [
        ortho_group.rvs(states.shape[-1], random_state=generator).astype(np.float32)
        for _ in range(DRAWS)
    ]
    cosines = [float(np.abs(tables.unit(places) @ turn @ sequences.T).mean()) for turn in turns]
    cosine = float(np.abs(tables.unit(places) @ sequences.T).mean())
    measured: list[tuple[str, float, Interval]] = [
        ("position", position, expected(within)),
        ("context", context, expected(between)),
        ("residual", 1 - position - context, NONE),
        ("rank", tables.leading(tables.spectrum(places)[0]), NONE),
        ("cosine", cosine, expected(cosines)),
    ]
    return [
        row(f"layers.{name}", value, chance=chance, layer=layer, n=len(states))
        for name, value, chance in measured
    ]


def share(centred: States, over: int) -> float:
    """The share of the means over an axis in the sum of squares: over sequences (0) of positions, else of contexts."""
    return float(
        np.square(centred.mean(over)).sum() * centred.shape[over] / np.square(centred).sum()
    )


def measure_order(subject: Subject) -> Measured:
    """How much the encoder uses the order of words: `order_sums` on the text that is read here."""
    is_large = sum(weight.numel() for weight in subject.model.blocks.parameters()) > LARGE
    distances = DISTANCES[:1] if is_large else DISTANCES
    head, text = subject.head_and_text(OF_LARGE if is_large else OF_ORDER)
    by_measure, rows = order_sums(head, text, subject.positions, distances), []
    for name, sums in by_measure.items():
        kind, _, size = name.rpartition("_")
        chance: Interval = (
            NONE if kind == "validation" else (0.5, 0.5) if kind == "swap" else (0.0, 0.0)
        )
        measure = f"order.{kind}.{size}" if size.isdecimal() else f"order.{name}"
        interval = sums.share_interval if kind == "swap" else sums.interval
        rows.append(row(measure, sums.value, interval, chance, n=sums.n))
    lacking = [
        f"order.swap.{distance}" for distance in distances if f"swap_{distance}" not in by_measure
    ]
    return Measured(
        rows, left_out=dict.fromkeys(lacking, "the text has no two words to swap at this distance")
    )


MEASURES: dict[str, dict[str, Callable[[Subject], Measured]]] = {
    "terms": {
        "terms.share": terms.measure_terms,
        "terms.kl": terms.measure_effect,
        "layers": measure_layers,
    },
    "subspaces": {"subspaces": tables.measure_subspaces, "tables": tables.measure_tables},
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
        "dimensions.share_95": tables.measure_dimensions,
        "dimensions.spearman": tables.measure_correlation,
    },
    "order": {"order": measure_order},
}
"""By the name that `--only` takes: each measure, by the beginning of its rows' names."""
