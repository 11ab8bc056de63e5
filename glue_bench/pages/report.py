"""An experiment as one HTML file to show, which needs no network."""

from dataclasses import replace
from pathlib import Path

from glue_bench.board.compare import Comparison
from glue_bench.files import ELSEWHERE, results_written_to, write_atomically
from glue_bench.pages.figure_files import save_drawings
from glue_bench.pages.page import Report
from glue_bench.pages.render import to_html
from glue_bench.pages.report_parts import report_parts

REPORT_FILE = "report.html"


def write_report(
    comparison: Comparison, output: str | Path | None, figures: str | Path | None
) -> Path:
    """Write the report of an experiment.

    Args:
        comparison: The experiment.
        output: The file to write; report.html in the folder of the experiment if it is not given.
        figures: A folder that each figure is also written to.

    Returns:
        The file that was written.
    """
    file = comparison.board.results.folder / REPORT_FILE
    if output is not None:
        file = Path(output).expanduser()
    report = make_report(comparison)
    with results_written_to(file.parent, ELSEWHERE):
        write_atomically(file, to_html(report).encode())
    if figures is not None:
        for part in report.parts:
            save_drawings(part.figures, Path(figures))
    return file


def make_report(comparison: Comparison) -> Report:
    """Make the report of an experiment."""
    results = comparison.board.results
    first_part, *further_parts = report_parts(comparison)
    captions = [table.caption for table in first_part.tables if table.caption]
    lead = ""
    if len(captions) == 1:
        lead = captions[0]
        # What is said at the top is not said again above the table.
        tables = tuple(replace(table, caption="") for table in first_part.tables)
        first_part = replace(first_part, tables=tables)
    return Report(
        title=f"Report: {results.experiment}",
        banner=results.banner,
        lead=lead,
        parts=(first_part, *further_parts),
    )
