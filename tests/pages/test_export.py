"""The files of an experiment's folder, and the command that matters next."""

import csv
import json
from io import StringIO

import pytest

from glue_bench.board.compare import open_comparison
from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.data.tasks import TRAINABLE
from glue_bench.pages.files import next_step, write_tables
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.render import to_csv, to_json

STATISTICS = "glue-bench statistics toy  # the intervals behind the marks"
UNDER_PRETRAINING = f"{STATISTICS}; seeds: [1, 2, 3] under pretraining tell more"


def write(bench):
    """Write the tables of a bench, and return their paths by name."""
    return {path.name: path for path in write_tables(open_comparison(bench.plan()))}


@pytest.fixture
def of_all_tasks(bench):
    """A bench with a run of each task, and one that is missing."""
    for number, task in enumerate(TRAINABLE):
        bench.finish(task, seed=1, score=0.5 + 0.0123 * number)
    bench.expect("rte", seed=3)
    return bench


def test_bytes_depend_only_on_plan_and_scores(of_all_tasks, new_bench):
    slower = new_bench("other")
    slower.cells = of_all_tasks.cells
    slower.arms = of_all_tasks.arms
    for cell in reversed(of_all_tasks.cells[:-1]):
        _, facts = of_all_tasks.runs[cell["cell_id"]]
        slower.record(cell, score=facts["scores"], seconds=99.0)
    files = write(of_all_tasks)
    files_of_slower = write(slower)
    assert list(files) == list(files_of_slower)
    assert list(files)[:2] == ["leaderboard.md", "leaderboard.csv"]
    for name, path in files.items():
        assert path.read_bytes() == files_of_slower[name].read_bytes()


def test_tables_of_an_earlier_plan_do_not_stay(of_all_tasks):
    before = write(of_all_tasks).keys()
    (of_all_tasks.path / "notes.md").write_text("mine")
    of_all_tasks.cells = [cell for cell in of_all_tasks.cells if cell["task"] == "rte"]
    after = write(of_all_tasks).keys()
    assert before - after == {"averages.csv"}
    stored = {path.name for path in of_all_tasks.path.glob("*.[cm][sd]*")}
    assert stored == after | {"notes.md"}


@pytest.fixture
def undefined_score(bench):
    """A bench with one run on a part of the data; one of its scores is undefined."""
    bench.finish("mrpc", seed=3, score={"accuracy": 2 / 3, "f1": None}, rate=3e-5, partial=True)
    return bench


def test_scores_are_tidy(undefined_score):
    assert write(undefined_score)["scores.csv"].read_text() == (
        "arm,variant,origin,task,split,metric,learning_rate,seed,value\n"
        "add,add,pretrained,mrpc,validation,accuracy,3e-05,3,66.6667\n"
        "add,add,pretrained,mrpc,validation,f1,3e-05,3,\n"
    )


def test_csv_and_json_name_the_data_and_the_missing_runs(undefined_score):
    page = leaderboard_page(open_leaderboard(undefined_score.plan()))
    csv_row = next(csv.DictReader(StringIO(to_csv(page))))
    assert csv_row["mrpc_std"] == ""
    assert csv_row["data_source"] == "tsv"
    assert csv_row["partial_tasks"] == "mrpc"
    (json_row,) = json.loads(to_json(page))["rows"]
    assert json_row["mrpc_std"] is None


@pytest.mark.parametrize(
    ("change", "command"),
    [
        ({"failed": ("a",)}, "glue-bench status toy  # why runs have failed"),
        ({"missing": True}, "the same glue-bench run  # it goes on with what is missing"),
        (
            {"missing": True, "has_only": True},
            "the same glue-bench run without --only  # it goes on with what is missing",
        ),
        ({"source": "demo"}, STATISTICS),
        (
            {"source": "demo", "name": "demo"},
            "glue-bench init NAME --pretrain  # writes the demo's experiment, to change and run",
        ),
        (
            {"arms": 1},
            "glue-bench table NAME toy  # beside a paper's table; glue-bench table lists them",
        ),
        (
            {"arms": 1, "seeds": 2},
            "the same glue-bench run  # with --seed 1,2,3 (in a file seeds: [1, 2, 3])",
        ),
        ({"steps": 100}, UNDER_PRETRAINING),
        ({"steps": 100, "pretrained": 2}, UNDER_PRETRAINING),
        ({"seeds": 2}, f"{STATISTICS}; --seed 1,2,3 (in a file seeds: [1, 2, 3]) tell more"),
    ],
)
def test_the_next_step_follows_from_the_state_of_the_folder(bench, change, command):
    arms = ("add", "concat")[: change.get("arms", 2)]
    pretrainings = change.get("pretrained", 1)
    for arm in arms:
        for seed in range(change.get("seeds", 3)):
            cell = bench.finish("rte", seed=seed + 1, arm=arm, source=change.get("source", "tsv"))
            cell["steps"] = change.get("steps")
            cell["pretraining_seed"] = seed % pretrainings + 1
    if change.get("missing"):
        bench.expect("rte", seed=9)
    comparison = open_comparison(bench.plan(experiment=change.get("name", "toy")))
    failed = change.get("failed", ())
    has_only = change.get("has_only", False)
    assert next_step(comparison, "toy", failed, has_only=has_only) == command
