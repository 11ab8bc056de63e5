"""A report as one HTML file that needs no network, with a small script that sorts its tables."""

from collections.abc import Sequence
from pathlib import Path

from glue_bench.files import results_written_to, write_atomically
from glue_bench.reporting.export import Paths
from glue_bench.reporting.html import templates
from glue_bench.reporting.report.build import build_report
from glue_bench.reporting.report.parts import Report

FILE = "report.html"


def report(path: Paths, output: str | Path | None = None) -> Path:
    """Write the report of the experiment in the folder `path`, or of several together; where it was written.

    Without `output` that is `report.html` in the experiment's folder, or of several experiments in the current one.

    Raises:
        UserError: there is no experiment in a folder, several cannot stand together, or the file cannot be written.
    """
    alone = isinstance(path, str | Path)
    file = Path(output) if output is not None else Path(path) / FILE if alone else Path(FILE)
    text = render_report(build_report(path))
    with results_written_to(file):
        write_atomically(file, text.encode())
    return file


def render_report(report: Report) -> str:
    """The whole HTML document."""
    return templates().get_template("report.html").render(report=report)
