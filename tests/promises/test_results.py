"""The committed results: records give the stored tables byte for byte, and configurations and data the stored ids."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import glue_bench
from glue_bench.cli import app
from glue_bench.config import SCRATCH, load_experiment
from glue_bench.data.sources import open_source
from glue_bench.data.tasks import TASKS
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.sweep.older import as_stored
from glue_bench.sweep.plan import as_planned
from glue_bench.training.inputs import Inputs

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
FOLDERS = sorted(path.parent for path in ROOT.glob("results/*/plan.json"))
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
COLLECTED = {"agreement.csv", "agreement-bf16.csv"}
"""Scores of transformers' Trainer, collected by hand."""
VERBS = {
    "leaderboard": ["leaderboard.md", "leaderboard.csv"],
    "statistics": ["statistics.md", "statistics.csv"],
    "table": ["tupe-1.md"],
}


def documents(folder: Path, kind: str) -> list[dict]:
    return [json.loads(path.read_bytes()) for path in sorted((folder / kind).glob("*.json"))]


def tables(folder: Path) -> set[str]:
    """The files of a folder that are made from its records."""
    made = {path.name for kind in ("*.md", "*.csv") for path in folder.glob(kind)}
    return made - COLLECTED - {"README.md"}


def test_there_are_results():
    assert {folder.name for folder in FOLDERS} >= {"minilm", "study", "study_screen"}


@each
def test_verbs_write_the_stored_tables_byte_for_byte(folder, tmp_path):
    for verb, names in VERBS.items():
        for name in names:
            words = [verb, *(["tupe-1"] if verb == "table" else []), str(folder), "-o", str(tmp_path / name)]
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, done.output
            assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


@each
def test_verify_finds_nothing_wrong(folder):
    """Digests, ids, that predictions give the scores, that records give all tables."""
    (found,) = glue_bench.verify(folder)
    assert found.faults == []


@each
def test_one_other_digit_in_any_table_is_a_fault(folder, tmp_path):
    again = shutil.copytree(folder, tmp_path / folder.name)
    for name in tables(folder):
        text = (again / name).read_text("utf-8")
        last = max(found.start() for found in re.finditer(r"\d", text))
        (again / name).write_text(f"{text[:last]}{(int(text[last]) + 1) % 10}{text[last + 1 :]}", "utf-8")
    (found,) = glue_bench.verify(again)
    assert {name for name in tables(folder) if not any(name in fault for fault in found.faults)} == set()


@each
def test_every_planned_cell_is_there_and_nothing_else(folder):
    """Each with its record, its predictions and the commit that made it, which had no changes of its own."""
    cells = glue_bench.status(folder)
    assert set(cells["state"]) == {"done"}
    assert set(cells["cell_id"]) == {path.stem for path in (folder / "records").iterdir()}
    assert set(cells["cell_id"]) == {path.stem for path in (folder / "predictions").iterdir()}
    for record in [*documents(folder, "records"), *documents(folder, "pretraining")]:
        assert re.fullmatch("[0-9a-f]{7,40}", record["environment"]["git_commit"])


@each
def test_the_configuration_gives_the_stored_ids(folder):
    """What it reads outside the project is taken from the committed plan and records."""
    experiment, store = load_experiment(ROOT / "configs" / f"{folder.name}.yaml"), Store(folder)
    plan, inputs = store.read_plan(), Inputs(experiment, folder / "checkpoints")
    records = documents(folder, "records")
    if plan.pretrainings:
        inputs.corpus = SimpleNamespace(digest=plan.pretrainings[0].identity.corpus)
    else:
        inputs.fingerprint = lambda _: records[0]["checkpoint"]["digest"]
    inputs.data = lambda task: SimpleNamespace(digest=plan.tasks[task].data)
    inputs.tokenizer_digest = lambda arm, _recipe=None: plan.arms[arm.name].tokenizer
    inputs.origin = lambda arm: plan.arms[arm.name].origin
    planned = as_stored([as_planned(cell, inputs) for cell in experiment.cells()], inputs, store)
    assert {cell.id for cell in planned} == {record["cell_id"] for record in records}


@pytest.mark.skipif(not (SHARED / "text").is_dir(), reason="no ../shared here")
@pytest.mark.parametrize("name", [pytest.param("study", marks=pytest.mark.slow), "study_screen"])
def test_the_configuration_gives_the_stored_ids_with_the_real_data(name):
    where = {"data": str(SHARED / "glue"), "corpus": [str(SHARED / "text")], "results": ROOT / "results"}
    cells = glue_bench.plan(ROOT / "configs" / f"{name}.yaml", **where)
    assert set(cells["state"]) == {"done"}
    assert set(cells["cell_id"]) == {path.stem for path in (ROOT / "results" / name / "records").iterdir()}


@pytest.mark.skipif(not (SHARED / "glue").is_dir(), reason="no ../shared here")
def test_the_data_are_what_the_records_say():
    source = open_source(str(SHARED / "glue"))
    seen = {
        (record["cell"]["task"], record["data"]["digest"])
        for folder in FOLDERS
        for record in documents(folder, "records")
    }
    assert dict(seen) == {task: source.load(task).digest for task, _ in seen}
    assert len(dict(seen)) == len(seen)


@each
def test_arms_are_described_as_a_run_would_do_now(folder):
    plan = Store(folder).read_plan()
    for arm, facts in plan.arms.items():
        origin = SCRATCH if facts.origin == "pretrained" else facts.origin
        assert facts.summary == VARIANTS[facts.variant].described(plan.configured(arm).options, origin)


@pytest.mark.parametrize("task", TASKS)
def test_the_digest_of_data_sees_every_text_and_label(task):
    """Ids are made of it: equal content gives an equal digest, and one other value or another order another one."""
    data = open_source("demo").load(task)
    for split, frame in data.splits.items():
        changed = {"order": frame.iloc[::-1]} | {name: frame.copy() for name in frame}
        for name in frame:
            changed[name].loc[1, name] = changed[name].loc[1, name] + (1 if name == "label" else " x")
        made = {name: replace(data, splits={**data.splits, split: other}).digest for name, other in changed.items()}
        assert data.digest not in made.values()
        assert len(set(made.values())) == len(made)
        assert replace(data, splits={**data.splits, split: frame.copy()}).digest == data.digest
    fewer = {name: frame for name, frame in data.splits.items() if name != split}
    assert replace(data, splits=fewer).digest != data.digest
