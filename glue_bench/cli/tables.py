"""Verbs that print what is known: tables from records, beside those of papers."""

from pathlib import Path
from typing import Annotated

import typer

from glue_bench.cli.app import Folder, Output, app
from glue_bench.cli.printing import emit, print_table


@app.command()
def leaderboard(
    folder: Folder,
    format: Annotated[
        str | None,
        typer.Option("--format", help="markdown, csv or json. [default: markdown, a table in a terminal]"),
    ] = None,
    output: Output = None,
) -> None:
    """Recompute an experiment's leaderboard from its records."""
    from glue_bench.leaderboard.export import render

    if output is None and format is None:
        print_leaderboard(folder)
        return
    emit(render(folder, format or "markdown"), output)


@app.command()
def table(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A published table; without one, they are listed.")
    ] = None,
    folder: Annotated[Path | None, typer.Argument(metavar="DIR/EXPERIMENT", help="Results to print beside it.")] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="markdown, csv or json. [default: markdown, a table in a terminal]"),
    ] = None,
    output: Output = None,
) -> None:
    """Print a paper's table, and an experiment's own rows under its rows."""
    from rich.console import Console

    from glue_bench.leaderboard.papers.export import render
    from glue_bench.leaderboard.papers.terminal import show, tables

    console = Console()
    if name is None:
        print_table(tables())
    elif output is None and format is None and console.is_terminal:
        show(name, folder, console)
    else:
        emit(render(name, folder, format or "markdown"), output)


@app.command()
def statistics(
    folder: Folder,
    format: Annotated[str, typer.Option("--format", help="markdown, csv or json.")] = "markdown",
    output: Output = None,
) -> None:
    """Say which arms can be told apart: intervals, tests and ranks over seeds and examples."""
    from glue_bench.leaderboard.statistics_export import render_statistics

    emit(render_statistics(folder, format), output)


@app.command()
def power(
    folder: Folder,
    difference: Annotated[float, typer.Option(metavar="POINTS", help="The true difference of two arms.")],
    power: Annotated[float, typer.Option(help="The probability of seeing it.")] = 0.8,
    format: Annotated[str, typer.Option("--format", help="markdown, csv or json.")] = "markdown",
    output: Output = None,
) -> None:
    """Say how many seeds it takes to see a difference, from how far the scores spread here."""
    from glue_bench.leaderboard.statistics_export import render_power

    emit(render_power(folder, difference, power, format), output)


def print_leaderboard(folder: Path) -> None:
    """A table fit for the terminal, or Markdown where the output goes elsewhere."""
    from rich.console import Console

    from glue_bench.leaderboard.export import render
    from glue_bench.leaderboard.terminal import show

    console = Console()
    if console.is_terminal:
        show(folder, console)
    else:
        typer.echo(render(folder, "markdown"), nl=False)
