"""The committed results: records give the stored tables byte for byte, and configurations and data the stored ids."""

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
from glue_bench.records.stored import Finished, Stored
from glue_bench.sweep.plan import settle_jobs
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


def stored(folder: Path) -> Finished:
    """What the folder holds of its plan."""
    return Stored(folder).finished(Stored(folder).plan())


def tables(folder: Path) -> set[str]:
    """The files of a folder that are made from its records."""
    made = {path.name for kind in ("*.md", "*.csv") for path in folder.glob(kind)}
    return made - COLLECTED - {"README.md", "METHODS.md"}


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
def test_every_planned_cell_and_pretraining_is_there_and_nothing_else(folder):
    """Each with its record, its predictions and the commit that made it, which had no changes of its own."""
    plan, finished = Stored(folder).plan(), stored(folder)
    assert set(glue_bench.status(folder)["state"]) == {"done"}
    for kind, jobs in (("cells", plan.cells), ("pretrainings", plan.pretrainings)):
        there = {path.name for path in (folder / kind).glob("*")}
        assert there == {job.id for job in jobs}
    assert all(record.logits for record in finished.records.values())
    for record in [*finished.records.values(), *finished.pretrainings.values()]:
        assert re.fullmatch("[0-9a-f]{7,40}", record.environment.git_commit)


@each
def test_the_configuration_gives_the_stored_ids(folder):
    """What it reads outside the project is taken from the committed plan."""
    plan, experiment = Stored(folder).plan(), load_experiment(ROOT / "configs" / f"{folder.name}.yaml")
    inputs, cells = Inputs(experiment, folder), {cell.arm: cell for cell in plan.cells}
    if plan.pretrainings:
        inputs.corpus = SimpleNamespace(digest=plan.pretrainings[0].corpus)
    else:
        inputs.fingerprint = lambda arm: cells[arm.name].checkpoint
    inputs.data = plan.tasks.get
    inputs.tokenizer_digest = lambda arm: cells[arm.name].tokenizer
    inputs.origin = lambda arm: cells[arm.name].origin
    assert settle_jobs(experiment, inputs) == ([*plan.pretrainings], [*plan.cells])


@pytest.mark.skipif(not (SHARED / "text").is_dir(), reason="no ../shared here")
@pytest.mark.parametrize("name", [pytest.param("study", marks=pytest.mark.slow), "study_screen"])
def test_with_the_real_data_nothing_would_run_again(name):
    where = {"data": str(SHARED / "glue"), "corpus": [str(SHARED / "text")], "results": ROOT / "results"}
    cells = glue_bench.plan(ROOT / "configs" / f"{name}.yaml", **where)
    assert set(cells["state"]) == {"done"}
    assert set(cells["why"]) == {""}
    assert set(cells["cell_id"]) == {path.name for path in (ROOT / "results" / name / "cells").iterdir()}


@pytest.mark.skipif(not (SHARED / "glue").is_dir(), reason="no ../shared here")
def test_the_data_are_what_the_records_say():
    source = open_source(str(SHARED / "glue"))
    seen = {(cell.task, cell.data) for folder in FOLDERS for cell in Stored(folder).plan().cells}
    assert dict(seen) == {task: source.load(task).digest for task, _ in seen}
    assert len(dict(seen)) == len(seen)


@each
def test_arms_are_described_as_a_run_would_do_now(folder):
    plan = Stored(folder).plan()
    origins = {cell.arm: SCRATCH if cell.origin == "pretrained" else cell.origin for cell in plan.cells}
    for arm in plan.experiment.arms:
        assert plan.arms[arm.name].summary == VARIANTS[arm.variant].described(arm.options, origins[arm.name])


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
