"""From the scores of single runs to one number per arm: means, averages, rates and epochs."""

import math
import shutil

import numpy as np
import pandas as pd
import pytest
from helpers.stored import DATA, history_of

from glue_bench import leaderboard
from glue_bench.board.aggregation import RUN_KEYS, reported_epochs
from glue_bench.board.averages import AVERAGES, average, average_of
from glue_bench.board.board import averages_frame, make_board, open_board
from glue_bench.board.compare import open_comparison
from glue_bench.board.results import read_results
from glue_bench.board.rows import baseline_scores
from glue_bench.board.steps import steps_frame
from glue_bench.config import Protocol
from glue_bench.data.tasks import COLUMNS, TRAINABLE
from glue_bench.errors import UserError
from glue_bench.pages.files import table_files


def only_row(path) -> pd.Series:
    """Return the row of the only arm of a leaderboard."""
    table = leaderboard(path)
    (arm,) = table.index[table["origin"] != "baseline"]
    return table.loc[arm]


def test_mean_sample_deviation_and_n(bench):
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed=seed, score=value)
    row = only_row(bench.plan())
    assert row["rte"] == pytest.approx(63.0)
    assert row["rte_n"] == 3
    assert row["rte_std"] == pytest.approx(math.sqrt((9 + 1 + 16) / 2))


def test_one_run_has_no_deviation(bench):
    bench.finish("mrpc", seed=1)
    assert math.isnan(only_row(bench.plan())["mrpc_std"])


def test_an_undefined_score_is_not_left_out_of_a_mean(bench):
    for seed, value in ((1, 0.5), (2, None), (3, 0.5)):
        bench.finish("stsb", seed=seed, score=value)
    row = only_row(bench.plan())
    assert math.isnan(row["stsb"])
    assert math.isnan(row["stsb_std"])


def test_a_task_that_has_not_run_has_no_score(bench):
    bench.finish("rte", seed=1)
    bench.expect("cola", seed=1)
    row = only_row(bench.plan())
    assert math.isnan(row["cola"])
    assert row["cola_n"] == 0


def test_columns_follow_the_tasks_of_the_plan_with_two_of_mnli(bench):
    bench.finish("rte", seed=1, score=0.6)
    bench.finish("wnli", seed=1, score=0.1)
    scores = {"validation_matched": {"accuracy": 0.8}, "validation_mismatched": {"accuracy": 0.7}}
    bench.finish("mnli", seed=1, score=scores)
    table = open_board(bench.plan()).table
    columns = [name for name in table if f"{name}_n" in table]
    assert columns == ["mnli_m", "mnli_mm", "rte", "wnli"]
    assert table["mnli_m"][0] == 80.0
    assert table["mnli_mm"][0] == 70.0
    expected = (60 + 80 + 70) / 3
    assert table["average"][0] == pytest.approx(expected)


def test_there_is_no_table_of_averages_if_no_convention_has_all_of_its_tasks(bench):
    bench.finish("rte", seed=1, score=0.6)
    assert "averages.csv" not in table_files(open_comparison(bench.plan()))


def test_the_conventions_give_the_published_averages(bench):
    """`run_glue` is 78.9 official and 81.7 without WNLI.

    The margin of TUPE-R is 2.08 on nine columns and 2.18 on eight. TUPE has no WNLI.
    """
    bench.finish_published("run-glue", "fp32")
    bench.finish_published("tupe-1", "TUPE-R", arm="tupe")
    bench.finish_published("tupe-1", "BERT-A", arm="bert")
    rows = averages_frame(open_board(bench.plan())).set_index("arm")
    assert rows["average_official"]["add"] == pytest.approx(78.9, abs=0.05)
    assert rows["average_eight_tasks"]["add"] == pytest.approx(81.7, abs=0.05)
    assert math.isnan(rows["average_official"]["tupe"])
    margins = rows.loc["tupe", list(AVERAGES)] - rows.loc["bert", list(AVERAGES)]
    assert margins["average_nine_columns"] == pytest.approx(2.08, abs=0.005)
    assert margins["average_eight_columns"] == pytest.approx(2.18, abs=0.005)


def test_the_average_of_all_columns_is_the_average_of_nine_columns():
    assert average_of(list(COLUMNS)).parts == AVERAGES["average_nine_columns"].parts


def test_wnli_alone_is_its_own_average():
    assert list(average_of(["wnli"]).parts) == ["wnli"]


def finish_all_tasks(bench) -> None:
    """Finish three seeds of each task; all but RTE rise by 2 points with each seed."""
    for seed, shift in ((1, 0.0), (2, 0.02), (3, 0.04)):
        for task in TRAINABLE:
            bench.finish(task, seed=seed, score=0.5 if task == "rte" else 0.5 + shift)


