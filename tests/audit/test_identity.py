"""Ids follow from what plans and records say, whatever the cell starts from."""

import io

import pytest
from rich.console import Console
from stored import read_records

from glue_bench.api import run
from glue_bench.audit.identity import known
from glue_bench.config import parse_experiment
from glue_bench.records.store import Store
from glue_bench.sweep.records import plan_of


def test_those_of_a_finished_experiment(finished):
    store = Store(finished)
    cells = known(store, store.read_plan())
    assert len(cells.planned) == len(cells.records) == 6
    for name, cell in cells.planned.items():
        assert cell.id(cells.identity(name).digest) == name
        assert cells.identity(name) == cells.records[name].identity(cells.pretrainings)


@pytest.mark.usefixtures("small_demo")
def test_those_of_a_plugin_and_of_a_checkpoint(tiny, make_bert, write_plugin, tmp_path, monkeypatch):
    monkeypatch.setattr("glue_bench.testing.check_contract", lambda *_: None)  # it takes seconds
    texts = ("a cat sat on the mat", "the dog ran")
    arms = [{"variant": "mine", "name": "m"}, {"variant": "add", "checkpoint": str(make_bert(texts=texts))}]
    values = tiny(arms=arms, tasks=["cola"], plugins=[str(write_plugin())], finetuning={"held_out_share": 0.25})
    summary = run(values, results=tmp_path, console=Console(file=io.StringIO()))
    assert (summary.finished, summary.failed) == (2, {})
    plan = Store(summary.folder).read_plan()
    assert plan_of(parse_experiment(values), summary.folder).document() == plan.document()
    assert plan.arms["m"].plugin
    records = {record.cell_id: record for record in read_records(Store(summary.folder))}
    for cell in plan.cells:
        assert cell.id(plan.identity(cell).digest) == cell.cell_id
        assert records[cell.cell_id].identity({}) == plan.identity(cell)


def test_a_record_without_the_tokenizer_has_its_pretrainings(finished):
    cells = known(Store(finished), None)
    name, record = next(iter(cells.records.items()))
    older = record.model_copy(update={"tokenizer": None})
    assert record.cell.id(older.identity(cells.pretrainings).digest) == name
    assert older.identity({}).tokenizer == ""
