"""The diagnostic set beside MNLI: predicted by its models, and no part of what a cell is."""

import pytest
from stored import read_records

from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.data.demo import generate
from glue_bench.data.hub import HubSource
from glue_bench.data.sources import DemoSource
from glue_bench.data.tasks import AX_SPLIT, TRAINABLE
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.plan import plan_cells
from glue_bench.tables.results import read_results
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")
BOTH = {"predict": ["validation", "test"]}


class WithoutAx(DemoSource):
    """The demo as a folder that lacks AX."""

    def tasks(self) -> list[str]:
        return list(TRAINABLE)


class BrokenAx(DemoSource):
    """A source whose AX cannot be read."""

    def load(self, task):
        if task == "ax":
            raise UserError("AX/diagnostic.tsv is damaged")
        return super().load(task)


class OfflineHub(BrokenAx, HubSource):
    """The hub out of reach, with MNLI in its cache."""


@pytest.fixture
def inputs(tiny):
    def make(source=None) -> Inputs:
        made = Inputs(parse_experiment(tiny(tasks=["mnli", "rte"], arms=["add"], finetuning=BOTH)))
        if source is not None:
            made.source = source
        return made

    return make


def tokens(inputs, task):
    return inputs.tokens(next(cell for cell in inputs.experiment.cells() if cell.task == task))


def test_mnli_brings_it_and_no_other_task_does(inputs):
    made = inputs()
    assert len(tokens(made, "mnli").splits[AX_SPLIT]) == len(generate("ax")["test"])
    assert AX_SPLIT not in tokens(made, "rte").splits
    assert made.diagnostic("rte") is None


@pytest.mark.parametrize("source", [WithoutAx(), OfflineHub()], ids=["absent", "out of reach"])
def test_mnli_is_trained_where_there_is_none(inputs, source):
    made = inputs(source)
    assert AX_SPLIT not in tokens(made, "mnli").splits
    assert plan_cells(made.experiment, made)


def test_damage_is_said_before_any_compute(inputs):
    made = inputs(BrokenAx())
    with pytest.raises(UserError, match="is damaged"):
        plan_cells(made.experiment, made)


def test_it_changes_no_cells_id(inputs):
    ids = [[cell.id for cell in plan_cells(made.experiment, made)] for made in (inputs(), inputs(WithoutAx()))]
    assert ids[0] == ids[1]


def test_it_cannot_be_trained(tiny):
    with pytest.raises(UserError, match="unknown task 'ax'"):
        parse_experiment(tiny(tasks=["ax"]))


def test_it_is_said_beside_the_predictions_which_one_was_predicted(tiny, tmp_path):
    run(tiny(tasks=["mnli", "rte"], arms=["add"], finetuning=BOTH), results=tmp_path)
    store = Store(tmp_path / "tiny")
    told = {record.cell.task: store.tests.read(record.cell_id).diagnostic for record in read_records(store)}
    assert told == {"mnli": DemoSource().load("ax").digest, "rte": None}


def test_without_tests_it_is_not_looked_at(tiny):
    made = Inputs(parse_experiment(tiny(tasks=["mnli"], arms=["add"])))
    made.source = BrokenAx()
    assert plan_cells(made.experiment, made)
    assert [name for name in tokens(made, "mnli").splits if name.startswith("test")] == []


def test_predictions_of_mnli_do_not_depend_on_it(tiny, tmp_path, monkeypatch):
    found = []
    for name in ("with", "without"):
        if name == "without":
            monkeypatch.setattr("glue_bench.data.sources.DemoSource", WithoutAx)
        run(tiny(tasks=["mnli"], arms=["add"], finetuning=BOTH), results=tmp_path / name)
        store = Store(tmp_path / name / "tiny")
        found.append(read_results(store.folder).arrays.predicted(read_records(store)[0].cell_id))
    assert set(found[0]) - set(found[1]) == {AX_SPLIT}
    assert all((found[0][split] == logits).all() for split, logits in found[1].items())
