"""Drawn studies of two origins, partly run at two rates, whose scores and marks must fit."""

from itertools import product

import numpy as np
import pytest
from helpers.stored import Bench

from glue_bench.board.compare import Comparison, open_comparison
from glue_bench.board.leaderboard import make_leaderboard
from glue_bench.data.metrics import score
from glue_bench.data.tasks import COLUMNS, TASKS
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.marks import LEADERBOARD_LEGEND, MARKS_NOTE
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import Table

ARMS = {
    "add": "pretrained",
    "none": "pretrained",
    "untied": "pretrained",
    "graft": "grafted",
    "other": "grafted",
}
GOLD = np.arange(60) % 2
RATES = (2e-5, 3e-5)
SEEDS = (1, 2, 3)


def run(bench, cell, generator) -> None:
    """Finish a run; some of its splits get one answer to everything."""
    task = TASKS[cell["task"]]
    logits: dict[str, np.ndarray] = {}
    scores: dict[str, dict[str, float]] = {}
    collapsed: list[str] = []
    for split in task.columns:
        is_wrong = generator.random(len(GOLD)) < generator.uniform(0.1, 0.5)
        predicted = np.where(is_wrong, 1 - GOLD, GOLD)
        if generator.random() < 0.1:
            predicted = np.zeros_like(GOLD)
            collapsed.append(split)
        logits[split] = np.eye(task.num_labels)[predicted]
        scores[split] = score(task.name, predicted, GOLD)
    bench.record(cell, score=scores, collapsed=collapsed)
    bench.predict(cell["cell_id"], logits)


@pytest.fixture(scope="module", params=product(range(3), ("mean", "median")))
def comparison(request, tmp_path_factory) -> Comparison:
    bench = Bench(tmp_path_factory.mktemp("drawn") / "toy")
    draw, statistic = request.param
    generator = np.random.default_rng(draw)
    for task in ("rte", "cola", "mnli"):
        bench.label(task, dict.fromkeys(TASKS[task].columns, GOLD))
        for (arm, origin), rate, seed in product(ARMS.items(), RATES, SEEDS):
            cell = bench.expect(task, seed=seed, arm=arm, origin=origin, rate=rate)
            if generator.random() > 0.15:
                run(bench, cell, generator)
    protocol = {"seeds": statistic, "rate": f"best-{statistic}"}
    return open_comparison(bench.plan(config={"protocol": protocol}))


def test_a_score_is_the_statistic_of_the_runs_at_the_reported_rate(comparison):
    board = comparison.board
    table = board.table.set_index("arm")
    for column, arm in product(board.columns, ARMS):
        task, split = COLUMNS[column]
        runs = board.runs[(board.runs["arm"] == arm) & (board.runs["split"] == split)]
        runs = runs[runs["task"] == task]
        values = runs.loc[runs["metric"] == TASKS[task].metrics[0], "value"]
        expected = values.agg(board.protocol.seeds)
        assert table.loc[arm, column] == pytest.approx(expected, nan_ok=True)


def test_a_column_that_lacks_a_run_at_any_rate_is_incomplete_with_the_average(comparison):
    frame = make_leaderboard(comparison).frame.set_index("arm")
    cells = comparison.board.cells
    missing = cells[~cells["finished"]]
    for arm in ARMS:
        tasks = set(missing.loc[missing["arm"] == arm, "task"])
        expected = {column for column in comparison.board.columns if COLUMNS[column][0] in tasks}
        if expected:
            expected.add("average")
        assert set(frame["incomplete"][arm].split(";")) - {""} == expected


def test_a_run_that_collapsed_at_the_reported_rate_is_marked(comparison):
    frame = make_leaderboard(comparison).frame.set_index("arm")
    reported = comparison.board.reported
    for column, arm in product(comparison.board.columns, ARMS):
        task, split = COLUMNS[column]
        runs = reported[(reported["arm"] == arm) & (reported["task"] == task)]
        is_collapsed = any(split in splits for splits in runs["collapsed"])
        assert (column in frame["collapsed"][arm].split(";")) == is_collapsed


@pytest.fixture(scope="module")
def ranked_tables(comparison) -> tuple[Table, ...]:
    """Return the tables of the page with scores, without the tables Setup and Arms."""
    return leaderboard_page(make_leaderboard(comparison)).tables[:-2]


def cells_of(tables: tuple[Table, ...]) -> list:
    cells: list = []
    for table in tables:
        for row in table.rows:
            cells += row
    return cells


def test_the_legend_explains_marks_where_there_are_any(ranked_tables):
    cells = cells_of(ranked_tables)
    has_marks = any(set(cell.text) & set("†‡*◇" + MISSING) for cell in cells)
    assert (MARKS_NOTE in ranked_tables[-1].legend) == has_marks


def test_the_legend_explains_bold_and_verdicts_where_there_are_any(ranked_tables):
    cells = cells_of(ranked_tables)
    is_judged = any(cell.bold or set(cell.text) & set("▲▼") for cell in cells)
    assert (LEADERBOARD_LEGEND["bold"] in ranked_tables[-1].legend) == is_judged


def test_the_legend_explains_medians_where_scores_are_medians(comparison, ranked_tables):
    legend = ranked_tables[-1].legend
    assert (LEADERBOARD_LEGEND["medians"] in legend) == (
        comparison.board.protocol.seeds == "median"
    )
