"""All measures of the inside of encoders: which there are, what each needs, and their results side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from glue_bench.analysis.measured import LeftOut, Measured
from glue_bench.analysis.measures import MEASURES
from glue_bench.analysis.reading import DEFAULT_TEXT, FEWEST
from glue_bench.analysis.sources import Source, find_sources, trained_positions
from glue_bench.analysis.subject import Asked, Subject
from glue_bench.errors import UserError, unknown
from glue_bench.training.compute import choose_compute
from glue_bench.training.corpus import open_corpus
from glue_bench.training.quiet import quiet_transformers

SCHEMA = 1
SEQUENCES = 512
DEFAULT_NAME = "News from Nowhere (the default text)"


@dataclass(frozen=True)
class Analysis:
    """`document` is analysis.json; `frames` are the tidy tables by name, each with the column `checkpoint` first.

    `gone` has a line for each arm whose checkpoint is not there.
    """

    document: dict[str, Any]
    frames: dict[str, pd.DataFrame]
    gone: tuple[str, ...] = ()


def analyse(
    sources: str | Path | Sequence[str | Path],
    *,
    corpus: str | Path | Sequence[str | Path] | None = None,
    positions: int | None = None,
    layers: Sequence[int] | None = None,
    sequences: int = SEQUENCES,
    only: Sequence[str] = (),
    tokenizer: str | None = None,
    device: str = "auto",
) -> Analysis:
    """Measure the inside of encoders, each number beside its baseline.

    `sources` are checkpoints (hub ids, folders, official TUPE files), or folders of experiments whose pretrained arms
    still have theirs. Text is `corpus`, as for `run`, or the book that comes with the package; so many `sequences` of
    at most 128 tokens are read. `positions` are looked at, by default all that an encoder was trained on, and the
    blocks `layers` of those measures that are told by block, by default all. `only` names some of MEASURES. All is
    computed in float32, and statistics of tables in float64.

    Example:
        >>> glue_bench.analyse("runs/demo", sequences=64)  # doctest: +SKIP

    Raises:
        UserError: before anything is measured, a name that stands for nothing, a checkpoint or text that cannot be
            read, or no such measure or layer.
    """
    for name in only:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    for option, value in (("--positions", positions), ("--sequences", sequences)):
        if value is not None and value < FEWEST:
            raise UserError(f"{option} {value}: too few to measure anything; give {FEWEST} or more")
    chosen = list(only) or list(MEASURES)
    texts = [str(name) for name in ([corpus] if isinstance(corpus, str | Path) else corpus or [DEFAULT_TEXT])]
    names = [str(name) for name in ([sources] if isinstance(sources, str | Path) else sources)]
    found, gone = find_sources(names)
    if not found:
        raise UserError(f"nothing to analyse: {'; '.join(gone)}")
    with threadpool_limits(limits=1, user_api="blas"):
        quiet_transformers()
        asked = Asked(
            open_corpus(texts), sequences, positions, layers, tokenizer, choose_compute(device, "float32").device
        )
        for source in found[1:]:  # what cannot be read is said before anything is measured
            _opened(source, asked)
        results = {source.label: _measured(source, asked, chosen) for source in found}
    document = {
        "schema_version": SCHEMA,
        "text": DEFAULT_NAME if corpus is None else ", ".join(texts),
        "text_sha256": asked.corpus.digest,
        "sequences_asked": sequences,
        "checkpoints": {label: _rounded(result.numbers) for label, result in results.items()},
    }
    return Analysis(document, _together(results), tuple(gone))


def _opened(source: Source, asked: Asked) -> Subject:
    """A checkpoint, read.

    Raises:
        UserError: it cannot be, or does not have a layer that is asked for.
    """
    subject = Subject(source.label, source.name, trained_positions(source.name), asked)
    blocks = subject.model.config.num_hidden_layers
    for layer in asked.layers or ():
        if not 1 <= layer <= blocks:
            raise UserError(f"--layers {layer}: this encoder has blocks 1 to {blocks}")
    return subject


def _measured(source: Source, asked: Asked, chosen: Sequence[str]) -> Measured:
    """Everything that applies to one checkpoint; what does not has its reason in the numbers."""
    subject = _opened(source, asked)
    config = subject.model.config
    numbers: dict[str, Any] = {
        "variant": config.variant,
        "origin": config.origin,
        "blocks": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "width": config.hidden_size,
        "positions": subject.positions,
    }
    frames: dict[str, pd.DataFrame] = {}
    for part in (part for name in chosen for part in MEASURES[name]):
        try:
            measured = part.measure(subject)
        except LeftOut as reason:
            measured = Measured({})
            for place, keys in part.keys.items():
                nothing: dict[str, Any] = dict.fromkeys(keys) | {"left_out": str(reason)}
                for name in reversed(place.split(".")):
                    nothing = {name: nothing}
                _merge(numbers, nothing)
        _merge(numbers, measured.numbers)
        for name, frame in measured.frames.items():
            frames[name] = pd.concat([frames[name], frame]) if name in frames else frame
    return Measured(numbers, frames)


def _merge(into: dict[str, Any], added: Mapping[str, Any]) -> None:
    for name, value in added.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _rounded(value: Any) -> Any:
    """Eight significant digits, which the same input gives again on the same machine; None for what is not finite."""
    if isinstance(value, dict):
        return {str(name): _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.8g}") if abs(value) < float("inf") else None


def _together(results: dict[str, Measured]) -> dict[str, pd.DataFrame]:
    names = dict.fromkeys(name for result in results.values() for name in result.frames)
    together = {}
    for name in names:
        mine = {label: result.frames[name] for label, result in results.items() if name in result.frames}
        together[name] = pd.concat(mine, names=["checkpoint"]).reset_index(level=0).reset_index(drop=True)
    return together
