"""Runs on a part of the rows: what they train on, and that they say so."""

import json

import pytest

from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.data.demo import generate
from glue_bench.data.schema import TaskData, limited

pytestmark = pytest.mark.usefixtures("small_demo")


def test_fewer_rows_are_among_more_in_their_order_and_tests_stay_whole():
    data = TaskData("rte", "tsv", generate("rte"))
    some, more = limited(data, 5), limited(data, 9)
    for name in ("train", "validation"):
        chosen = [list(each.splits[name].itertuples(index=False)) for each in (some, more, data)]
        assert [len(rows) for rows in chosen[:2]] == [5, 9]
        places = [chosen[2].index(row) for row in chosen[0]]
        assert places == sorted(places)
        assert set(chosen[0]) <= set(chosen[1]) <= set(chosen[2])
    assert some.splits["test"] is data.splits["test"]
    assert (some.source, some.partial) == ("tsv, limited to 5 rows", True)
    assert some.digest != more.digest
    assert limited(data, 10_000) is data


def test_a_limited_run_is_no_benchmark_in_records_and_tables(tiny, tmp_path):
    experiment = tiny(arms=["add"], tasks=["RTE"], limit=12)
    summary = run(experiment, results=tmp_path, limit=8)
    [path] = (summary.folder / "records").glob("*.json")
    data = json.loads(path.read_text())["data"]
    assert (data["source"], data["partial"]) == ("demo, limited to 8 rows", True)
    assert (data["rows"]["train"], data["rows"]["validation"]) == (8, 8)
    assert "limited to 8 rows" in (summary.folder / "leaderboard.csv").read_text()
    assert run(experiment, results=tmp_path, limit=8, dry_run=True).skipped == 1
    assert run(experiment, results=tmp_path, dry_run=True).skipped == 0


def test_max_steps_is_part_of_an_id_only_where_it_is_given(tiny):
    plain, cut = (
        next(parse_experiment(tiny(finetuning=more)).cells()).hyperparameters.model_dump(exclude_none=True)
        for more in ({}, {"max_steps": 7})
    )
    assert "max_steps" not in plain
    assert cut == plain | {"max_steps": 7}


def test_tasks_are_named_in_any_case_and_once(tiny):
    named = parse_experiment(tiny(tasks=["RTE", "SST-2", "stsB", "MNLI"], finetuning={"tasks": {"RTE": {"epochs": 2}}}))
    assert named.tasks == ["rte", "sst2", "stsb", "mnli"]
    assert named.finetuning.tasks["rte"].epochs == 2
    with pytest.raises(Exception, match="given twice: rte"):
        parse_experiment(tiny(tasks=["rte", "RTE"]))