def test_the_average_deviates_over_the_averages_of_seeds(bench):
    """Eight of nine tasks, and eight of nine columns, rise by 2 points with each seed."""
    finish_all_tasks(bench)
    row = only_row(bench.plan())
    deviation = pytest.approx(2 * 8 / 9)
    expected = 50 + 2 * 8 / 9
    assert row["average_official"] == pytest.approx(expected)
    assert row["average_official_std"] == row["average_nine_columns_std"] == deviation


def test_the_average_has_no_deviation_if_a_task_lacks_a_seed(bench):
    finish_all_tasks(bench)
    path = bench.plan()
    shutil.rmtree(bench.file("add-cola-lr2e-05-s3").parent)
    row = only_row(path)
    assert row["average_official"] == pytest.approx(50 + (2 * 7 + 1) / 9)
    assert math.isnan(row["average_official_std"])


@pytest.fixture
def incomplete(bench) -> pd.DataFrame:
    """Return a board of arms that lack a task, a metric, or a defined score."""
    for arm, lacking_task in (("part", "cola"), ("metric", "mrpc"), ("undefined", "stsb")):
        for task in sorted(set(TRAINABLE) - {lacking_task}):
            bench.finish(task, arm=arm)
    bench.expect("cola", arm="part")
    bench.finish("mrpc", seed=1, score={"accuracy": 0.5}, arm="metric")
    bench.finish("stsb", seed=1, score=None, arm="undefined")
    return open_board(bench.plan())


def test_an_average_that_lacks_something_is_missing(incomplete):
    """The nine columns do not need the F1 of MRPC."""
    table = incomplete.table.set_index("arm")
    assert table["average_official"].isna().all()
    has_nine_columns = table["average_nine_columns"].notna().to_dict()
    assert has_nine_columns == {"part": False, "metric": True, "undefined": False}
    assert set(table["rte"]) == {50}


def test_an_average_that_lacks_a_part_is_over_no_seeds(incomplete):
    counts = average(incomplete.runs, AVERAGES["average_official"])["n"]
    expected = {"part": 0, "metric": 0, "undefined": 1}
    assert counts.to_dict() == expected


MNLI_SCORES = {"validation_matched": {"accuracy": 0.9}, "validation_mismatched": {"accuracy": 0.1}}
SCORES_BY_RATE = {
    ("add", "rte"): ((0.5, 0.7), (0.4, 0.6)),
    ("concat", "rte"): ((0.4, 0.6), (0.5, 0.7)),
    # The same three scores in another order, whose sums differ by a rounding error.
    ("tied", "rte"): ((0.592, 0.834, 0.86), (0.86, 0.592, 0.834)),
    # The mean over both validation sets counts.
    ("add", "mnli"): ((MNLI_SCORES,), (0.6,)),
    # The accuracy is the main metric of MRPC.
    ("add", "mrpc"): (({"accuracy": 0.5, "f1": 0.9},), ({"accuracy": 0.6, "f1": 0.1},)),
    # A rate with fewer finished seeds does not compete.
    ("add", "cola"): ((0.9,), (0.5, 0.5)),
    ("add", "stsb"): ((None,), (0.1,)),
}
"""The scores of seeds at the rates 2e-5 and 3e-5, by arm and task."""
LOWER_RATE_WINS = {("add", "rte"), ("tied", "rte")}


@pytest.mark.parametrize("place", SCORES_BY_RATE)
def test_each_arm_and_task_takes_its_best_rate_and_of_equals_the_lower_one(bench, place):
    arm, task = place
    for rate, scores in zip((2e-5, 3e-5), SCORES_BY_RATE[place], strict=True):
        for seed, score in enumerate(scores):
            bench.finish(task, seed=seed, score=score, arm=arm, rate=rate)
    board = open_board(bench.plan())
    expected = 2e-5 if place in LOWER_RATE_WINS else 3e-5
    assert set(board.runs["learning_rate"]) == {expected}


