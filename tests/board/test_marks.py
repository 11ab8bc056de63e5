"""The marks of an arm's runs stand in frames, CSV and JSON, as they do on the page."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest

import glue_bench
from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.marks import MARKS_NOTE
from glue_bench.pages.render import to_csv, to_json

EPYC = {"processor": "AMD EPYC", "device": "cpu", "precision": "float32"}
XEON = {"processor": "Intel Xeon", "device": "cpu", "precision": "float32"}


@pytest.fixture
def path(bench):
    """Three arms on two tasks.

    `none` collapsed on RTE, `late` lacks a run of SST-2, and ran on another processor.
    """
    for arm, task, seed in product(("add", "none", "late"), ("rte", "sst2"), (1, 2, 3)):
        cell = bench.expect(task, seed=seed, arm=arm)
        if (arm, task, seed) == ("late", "sst2", 3):
            continue
        collapsed = ("validation",) if (arm, task, seed) == ("none", "rte", 2) else ()
        environment = XEON if arm == "late" else EPYC
        bench.record(cell, score=0.5 + seed / 100, collapsed=collapsed, environment=environment)
        bench.predict(cell["cell_id"], {"validation": np.eye(2)[[0, 1]]})
    return bench.plan()


def test_a_run_with_one_answer_to_everything_is_named_by_its_column(path):
    frame = glue_bench.leaderboard(path).set_index("arm")
    collapsed = frame["collapsed"].loc[["add", "none", "late"]]
    expected = {"add": "", "none": "rte", "late": ""}
    assert collapsed.to_dict() == expected


def test_fewer_runs_than_planned_are_named_with_the_average_that_they_enter(path):
    frame = glue_bench.leaderboard(path).set_index("arm")
    incomplete = {"add": "", "none": "", "late": "average;sst2"}
    assert frame["incomplete"].loc[["add", "none", "late"]].to_dict() == incomplete


def test_another_processor_than_the_references_is_marked(path):
    frame = glue_bench.leaderboard(path).set_index("arm")
    unlike = frame["unlike_reference"].loc[["add", "none", "late"]]
    expected = {"add": False, "none": False, "late": True}
    assert unlike.to_dict() == expected


@pytest.fixture
def by_rate(bench):
    """Two arms whose runs at the lower rate ran on one processor, and at the higher on another."""
    machines = {2e-5: EPYC, 3e-5: XEON}
    for arm, (rate, machine), seed in product(("add", "none"), machines.items(), (1, 2, 3)):
        is_better = (arm == "add") == (rate == 2e-5)
        cell = bench.expect("rte", seed=seed, arm=arm, rate=rate)
        bench.record(cell, score=0.6 if is_better else 0.5, environment=machine)
        bench.predict(cell["cell_id"], {"validation": np.eye(2)[[0, 1]]})
    return bench


def test_no_reference_is_unlike_itself(by_rate):
    frame = glue_bench.leaderboard(by_rate.plan()).set_index("arm")
    assert not frame["unlike_reference"]["add"]


def test_processors_are_compared_among_the_reported_runs(by_rate):
    """The reference ran its best rate on one machine, and the arm on the other."""
    frame = glue_bench.leaderboard(by_rate.plan()).set_index("arm")
    assert frame["unlike_reference"]["none"]


def test_arms_with_equal_machines_at_the_reported_rate_have_no_mark(by_rate):
    for cell, facts in by_rate.runs.values():
        value = 0.6 if cell["learning_rate"] == 2e-5 else 0.5
        facts["scores"] = {"validation": {"accuracy": value}}
    frame = glue_bench.leaderboard(by_rate.plan())
    assert not frame["unlike_reference"].any()


def pretrain(bench, arm, environment):
    counts = np.full(300, 50)
    losses = (4.0 + 0.1 * (arm == "none") + 0.001 * np.arange(300)) * counts
    pieces = {"loss_sum": losses, "count": counts, "document": np.arange(300)}
    for seed in (1, 2, 3):
        bench.expect("rte", seed=seed, arm=arm)
        bench.pretrain(arm, seed=seed, pieces=pieces, environment=environment)


GPU = {"processor": "AMD EPYC", "device": "NVIDIA H100", "precision": "bf16"}


@pytest.mark.parametrize(("graphs", "is_unlike"), [(None, False), (False, False), (True, True)])
def test_a_run_with_graphs_is_unlike_one_without_or_an_older_one(bench, graphs, is_unlike):
    for arm, environment in {"add": GPU, "none": {**GPU, "graphs": graphs}}.items():
        bench.record(bench.expect("rte", arm=arm), score=0.5, environment=environment)
    frame = glue_bench.leaderboard(bench.plan()).set_index("arm")
    assert frame["unlike_reference"]["none"] == is_unlike


@pytest.mark.parametrize("fact", [{}, {"processor": "Intel Xeon"}, {"precision": "bf16"}])
def test_a_pretraining_on_another_machine_is_marked_before_any_fine_tuning_has_ended(bench, fact):
    pretrain(bench, "add", EPYC)
    pretrain(bench, "none", EPYC | fact)
    config = {"protocol": {"primary": "validation_loss"}, "pretraining": {}}
    frame = glue_bench.leaderboard(bench.plan(config=config)).set_index("arm")
    assert frame["validation_loss"][["add", "none"]].notna().all()
    unlike = frame["unlike_reference"][["add", "none"]]
    expected = {"add": False, "none": bool(fact)}
    assert unlike.to_dict() == expected


def test_a_precision_that_is_not_recorded_is_not_unlike(bench):
    for arm, environment in {"add": EPYC, "none": {**EPYC, "precision": None}}.items():
        bench.record(bench.expect("rte", arm=arm), score=0.5, environment=environment)
    assert not glue_bench.leaderboard(bench.plan())["unlike_reference"].any()


def texts_of(table) -> pd.DataFrame:
    """Return the texts of a table of a page."""
    rows = [[cell.text for cell in row] for row in table.rows]
    return pd.DataFrame(rows, columns=list(table.columns))


@pytest.fixture
def by_steps(bench):
    """After 4 steps a run is missing, and another gave one answer to everything.

    After 9 steps all is well.
    """
    for steps, task, seed in product((4, 9), ("rte", "sst2"), (1, 2)):
        cell = bench.expect(task, seed=seed)
        cell |= {"cell_id": f"{cell['cell_id']}-{steps}", "steps": steps, "pretraining_seed": 1}
        collapsed = ("validation",) if (steps, task, seed) == (4, "rte", 1) else ()
        if (steps, task, seed) != (4, "sst2", 2):
            bench.record(cell, score=0.5, collapsed=collapsed)
    return bench.plan()


def test_scores_against_steps_have_the_marks_of_their_own_runs(by_steps):
    table = leaderboard_page(open_leaderboard(by_steps)).tables[1]
    assert table.title == "Against steps of pretraining"
    texts = texts_of(table).set_index("steps")[["average", "rte", "sst2"]]
    assert texts.loc["4"].tolist() == ["50.00*", "50.00‡", "50.00*"]
    assert texts.loc["9"].tolist() == ["50.00", "50.00", "50.00"]
    assert MARKS_NOTE in table.legend


def test_csv_and_json_have_them_too(path):
    page = leaderboard_page(open_leaderboard(path))
    rows = {row["arm"]: row for row in json.loads(to_json(page))["rows"]}
    assert rows["none"]["collapsed"] == "rte"
    header = to_csv(page).splitlines()[0].split(",")
    columns = {"collapsed", "incomplete", "unlike_reference", "partial_tasks", "data_source"}
    assert columns <= set(header)


def test_baselines_have_none_of_them(path):
    frame = glue_bench.leaderboard(path)
    baselines = frame[frame["origin"] == "baseline"]
    assert baselines[["collapsed", "incomplete"]].eq("").all(axis=None)
    assert not baselines["unlike_reference"].any()


def test_the_page_has_the_marks_of_the_frame(path):
    table = leaderboard_page(open_leaderboard(path)).tables[0]
    texts = texts_of(table)
    by_arm = texts.assign(arm=texts["arm"].str.rstrip("◇")).set_index("arm")
    assert by_arm.loc["none", "rte"].endswith("‡")
    assert by_arm.loc["late", "sst2"].endswith("*")
    assert "late◇" in set(texts["arm"])
