"""Read an experiment: leaderboard, predictions, statistics, report, and published tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from rich.console import Console


def leaderboard(path: str | Path) -> pd.DataFrame:
    """Compute the leaderboard of the experiment in the folder `path` (DIR/<experiment>).

    It is leaderboard.csv in full precision: one row per arm, in blocks of one origin and one shape,
    the best first; then one per baseline, of origin "baseline". For each column of the experiment's
    tasks `<col>` (mean or median over seeds of its main metric, 0 to 100), `<col>_std` (sample
    deviation) and `<col>_n` (finished seeds); averages and measures of pretraining; what each arm
    is; and of its difference from the `reference` `<col>_difference`, `_low`, `_high`, `_verdict`
    and `_smallest`.

    Example:
        >>> columns = ["arm", "rte", "rte_std", "rte_verdict"]
        >>> glue_bench.leaderboard("runs/demo")[columns]  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in the folder, or its plan names an unknown task or
            origin.
    """
    from glue_bench.board.leaderboard import open_leaderboard

    return open_leaderboard(path).frame


def predictions(path: str | Path, *, task: str | None = None) -> pd.DataFrame:
    """List the predictions of the finished runs of the experiment in the folder `path`.

    They are those of all tasks, or of one. There is one row per run and example
    (`glue_bench.board.frames.PREDICTION_COLUMNS`): `row` is from 0, in the
    order of the data; `predicted` and `label` are ids of classes, or scores of STS-B. `label` is
    missing where no gold labels are stored, as for test splits.

    Example:
        >>> frame = glue_bench.predictions("runs/demo", task="rte")  # doctest: +SKIP
        >>> frame.eval("predicted == label").mean()  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or task, or a file is damaged.
    """
    from glue_bench.board.frames import predictions_frame
    from glue_bench.board.results import read_results

    return predictions_frame(read_results(path), task)


def statistics(
    path: str | Path,
    *,
    equivalent: float | None = None,
    difference: float | None = None,
    power: float | None = None,
) -> pd.DataFrame:
    """Say which arms of the experiment in a folder differ from the reference, and by how much.

    Args:
        path: The folder of the experiment, DIR/<experiment>.
        equivalent: A margin: add a test of differing by less. It is in the unit of a column:
            points, or nats for the validation loss.
        difference: A true difference, in the same units: say instead how many seeds it takes to see
            it.
        power: The probability of seeing the `difference`; 0.8 if it is not given.

    Returns:
        One row per comparison and column, as `glue_bench.stats.verdicts.verdicts` has it, with the
        `origin` and `shape` of the arm. With a `difference` the
        `glue_bench.stats.power.power_frame`.

    Example:
        >>> glue_bench.statistics("runs/demo").query("verdict != ''")  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment, nothing has run, or a margin, difference or power is
            not one.
    """
    from glue_bench.board.compare import open_comparison
    from glue_bench.pages.contrasts import page_of_options

    return page_of_options(open_comparison(path), equivalent, difference, power).rows


def compare(
    paths: str | Path | Sequence[str | Path],
    *,
    reference: str | None = None,
    metric: str | None = None,
    lower: Sequence[str] = (),
    equivalent: float | None = None,
    cluster: str | None = None,
    common: bool = False,
    gold: str | Path | None = None,
) -> pd.DataFrame:
    """Compare anyone's systems by paired differences, from files of scores or of examples.

    Args:
        paths: Tidy CSV, TSV, JSONL or Parquet files; lm-eval's `samples_*.jsonl` or folders with
            them; instance-level files of Every Eval Ever; BabyLM's `predictions.json`; or folders
            of experiments.
        reference: The system that others are compared with; without it the best by its mean.
        metric: The only metric that is compared. Pairs of prediction and label need one: accuracy,
            f1, matthews_correlation or pearson.
        lower: Metrics of which the lowest value is best.
        equivalent: A margin: add a test of differing by less, in the unit of a column.
        cluster: The column that says which examples belong together.
        common: Compare on the examples that all systems have.
        gold: The folder of BabyLM's evaluation data with the right answers.

    Returns:
        One row per system other than the reference and column: `task`, `metric`, and what
        `glue_bench.stats.verdicts.verdicts` describes; `arm` is the system.

    Example:
        >>> glue_bench.compare(["a.jsonl", "b.jsonl"])  # doctest: +SKIP

    Raises:
        UserError: a file that cannot be read or is of no known format; examples that differ between
            systems; no such system, metric or column; a margin that is not above 0.
    """
    from glue_bench.board.versus import compare_paths
    from glue_bench.pages.versus import versus_page

    chosen = [paths] if isinstance(paths, str | Path) else list(paths)
    versus = compare_paths(
        chosen,
        reference=reference,
        metric=metric,
        lower=lower,
        cluster=cluster,
        is_common=common,
        gold=gold,
    )
    return versus_page(versus, equivalent).rows


def table(name: str, path: str | Path | None = None) -> pd.DataFrame:
    """Give a published table by its name, beside the experiment in the folder `path`, if any.

    One row per printed value and arm of ours: the rows of `glue_bench.pages.papers.paper_page`.

    Example:
        >>> glue_bench.table("tupe-1", "runs/minilm")  # doctest: +SKIP

    Raises:
        UserError: there is no such table or experiment.
    """
    from glue_bench.pages.papers import named_page

    return named_page(name, path).rows


def report(
    path: str | Path, output: str | Path | None = None, figures: str | Path | None = None
) -> Path:
    """Write the report of an experiment as one HTML file.

    Args:
        path: The folder of the experiment, DIR/<experiment>.
        output: The file to write; report.html in the folder if it is not given.
        figures: A folder that each figure is also written to, as PDF, SVG and PNG, as wide as a
            column of a paper.

    Returns:
        The file that was written.

    Example:
        >>> glue_bench.report("runs/demo", "demo.html")  # doctest: +SKIP

    Raises:
        UserError: there is no experiment in the folder, or a file cannot be written.
    """
    from glue_bench.board.compare import open_comparison
    from glue_bench.pages.report import write_report

    return write_report(open_comparison(path), output, figures)


# For the command line


def choose_format(format: str | None, output: Path | None) -> str:
    """Choose how a page is written: as asked for, else by the suffix of the file, else as Markdown.

    Raises UserError for a format that is not known.
    """
    from glue_bench.pages.render import resolve_format

    return resolve_format(format, output)


def leaderboard_text(
    path: Path, format: str, protocol: Sequence[str] = (), *, is_short: bool = False
) -> str:
    """Write the page of a leaderboard in a format, by a protocol that KEY=VALUE change.

    A short page has only what a table of a paper has.
    """
    from glue_bench.board.leaderboard import open_leaderboard
    from glue_bench.pages.leaderboard import leaderboard_page
    from glue_bench.pages.render import render
    from glue_bench.pages.short import short_page

    numbers = open_leaderboard(path, protocol)
    page = short_page(numbers, format) if is_short else leaderboard_page(numbers)
    return render(page, format)


def diagnostics_text(
    path: Path, diagnostic: Path, format: str, protocol: Sequence[str] = ()
) -> str:
    """Write the page of diagnostic sets in a format.

    `diagnostic` is the labelled AX, a file or its folder; or, for AX-b and AX-g, the hub or the
    folder of SuperGLUE.
    """
    from glue_bench.board.board import open_board
    from glue_bench.data.diagnostic import read_diagnostic
    from glue_bench.pages.diagnostics import diagnostics_page
    from glue_bench.pages.entailment import entailment_page, is_of_entailment
    from glue_bench.pages.render import render

    board = open_board(path, protocol)
    if is_of_entailment(diagnostic):
        return render(entailment_page(board, str(diagnostic)), format)
    return render(diagnostics_page(board, read_diagnostic(diagnostic)), format)


def statistics_text(
    path: Path, format: str, equivalent: float | None, difference: float | None, power: float | None
) -> str:
    """Write the page of `statistics` in a format."""
    from glue_bench.board.compare import open_comparison
    from glue_bench.pages.contrasts import page_of_options
    from glue_bench.pages.render import render

    return render(page_of_options(open_comparison(path), equivalent, difference, power), format)


def comparison_text(
    paths: Sequence[Path],
    format: str,
    equivalent: float | None,
    figures: Path | None,
    **options: Any,
) -> str:
    """Write the page of `compare` in a format, and its figures to a folder if one is given."""
    from glue_bench.board.versus import compare_paths
    from glue_bench.pages.render import render
    from glue_bench.pages.versus import versus_page

    versus = compare_paths(paths, **options)
    page = versus_page(versus, equivalent)
    if format == "html" or figures is not None:
        from glue_bench.pages.figure_files import save_drawings
        from glue_bench.pages.versus_figures import versus_figures

        page = replace(page, figures=versus_figures(versus))
        if figures is not None:
            save_drawings(page.figures, figures)
    return render(page, format)


def table_text(name: str | None, path: Path | None, format: str) -> str:
    """Write the page of `table` in a format; without a name the list of published tables."""
    from glue_bench.pages.papers import list_page, named_page
    from glue_bench.pages.render import render

    return render(list_page() if name is None else named_page(name, path), format)


def show_table(name: str | None, path: Path | None, console: Console) -> None:
    """Print the page of `table` as it fits the console; without a name the list of tables."""
    from glue_bench.pages.papers import list_page, named_page
    from glue_bench.pages.screen import print_page

    print_page(
        list_page() if name is None else named_page(name, path), console, "-o table.md writes them"
    )


def show_leaderboard(
    path: Path,
    console: Console,
    protocol: Sequence[str] = (),
    failed: Sequence[str] | None = None,
    *,
    has_only: bool = False,
) -> list[str]:
    """Print a leaderboard as it fits the console, and return the lines that belong below it.

    `failed` are the jobs that failed in a run before; after a run the report has the whole page.
    The command that comes next goes by the experiment's own protocol. A run that `has_only`
    finished what --only had chosen leaves the rest of the plan.
    """
    from glue_bench.board.leaderboard import open_leaderboard
    from glue_bench.pages.files import next_step
    from glue_bench.pages.leaderboard import screen_page
    from glue_bench.pages.marks import explain_marks
    from glue_bench.pages.screen import print_page

    numbers = open_leaderboard(path, protocol)
    report_file = path / "report.html"
    page = screen_page(numbers)
    place_of_columns = "-o FILE writes them" if failed is None else str(report_file)
    print_page(page, console, place_of_columns)
    lines = explain_marks(page.tables)
    if failed is not None:
        lines.append(f"page: {report_file}")
    if not protocol:
        folder = quote(str(path))
        step = next_step(numbers.comparison, folder, failed or (), has_only=has_only)
        lines.append(f"next: {step}")
    return lines


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, which a full disk leaves as it was; or to a device or a pipe."""
    from glue_bench.files import ELSEWHERE, results_written_to, write_atomically

    with results_written_to(path.parent, ELSEWHERE):
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            write_atomically(path, text.encode())
