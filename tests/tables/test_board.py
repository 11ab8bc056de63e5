"""From the scores of single runs to one number of an arm: means, averages, chosen rates, and the order of arms."""

import math
import shutil

import pytest

from glue_bench.data.tasks import TRAINABLE
from glue_bench.tables.board import AVERAGES, COLUMNS, average, average_of, averages, leaderboard, open_board
from glue_bench.tables.export import find, tables


def finish_all(bench, value=0.5, tasks=TRAINABLE, **where):
    for task in tasks:
        bench.finish(task, 1, value, **where)


def chosen(bench):
    """Learning rate by (arm, task)."""
    return {(arm, task): rate for arm, task, rate in open_board(bench.plan()).rates.itertuples(index=False)}


# Columns and rows


def test_mean_sample_deviation_and_n(bench):
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed, value)
    bench.finish("mrpc", 1)
    bench.expect("cola", 1)
    row = leaderboard(bench.plan()).iloc[0]
    assert (row["rte"], row["rte_n"]) == (pytest.approx(63.0), 3)
    assert row["rte_std"] == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert math.isnan(row["mrpc_std"])
    assert (math.isnan(row["cola"]), row["cola_n"]) == (True, 0)


def test_columns_follow_the_tasks_of_the_plan_with_mnli_apart(bench):
    bench.finish("rte", 1, 0.6)
    bench.finish("wnli", 1, 0.1)
    bench.finish("mnli", 1, {"validation_matched": {"accuracy": 0.8}, "validation_mismatched": {"accuracy": 0.7}})
    table = leaderboard(bench.plan())
    names = ["mnli_m", "mnli_mm", "rte", "wnli"]
    assert list(table.columns) == [
        *("origin", "arm", "variant"),
        *(f"{name}{end}" for name in names for end in ("", "_std", "_n")),
        *(f"average{name}{end}" for name in ("", "_official", "_nine_columns") for end in ("", "_std")),
        *("shape", "start", "parameters"),
    ]
    assert (table["mnli_m"][0], table["mnli_mm"][0]) == (80.0, 70.0)
    assert table["average"][0] == pytest.approx((60 + 80 + 70) / 3)


def test_origins_are_never_mixed_arms_are_ranked_within_one_and_those_without_an_average_are_last(bench):
    for arm, value, origin in (("best", 0.9, "scratch"), ("graft", 0.8, "grafted"), ("low", 0.5, "pretrained"),
                               ("high", 0.6, "pretrained"), ("again", 0.7, "adapted")):  # fmt: skip
        finish_all(bench, value, arm=arm, origin=origin)
    bench.expect("rte", 1, arm="a_new")
    assert leaderboard(bench.plan())["arm"].tolist() == ["high", "low", "a_new", "again", "graft", "best"]


def test_a_plan_without_records_gives_missing_values_and_an_empty_one_an_empty_table(bench):
    assert leaderboard(bench.plan()).empty
    bench.expect("rte", 1)
    table = leaderboard(bench.plan())
    assert table["arm"].tolist() == ["add"]
    assert (table["rte"].isna().all(), table["rte_n"].tolist()) == (True, [0])


def test_collapsed_runs_count_at_the_chosen_rate_only_and_a_seed_once(bench):
    bench.finish("rte", 1, 0.5, rate=2e-5, collapsed=["validation"])
    bench.finish("rte", 1, 0.6, rate=3e-5)
    bench.finish("mnli", 1, 0.33, collapsed=["validation_matched"])
    board = open_board(bench.plan())
    assert board.collapsed == {"add": {"mnli_m": 1, "mnli_mm": 0, "rte": 0}}
    assert board.planned == {"add": {"mnli_m": 1, "mnli_mm": 1, "rte": 1}}


# Averages


def test_the_conventions_give_what_is_published(bench):
    """run_glue is 78.9 official and 81.7 without WNLI; TUPE-R's margin is 2.08 on nine columns and 2.18 on eight."""
    bench.finish_published("run-glue", "fp32")
    bench.finish_published("tupe-1", "TUPE-R", arm="tupe")
    bench.finish_published("tupe-1", "BERT-A", arm="bert")
    rows = averages(open_board(bench.plan())).set_index("arm")
    assert rows.loc["add", ["average_official", "average_eight_tasks"]].tolist() == pytest.approx(
        [78.9, 81.7], abs=0.05
    )
    assert math.isnan(rows["average_official"]["tupe"])  # there is no WNLI
    margins = rows.loc["tupe", list(AVERAGES)] - rows.loc["bert", list(AVERAGES)]
    assert margins["average_nine_columns"] == pytest.approx(2.08, abs=0.005)
    assert margins["average_eight_columns"] == pytest.approx(2.18, abs=0.005)


def test_without_any_convention_there_is_no_file(bench):
    bench.finish("rte", 1)
    assert "averages.csv" not in tables(find(bench.plan()))


