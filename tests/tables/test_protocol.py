import math
import shutil

import pytest

from glue_bench.tables.averages import AVERAGES, COLUMNS, average, average_of
from glue_bench.tables.board import leaderboard, open_board

TUPE_TABLE_1_BERT_A = {
    "mnli": {"validation_matched": {"accuracy": 0.8493}, "validation_mismatched": {"accuracy": 0.8491}},
    "qqp": {"accuracy": 0.9134, "f1": 0.1},
    "qnli": 0.9104,
    "sst2": 0.9288,
    "cola": 0.5519,
    "mrpc": {"accuracy": 0.8829, "f1": 0.1},
    "rte": 0.6861,
    "stsb": {"pearson": 0.8943, "spearmanr": 0.1},
}
RUN_GLUE = {
    "cola": 0.5653,
    "sst2": 0.9232,
    "mrpc": {"f1": 0.8885, "accuracy": 0.8407},
    "stsb": {"pearson": 0.8864, "spearmanr": 0.8848},
    "qqp": {"accuracy": 0.9071, "f1": 0.8749},
    "mnli": {"validation_matched": {"accuracy": 0.8391}, "validation_mismatched": {"accuracy": 0.841}},
    "qnli": 0.9066,
    "rte": 0.657,
    "wnli": 0.5634,
}


def chosen(bench):
    """Learning rate by (arm, task)."""
    return {(arm, task): rate for arm, task, rate in open_board(bench.path).rates.itertuples(index=False)}


def test_the_nine_columns_average_reproduces_a_published_row(bench):
    for task, value in TUPE_TABLE_1_BERT_A.items():
        bench.finish(task, 1, value)
    row = leaderboard(bench.plan()).iloc[0]
    assert row["average_nine_columns"] == pytest.approx(82.96, abs=0.005)
    assert math.isnan(row["average_official"])  # there is no WNLI


def test_the_official_average_reproduces_a_published_row(bench):
    for task, value in RUN_GLUE.items():
        bench.finish(task, 1, value)
    row = leaderboard(bench.plan()).iloc[0]
    assert row["average_official"] == pytest.approx(78.9, abs=0.05)
    assert math.isnan(row["average_official_std"])  # one seed


def test_the_average_deviates_over_seeds_only_where_all_parts_have_the_same_seeds(bench):
    for seed, shift in ((1, 0.0), (2, 0.02), (3, 0.04)):
        for task in RUN_GLUE:
            bench.finish(task, seed, 0.5 + shift * (task != "rte"))
    row = leaderboard(bench.plan()).iloc[0]
    # Eight of nine parts move by 2 points a seed; so do eight of the nine columns.
    assert row["average_official"] == pytest.approx(50 + 2 * 8 / 9)
    assert row["average_official_std"] == pytest.approx(2 * 8 / 9)
    assert row["average_nine_columns_std"] == pytest.approx(2 * 8 / 9)
    shutil.rmtree(bench.file("add-cola-lr2e-05-s3").parent)
    row = leaderboard(bench.path).iloc[0]
    assert row["average_official"] == pytest.approx(50 + (2 * 7 + 1) / 9)
    assert math.isnan(row["average_official_std"])


def test_an_average_without_one_of_its_parts_is_missing(bench):
    for task, value in RUN_GLUE.items():
        (bench.expect if task == "cola" else bench.finish)(task, 1, **({} if task == "cola" else {"value": value}))
    row = leaderboard(bench.plan()).iloc[0]
    assert math.isnan(row["average_official"])
    assert math.isnan(row["average_nine_columns"])


def test_a_part_that_lacks_one_of_its_metrics_is_missing(bench):
    for task, value in RUN_GLUE.items():
        bench.finish(task, 1, {"accuracy": 0.9} if task == "mrpc" else value)
    row = leaderboard(bench.plan()).iloc[0]
    assert math.isnan(row["average_official"])
    assert not math.isnan(row["average_nine_columns"])  # it does not need MRPC's F1


