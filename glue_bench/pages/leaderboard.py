"""The page of a leaderboard: a table for each group of arms, then what explains the numbers.

The parts have their own files: `ranking` (the table of a group), `groups` (which groups, and the
line above a table), `marks` (signs and legend), `setup` and `arms` (tables of facts).
"""

from collections.abc import Iterable
from dataclasses import replace

from glue_bench.board.board import Board, steps_frame
from glue_bench.board.compare import CONTRAST_COLUMNS, Comparison, leaderboard_frame, score_columns
from glue_bench.data.measures import MEASURES, PRETRAINING_MEASURES
from glue_bench.data.tasks import find_task, scored_columns
from glue_bench.pages.arms import arms_table
from glue_bench.pages.groups import groups_shown
from glue_bench.pages.marks import LEGEND, step_marks
from glue_bench.pages.page import DECIMALS, Column, Page, Table, with_legend
from glue_bench.pages.ranking import group_table, score_column
from glue_bench.pages.setup import setup_table


def leaderboard_page(comparison: Comparison) -> Page:
    """Make the whole page: the leaderboard, how its numbers came about, and what the arms are."""
    board = comparison.board
    screen = screen_page(comparison)
    tables = leaderboard_tables(comparison, screen)
    tables.append(setup_table(comparison))
    tables.append(arms_table(board))
    title = f"Leaderboard: {board.results.experiment}"
    return replace(screen, title=title, tables=tuple(tables))


def leaderboard_tables(comparison: Comparison, screen: Page) -> list[Table]:
    """Add to the tables of a `screen_page` the scores by steps of pretraining, and a legend."""
    board = comparison.board
    tables = list(screen.tables)
    if len(board.results.all_steps) > 1:
        tables.append(steps_table(board, score_columns(comparison)))
    return with_legend(tables, LEGEND, page_notes(comparison))


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
    if any(find_task(task).benchmark != "GLUE" for task in tasks):
        notes.append("other tasks")
    if not tasks.isdisjoint(board.results.altered_tasks):
        notes.append("differences")
    compared_columns = board.columns + PRETRAINING_MEASURES
    if any(comparison.leaves_seeds_out(column) for column in compared_columns):
        notes.append("common")
    return notes


def screen_page(comparison: Comparison) -> Page:
    """Make the page that fits a terminal: a table for each group of arms that are compared."""
    frame = leaderboard_frame(comparison)
    tables = []
    for heading, group in groups_shown(comparison).items():
        tables.append(group_table(comparison, group, heading, frame))
    return Page(
        title="",
        banner=comparison.board.results.banner,
        tables=tuple(tables),
        data=frame,
        column_decimals=column_decimals(score_columns(comparison)),
    )


def steps_table(board: Board, score_names: Iterable[str]) -> Table:
    """Make the table of scores by steps of pretraining; `score_names` are the columns of a page."""
    frame = steps_frame(board)
    frame = frame.sort_values(["arm", "steps"], kind="stable", ignore_index=True)
    names = [name for name in score_names if name in frame]
    columns = {"arm": Column("Arm"), "steps": Column("Steps", show="{:,}".format)}
    for name in names:
        columns[name] = score_column(board, name)
    return Table(
        title="Against steps of pretraining",
        frame=frame,
        columns=columns,
        marks=step_marks(board, frame, names),
    )


def column_decimals(names: Iterable[str]) -> dict[str, int]:
    """Give how many decimals CSV and JSON have in columns of a `leaderboard_frame`, if not two."""
    decimals = {}
    for name in names:
        if MEASURES[name].decimals == DECIMALS:
            continue
        for part in ("", "_std", *(f"_{part}" for part in CONTRAST_COLUMNS)):
            decimals[name + part] = MEASURES[name].decimals
    return decimals
