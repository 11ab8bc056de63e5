"""Verbs that print what is known: tables from records, beside those of papers."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from glue_bench.cli.common import Folder, Format, Output, Place, Text, Texts, check_output, emit, say
from glue_bench.terminal import Screen, echo


def leaderboard(
    folder: Folder,
    format: Format = None,
    output: Output = None,
    protocol: Annotated[Texts, Option(metavar="KEY=VALUE", help="Another rate, seeds, epoch, choose_on, ...")] = None,
    diagnostic: Annotated[
        Place,
        Option(metavar="PATH", help="Instead, MNLI's models by phenomenon: diagnostic-full.tsv or its folder."),
    ] = None,
) -> None:
    """Recompute an experiment's leaderboard from its records."""
    from glue_bench.board.board import open_board
    from glue_bench.board.compare import open_comparison
    from glue_bench.data.diagnostic import read_diagnostic
    from glue_bench.pages.diagnostics import diagnostics_page
    from glue_bench.pages.leaderboard import leaderboard_page
    from glue_bench.pages.render import chosen_format, render

    check_output(output)
    chosen = chosen_format(format, output)
    if diagnostic is not None:
        page = diagnostics_page(open_board(folder, protocol or ()), read_diagnostic(diagnostic))
        emit(render(page, chosen), output)
    elif output is None and format is None and Screen().is_terminal:
        print_leaderboard(folder, protocol or ())
    else:
        emit(render(leaderboard_page(open_comparison(folder, protocol or ())), chosen), output)


def report(
    folder: Folder,
    output: Annotated[Place, Option("-o", "--output", metavar="FILE", help="Else report.html in the folder.")] = None,
    figures: Annotated[Place, Option(metavar="DIR", help="Also write each figure: PDF, SVG and PNG.")] = None,
) -> None:
    """Write one page to open in a browser: tables that sort, figures, and how it was made."""
    check_output(output, ".html")
    say("reading the records ...")
    from glue_bench.pages.report import report as write_report

    echo(f"page: {write_report(folder, output, figures)}")
    if figures is not None:
        echo(f"figures: {figures}")


def statistics(
    folder: Folder,
    equivalent: Annotated[float | None, Option(metavar="MARGIN", help="Also test which arms differ by less.")] = None,
    difference: Annotated[
        float | None, Option(metavar="SIZE", help="Instead say how many seeds show it, in the unit of each column.")
    ] = None,
    power: Annotated[float | None, Option(help="With --difference: the probability of seeing it, else 0.8.")] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Say which arms differ from the reference, by how much, and what the runs could have shown."""
    from glue_bench.board.compare import open_comparison
    from glue_bench.pages.contrasts import asked_page
    from glue_bench.pages.render import chosen_format, render

    check_output(output)
    chosen = chosen_format(format, output)
    emit(render(asked_page(open_comparison(folder), equivalent, difference, power), chosen), output)


def table(
    name: Annotated[Text, Argument(metavar="NAME", help="A published table; without one, they are listed.")] = None,
    folder: Annotated[Place, Argument(metavar="DIR/EXPERIMENT", help="Results to print beside it.")] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Print a paper's table, and an experiment's own rows under its rows."""
    from glue_bench.pages.papers import list_page, named_page
    from glue_bench.pages.render import chosen_format, print_page, render

    check_output(output)
    console, chosen = Screen(), chosen_format(format, output)
    page = list_page() if name is None else named_page(name, folder)
    if output is None and format is None and console.is_terminal:
        print_page(page, console, "-o table.md writes them")
    else:
        emit(render(page, chosen), output)


def print_leaderboard(
    folder: Path, protocol: Sequence[str] = (), *, failed: Sequence[str] | None = None, has_only: bool = False
) -> None:
    """The tables as they fit the terminal, and what to do next, which goes by the experiment's own `protocol`.

    After a run, which has `failed` in some cells or in none, the report has the whole page. If it `has_only` finished
    what --only had chosen, the rest of the plan comes next.
    """
    from glue_bench.board.compare import open_comparison
    from glue_bench.pages.files import next_step
    from glue_bench.pages.leaderboard import MARKS_MEAN, screen_page
    from glue_bench.pages.render import print_page

    comparison, report_file = open_comparison(folder, protocol), folder / "report.html"
    print_page(screen_page(comparison), Screen(), "-o FILE writes them" if failed is None else str(report_file))
    echo(MARKS_MEAN)
    if failed is not None:
        echo(f"page: {report_file}")
    if not protocol:
        echo(f"next: {next_step(comparison, quote(str(folder)), failed or (), has_only=has_only)}")
