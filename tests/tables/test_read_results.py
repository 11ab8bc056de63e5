import math
from pathlib import Path

import pytest

import glue_bench
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import UserError
from glue_bench.tables.board import SCORE_COLUMNS, leaderboard, open_board
from glue_bench.tables.export import find, tables
from glue_bench.tables.results import read_results


def test_scores_are_tidy_and_in_the_order_of_plan_split_and_metric(bench):
    bench.finish("mnli", 1, {"validation_mismatched": {"accuracy": 0.7}, "validation_matched": {"accuracy": 0.8}})
    bench.finish("mrpc", 1, {"f1": 0.9, "accuracy": 0.85}, arm="aaa", variant="tupe", origin="grafted")
    bench.plan()
    scores = open_board(bench.path).scores[list(SCORE_COLUMNS)]
    assert scores[["arm", "split", "metric", "value"]].values.tolist() == [
        ["add", "validation_matched", "accuracy", 80.0],
        ["add", "validation_mismatched", "accuracy", 70.0],
        ["aaa", "validation", "accuracy", 85.0],
        ["aaa", "validation", "f1", 90.0],
    ]
    assert scores.iloc[2][["variant", "origin", "task", "learning_rate", "seed"]].tolist() == [
        "tupe", "grafted", "mrpc", 2e-5, 1,
    ]  # fmt: skip


def test_expected_cells_without_a_record_are_missing(bench):
    bench.finish(seed=1)
    bench.expect(seed=2)
    bench.plan()
    board = open_board(bench.path)
    assert board.missing["cell_id"].tolist() == ["add-rte-lr2e-05-s2"]
    assert len(board.cells) == 2


def test_records_outside_the_plan_are_left_out_and_counted(bench):
    bench.finish(seed=1, value=0.5)
    stale = bench.expect(seed=1, rate=9e-5)
    bench.cells.remove(stale)
    bench.record(stale, value=0.9)
    bench.plan()
    results = read_results(bench.path)
    assert results.left_out == 1
    assert results.scores["value"].tolist() == [50.0]


def test_without_a_plan_nothing_is_known(bench):
    bench.finish(seed=1)
    with pytest.raises(UserError, match=r"no plan\.json"):
        read_results(bench.path)


def test_a_damaged_record_is_a_problem_and_its_cell_is_missing(bench):
    for seed in (1, 2):
        bench.finish(seed=seed)
    bench.plan()
    (bench.path / "records" / f"{bench.cells[0]['cell_id']}.json").write_text("{")
    results = read_results(bench.path)
    assert results.cells["finished"].tolist() == [False, True]
    (problem,) = results.problems
    assert problem.startswith("records/add-rte-lr2e-05-s1.json: not valid JSON")


def test_an_undefined_score_is_nan(bench):
    bench.finish("stsb", 1, None)
    bench.plan()
    assert all(math.isnan(value) for value in read_results(bench.path).scores["value"])


@pytest.mark.parametrize(
    ("cell", "message"),
    [({"task": "rtee"}, "unknown task 'rtee'.*'rte'"), ({"origin": "graftd"}, "unknown origin.*'grafted'")],
)
def test_unknown_names_are_the_users_to_fix(bench, cell, message):
    bench.cells.append({**bench.expect(), **cell})
    bench.plan()
    with pytest.raises(UserError, match=message):
        read_results(bench.path)


def test_the_data_source_is_what_the_records_say(bench):
    bench.expect(seed=1)
    bench.plan()
    assert read_results(bench.path).data_source == "tsv"
    bench.record(bench.cells[0], source="demo", partial=True)
    results = read_results(bench.path)
    assert (results.data_source, results.partial_tasks) == ("demo", ("rte",))


# Seeds of pretraining


@pytest.fixture
def two_pretrainings(bench):
    """Every task, pretrained with seeds 1 and 2 and fine-tuned with seed 1; scores differ by the pretraining."""
    for seed, value in ((1, 0.6), (2, 0.8)):
        for task in TRAINABLE:
            cell = bench.expect(task, 1)
            cell |= {"cell_id": f"{cell['cell_id']}-p{seed}", "steps": 9, "pretraining_seed": seed}
            bench.record(cell, value)
    return bench


def test_runs_after_two_pretrainings_are_two_runs_of_one_arm(two_pretrainings):
    folder = two_pretrainings.plan()
    board = open_board(folder)
    for frame in (board.cells, board.scores, board.choosing):
        assert set(frame["pretraining_seed"]) == {1, 2}
    (row,) = leaderboard(folder).to_dict("records")
    assert (row["rte"], row["rte_n"]) == (pytest.approx(70), 2)
    assert row["rte_std"] == pytest.approx(math.sqrt(200))
    assert row["average_official"] == pytest.approx(70)
    assert row["average_official_std"] == pytest.approx(math.sqrt(200))
    header, *_ = tables(find(folder))["scores.csv"].splitlines()
    assert header == "arm,variant,origin,task,split,metric,learning_rate,pretraining_seed,seed,value"


def test_cells_of_earlier_versions_have_the_seed_of_their_plan(bench):
    bench.expect("cola")["steps"] = 9
    bench.expect("rte")
    bench.plan(config={"pretraining": {"seed": 5}})
    assert read_results(bench.path).after(9)["pretraining_seed"].tolist() == [5]


def test_without_pretraining_there_is_no_seed_of_one(bench):
    bench.finish()
    folder = bench.plan()
    assert read_results(bench.path).cells["pretraining_seed"].isna().all()
    assert "pretraining_seed" not in tables(find(folder))["scores.csv"]


def test_no_other_file_reads_records_for_people():
    package = Path(glue_bench.__file__).parent
    files = (package / "tables").rglob("*.py")
    assert {file.name for file in files if "records.store" in file.read_text()} == {"arrays.py", "results.py"}