def test_the_average_deviates_over_seeds_only_where_all_parts_have_the_same_seeds(bench):
    for seed, shift in ((1, 0.0), (2, 0.02), (3, 0.04)):
        for task in TRAINABLE:
            bench.finish(task, seed, 0.5 + shift * (task != "rte"))
    row = leaderboard(bench.plan()).iloc[0]
    # Eight of nine parts move by 2 points a seed; so do eight of the nine columns.
    assert row["average_official"] == pytest.approx(50 + 2 * 8 / 9)
    assert row["average_official_std"] == row["average_nine_columns_std"] == pytest.approx(2 * 8 / 9)
    shutil.rmtree(bench.file("add-cola-lr2e-05-s3").parent)
    row = leaderboard(bench.path).iloc[0]
    assert row["average_official"] == pytest.approx(50 + (2 * 7 + 1) / 9)
    assert math.isnan(row["average_official_std"])


@pytest.mark.parametrize(
    ("task", "value", "official", "nine"),
    [
        ("cola", "missing", False, False),
        ("mrpc", {"accuracy": 0.5}, False, True),  # the nine columns do not need its F1
        ("stsb", None, False, False),
    ],
    ids=["a part", "a metric", "undefined"],
)
def test_an_average_that_lacks_something_is_missing(bench, task, value, official, nine):
    finish_all(bench, tasks=set(TRAINABLE) - {task})
    bench.expect(task) if value == "missing" else bench.finish(task, 1, value)
    row = leaderboard(bench.plan()).iloc[0]
    assert (not math.isnan(row["average_official"]), not math.isnan(row["average_nine_columns"])) == (official, nine)
    assert row["rte"] == 50


def test_the_conventions_weigh_what_they_say():
    official, nine = AVERAGES["average_official"].parts, AVERAGES["average_nine_columns"].parts
    assert len(official) == len(nine) == 9
    assert official["mnli"] == tuple(("mnli", f"validation_{end}", "accuracy") for end in ("matched", "mismatched"))
    assert nine["stsb"] == (("stsb", "validation", "pearson"),)
    assert ("wnli" in official, "wnli" in nine) == (True, False)
    assert average_of(list(COLUMNS)).parts == nine
    assert list(average_of(["wnli"]).parts) == ["wnli"]


# Rates


def test_each_arm_and_task_takes_its_best_rate(bench):
    for arm, low, high in (("add", 0.6, 0.5), ("concat", 0.5, 0.6)):
        for rate, mean in ((2e-5, low), (3e-5, high)):
            bench.finish("rte", 1, mean - 0.1, arm=arm, rate=rate)
            bench.finish("rte", 2, mean + 0.1, arm=arm, rate=rate)
    assert chosen(bench) == {("add", "rte"): 2e-5, ("concat", "rte"): 3e-5}
    assert leaderboard(bench.path)["rte"].tolist() == pytest.approx([60, 60])


def test_tied_rates_take_the_lower_one_whatever_the_order_of_seeds(bench):
    for rate, values in ((3e-5, (0.57, 0.1, 0.613)), (2e-5, (0.1, 0.613, 0.57))):
        for seed, value in enumerate(values):
            bench.finish("rte", seed, value, rate=rate)
    assert chosen(bench) == {("add", "rte"): 2e-5}


def test_a_rate_is_chosen_by_the_mean_over_splits_of_the_main_metric(bench):
    bench.finish("mnli", 1, {"validation_matched": {"accuracy": 0.9}, "validation_mismatched": {"accuracy": 0.1}})
    bench.finish("mnli", 1, 0.6, rate=3e-5)
    bench.finish("mrpc", 1, {"accuracy": 0.5, "f1": 0.9})
    bench.finish("mrpc", 1, {"accuracy": 0.6, "f1": 0.1}, rate=3e-5)
    assert chosen(bench) == {("add", "mnli"): 3e-5, ("add", "mrpc"): 3e-5}


def test_a_rate_with_fewer_finished_seeds_or_an_undefined_score_is_passed_over(bench):
    bench.finish("rte", 1, 0.9)
    bench.expect("rte", 2)
    bench.finish("rte", 1, 0.5, rate=3e-5)
    bench.finish("rte", 2, 0.5, rate=3e-5)
    bench.finish("stsb", 1, None)
    bench.finish("stsb", 1, 0.1, rate=3e-5)
    assert chosen(bench) == {("add", "rte"): 3e-5, ("add", "stsb"): 3e-5}


def test_averages_are_computed_at_the_chosen_rates(bench):
    for rate, value in ((2e-5, 0.5), (3e-5, 0.6)):
        finish_all(bench, value, rate=rate)
    runs = open_board(bench.plan()).runs
    assert average(runs, AVERAGES["average_official"]).loc["add", "mean"] == pytest.approx(60)
