"""Budgets and loss curves beside the leaderboard: what each arm cost and learnt, and whether all saw the same."""

import csv
import io
import json

import pytest
from rich.console import Console
from stored import documents

from glue_bench.api import run
from glue_bench.records.store import Store

pytestmark = pytest.mark.usefixtures("small_demo")


def rows(path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_budget_says_what_each_arm_cost_and_learnt(sweep):
    summary = sweep(arms=["add", "untied", {"variant": "concat", "name": "joined"}])
    found = {row["arm"]: row for row in rows(summary.folder / "budget.csv")}
    records = {record["arm"]: record for record in documents(Store(summary.folder), "pretraining")}
    assert list(found) == ["add", "untied", "joined"]
    assert found["joined"]["variant"] == "concat"
    for arm, row in found.items():
        assert row["origin"] == "pretrained"
        assert int(row["steps"]) == 10
        assert int(row["tokens"]) == records[arm]["tokens"]
        assert row["stream"] == records[arm]["stream"]
        assert float(row["train_loss"]) == records[arm]["train_loss"]
        assert float(row["validation_loss"]) == records[arm]["losses"][-1]["validation_loss"]
        assert float(row["tokens_per_second"]) > 0
        assert int(row["parameters"]) - int(row["added_over_add"]) == int(found["add"]["parameters"])
    assert len({row["stream"] for row in found.values()}) == 1
    text = (summary.folder / "budget.md").read_text()
    assert text.startswith("# Budgets: tiny\n")
    shown = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| joined")
    ]
    assert shown[0][:4] == ["joined", "concat", "pretrained", f"{int(found['joined']['parameters']):,}"]
    assert shown[0][-3] == f"{float(found['joined']['validation_loss']):.3f}"
    assert float(shown[0][-1]) == pytest.approx(float(found["joined"]["swap_1"]), abs=0.05)
    assert f"All 3 pretrained arms saw the same tokens, masks and order (hash {found['add']['stream'][:12]})." in text
    assert "encoder at 32 tokens" in text


def test_arms_that_did_not_see_the_same_are_told(sweep, finished, values):
    folder = finished(values()).folder
    path = next((folder / "pretraining").glob("add-*.json"))
    stored = json.loads(path.read_text())
    del stored["digest"]  # a record of an earlier version has none
    path.write_text(json.dumps(stored | {"stream": "0" * 64}))
    sweep()
    assert (
        "**The pretrained arms did not all see the same tokens, masks and order" in (folder / "budget.md").read_text()
    )


def test_loss_curves_are_written_for_the_arms_of_the_plan(sweep, finished, values):
    folder = finished(values()).folder
    found = rows(folder / "losses.csv")
    assert list(found[0]) == ["arm", "step", "tokens", "train_loss", "validation_loss", "seconds"]
    assert [(row["arm"], row["step"]) for row in found] == [
        (arm, str(step)) for arm in ("add", "untied") for step in range(1, 11)
    ]
    assert [bool(row["validation_loss"]) for row in found[:10]] == [step in (5, 10) for step in range(1, 11)]
    sweep(arms=["untied"])
    assert {row["arm"] for row in rows(folder / "losses.csv")} == {"untied"}


def test_without_pretraining_there_is_no_budget(tiny, finished, values):
    folder = finished(values()).folder
    (folder / "budget.md").unlink()
    run(tiny(tasks=["cola"]), results=folder.parent, console=Console(file=io.StringIO()))
    assert not (folder / "budget.md").exists()
