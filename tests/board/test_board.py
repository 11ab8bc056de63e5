"""From the scores of single runs to one number of an arm: means, averages, rates and epochs, by each protocol."""

import math
import shutil

import numpy as np
import pytest
from helpers.stored import DATA, history_of

from glue_bench import leaderboard
from glue_bench.board.aggregation import RUN_KEYS, reported_epochs
from glue_bench.board.averages import AVERAGES, average_of
from glue_bench.board.board import averages_frame, floors, make_board, open_board, steps_frame
from glue_bench.board.compare import open_comparison
from glue_bench.board.results import read_results
from glue_bench.config import Protocol
from glue_bench.data.tasks import COLUMNS, TRAINABLE
from glue_bench.errors import UserError
from glue_bench.pages.files import table_files


def test_mean_sample_deviation_and_n(bench):
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed, value)
    bench.finish("mrpc", 1)
    for seed, value in ((1, 0.5), (2, None), (3, 0.5)):  # an undefined score is not left out
        bench.finish("stsb", seed, value)
    bench.expect("cola", 1)
    row = leaderboard(bench.plan()).iloc[0]
    assert (row["rte"], row["rte_n"]) == (pytest.approx(63.0), 3)
    assert row["rte_std"] == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert np.isnan(row[["mrpc_std", "stsb", "stsb_std"]].astype(float)).all()
    assert (math.isnan(row["cola"]), row["cola_n"]) == (True, 0)


def test_columns_follow_the_tasks_of_the_plan_with_mnli_apart(bench):
    bench.finish("rte", 1, 0.6)
    bench.finish("wnli", 1, 0.1)
    bench.finish(
        "mnli",
        1,
        {"validation_matched": {"accuracy": 0.8}, "validation_mismatched": {"accuracy": 0.7}},
    )
    table = open_board(bench.plan()).table
    assert "averages.csv" not in table_files(
        open_comparison(bench.path)
    )  # no convention has all of its tasks
    names = ["mnli_m", "mnli_mm", "rte", "wnli"]
    assert [name for name in table if f"{name}_n" in table] == names
    assert (table["mnli_m"][0], table["mnli_mm"][0]) == (80.0, 70.0)
    assert table["average"][0] == pytest.approx((60 + 80 + 70) / 3)


def test_the_conventions_give_what_is_published(bench):
    """run_glue is 78.9 official and 81.7 without WNLI; TUPE-R's margin is 2.08 on nine columns and 2.18 on eight."""
    bench.finish_published("run-glue", "fp32")
    bench.finish_published("tupe-1", "TUPE-R", arm="tupe")
    bench.finish_published("tupe-1", "BERT-A", arm="bert")
    rows = averages_frame(open_board(bench.plan())).set_index("arm")
    run_glue = rows.loc["add", ["average_official", "average_eight_tasks"]]
    assert run_glue.tolist() == pytest.approx([78.9, 81.7], abs=0.05)
    assert math.isnan(rows["average_official"]["tupe"])  # there is no WNLI
    assert average_of(list(COLUMNS)).parts == AVERAGES["average_nine_columns"].parts
    assert list(average_of(["wnli"]).parts) == ["wnli"]
    margins = rows.loc["tupe", list(AVERAGES)] - rows.loc["bert", list(AVERAGES)]
    assert margins["average_nine_columns"] == pytest.approx(2.08, abs=0.005)
    assert margins["average_eight_columns"] == pytest.approx(2.18, abs=0.005)


def test_the_average_deviates_over_seeds_only_where_all_parts_have_the_same_seeds(bench):
    for seed, shift in ((1, 0.0), (2, 0.02), (3, 0.04)):
        for task in TRAINABLE:
            bench.finish(task, seed, 0.5 + shift * (task != "rte"))
    row = leaderboard(bench.plan()).iloc[0]
    # Eight of nine parts move by 2 points a seed; so do eight of the nine columns.
    assert row["average_official"] == pytest.approx(50 + 2 * 8 / 9)
    assert (
        row["average_official_std"] == row["average_nine_columns_std"] == pytest.approx(2 * 8 / 9)
    )
    shutil.rmtree(bench.file("add-cola-lr2e-05-s3").parent)
    row = leaderboard(bench.path).iloc[0]
    assert row["average_official"] == pytest.approx(50 + (2 * 7 + 1) / 9)
    assert math.isnan(row["average_official_std"])


def test_an_average_that_lacks_something_is_missing(bench):
    for arm, task in (("part", "cola"), ("metric", "mrpc"), ("undefined", "stsb")):
        for other in {*TRAINABLE} - {task}:
            bench.finish(other, arm=arm)
    bench.expect("cola", arm="part")
    bench.finish("mrpc", 1, {"accuracy": 0.5}, arm="metric")
    bench.finish("stsb", 1, None, arm="undefined")
    table = leaderboard(bench.plan()).set_index("arm")
    assert table["average_official"].isna().all()
    # The nine columns do not need the F1 of MRPC.
    assert table["average_nine_columns"].notna().to_dict() == {
        "part": False,
        "metric": True,
        "undefined": False,
    }
    assert set(table["rte"]) == {50}


