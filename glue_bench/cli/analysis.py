"""The verb about the inside of encoders."""

from pathlib import Path
from typing import Annotated

import typer

from glue_bench.cli.app import Device, Plugins, Tokenizer, app
from glue_bench.cli.printing import say
from glue_bench.errors import UserError
from glue_bench.terminal import echo

Layers = Annotated[
    str | None, typer.Option(metavar="N,...", help="Blocks to look at, from 1, where a measure is told by block.")
]
Only = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="terms, subspaces, decoding, positions, dimensions, order; by default all."),
]
Figures = Annotated[str, typer.Option(metavar="FORMAT,...", help="Formats of the figures: svg, pdf, png, or none.")]


@app.command()
def analyse(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="Checkpoints (hub ids, folders, TUPE files) or experiments' folders."),
    ],
    corpus: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Text to read, as for `run`; else chapters of a book."),
    ] = None,
    positions: Annotated[
        int | None, typer.Option(metavar="N", min=8, help="Positions to look at; by default all that were trained.")
    ] = None,
    layers: Layers = None,
    sequences: Annotated[int, typer.Option(metavar="N", min=8, help="Sequences of text to read.")] = 512,
    only: Only = None,
    tokenizer: Tokenizer = None,
    device: Device = "auto",
    figures: Figures = "svg,pdf,png",
    plugin: Plugins = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where numbers, tables and figures go.")
    ] = Path("analysis"),
) -> None:
    """Measure the inside of encoders: do words and positions mix, and does the sum keep them apart?"""
    asked = layers.split(",") if layers else []
    for text in asked:
        if not text.strip().isdecimal():
            raise UserError(f"--layers takes numbers of blocks, such as 1,2,6, not '{text}'")
    say("reading the checkpoints and the text ...")
    from glue_bench.files import prove_writable, results_written_to
    from glue_bench.tables.inside_figures import figure_formats, write_figures

    formats = figure_formats(figures)
    with results_written_to(output, "give another folder with -o"):
        prove_writable(output)
    from glue_bench.analysis.analyse import analyse as measure
    from glue_bench.tables.inside import write_analysis
    from glue_bench.testing import load_plugins

    load_plugins(plugin or ())
    found = measure(
        sources,
        corpus=corpus,
        positions=positions,
        layers=[int(text) for text in asked] or None,
        sequences=sequences,
        only=only.split(",") if only else (),
        tokenizer=tokenizer,
        device=device,
    )
    for line in found.gone:
        say(f"left out: {line}")
    write_analysis(found, output)
    if formats:
        say("drawing ...")
        write_figures(found, output, formats)
    echo((output / "analysis.md").read_text(encoding="utf-8"), nl=False)
    say(f"written to {output}")
