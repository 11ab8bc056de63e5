"""A partly run study: every page has the same mean, however many fine-tunings of a pretraining have finished."""

from pathlib import Path

import numpy as np
import pytest

from glue_bench.board.averages import average
from glue_bench.board.board import open_board
from glue_bench.board.chosen import arm_scores
from glue_bench.board.compare import leaderboard_frame, open_comparison, score_columns
from glue_bench.pages.counterparts import our_values
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.published import PAPERS

ROWS = 50
SPLITS = {
    "rte": ("validation",),
    "sst2": ("validation",),
    "mnli": ("validation_matched", "validation_mismatched"),
}
FINISHED = {
    "add": {1: 3, 2: 1, 3: 2},
    "none": {1: 1, 2: 3, 3: 3},
    "single": {1: 2},
    "two": {1: 1, 2: 3},
}
"""By arm and pretraining seed how many of the three fine-tunings have finished; the last two arms cannot be tested."""


def run(bench, task, arm, pretraining, seed, generator) -> None:
    """A run with predictions, of which each split has its own accuracy."""
    cell = bench.expect(task, seed, arm=arm)
    cell |= {
        "cell_id": f"{cell['cell_id']}-p{pretraining}",
        "steps": 9,
        "pretraining_seed": pretraining,
    }
    if seed > FINISHED[arm].get(pretraining, 0):
        return
    scores = {}
    logits = {}
    for split in SPLITS[task]:
        predicted = (generator.random(ROWS) > generator.uniform(0.2, 0.8)).astype(int)
        logits[split] = np.eye(3 if task == "mnli" else 2)[predicted]
        scores[split] = {"accuracy": float((predicted == 0).mean())}
    bench.record(cell, scores)
    bench.predict(cell["cell_id"], logits)


@pytest.fixture(params=range(3))
def path(request, bench) -> Path:
    generator = np.random.default_rng(request.param)
    for task, splits in SPLITS.items():
        bench.label(task, dict.fromkeys(splits, np.zeros(ROWS, int)))
        for arm in FINISHED:
            for pretraining in (1, 2, 3):
                for seed in (1, 2, 3):
                    run(bench, task, arm, pretraining, seed, generator)
    return bench.plan()


def test_a_difference_is_that_of_the_scores_in_each_column(path):
    comparison = open_comparison(path)
    frame = leaderboard_frame(comparison).set_index("arm").drop(index="majority class")
    for column in score_columns(comparison):
        differences = frame[column] - frame.loc["add", column]
        assert frame[f"{column}_difference"].drop("add").to_dict() == pytest.approx(
            differences.drop("add").to_dict()
        )


def test_the_difference_on_the_page_is_that_of_the_scores_beside_it(path):
    table = leaderboard_page(open_comparison(path)).tables[0]
    rows = {row[0].text: [cell.text for cell in row] for row in table.rows}
    score, difference = (list(table.columns).index(name) for name in ("average", "difference"))
    scores = {arm: float(rows[arm][score].rstrip("▲▼*")) for arm in FINISHED}
    shown = float(rows["none"][difference].partition(" ")[0])
    assert shown == pytest.approx(scores["none"] - scores["add"], abs=0.011)


def test_a_card_and_a_log_have_the_score_of_the_leaderboard(path):
    board = open_board(path)
    table = board.table.set_index("arm")
    for arm in FINISHED:
        means = arm_scores(board, arm).set_index(["task", "split"])["mean"]
        assert 100 * means["rte", "validation"] == pytest.approx(table.loc[arm, "rte"])
        assert 100 * means["mnli", "validation_mismatched"] == pytest.approx(
            table.loc[arm, "mnli_mm"]
        )


def test_ours_beside_a_published_row_is_the_score_of_the_leaderboard_where_it_has_means(path):
    board = open_board(path)
    table = board.table.set_index("arm")
    published = next(
        table for table in PAPERS.values() if table.statistic == "mean" and "rte" in table.columns
    )
    values = our_values(published, board)
    ours = {arm: values[arm, "rte"].score for arm in FINISHED}
    assert ours == pytest.approx(table["rte"].to_dict())


def test_every_pretraining_weighs_the_same(path):
    board = open_board(path)
    runs = board.runs[(board.runs["arm"] == "add") & (board.runs["task"] == "rte")]
    means = runs.groupby("pretraining_seed")["value"].mean()
    assert board.table.set_index("arm").loc["add", "rte"] == pytest.approx(means.mean())
    assert average(board.runs, board.average).loc["add", "n"] == 6