def test_each_arm_and_task_takes_its_best_rate_by_the_main_metric_and_ties_the_lower_one(bench):
    """Whatever the order of seeds; a rate with fewer finished seeds or an undefined score is passed over."""
    of_mnli = {"validation_matched": {"accuracy": 0.9}, "validation_mismatched": {"accuracy": 0.1}}
    values = {
        ("add", "rte"): ((0.5, 0.7), (0.4, 0.6)),
        ("concat", "rte"): ((0.4, 0.6), (0.5, 0.7)),
        ("tied", "rte"): ((0.1, 0.613, 0.57), (0.57, 0.1, 0.613)),
        ("add", "mnli"): ((of_mnli,), (0.6,)),
        ("add", "mrpc"): (({"accuracy": 0.5, "f1": 0.9},), ({"accuracy": 0.6, "f1": 0.1},)),
        ("add", "cola"): ((0.9,), (0.5, 0.5)),
        ("add", "stsb"): ((None,), (0.1,)),
    }
    for (arm, task), of_rates in values.items():
        for rate, of_seeds in zip((2e-5, 3e-5), of_rates, strict=True):
            for seed, value in enumerate(of_seeds):
                bench.finish(task, seed, value, arm=arm, rate=rate)
    board = open_board(bench.plan())
    chosen = {
        (arm, task): rate
        for arm, task, rate in board.runs[["arm", "task", "learning_rate"]].to_numpy().tolist()
    }
    assert chosen == {
        place: 2e-5 if place in [("add", "rte"), ("tied", "rte")] else 3e-5 for place in values
    }
    assert board.table.set_index("arm")["rte"][["add", "concat"]].tolist() == pytest.approx(
        [60, 60]
    )


@pytest.mark.parametrize(
    ("choose_on", "epoch", "score", "value"),
    [("validation", "last", 60, 60), ("validation", "best", 70, 70), ("held_out", "last", 60, 55),
     ("held_out", "best", 50, 65)],
)  # fmt: skip
def test_the_epoch_that_is_shown_and_the_value_by_which_the_runs_rate_competes(
    bench, choose_on, epoch, score, value
):
    history = [
        {
            "epoch": i,
            "train_loss": 1.0,
            "scores": {"validation": {"accuracy": v}, "held_out": {"accuracy": h}},
        }
        for i, (v, h) in enumerate([(0.5, 0.65), (0.7, 0.5), (0.6, 0.55)], start=1)
    ]
    bench.record(bench.expect(), 0.6, history=history)
    results, protocol = read_results(bench.plan()), Protocol(choose_on=choose_on, epoch=epoch)
    scores = results.scores.merge(results.cells[["cell_id", *RUN_KEYS]], on="cell_id")
    assert make_board(results, protocol).scores["value"].item() == pytest.approx(score)
    assert reported_epochs(scores, protocol)["value"].item() == pytest.approx(value)


def test_the_first_of_equal_epochs_is_the_best_and_an_undefined_one_never(bench):
    bench.record(
        bench.expect(), None, history=history_of("validation", "accuracy", None, 0.7, 0.7, None)
    )
    results = read_results(bench.plan())
    assert make_board(results, Protocol(epoch="best")).scores["epoch"].tolist() == [2]
    assert np.isnan(make_board(results).scores["value"].item())


def outlier(bench):
    """Two rates: the lower has the better mean, the higher the better median."""
    for seed, (low, high) in enumerate([(0.6, 0.65), (0.6, 0.65), (0.6, 0.3)], start=1):
        bench.finish("rte", seed, low, rate=2e-5)
        bench.finish("rte", seed, high, rate=3e-5)


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
    outlier(bench)
    assert open_board(bench.plan(config={"protocol": protocol})).table.iloc[0][
        "rte"
    ] == pytest.approx(expected)


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
    outlier(bench)
    bench.finish("mrpc")
    with pytest.raises(UserError, match=message):
        open_board(bench.plan(), [change])


def test_what_baselines_score_is_told_from_stored_predictions_and_damaged_labels_are_a_problem(
    bench,
):
    gold = {"validation": np.array([0, 1, 1, 0])}
    bench.finish()
    bench.label(
        "rte",
        gold,
        **{"bag of words": {"validation": np.array([0, 1, 0, 0])}, "always right": gold},
    )
    results = read_results(bench.plan())
    assert results.tasks.loc["rte", ["source", "digest"]].tolist() == ["tsv", DATA]
    assert results.baselines.values.tolist() == [
        ["rte", "validation", "accuracy", "majority class", 50.0],
        ["rte", "validation", "accuracy", "always right", 100.0],
        ["rte", "validation", "accuracy", "bag of words", 75.0],
    ]
    (path,) = (bench.path / "labels").iterdir()
    path.write_bytes(b"x")
    results = read_results(bench.path)
    assert (len(results.baselines), len(results.problems)) == (0, 1)


