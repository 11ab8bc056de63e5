"""The page of a leaderboard: a table for each group of arms, then what explains the numbers.

`board.leaderboard` has all numbers. The parts stand in files of their own: `ranking` (the table of
a group), `headings`, `table_warnings` and `summary` (what stands above it), `steps` (scores by
steps), `marks` (signs and legend), `setup` and `arms` (tables of facts).
"""

from collections.abc import Iterable, Mapping

from glue_bench.board.compare import Comparison
from glue_bench.board.leaderboard import Leaderboard
from glue_bench.board.rows import CONTRAST_COLUMNS
from glue_bench.data.measures import MEASURES
from glue_bench.data.tasks import KNOWN, scored_columns
from glue_bench.pages.arms import arms_table
from glue_bench.pages.marks import LEADERBOARD_LEGEND, PARTIAL
from glue_bench.pages.page import DEFAULT_DECIMALS, Column, Page, Table, with_legend
from glue_bench.pages.ranking import group_table
from glue_bench.pages.setup import setup_table
from glue_bench.pages.steps import steps_table


def leaderboard_page(leaderboard: Leaderboard) -> Page:
    """Make the whole page: the leaderboard, how its numbers came about, and what the arms are."""
    comparison = leaderboard.comparison
    results = comparison.board.results
    decimals = frame_decimals(comparison.columns)
    tables = leaderboard_tables(leaderboard)
    tables.append(setup_table(comparison))
    tables.append(arms_table(comparison.board))
    return Page(
        title=f"Leaderboard: {results.experiment}",
        banner=results.banner,
        tables=tuple(tables),
        data=leaderboard.frame,
        column_decimals=decimals,
    )


def screen_page(leaderboard: Leaderboard) -> Page:
    """Make the page that fits a terminal: a table for each group of arms that are compared."""
    comparison = leaderboard.comparison
    return Page(
        title="",
        banner=comparison.board.results.banner,
        tables=tuple(group_tables(leaderboard, score_columns(comparison))),
        data=leaderboard.frame,
        column_decimals=frame_decimals(comparison.columns),
    )


def leaderboard_tables(leaderboard: Leaderboard) -> list[Table]:
    """Make the tables of groups, then the scores by steps of pretraining, and a legend."""
    notes = page_notes(leaderboard.comparison)
    scores = score_columns(leaderboard.comparison)
    tables = group_tables(leaderboard, scores)
    if len(leaderboard.steps):
        tables.append(steps_table(leaderboard, scores))
    return with_legend(tables, LEADERBOARD_LEGEND, notes)


def group_tables(leaderboard: Leaderboard, scores: Mapping[str, Column]) -> list[Table]:
    """Make a table for each group of arms; `scores` are the columns of a page."""
    comparison = leaderboard.comparison
    tables = []
    for standing in leaderboard.standings:
        tables.append(group_table(comparison, standing, scores))
    return tables


def score_columns(comparison: Comparison) -> dict[str, Column]:
    """Make the columns of scores, the primary one first, with a mark if rows are missing."""
    board = comparison.board
    columns = {}
    for name in comparison.columns:
        title = board.titles[name]
        if name in board.partial_columns:
            title += PARTIAL
        note = "task" if name in scored_columns() else name
        columns[name] = Column(title, MEASURES[name].decimals, note=note)
    return columns


def page_notes(comparison: Comparison) -> list[str]:
    """Return the keys of the legend lines that the page needs as a whole, and no single table."""
    board = comparison.board
    notes = []
    if len(comparison.contrasts_of("declared")):
        notes.append("planned")
    if board.protocol.seeds == "median":
        notes.append("medians")
    places = scored_columns()
    tasks = {places[column][0] for column in board.columns}
    if any(KNOWN[task].benchmark != "GLUE" for task in tasks):
        notes.append("other tasks")
    if not tasks.isdisjoint(board.results.altered_tasks):
        notes.append("differences")
    if comparison.common_seed_columns:
        notes.append("common")
    return notes


def frame_decimals(names: Iterable[str]) -> dict[str, int]:
    """Give how many decimals CSV and JSON have in columns of a `leaderboard_frame`, if not two."""
    decimals = {}
    for name in names:
        measure = MEASURES[name]
        if measure.decimals == DEFAULT_DECIMALS:
            continue
        decimals[name] = measure.decimals
        for part in ("std", *CONTRAST_COLUMNS):
            decimals[f"{name}_{part}"] = measure.decimals
    return decimals
