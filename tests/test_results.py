"""The committed results: their tables are those of their records, and nothing else is in them."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from stored import documents

from glue_bench.config import SCRATCH, load_experiment
from glue_bench.data.metrics import score_logits
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.reporting.export import TABLES, write_tables
from glue_bench.reporting.papers.export import render
from glue_bench.sweep.older import as_stored
from glue_bench.sweep.plan import as_planned
from glue_bench.training.inputs import Inputs

RESULTS = Path(__file__).resolve().parents[1] / "results"
EXPERIMENTS = sorted(path.parent for path in RESULTS.glob("*/plan.json"))
each = pytest.mark.parametrize("folder", EXPERIMENTS, ids=lambda folder: folder.name)


def test_there_are_results():
    assert EXPERIMENTS


@each
def test_tables_are_those_of_the_records(folder, tmp_path):
    again = shutil.copytree(folder, tmp_path / folder.name)
    write_tables(again)
    assert contents(again) == contents(folder)


def contents(folder) -> dict[str, bytes]:
    """The tables that lie in a folder, those of an earlier plan included."""
    return {name: (folder / name).read_bytes() for name in TABLES if (folder / name).exists()}


@each
def test_the_papers_table_is_that_of_the_records(folder):
    assert (folder / "tupe-1.md").read_text() == render("tupe-1", folder)


@each
def test_gold_labels_lie_beside_the_predictions(folder):
    store = Store(folder)
    for record in documents(store):
        task = record["cell"]["task"]
        labels, logits = store.read_labels(task, record["data"]["digest"]), store.read_predictions(record["cell_id"])
        for split, scores in record["scores"].items():
            assert score_logits(task, logits[split], labels[split]) == pytest.approx(scores)


@each
def test_every_planned_cell_has_its_record_and_predictions(folder):
    store = Store(folder)
    assert {state for _, state in store.states()} == {"done"}
    for record in documents(store):
        assert store.read_predictions(record["cell_id"])
        assert record["environment"]["git_commit"]
        assert "+changes" not in record["environment"]["git_commit"]


@pytest.mark.parametrize("name", ["study", "study_screen"])
def test_the_study_runs_nothing_that_it_has(name):
    """Its configuration gives, on the texts of its plan, the ids of its records: none would be run once more."""
    experiment, store = load_experiment(RESULTS.parent / "configs" / f"{name}.yaml"), Store(RESULTS / name)
    plan, inputs = store.read_plan(), Inputs(experiment, store.folder / "checkpoints")
    inputs.corpus = SimpleNamespace(digest=plan.pretrainings[0].identity.corpus)
    inputs.data = lambda task: SimpleNamespace(digest=plan.tasks[task].data)
    inputs.tokenizer_digest = lambda arm, _recipe=None: plan.arms[arm.name].tokenizer
    inputs.origin = lambda arm: plan.arms[arm.name].origin
    cells = as_stored([as_planned(cell, inputs) for cell in experiment.cells()], inputs, store)
    assert {planned.id for planned in cells if store.has_record(planned.id)} == store.ids("records")
    assert not [planned.id for planned in cells if not store.has_record(planned.id)]


@each
def test_the_data_are_what_the_records_say(folder):
    """Where the real data is at hand: its content is the one that the runs saw."""
    glue = RESULTS.parents[1] / "shared" / "glue"
    if not glue.is_dir():
        pytest.skip("no GLUE folder here")
    from glue_bench.data.sources import open_source

    source = open_source(str(glue))
    for task, digest in {(record["cell"]["task"], record["data"]["digest"]) for record in documents(Store(folder))}:
        assert digest == source.load(task).digest


@each
def test_arms_are_described_as_a_run_would_do_now(folder):
    plan = Store(folder).read_plan()
    for arm, facts in plan.arms.items():
        origin = SCRATCH if facts.origin == "pretrained" else facts.origin
        assert facts.summary == VARIANTS[facts.variant].described(plan.configured(arm).options, origin)