def test_runs_after_two_pretrainings_are_two_runs_of_one_arm(bench):
    for seed, value in ((1, 0.6), (2, 0.8)):
        cell = bench.expect()
        cell |= {"cell_id": f"{cell['cell_id']}-p{seed}", "steps": 9, "pretraining_seed": seed}
        bench.record(cell, value)
    (row,) = open_board(bench.plan()).table.to_dict("records")
    assert (row["rte"], row["rte_n"], row["rte_std"]) == (
        pytest.approx(70),
        2,
        pytest.approx(math.sqrt(200)),
    )


PRETRAINED_RUNS = {
    (4, 2e-5): {1: (0.50, 0.56), 2: (0.70,)},
    (4, 3e-5): {1: (0.40, 0.42), 2: (0.90,)},
    (9, 2e-5): {1: (0.60, 0.61), 2: (0.62,)},
    (9, 3e-5): {1: (0.80, 0.82), 2: (0.10,)},
}
"""By steps of pretraining and learning rate the scores of fine-tuning seeds 1, 2, ... after each pretraining seed."""


def finish_steps(bench) -> None:
    """Two checkpoints, rates, pretraining seeds and seeds at once; one pretraining lacks a seed."""
    for (steps, rate), by_pretraining in PRETRAINED_RUNS.items():
        for pretraining, scores in by_pretraining.items():
            for seed, score in enumerate(scores, 1):
                cell = bench.expect("rte", seed, rate=rate)
                cell |= {"cell_id": f"{cell['cell_id']}-p{pretraining}-{steps}", "steps": steps}
                cell |= {"pretraining_seed": pretraining}
                bench.record(cell, score)


@pytest.mark.parametrize(
    ("protocol", "after_4", "after_9"),
    [
        ({}, (0.41 + 0.90) / 2, (0.605 + 0.62) / 2),
        ({"rate": "best-median", "seeds": "median"}, 0.56, 0.80),
        ({"rate": "best-median"}, (0.53 + 0.70) / 2, (0.81 + 0.10) / 2),
    ],
    ids=str,
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


def test_every_checkpoint_is_shown_by_the_protocol_that_is_asked_for_now(bench):
    finish_steps(bench)
    frame = steps_frame(open_board(bench.plan(), ["seeds=median", "rate=best-median"])).set_index(
        "steps"
    )
    assert frame["rte"].to_dict() == pytest.approx({4: 56.0, 9: 80.0})


def test_arms_without_cells_after_some_steps_are_in_no_board_of_these(bench):
    finish_steps(bench)
    bench.finish("rte", 1, 0.3, arm="later")
    bench.cells[-1] |= {"steps": 9}
    results = read_results(bench.plan())
    assert [make_board(results, None, steps).table["arm"].tolist() for steps in (4, 9)] == [
        ["add"],
        ["add", "later"],
    ]


@pytest.mark.parametrize(("seeds", "expected"), [("mean", 52.5), ("median", 55.0)])
def test_every_convention_takes_the_statistic_of_the_protocol_of_an_even_number_of_runs(
    bench, seeds, expected
):
    for seed, value in enumerate((0.3, 0.5, 0.6, 0.7), 1):
        for task in TRAINABLE:
            bench.finish(task, seed, value)
    row = averages_frame(open_board(bench.plan(config={"protocol": {"seeds": seeds}}))).iloc[0]
    assert {name: row[name] for name in AVERAGES} == pytest.approx(
        dict.fromkeys(AVERAGES, expected)
    )


def test_the_average_of_a_baseline_is_over_the_columns_of_the_arms_average_and_needs_all_of_them(
    bench,
):
    gold, some, none = (np.array(values) for values in ([0, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1]))
    predicted = {"rte": some, "mrpc": gold, "wnli": none}
    for task, values in predicted.items():
        bench.finish(task)
        bench.label(task, {"validation": gold}, **{"bag of words": {"validation": values}})
    bench.finish("cola")
    bench.label("cola", {"validation": gold}, **{"bag of words": {"validation": gold}})
    both = {"word overlap": {"validation": some}, "bag of words": {"validation": some}}
    bench.label("rte", {"validation": gold}, **both)
    table = floors(open_board(bench.plan())).set_index("arm")
    assert table.loc["bag of words", ["rte", "mrpc", "wnli", "cola"]].tolist() == [
        75.0,
        100.0,
        0.0,
        100.0,
    ]
    assert table["average"]["bag of words"] == pytest.approx((75 + 100 + 100) / 3)
    assert math.isnan(table["average"]["word overlap"])
