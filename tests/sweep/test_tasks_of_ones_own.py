"""A task of one's own on its way through a sweep to the tables, beside the same rows of GLUE."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import glue_bench
from glue_bench.board.board import open_board
from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.data.tasks import KNOWN, find_task
from glue_bench.records.store import open_store
from glue_bench.sweep.worker import make_worker

TASK = {
    "name": "Mine",
    "files": {"train": "train.csv", "validation": "dev.csv"},
    "texts": "text",
    "labels": ["no", "yes"],
}
SPLITS = ("train", "validation", "test")


def write_rte(folder: Path) -> None:
    """Write the demo's rows of RTE as CSV, with labels as words."""
    labels = dict(enumerate(find_task("rte").labels)) | {-1: ""}
    for split in SPLITS:
        frame = generate("rte")[split]
        frame.assign(label=frame["label"].map(labels)).to_csv(folder / f"{split}.csv", index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny) -> Path:
    """Results of RTE and of an own task with the same rows."""
    from glue_bench.data import demo

    place = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "ROWS", {"train": 48, "validation": 24, "test": 12})
        demo.generate.cache_clear()
        write_rte(place)
        twin = {
            "name": "Twin",
            "files": {split: str(place / f"{split}.csv") for split in SPLITS},
            "texts": ["text_a", "text_b"],
            "labels": list(find_task("rte").labels),
        }
        experiment = tiny(
            tasks=["rte", twin],
            seeds=[1, 2],
            finetuning={"epochs": 3, "predict": ["validation", "test"]},
        )
        glue_bench.run(experiment, results=place / "runs")
    demo.generate.cache_clear()
    return place / "runs/tiny"


def records_of(folder: Path, task: str) -> list:
    store = open_store(folder)
    plan = store.plan()
    finished = store.finished(plan)
    return [finished.records[cell.id] for cell in plan.cells if cell.task == task]


def pairs(folder: Path) -> list[tuple]:
    return list(zip(records_of(folder, "rte"), records_of(folder, "twin"), strict=True))


def test_the_scores_are_those_of_rte_to_the_last_bit(folder):
    assert len(pairs(folder)) == 4
    for rte, twin in pairs(folder):
        assert rte.scores == twin.scores
        assert rte.history == twin.history


@pytest.mark.parametrize("is_test", [False, True])
def test_the_predictions_are_those_of_rte_to_the_last_bit(folder, is_test):
    store = open_store(folder)
    for rte, twin in pairs(folder):
        expected = store.logits(rte, test=is_test)
        logits = store.logits(twin, test=is_test)
        assert expected.keys() == logits.keys()
        for split, values in expected.items():
            np.testing.assert_array_equal(values, logits[split])


def test_the_ids_differ_as_the_names_do(folder):
    for rte, twin in pairs(folder):
        assert rte.cell.id != twin.cell.id
        assert twin.cell.id.startswith(f"{twin.cell.arm}-twin-lr")


def test_the_plan_names_no_place(folder):
    content = (folder / "plan.json").read_text()
    assert str(folder.parent.parent) not in content
    assert "./train.csv" in content


def test_the_table_has_both_columns_and_an_average_of_glue_alone(folder):
    frame = glue_bench.leaderboard(folder)
    pd.testing.assert_series_equal(frame["rte"], frame["twin"], check_names=False)
    pd.testing.assert_series_equal(frame["average"], frame["rte"], check_names=False)


def test_the_title_of_the_average_says_what_it_is_of(folder):
    board = open_board(folder)
    assert board.titles["average"] == "GLUE avg. of 1"
    assert board.titles["twin"] == "Twin"


def test_the_statistics_compare_its_runs(folder):
    frame = glue_bench.statistics(folder)
    columns = frame.set_index("column").loc[["rte", "twin"]]
    assert columns.loc["rte", "difference"] == columns.loc["twin", "difference"]


def test_its_predictions_are_exported(folder):
    frame = glue_bench.predictions(folder, task="Twin")
    assert set(frame["task"]) == {"twin"}


def test_a_worker_in_another_process_knows_the_task(folder, tiny):
    experiment = load_experiment(tiny(tasks=[TASK]))
    del KNOWN["mine"]
    make_worker(pickle.loads(pickle.dumps(experiment)), folder)
    assert KNOWN["mine"].labels == ("no", "yes")


def test_the_second_run_finds_all_done(folder):
    states = glue_bench.status(folder)
    assert set(states["state"]) == {"done"}
