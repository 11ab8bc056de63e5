import math

import pytest

from glue_bench.tables.board import leaderboard, open_board

NINE_COLUMN_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


def finish_all(bench, value, **where):
    for task in NINE_COLUMN_TASKS:
        bench.finish(task, 1, value, **where)


def test_mean_sample_deviation_and_n(bench):
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed, value)
    row = leaderboard(bench.plan()).iloc[0]
    assert row["rte"] == pytest.approx(63.0)
    assert row["rte_std"] == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert row["rte_n"] == 3


def test_one_seed_has_no_deviation_and_a_missing_cell_no_value(bench):
    bench.finish("rte", 1, 0.6)
    bench.expect("cola", 1)
    row = leaderboard(bench.plan()).iloc[0]
    assert math.isnan(row["rte_std"])
    assert math.isnan(row["cola"])
    assert (row["rte_n"], row["cola_n"]) == (1, 0)


def test_columns_follow_the_tasks_of_the_plan_with_mnli_apart(bench):
    bench.finish("rte", 1)
    bench.finish("mnli", 1, {"validation_matched": {"accuracy": 0.8}, "validation_mismatched": {"accuracy": 0.7}})
    table = leaderboard(bench.plan())
    assert list(table.columns) == [
        "origin", "arm", "variant",
        "mnli_m", "mnli_m_std", "mnli_m_n", "mnli_mm", "mnli_mm_std", "mnli_mm_n", "rte", "rte_std", "rte_n",
        "average", "average_std",
        "average_official", "average_official_std", "average_nine_columns", "average_nine_columns_std",
        "shape", "start", "parameters",
    ]  # fmt: skip
    assert (table["mnli_m"][0], table["mnli_mm"][0]) == (80.0, 70.0)


def test_origins_are_never_mixed_and_arms_are_ranked_within_one(bench):
    finish_all(bench, 0.9, arm="best", origin="scratch")
    finish_all(bench, 0.8, arm="graft", origin="grafted")
    finish_all(bench, 0.5, arm="low", origin="pretrained")
    finish_all(bench, 0.6, arm="high", origin="pretrained")
    finish_all(bench, 0.7, arm="adapted", origin="adapted")
    assert leaderboard(bench.plan())["arm"].tolist() == ["high", "low", "adapted", "graft", "best"]


def test_an_arm_without_an_average_comes_last(bench):
    finish_all(bench, 0.5, arm="z_low")
    bench.expect("rte", 1, arm="a_new")
    finish_all(bench, 0.6, arm="high")
    assert leaderboard(bench.plan())["arm"].tolist() == ["high", "z_low", "a_new"]


def test_the_average_is_of_the_columns_that_are_there(bench):
    bench.finish("rte", 1, 0.6)
    bench.finish("wnli", 1, 0.1)
    bench.finish("mnli", 1, {"validation_matched": {"accuracy": 0.8}, "validation_mismatched": {"accuracy": 0.7}})
    bench.finish("mrpc", 1, {"accuracy": 0.9, "f1": 0.1})
    table = leaderboard(bench.plan())
    assert table["average"][0] == pytest.approx((60 + 80 + 70 + 90) / 4)


def test_a_plan_without_records_gives_a_table_of_missing_values(bench):
    bench.expect("rte", 1, arm="add")
    bench.expect("rte", 1, arm="cat", origin="grafted")
    table = leaderboard(bench.plan())
    assert table["arm"].tolist() == ["add", "cat"]
    assert table["rte"].isna().all()
    assert table["rte_n"].tolist() == [0, 0]


def test_collapsed_runs_count_at_the_chosen_rate_only(bench):
    bench.finish("rte", 1, 0.5, rate=2e-5, collapsed=["validation"])
    bench.finish("rte", 1, 0.6, rate=3e-5)
    bench.finish("mnli", 1, 0.33, collapsed=["validation_matched"])
    bench.plan()
    assert open_board(bench.path).collapsed == {"add": {"mnli_m": 1, "mnli_mm": 0, "rte": 0}}
