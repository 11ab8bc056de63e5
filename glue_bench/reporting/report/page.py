"""A report as one HTML file that needs no network, with a small script that sorts its tables."""

from pathlib import Path

from glue_bench.files import results_written_to, write_atomically
from glue_bench.reporting.export import Paths
from glue_bench.reporting.figures.save import save
from glue_bench.reporting.figures.style import page_css
from glue_bench.reporting.html import templates
from glue_bench.reporting.report.build import build_report
from glue_bench.reporting.report.parts import Report

FILE = "report.html"


def report(path: Paths, output: str | Path | None = None, figures: str | Path | None = None) -> Path:
    """Write the report of the experiment in the folder `path`, or of several together; where it was written.

    Without `output` that is `report.html` in the experiment's folder, or of several experiments in the current one.
    Into the folder `figures` each figure is written as PDF, SVG and PNG, as wide as a column of a paper.

    Example:
        >>> glue_bench.report("runs/demo", "demo.html")  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in a folder, several cannot stand together, or a file cannot be written.
    """
    beside = Path(path) if isinstance(path, str | Path) else Path()
    file = beside / FILE if output is None else Path(output)
    made = build_report(path)
    with results_written_to(file.parent, "choose another place with -o"):
        write_report(made, file)
    if figures is not None:
        with results_written_to(Path(figures), "choose another folder with --figures"):
            for figure in made.figures:
                save(figure.drawn, Path(figures) / figure.name)
    return file


def write_report(report: Report, file: Path) -> None:
    """Write the document; the file is whole or as it was."""
    write_atomically(file, render_report(report).encode())


def render_report(report: Report) -> str:
    """The whole HTML document."""
    return templates().get_template("report.html").render(report=report, colours=page_css())
