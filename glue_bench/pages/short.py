"""The leaderboard as a paper prints it: a row for each arm, means ± deviations, and no legend."""

import pandas as pd
from pandas import DataFrame, Series

from glue_bench.board.aggregation import aggregate_over_seeds
from glue_bench.board.board import Board
from glue_bench.board.compare import Comparison
from glue_bench.board.leaderboard import Leaderboard
from glue_bench.board.standings import Standing
from glue_bench.data.measures import MEASURES
from glue_bench.data.tasks import find_task, scored_columns
from glue_bench.errors import UserError
from glue_bench.pages.headings import heading_of
from glue_bench.pages.marks import COLLAPSED, FEWER_RUNS, PARTIAL, is_listed
from glue_bench.pages.numbers import MISSING, format_number
from glue_bench.pages.page import Column, Page, Table
from glue_bench.pages.table_warnings import table_warnings

SHORT_DECIMALS = 1
"""How many decimals points have in papers."""
METRIC_TITLES = {
    "accuracy": "acc.",
    "f1": "F1",
    "macro_f1": "macro F1",
    "matthews_correlation": "MCC",
    "pearson": "Pearson",
    "spearmanr": "Spearman",
}
"""What a heading calls a metric."""
CAPTION = "{statistic}{deviation} on the validation set; accuracy unless a heading says otherwise."
MARKS = {
    PARTIAL: "† a part of the rows, or other rows.",
    COLLAPSED: "‡ a run gave one answer to everything.",
    FEWER_RUNS: "* fewer runs than planned.",
}
"""The sentences that a caption has where a mark is shown."""
FOR_READERS = ("markdown", "latex", "html")
"""The formats of a table that is read; CSV and JSON have every number without it."""


def short_page(leaderboard: Leaderboard, format: str = "markdown") -> Page:
    """Make the leaderboard's short page, with the rows and columns of a paper's table.

    Raises UserError for CSV and JSON, whose readers want numbers in cells of their own.
    """
    if format not in FOR_READERS:
        raise UserError(
            f"--short writes .md, .tex and .html; without it, {format} has every number in a column"
        )
    comparison = leaderboard.comparison
    results = comparison.board.results
    tables = [short_table(comparison, standing) for standing in leaderboard.standings]
    title = f"Leaderboard: {results.experiment}"
    return Page(title=title, banner=results.banner, tables=tuple(tables))


def short_table(comparison: Comparison, standing: Standing) -> Table:
    """Make the short table of a group of arms: a row for each arm, best first.

    Each cell is a text: mean ± deviation for each metric.
    """
    board = comparison.board
    names = [name for name in comparison.columns if name != "swap_1"]
    rows = standing.arms
    columns = {"arm": Column("Arm")}
    texts = DataFrame({"arm": rows["arm"]})
    for name in names:
        columns[name] = Column(short_title(board, name), show=str)
        texts[name] = cell_texts(board, rows, name)
    return Table(
        title=heading_of(standing.group, comparison),
        warnings=table_warnings(board, standing),
        caption=short_caption(board, rows, columns, texts),
        frame=texts,
        columns=columns,
    )


def short_title(board: Board, name: str) -> str:
    """Write the title of a column, with its metrics unless accuracy is the only metric."""
    title = board.titles[name]
    if name in board.partial_columns:
        title += PARTIAL
    if MEASURES[name].unit == "nats":
        title += " (nats)"
    task, _ = scored_columns().get(name, ("", ""))
    metrics = find_task(task).metrics if task else ("accuracy",)
    if metrics == ("accuracy",):
        return title
    metric_titles = [METRIC_TITLES.get(metric, metric) for metric in metrics]
    return f"{title} ({' / '.join(metric_titles)})"


def cell_texts(board: Board, rows: DataFrame, name: str) -> list[str]:
    """Write the cells of a column: the mean and deviation of each metric, and marks."""
    parts = metric_parts(board, rows, name)
    decimals = MEASURES[name].decimals if MEASURES[name].unit == "nats" else SHORT_DECIMALS
    texts: list[str] = []
    marks = zip(rows["collapsed"], rows["incomplete"], strict=True)
    for place, (collapsed, incomplete) in enumerate(marks):
        numbers: list[str] = []
        for means, deviations in parts:
            numbers.append(spread_text(means.iloc[place], deviations.iloc[place], decimals))
        text = " / ".join(numbers)
        if is_listed(collapsed, name):
            text += COLLAPSED
        if is_listed(incomplete, name):
            text += FEWER_RUNS
        texts.append(text)
    return texts


def metric_parts(board: Board, rows: DataFrame, name: str) -> list[tuple[Series, Series]]:
    """Give means and deviations of each metric of a column, in the order of the rows."""
    task, split = scored_columns().get(name, ("", ""))
    if not task:
        return [(rows[name], rows[f"{name}_std"])]
    statistic = board.protocol.seeds
    runs = board.runs[(board.runs["task"] == task) & (board.runs["split"] == split)]
    parts = []
    for metric in find_task(task).metrics:
        of_metric = runs[runs["metric"] == metric]
        over_seeds = aggregate_over_seeds(of_metric, ["arm"], statistic).reindex(rows["arm"])
        parts.append((over_seeds[statistic], over_seeds["std"]))
    return parts


def spread_text(mean: float, deviation: float, decimals: int) -> str:
    """Write a mean and its deviation; a dash for no score."""
    if pd.isna(mean):
        return MISSING
    text = format_number(mean, decimals)
    if pd.isna(deviation):
        return text
    return f"{text} ± {format_number(deviation, decimals)}"


def short_caption(
    board: Board, rows: DataFrame, columns: dict[str, Column], texts: DataFrame
) -> str:
    """Write what the cells are, over how many runs, and what their marks mean."""
    counts = {int(count) for column in board.columns for count in rows[f"{column}_n"].dropna()}
    runs = f" over {counts.pop()} runs" if len(counts) == 1 else " over runs"
    deviation = f" ± standard deviation{runs}" if "±" in texts.to_string() else ""
    caption = CAPTION.format(statistic=board.protocol.seeds.capitalize(), deviation=deviation)
    shown = " ".join([*(column.title for column in columns.values()), texts.to_string()])
    sentences = [sentence for mark, sentence in MARKS.items() if mark in shown]
    return " ".join([caption, *sentences])
