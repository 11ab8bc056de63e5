"""The files of an experiment's folder, and the command that matters next."""

import csv
import json
from io import StringIO

import pytest

from glue_bench.board.compare import open_comparison
from glue_bench.data.tasks import TRAINABLE
from glue_bench.pages.files import next_step, write_tables
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.render import to_csv, to_json

STATISTICS = "glue-bench statistics toy  # the intervals behind the marks"


def test_bytes_depend_only_on_plan_and_scores_and_tables_of_an_earlier_plan_do_not_stay(
    bench, new_bench
):
    for number, task in enumerate(TRAINABLE):
        bench.finish(task, 1, 0.5 + 0.0123 * number)
    bench.expect("rte", 3)
    other = new_bench("other")
    other.cells, other.arms = bench.cells, bench.arms
    for cell in reversed(bench.cells[:-1]):
        other.record(cell, bench.runs[cell["cell_id"]][1]["scores"], seconds=99.0)
    written = [write_tables(open_comparison(each.plan())) for each in (bench, other)]
    assert [path.name for path in written[0]][:2] == ["leaderboard.md", "leaderboard.csv"]
    for mine, theirs in zip(*written, strict=True):
        assert mine.read_bytes() == theirs.read_bytes()
    (bench.path / "notes.md").write_text("mine")
    bench.cells = [cell for cell in bench.cells if cell["task"] == "rte"]
    names = {path.name for path in write_tables(open_comparison(bench.plan()))}
    assert {path.name for path in written[0]} - names == {"averages.csv"}
    assert {path.name for path in bench.path.glob("*.[cm][sd]*")} == names | {"notes.md"}


def test_csv_and_json_say_what_the_data_is_and_what_is_missing_and_scores_are_tidy(bench):
    bench.finish("mrpc", 3, {"accuracy": 2 / 3, "f1": None}, rate=3e-5, partial=True)
    bench.plan()
    assert write_tables(open_comparison(bench.path))[2].read_text() == (
        "arm,variant,origin,task,split,metric,learning_rate,seed,value\n"
        "add,add,pretrained,mrpc,validation,accuracy,3e-05,3,66.6667\n"
        "add,add,pretrained,mrpc,validation,f1,3e-05,3,\n"
    )
    page = leaderboard_page(open_comparison(bench.path))
    (row,), (first, *_) = json.loads(to_json(page))["rows"], csv.DictReader(StringIO(to_csv(page)))
    assert (row["mrpc_std"], first["mrpc_std"]) == (None, "")
    assert (first["data_source"], first["partial_tasks"]) == ("tsv", "mrpc")


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
            "glue-bench init NAME  # writes an experiment file, to change and run",
        ),
        (
            {"arms": 1},
            "glue-bench table NAME toy  # beside a paper's table; glue-bench table lists them",
        ),
        (
            {"arms": 1, "seeds": 2},
            "the same glue-bench run  # with seeds: [1, 2, 3] in the experiment",
        ),
        ({"steps": 100}, f"{STATISTICS}; seeds: [1, 2, 3] under pretraining tell more"),
        (
            {"steps": 100, "pretrained": 2},
            f"{STATISTICS}; seeds: [1, 2, 3] under pretraining tell more",
        ),
        ({"seeds": 2}, f"{STATISTICS}; seeds: [1, 2, 3] in the experiment tell more"),
    ],
    ids=str,
)
def test_the_next_step_follows_from_what_is_there(bench, change, command):
    for arm in ("add", "concat")[: change.get("arms", 2)]:
        for seed in range(change.get("seeds", 3)):
            bench.finish("rte", seed + 1, 0.5, arm=arm, source=change.get("source", "tsv"))
            bench.cells[-1] |= {
                "steps": change.get("steps"),
                "pretraining_seed": seed % change.get("pretrained", 1) + 1,
            }
    if change.get("missing"):
        bench.expect("rte", 9)
    comparison = open_comparison(bench.plan(experiment=change.get("name", "toy")))
    has_only = change.get("has_only", False)
    assert next_step(comparison, "toy", change.get("failed", ()), has_only=has_only) == command
