"""The parts of a report, from the leaderboard to the commands that made it.

To add a figure, draw it by a function of `pages.figures`, and put a `Drawing` of it into a part. To
add a part, write a function that returns it, and name it in `report_parts`.
"""

from dataclasses import replace
from pathlib import Path

from pandas import DataFrame

from glue_bench.board.board import Board
from glue_bench.board.compare import Comparison
from glue_bench.board.leaderboard import make_leaderboard
from glue_bench.board.results import Results
from glue_bench.errors import UserError, first_line
from glue_bench.pages.analysis_files import read_analysis
from glue_bench.pages.arms import arms_table
from glue_bench.pages.budget import budget_page
from glue_bench.pages.contrasts import contrasts_table
from glue_bench.pages.counterparts import BoardKey
from glue_bench.pages.figures import draw_forest, draw_losses
from glue_bench.pages.inside import INSIDE_TITLE, inside_page
from glue_bench.pages.inside_figures import inside_figures
from glue_bench.pages.lags import lag_tables
from glue_bench.pages.leaderboard import leaderboard_tables
from glue_bench.pages.method import experiment_folder, method_part
from glue_bench.pages.page import Column, Drawing, Page, Part, Table
from glue_bench.pages.papers import paper_page
from glue_bench.pages.published import PAPERS
from glue_bench.pages.setup import setup_table
from glue_bench.pages.spreads import noise_tables, spread_tables

LOSS_CAPTION = (
    "Means over the seeds of pretraining; "
    "of few arms a band goes from the lowest to the highest seed."
)
ANALYSIS_ERRORS = (AttributeError, LookupError, OSError, TypeError, ValueError)
"""The errors that reading a damaged analysis may raise."""


def report_parts(comparison: Comparison) -> list[Part]:
    """Make the parts of a report in their order; a part that has nothing to show is left out."""
    results = comparison.board.results
    parts = [leaderboard_part(comparison)]
    if len(comparison.contrasts):
        parts.append(differences_part(comparison))
    if results.pretrainings["stream"].notna().any():
        parts.append(pretraining_part(comparison))
    parts += inside_parts(results)
    if not results.is_made_up:
        parts += papers_parts(results)
    parts.append(method_part(comparison))
    return parts


def leaderboard_part(comparison: Comparison) -> Part:
    """Make the part of the leaderboard and the figure of its first column, its facts folded."""
    setup = Part(title="Setup", tables=(setup_table(comparison),))
    arms = replace(arms_table(comparison.board), title="")
    return Part(
        title="Leaderboard",
        figures=forest_of(comparison, [comparison.primary], "contrasts", "Contrasts"),
        tables=tuple(leaderboard_tables(make_leaderboard(comparison))),
        folded=(setup, Part(title="Arms", tables=(arms,))),
    )


def differences_part(comparison: Comparison) -> Part:
    """Make the part of all contrasts and of the figure of the columns that do not decide."""
    columns = [name for name in comparison.columns if name != comparison.primary]
    contrasts = contrasts_table(comparison, comparison.contrasts)
    spreads = spread_tables(comparison, comparison.contrasts)
    return Part(
        title="Differences",
        figures=forest_of(comparison, columns, "differences", "Other columns"),
        tables=(replace(contrasts, caption=""), *spreads, *noise_tables(comparison)),
    )


def forest_of(
    comparison: Comparison, columns: list[str], name: str, title: str
) -> tuple[Drawing, ...]:
    """Draw the forest of the columns in which some difference of two arms is known, if any."""
    compared_columns = set(comparison.contrasts.dropna(subset="difference")["column"])
    drawn_columns = [column for column in columns if column in compared_columns]
    if not drawn_columns:
        return ()
    figure = draw_forest(comparison, drawn_columns)
    return (Drawing(name=name, title=title, figure=figure),)


def pretraining_part(comparison: Comparison) -> Part:
    """Make the part of the budgets of pretraining and the figure of its losses."""
    results = comparison.board.results
    figures = []
    if results.losses[["train_loss", "validation_loss"]].notna().any(axis=None):
        figure = draw_losses(comparison)
        title = "Loss by tokens"
        figures.append(Drawing(name="loss", title=title, caption=LOSS_CAPTION, figure=figure))
    tables = (*budget_page(results).tables, *lag_tables(comparison))
    return Part(title="Pretraining", figures=tuple(figures), tables=tables)


def inside_parts(results: Results) -> list[Part]:
    """Make the part of an analysis of the pretrained encoders, if the folder has one.

    If it is damaged, the part says so.
    """
    folder = results.store.analysis
    weights = set(results.pretrainings["weights"].dropna())
    try:
        analysis = read_analysis(folder, weights)
        if analysis is None:
            return []
        figures = tuple(inside_figures(analysis))
        return [Part(title=INSIDE_TITLE, tables=inside_page(analysis).tables, figures=figures)]
    except ANALYSIS_ERRORS as error:
        return [Part(title=INSIDE_TITLE, tables=(damage_table(results, folder, error),))]


def damage_table(results: Results, folder: Path, error: Exception) -> Table:
    """Make the table that says why an analysis is left out, and how to make it again."""
    reason = getattr(error, "strerror", None) or first_line(error)
    experiment = experiment_folder(results)
    command = f"glue-bench analyse {experiment} -o {experiment}/{folder.name}"
    message = UserError(
        f"{folder.name}/ is damaged ({reason}); delete it, or make it again: {command}"
    )
    return Table(
        frame=DataFrame({"message": [str(message)]}), columns={"message": Column("Left out")}
    )


def papers_parts(results: Results) -> list[Part]:
    """Make the part of published tables with our arms; the table that has the most is open."""
    boards: dict[BoardKey, Board] = {}
    pages = []
    for published in PAPERS.values():
        page = paper_page(published, results, boards)
        if count_arms(page):
            pages.append(page)
    if not pages:
        return []
    first, *further = sorted(pages, key=count_arms, reverse=True)
    scores, *explained = first.tables
    folded = tuple(Part(title=page.title, tables=page.tables) for page in further)
    return [
        Part(
            title="Published tables",
            tables=(replace(scores, title=first.title), *explained),
            folded=folded,
        )
    ]


def count_arms(page: Page) -> int:
    """Count the arms of ours on the page of a published table."""
    arms: int = page.rows["arm"].replace("", None).nunique()
    return arms
