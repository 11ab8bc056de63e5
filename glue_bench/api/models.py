"""Variants, checkpoints and data: add, convert and look inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from glue_bench.analysis.chance import Analysis
    from glue_bench.config.load import Names
    from glue_bench.data.task import Task
    from glue_bench.model.variants.base import Variant


def load_plugins(paths: Names) -> None:
    """Add the variants of these files to VARIANTS: `glue_bench.load_plugins("my_variant.py")`.

    Raises:
        UserError: a file that cannot be read or imported or that defines no variant, a name that is
            absent or taken, or a broken clause, with the line where there is one.
    """
    from glue_bench.model.plugins import add_plugins

    add_plugins(paths)


def convert(
    source: str,
    out: str | Path,
    variant: str,
    options: Mapping[str, Any] | None = None,
    *,
    revision: str | None = None,
    tokenizer: str | None = None,
) -> dict[str, Any]:
    """Write a checkpoint as one of another variant, which `AutoModel.from_pretrained` reads.

    Beside the weights lie the tokenizer, where there is one, and `conversion.json`.

    Args:
        source: The checkpoint: a hub id, a folder or an official TUPE file.
        out: The folder to write, which must not exist.
        variant: The variant to convert to.
        options: Options of the variant.
        revision: The revision of a hub id.
        tokenizer: A tokenizer's id or folder; the checkpoint's own if it is not given.

    Returns:
        The content of `conversion.json`: whether the conversion is exact, and the `relative_error`
        of hidden states, of the input first, then after each block.

    Example:
        >>> source = "google-bert/bert-base-uncased"
        >>> glue_bench.convert(source, "bert-untied", "untied")  # doctest: +SKIP

    Raises:
        UserError: an unknown variant or option; `out` is in use or cannot be written; a source that
            cannot be read or does not become `variant`; a tokenizer that does not fit. Nothing is
            then left behind.
    """
    from glue_bench.training.convert import convert_checkpoint

    return convert_checkpoint(source, out, variant, dict(options or {}), revision, tokenizer)


def analyse(
    sources: str | Path | Sequence[str | Path],
    *,
    corpus: str | Path | Sequence[str | Path] | None = None,
    sequences: int = 512,
    only: str | Sequence[str] = (),
    tokenizer: str | None = None,
    device: str = "auto",
) -> Analysis:
    """Measure the inside of encoders, each number beside what chance gives.

    All is computed in float32, and statistics of tables in float64.

    Args:
        sources: Checkpoints (hub ids, folders, official TUPE files), or folders of experiments
            whose pretrained arms still have theirs.
        corpus: Text, as for `run`; the book that comes with the package if it is not given.
        sequences: How many sequences of at most 128 tokens are read.
        only: Some of `glue_bench.analysis.analyse.ENCODER_MEASURES`.
        tokenizer: A tokenizer's id or folder; each checkpoint's own if it is not given.
        device: auto, cpu, cuda or mps.

    Returns:
        One long table of measures, matrices by their names, facts of each checkpoint, and what was
        left out.

    Example:
        >>> glue_bench.analyse("runs/demo", sequences=64)  # doctest: +SKIP

    Raises:
        UserError: before anything is measured, a name that stands for nothing, a checkpoint or text
            that cannot be read, or no such measure.
    """
    from glue_bench.analysis.analyse import measure_encoders

    return measure_encoders(
        sources, corpus=corpus, sequences=sequences, only=only, tokenizer=tokenizer, device=device
    )


# For the command line


def known_tasks() -> list[Task]:
    """List the tasks of GLUE and of other benchmarks."""
    from glue_bench.data.tasks import KNOWN

    return list(KNOWN.values())


def describe_data(source: str) -> pd.DataFrame:
    """Describe what a data source or a task file holds, in one row per task and split."""
    from glue_bench.config.load import load_task
    from glue_bench.config.own_task import is_task_file
    from glue_bench.data.own import read_own
    from glue_bench.data.sources import describe, describe_task, open_source

    if is_task_file(source):
        return describe_task(read_own(load_task(source)))
    return describe(open_source(source))


def check_plugins(paths: Names) -> dict[str, type[Variant]]:
    """Add the variants of these files, and return the variants of all plugins by name."""
    from glue_bench.model.plugins import PLUGINS, add_plugins
    from glue_bench.training.quiet import quiet_transformers

    quiet_transformers()
    add_plugins(paths)
    return {name: plugin.variant for name, plugin in PLUGINS.items()}


def contract_clauses() -> list[str]:
    """List the names of the clauses of the contract of variants."""
    from glue_bench.model.contract import CLAUSES

    return [*CLAUSES]


def variant_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read the options of a variant from KEY=VALUE. Raises UserError for any other text."""
    from glue_bench.config.load import parse_options

    return parse_options(texts)


def check_folder(folder: Path) -> None:
    """Refuse, before anything is measured, a folder that nothing can be written to."""
    from glue_bench.files import prove_writable, results_written_to

    with results_written_to(folder, "give another folder with -o"):
        prove_writable(folder)


def save_analysis(analysis: Analysis, folder: Path) -> None:
    """Write the numbers of an analysis and their page, analysis.md, to a folder."""
    from glue_bench.pages.analysis_files import write_analysis

    write_analysis(analysis, folder)


def save_figures(analysis: Analysis, folder: Path) -> None:
    """Write every figure of an analysis to a folder, as PDF, SVG and PNG."""
    from glue_bench.pages.figure_files import save_figure
    from glue_bench.pages.inside_figures import inside_figures

    for drawing in inside_figures(analysis):
        save_figure(drawing.figure, folder / drawing.name)
