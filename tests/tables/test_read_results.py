import math
from pathlib import Path

import numpy as np
import pytest
from stored import DATA

import glue_bench
from glue_bench.data.tasks import TRAINABLE
from glue_bench.tables.board import open_board
from glue_bench.tables.export import find, tables
from glue_bench.tables.results import read_results


def test_a_damaged_record_is_a_problem_and_its_cell_is_missing(bench):
    for seed in (1, 2):
        bench.finish(seed=seed)
    bench.plan()
    bench.file("add-rte-lr2e-05-s1").write_text("{")
    results = read_results(bench.path)
    assert results.cells["finished"].tolist() == [False, True]
    (problem,) = results.problems
    assert problem.startswith("cells/add-rte-lr2e-05-s1/record.json: damaged or edited")


def test_what_baselines_score_is_told_from_stored_predictions_and_damaged_labels_are_a_problem(bench):
    gold = {"validation": np.array([0, 1, 1, 0])}
    bench.finish()
    bench.label("rte", gold, **{"bag of words": {"validation": np.array([0, 1, 0, 0])}, "always right": gold})
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
        for task in TRAINABLE:
            cell = bench.expect(task, 1)
            cell |= {"cell_id": f"{cell['cell_id']}-p{seed}", "steps": 9, "pretraining_seed": seed}
            bench.record(cell, value)
    board = open_board(bench.plan())
    for frame in (board.cells, board.scores, board.choosing):
        assert set(frame["pretraining_seed"]) == {1, 2}
    (row,) = board.table.to_dict("records")
    assert (row["rte"], row["rte_n"], row["average_official"]) == (pytest.approx(70), 2, pytest.approx(70))
    assert row["rte_std"] == row["average_official_std"] == pytest.approx(math.sqrt(200))
    header, *_ = tables(find(bench.path))["scores.csv"].splitlines()
    assert header == "arm,variant,origin,task,split,metric,learning_rate,pretraining_seed,seed,value"


def test_no_other_file_reads_records_for_people():
    package = Path(glue_bench.__file__).parent
    files = (package / "tables").rglob("*.py")
    found = {file.name for file in files if "records.store" in file.read_text()}
    assert found == {"results.py", "card.py"}
