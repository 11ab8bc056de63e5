"""Verbs that print what is known: tables from records, beside those of papers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from glue_bench.cli.app import Folder, Folders, Format, Output, app
from glue_bench.cli.printing import emit, print_table


@app.command()
def leaderboard(
    folders: Folders,
    format: Format = None,
    output: Output = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Show it by another protocol: rate, seeds, epoch or choose_on."),
    ] = None,
) -> None:
    """Recompute an experiment's leaderboard from its records, or that of several experiments together."""
    from glue_bench.reporting.export import render
    from glue_bench.reporting.formats import chosen_format

    if output is None and format is None:
        print_leaderboard(folders[0] if len(folders) == 1 else folders, protocol or ())
        return
    shown = render(folders[0] if len(folders) == 1 else folders, chosen_format(format, output), protocol or ())
    emit(shown, output)


@app.command()
def table(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A published table; without one, they are listed.")
    ] = None,
    folder: Annotated[Path | None, typer.Argument(metavar="DIR/EXPERIMENT", help="Results to print beside it.")] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Print a paper's table, and an experiment's own rows under its rows."""
    from rich.console import Console
    from rich.table import Table

    from glue_bench.reporting.formats import chosen_format
    from glue_bench.reporting.papers.export import LISTED, compare_named, listed, render, render_list
    from glue_bench.reporting.papers.page import paper_page
    from glue_bench.reporting.terminal import show

    console, chosen, on_screen = Console(), chosen_format(format, output), output is None and format is None
    if name is None and on_screen:
        tables = Table(box=None, pad_edge=False, header_style="bold")
        for key, title in LISTED.items():
            tables.add_column(title.lower(), no_wrap=key not in ("title", "source"))
        for row in listed().itertuples(index=False):
            tables.add_row(*map(str, row))
        print_table(tables)
    elif name is None:
        emit(render_list(chosen), output)
    elif on_screen and console.is_terminal:
        show(paper_page(compare_named(name, folder)), console)
    else:
        emit(render(name, folder, chosen), output)


@app.command()
def statistics(
    folder: Folder,
    equivalent: Annotated[
        float | None, typer.Option(metavar="POINTS", help="Also test which arms differ by less than this.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Also compare all pairs, with letters.")] = False,
    format: Format = None,
    output: Output = None,
) -> None:
    """Say which arms differ from the reference, by how much, and what the runs could have shown."""
    from glue_bench.reporting.formats import chosen_format
    from glue_bench.reporting.statistics_page import render_statistics

    emit(render_statistics(folder, chosen_format(format, output), equivalent=equivalent, pairs=pairs), output)


@app.command()
def power(
    folder: Folder,
    difference: Annotated[float, typer.Option(metavar="POINTS", help="The true difference of two arms.")],
    power: Annotated[float, typer.Option(help="The probability of seeing it.")] = 0.8,
    costs: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="PRETRAINING FINETUNING", help="What a seed of each costs; measured seconds by default."),
    ] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Say how many seeds it takes to see a difference, from how far the scores spread here."""
    from glue_bench.reporting.formats import chosen_format
    from glue_bench.reporting.statistics_page import render_power

    emit(render_power(folder, difference, power, chosen_format(format, output), costs or ()), output)


def print_leaderboard(folder: Path | Sequence[Path], protocol: Sequence[str] = ()) -> None:
    """A table fit for the terminal, or Markdown where the output goes elsewhere."""
    from rich.console import Console

    from glue_bench.reporting.export import experiment_page, render
    from glue_bench.reporting.terminal import show

    console = Console()
    if console.is_terminal:
        show(experiment_page(folder, protocol), console)
    else:
        typer.echo(render(folder, "markdown", protocol), nl=False)
