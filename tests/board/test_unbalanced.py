"""All pages have the same mean if pretrainings have unequal numbers of finished fine-tunings."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from glue_bench.board.averages import average
from glue_bench.board.board import open_board
from glue_bench.board.chosen import arm_scores, median_runs
from glue_bench.board.compare import open_comparison
from glue_bench.board.leaderboard import make_leaderboard, open_leaderboard
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
"""The number of finished fine-tunings, of three planned ones, by arm and pretraining seed.

The last two arms cannot be tested.
"""


def run(bench, task, arm, pretraining, seed, generator) -> None:
    """Plan a run; if it has finished, it has predictions with another accuracy in each split."""
    cell = bench.expect(task, seed=seed, arm=arm)
    cell["cell_id"] += f"-p{pretraining}"
    cell["steps"] = 9
    cell["pretraining_seed"] = pretraining
    if seed > FINISHED[arm].get(pretraining, 0):
        return
    scores: dict[str, dict[str, float]] = {}
    logits: dict[str, np.ndarray] = {}
    for split in SPLITS[task]:
        is_wrong = generator.random(ROWS) > generator.uniform(0.2, 0.8)
        logits[split] = np.eye(3 if task == "mnli" else 2)[is_wrong.astype(int)]
        scores[split] = {"accuracy": float(np.mean(~is_wrong))}
    bench.record(cell, score=scores)
    bench.predict(cell["cell_id"], logits)


@pytest.fixture(params=range(3))
def path(request, bench) -> Path:
    """Write an experiment of three tasks, drawn from one of three seeds."""
    generator = np.random.default_rng(request.param)
    for task, splits in SPLITS.items():
        bench.label(task, dict.fromkeys(splits, np.zeros(ROWS, int)))
        for arm, pretraining, seed in product(FINISHED, (1, 2, 3), (1, 2, 3)):
            run(bench, task, arm, pretraining, seed, generator)
    return bench.plan()


def test_a_difference_is_the_difference_of_the_scores_in_each_column(path):
    comparison = open_comparison(path)
    frame = make_leaderboard(comparison).frame.set_index("arm").drop(index="majority class")
    for column in comparison.columns:
        expected = (frame[column] - frame.loc["add", column]).drop("add")
        differences = frame[f"{column}_difference"].drop("add")
        assert differences.to_dict() == pytest.approx(expected.to_dict()), column


def test_the_difference_on_the_page_fits_the_scores_on_the_page(path):
    table = leaderboard_page(open_leaderboard(path)).tables[0]
    columns = list(table.columns)
    texts = {row[0].text: [cell.text for cell in row] for row in table.rows}
    score_place = columns.index("average")
    scores = {arm: float(texts[arm][score_place].rstrip("▲▼*")) for arm in FINISHED}
    difference, _, _ = texts["none"][columns.index("difference")].partition(" ")
    rounding = 0.011  # a difference and two scores have two decimals each
    assert float(difference) == pytest.approx(scores["none"] - scores["add"], abs=rounding)


@pytest.mark.parametrize("arm", FINISHED)
def test_a_card_and_a_log_have_the_score_of_the_leaderboard(path, arm):
    board = open_board(path)
    row = board.table.set_index("arm").loc[arm]
    means = arm_scores(board, arm).set_index(["task", "split"])["mean"]
    assert 100 * means["rte", "validation"] == pytest.approx(row["rte"])
    assert 100 * means["mnli", "validation_mismatched"] == pytest.approx(row["mnli_mm"])


def test_the_error_of_a_card_is_over_the_means_of_pretrainings_by_hand(path):
    board = open_board(path)
    runs = board.runs[(board.runs["arm"] == "add") & (board.runs["task"] == "rte")]
    means = runs.groupby("pretraining_seed")["value"].mean().to_numpy() / 100
    scores = arm_scores(board, "add").set_index("task")
    assert scores["n"]["rte"] == 3
    assert scores["std"]["rte"] == pytest.approx(np.std(means, ddof=1))
    assert scores["error"]["rte"] == pytest.approx(np.std(means, ddof=1) / np.sqrt(3))


def test_of_equal_runs_the_one_of_the_lower_pretraining_seed_stands_for_the_arm(bench):
    for pretraining, seed in ((2, 1), (1, 2)):
        cell = bench.expect("rte", seed=seed)
        cell |= {"cell_id": f"p{pretraining}", "steps": 9, "pretraining_seed": pretraining}
        bench.record(cell, score=0.5)
    runs = median_runs(open_board(bench.plan()), "add")
    assert runs["cell_id"]["rte"] == "p1"


def test_our_score_beside_a_published_row_equals_the_leaderboards(path):
    """The published table has means."""
    board = open_board(path)
    has_means = [table for table in PAPERS.values() if table.statistic == "mean"]
    published = next(table for table in has_means if "rte" in table.columns)
    values = our_values(published, board)
    for arm, score in board.table.set_index("arm")["rte"].items():
        assert values[arm, "rte"].score == pytest.approx(score), arm


def test_every_pretraining_weighs_the_same(path):
    board = open_board(path)
    runs = board.runs[(board.runs["arm"] == "add") & (board.runs["task"] == "rte")]
    means = runs.groupby("pretraining_seed")["value"].mean()
    assert board.table.set_index("arm")["rte"]["add"] == pytest.approx(means.mean())


def test_the_number_of_an_average_counts_its_runs(path):
    board = open_board(path)
    finished = sum(FINISHED["add"].values())
    assert average(board.runs, board.average)["n"]["add"] == finished