def test_an_undefined_score_makes_its_column_and_averages_missing(bench):
    for seed in (1, 2):
        for task in RUN_GLUE:
            bench.finish(task, seed, None if (task, seed) == ("stsb", 2) else 0.5)
    row = leaderboard(bench.plan()).iloc[0]
    assert (math.isnan(row["stsb"]), row["stsb_n"], row["rte"]) == (True, 2, 50.0)
    assert math.isnan(row["average_official"])


def test_each_arm_and_task_takes_its_best_rate(bench):
    for arm, low, high in (("add", 0.6, 0.5), ("concat", 0.5, 0.6)):
        for rate, mean in ((2e-5, low), (3e-5, high)):
            bench.finish("rte", 1, mean - 0.1, arm=arm, rate=rate)
            bench.finish("rte", 2, mean + 0.1, arm=arm, rate=rate)
    bench.plan()
    assert chosen(bench) == {("add", "rte"): 2e-5, ("concat", "rte"): 3e-5}
    assert leaderboard(bench.path)["rte"].tolist() == pytest.approx([60, 60])


def test_tied_rates_take_the_lower_one_whatever_the_order_of_seeds(bench):
    for rate, values in ((3e-5, (0.57, 0.1, 0.613)), (2e-5, (0.1, 0.613, 0.57))):
        for seed, value in enumerate(values):
            bench.finish("rte", seed, value, rate=rate)
    bench.plan()
    assert chosen(bench) == {("add", "rte"): 2e-5}


def test_a_rate_is_chosen_by_the_mean_over_splits_of_the_main_metric(bench):
    matched_only = {"validation_matched": {"accuracy": 0.9}, "validation_mismatched": {"accuracy": 0.1}}
    bench.finish("mnli", 1, matched_only, rate=2e-5)
    bench.finish("mnli", 1, 0.6, rate=3e-5)
    bench.finish("mrpc", 1, {"accuracy": 0.5, "f1": 0.9}, rate=2e-5)
    bench.finish("mrpc", 1, {"accuracy": 0.6, "f1": 0.1}, rate=3e-5)
    bench.plan()
    assert chosen(bench) == {("add", "mnli"): 3e-5, ("add", "mrpc"): 3e-5}


def test_a_rate_with_fewer_finished_seeds_or_an_undefined_score_is_passed_over(bench):
    bench.finish("rte", 1, 0.9, rate=2e-5)
    bench.expect("rte", 2, rate=2e-5)
    bench.finish("rte", 1, 0.5, rate=3e-5)
    bench.finish("rte", 2, 0.5, rate=3e-5)
    bench.finish("stsb", 1, None, rate=2e-5)
    bench.finish("stsb", 1, 0.1, rate=3e-5)
    bench.plan()
    assert chosen(bench) == {("add", "rte"): 3e-5, ("add", "stsb"): 3e-5}


def test_averages_are_computed_at_the_chosen_rates(bench):
    for task in RUN_GLUE:
        bench.finish(task, 1, 0.5, rate=2e-5)
        bench.finish(task, 1, 0.6, rate=3e-5)
    bench.plan()
    assert average(open_board(bench.path).runs, AVERAGES["average_official"]).loc["add", "mean"] == pytest.approx(60)


def test_the_conventions_weigh_what_they_say():
    official, nine = AVERAGES["average_official"].parts, AVERAGES["average_nine_columns"].parts
    assert len(official) == len(nine) == 9
    assert official["mnli"] == (
        ("mnli", "validation_matched", "accuracy"),
        ("mnli", "validation_mismatched", "accuracy"),
    )
    assert nine["stsb"] == (("stsb", "validation", "pearson"),)
    assert "wnli" in official
    assert "wnli" not in nine


def test_the_average_of_all_columns_is_the_nine_of_papers():
    assert average_of(list(COLUMNS)).parts == AVERAGES["average_nine_columns"].parts
    assert list(average_of(["wnli"]).parts) == ["wnli"]