@pytest.mark.parametrize(
    ("choose_on", "epoch", "score", "value"),
    [
        ("validation", "last", 60, 60),
        ("validation", "best", 70, 70),
        ("held_out", "last", 60, 55),
        ("held_out", "best", 50, 65),
    ],
)
def test_the_reported_epoch_and_the_value_by_which_a_rate_competes(
    bench, choose_on, epoch, score, value
):
    history = []
    for number, scores in enumerate([(0.5, 0.65), (0.7, 0.5), (0.6, 0.55)], start=1):
        validation, held_out = scores
        of_splits = {"validation": {"accuracy": validation}, "held_out": {"accuracy": held_out}}
        history.append({"epoch": number, "train_loss": 1.0, "scores": of_splits})
    bench.record(bench.expect(), score=0.6, history=history)
    results = read_results(bench.plan())
    protocol = Protocol(choose_on=choose_on, epoch=epoch)
    assert make_board(results, protocol).scores["value"].item() == pytest.approx(score)
    cells = results.cells[["cell_id", *RUN_KEYS]]
    epochs = reported_epochs(results.scores.merge(cells, on="cell_id"), protocol)
    assert epochs["value"].item() == pytest.approx(value)


def test_the_first_of_equal_epochs_is_the_best_and_an_undefined_one_never(bench):
    history = history_of("validation", "accuracy", None, 0.7, 0.7, None)
    bench.record(bench.expect(), score=None, history=history)
    results = read_results(bench.plan())
    assert make_board(results, Protocol(epoch="best")).scores["epoch"].tolist() == [2]
    assert math.isnan(make_board(results).scores["value"].item())


def finish_outlier(bench) -> None:
    """Finish two rates: the lower has the better mean, the higher the better median."""
    for seed, (low, high) in enumerate([(0.6, 0.65), (0.6, 0.65), (0.6, 0.3)], start=1):
        bench.finish("rte", seed=seed, score=low, rate=2e-5)
        bench.finish("rte", seed=seed, score=high, rate=3e-5)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ({}, 60),
        ({"rate": "best-median"}, 160 / 3),
        ({"rate": "best-median", "seeds": "median"}, 65),
    ],
    ids=["means", "median chooses", "medians"],
)
def test_the_declared_protocol_decides_the_score(bench, protocol, expected):
    finish_outlier(bench)
    table = open_board(bench.plan(config={"protocol": protocol})).table
    assert table["rte"].item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("reference=ad", "unknown arm 'ad' in protocol.reference"),
        ("choose_on=held_out", "protocol.choose_on: held_out needs finetuning.held_out_share"),
        (
            "rate=fixed",
            "protocol.rate: fixed needs one learning rate a task; rte, mrpc has several",
        ),
        ("primary=validation_loss", "protocol.primary: validation_loss needs `pretraining`"),
    ],
)
def test_a_change_that_is_wrong_or_that_the_experiment_cannot_give_is_refused(
    bench, change, message
):
    finish_outlier(bench)
    bench.finish("mrpc")
    with pytest.raises(UserError, match=message):
        open_board(bench.plan(), [change])


GOLD = np.array([0, 1, 1, 0])
ONE_WRONG = np.array([0, 1, 0, 0])
ALL_WRONG = np.array([1, 0, 0, 1])


def label_rte(bench):
    """Label RTE with two baselines, and return the path of the experiment."""
    bench.finish()
    baselines = {"bag of words": {"validation": ONE_WRONG}, "always right": {"validation": GOLD}}
    bench.label("rte", {"validation": GOLD}, **baselines)
    return bench.plan()


def test_baselines_are_scored_from_their_stored_predictions(bench):
    results = read_results(label_rte(bench))
    assert results.baselines.to_numpy().tolist() == [
        ["rte", "validation", "accuracy", "majority class", 50.0],
        ["rte", "validation", "accuracy", "always right", 100.0],
        ["rte", "validation", "accuracy", "bag of words", 75.0],
    ]


def test_the_frame_of_tasks_has_the_source_of_the_data_and_its_digest(bench):
    tasks = read_results(label_rte(bench)).tasks
    assert tasks.loc["rte", ["source", "digest"]].tolist() == ["tsv", DATA]


def test_damaged_labels_are_a_problem(bench):
    path = label_rte(bench)
    (file,) = (path / "labels").iterdir()
    file.write_bytes(b"x")
    results = read_results(path)
    assert results.baselines.empty
    assert len(results.problems) == 1


def test_runs_after_two_pretrainings_are_two_runs_of_one_arm(bench):
    for seed, value in ((1, 0.6), (2, 0.8)):
        cell = bench.expect()
        cell |= {"cell_id": f"{cell['cell_id']}-p{seed}", "steps": 9, "pretraining_seed": seed}
        bench.record(cell, score=value)
    (row,) = open_board(bench.plan()).table.to_dict("records")
    assert row["rte"] == pytest.approx(70)
    assert row["rte_n"] == 2
    assert row["rte_std"] == pytest.approx(math.sqrt(200))


