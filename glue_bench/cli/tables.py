"""Verbs that print what is known: tables from records, beside those of papers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glue_bench import api
from glue_bench.cli.common import (
    Folder,
    Format,
    Output,
    check_output,
    print_or_write,
    say,
    split_names,
)
from glue_bench.terminal import Screen, echo


def leaderboard(
    folder: Folder,
    format: Format = None,
    output: Output = None,
    protocol: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="Another rate, seeds, epoch, choose_on, ..."),
    ] = None,
    short: Annotated[
        bool, Option("--short", help="As a paper prints it: mean ± deviation, all metrics.")
    ] = False,
    diagnostic: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="Instead, MNLI's models on AX (diagnostic-full.tsv or its folder), or RTE-SG's "
            "on AX-b and AX-g (hub, or SuperGLUE's folder).",
        ),
    ] = None,
) -> None:
    """Recompute an experiment's leaderboard from its records."""
    check_output(output)
    chosen = api.choose_format(format, output)
    if diagnostic is not None:
        print_or_write(api.diagnostics_text(folder, diagnostic, chosen, protocol or ()), output)
    elif output is None and format is None and not short and Screen().is_terminal:
        print_leaderboard(folder, protocol or ())
    else:
        print_or_write(api.leaderboard_text(folder, chosen, protocol or (), is_short=short), output)


def report(
    folder: Folder,
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="Else report.html in the folder."),
    ] = None,
    figures: Annotated[
        Path | None, Option(metavar="DIR", help="Also write each figure: PDF, SVG and PNG.")
    ] = None,
) -> None:
    """Write one page to open in a browser: tables that sort, figures, and how it was made."""
    check_output(output, ".html")
    say("reading the records ...")
    page = api.report(folder, output, figures)
    echo(f"page: {page}")
    if figures is not None:
        echo(f"figures: {figures}")


def statistics(
    folder: Folder,
    equivalent: Annotated[
        float | None, Option(metavar="MARGIN", help="Also test which arms differ by less.")
    ] = None,
    difference: Annotated[
        float | None,
        Option(
            metavar="SIZE", help="Instead say how many seeds show it, in the unit of each column."
        ),
    ] = None,
    power: Annotated[
        float | None, Option(help="With --difference: the probability of seeing it, else 0.8.")
    ] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Say which arms differ from the reference, by how much, and what the runs could have shown."""
    check_output(output)
    chosen = api.choose_format(format, output)
    text = api.statistics_text(folder, chosen, equivalent, difference, power)
    print_or_write(text, output)


def compare(
    paths: Annotated[
        list[Path],
        Argument(metavar="PATH...", help="Files of scores or examples, or experiments' folders."),
    ],
    reference: Annotated[
        str | None, Option(metavar="NAME", help="Compare others with it; else with the best.")
    ] = None,
    metric: Annotated[
        str | None, Option(metavar="NAME", help="The only metric; of pairs it must be named.")
    ] = None,
    lower: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Metrics whose lowest value is best: A,B or repeated."),
    ] = None,
    equivalent: Annotated[
        float | None, Option(metavar="MARGIN", help="Also test which systems differ by less.")
    ] = None,
    cluster: Annotated[
        str | None, Option(metavar="COLUMN", help="Examples with one value there belong together.")
    ] = None,
    common: Annotated[
        bool, Option("--common", help="Compare on the examples that all systems have.")
    ] = False,
    gold: Annotated[
        Path | None, Option(metavar="FOLDER", help="BabyLM's evaluation data: the right answers.")
    ] = None,
    figures: Annotated[
        Path | None, Option(metavar="DIR", help="Also write each figure: PDF, SVG and PNG.")
    ] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Say which of anyone's systems differ, from scores or answers to single examples."""
    check_output(output)
    options = {
        "reference": reference,
        "metric": metric,
        "lower": split_names(lower, "--lower"),
        "cluster": cluster,
        "is_common": common,
        "gold": gold,
    }
    chosen = api.choose_format(format, output)
    text = api.comparison_text(paths, chosen, equivalent, figures, **options)
    print_or_write(text, output)


def table(
    name: Annotated[
        str | None,
        Argument(metavar="NAME", help="A published table; without one, they are listed."),
    ] = None,
    folder: Annotated[
        Path | None, Argument(metavar="DIR/EXPERIMENT", help="Results to print beside it.")
    ] = None,
    format: Format = None,
    output: Output = None,
) -> None:
    """Print a paper's table, and an experiment's own rows under its rows."""
    check_output(output)
    console = Screen()
    chosen = api.choose_format(format, output)
    if output is None and format is None and console.is_terminal:
        api.show_table(name, folder, console)
    else:
        text = api.table_text(name, folder, chosen)
    print_or_write(text, output)


def print_leaderboard(
    folder: Path,
    protocol: Sequence[str] = (),
    *,
    failed: Sequence[str] | None = None,
    has_only: bool = False,
) -> None:
    """Print the leaderboard as it fits the terminal, and then the next command."""
    for line in api.show_leaderboard(folder, Screen(), protocol, failed, has_only=has_only):
        echo(line)