PRETRAINED_RUNS = {
    (4, 2e-5): {1: (0.50, 0.56), 2: (0.70,)},
    (4, 3e-5): {1: (0.40, 0.42), 2: (0.90,)},
    (9, 2e-5): {1: (0.60, 0.61), 2: (0.62,)},
    (9, 3e-5): {1: (0.80, 0.82), 2: (0.10,)},
}
"""The scores of seeds 1, 2, ... for each number of steps and rate, by pretraining seed."""


def finish_steps(bench) -> None:
    """Finish two checkpoints, rates, pretraining seeds and seeds; one pretraining lacks a seed."""
    for (steps, rate), by_pretraining in PRETRAINED_RUNS.items():
        for pretraining, scores in by_pretraining.items():
            for seed, score in enumerate(scores, 1):
                cell = bench.expect("rte", seed=seed, rate=rate)
                cell["cell_id"] += f"-p{pretraining}-{steps}"
                cell["steps"] = steps
                cell["pretraining_seed"] = pretraining
                bench.record(cell, score=score)


@pytest.mark.parametrize(
    ("protocol", "after_4", "after_9"),
    [
        ({}, (0.41 + 0.90) / 2, (0.605 + 0.62) / 2),
        ({"rate": "best-median", "seeds": "median"}, 0.56, 0.80),
        ({"rate": "best-median"}, (0.53 + 0.70) / 2, (0.81 + 0.10) / 2),
    ],
)
def test_each_checkpoint_has_a_rate_and_a_score_of_its_own_runs_by_the_protocol(
    bench, protocol, after_4, after_9
):
    finish_steps(bench)
    board = open_board(bench.plan(config={"protocol": protocol}))
    frame = steps_frame(board).set_index("steps")
    assert frame["rte"].to_dict() == pytest.approx({4: 100 * after_4, 9: 100 * after_9})
    assert frame["rte_n"].to_dict() == {4: 3, 9: 3}
    assert board.table["rte"].item() == pytest.approx(100 * after_9)
    assert board.steps == 9


def test_the_frame_of_steps_has_the_columns_of_the_leaderboard(bench):
    finish_steps(bench)
    board = open_board(bench.plan())
    frame = steps_frame(board)
    assert list(frame)[:4] == ["origin", "arm", "variant", "steps"]
    assert [name for name in frame if name != "steps"] == list(board.table)


def test_every_checkpoint_is_shown_by_the_protocol_that_is_asked_for_now(bench):
    finish_steps(bench)
    board = open_board(bench.plan(), ["seeds=median", "rate=best-median"])
    scores = steps_frame(board).set_index("steps")["rte"]
    assert scores.to_dict() == pytest.approx({4: 56.0, 9: 80.0})


@pytest.mark.parametrize(("steps", "arms"), [(4, ["add"]), (9, ["add", "later"])])
def test_arms_without_cells_after_some_steps_are_in_no_board_of_these(bench, steps, arms):
    finish_steps(bench)
    cell = bench.finish("rte", seed=1, score=0.3, arm="later")
    cell["steps"] = 9
    results = read_results(bench.plan())
    assert make_board(results, None, steps).table["arm"].tolist() == arms


@pytest.mark.parametrize(("statistic", "expected"), [("mean", 52.5), ("median", 55.0)])
def test_every_convention_takes_the_statistic_of_the_protocol_of_an_even_number_of_runs(
    bench, statistic, expected
):
    for seed, value in enumerate((0.3, 0.5, 0.6, 0.7), 1):
        for task in TRAINABLE:
            bench.finish(task, seed=seed, score=value)
    board = open_board(bench.plan(config={"protocol": {"seeds": statistic}}))
    row = averages_frame(board).iloc[0]
    for name in AVERAGES:
        assert row[name] == pytest.approx(expected), name


def test_the_average_of_a_baseline_is_over_the_columns_of_the_arms_average(bench):
    """A baseline needs all columns of the average; WNLI does not count."""
    predictions = {"rte": ONE_WRONG, "mrpc": GOLD, "wnli": ALL_WRONG, "cola": GOLD}
    for task, predicted in predictions.items():
        bench.finish(task)
        baselines = {"bag of words": {"validation": predicted}}
        if task == "rte":
            baselines["word overlap"] = {"validation": predicted}
        bench.label(task, {"validation": GOLD}, **baselines)
    table = baseline_scores(open_board(bench.plan())).set_index("arm")
    bag_of_words = table.loc["bag of words"]
    expected = {"rte": 75.0, "mrpc": 100.0, "wnli": 0.0, "cola": 100.0}
    assert bag_of_words[list(expected)].to_dict() == expected
    assert bag_of_words["average"] == pytest.approx((75 + 100 + 100) / 3)
    assert math.isnan(table["average"]["word overlap"])
